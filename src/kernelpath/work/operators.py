"""Exercises whose entry is an operator with a gradient: how it is called, and whether torch.compile can work with it.

Importing this imports what torch compiles with, which takes seconds: the fork server does it once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch._dynamo
import torch._functorch.aot_autograd
import torch._library.custom_ops
import torch.testing._internal.optests
from torch.library import opcheck
from torch.utils._python_dispatch import TorchDispatchMode

from kernelpath.work.dispatch_monitor import is_defined_by_submission
from kernelpath.work.exception_findings import WrongOperator

_TESTS = ("test_schema", "test_faketensor")
_WITH_GRADIENT = ("test_autograd_registration",)


def with_gradient(entry: Callable[..., Any], names: Sequence[str] = ("x",)) -> Callable[..., tuple[Any, ...]]:
    """What takes the entry's arguments and a gradient for each of its outputs, and gives the outputs and the gradients
    that autograd gives to the arguments for these.

    names: of the arguments. What it gives raises WrongOperator where autograd knows no gradient.
    """

    def forward_and_backward(*given: torch.Tensor) -> tuple[Any, ...]:
        leaves = [one.detach().requires_grad_() for one in given[: len(names)]]
        made = entry(*leaves)
        outs = made if isinstance(made, tuple) else (made,)
        if any(type(out) is not torch.Tensor for out in outs):
            return *outs, None
        if not all(out.requires_grad for out in outs):
            told = "x requires grad and the output does not" if len(outs) == 1 else "an output does not require grad"
            raise WrongOperator(f"{told}: register a backward formula")
        try:
            gradients = torch.autograd.grad(outs, leaves, given[len(names) :], allow_unused=True)
        except RuntimeError as error:
            if "no autograd formula" in str(error):
                raise WrongOperator(str(error)) from error
            raise
        for name, gradient in zip(names, gradients, strict=True):
            if gradient is None:
                raise WrongOperator(f"the backward formula gives None for the gradient of {name}")
        return *(out.detach() for out in outs), *gradients

    return forward_and_backward


def inspect_operator(entry: Callable[..., Any], names: Sequence[str], *given: torch.Tensor) -> None:
    """Raise WrongOperator unless opcheck accepts the operators that the entry calls, and one graph holds it all.

    names: of the entry's arguments. given: those, and a gradient for each output. The graph is tried with other ones,
    too: those of a sum, one element with strides of 0.
    """
    recorded = _Recorded()
    with recorded:
        with_gradient(entry, names)(*given)
    if not recorded.forward:
        raise WrongOperator("it calls no operator of yours: register one with torch.library and call that")
    if not recorded.backward:
        raise WrongOperator(
            "the backward formula calls no operator of yours: torch.compile traces it, and cannot trace a launch"
        )
    for operator, arguments in recorded.forward.items():
        _opcheck(operator, _leaves(arguments, grad=True), (*_TESTS, *_WITH_GRADIENT))
    for operator, arguments in recorded.backward.items():
        _opcheck(operator, _leaves(arguments, grad=False), _TESTS)
    torch._dynamo.reset()
    compiled = torch.compile(lambda *x: entry(*x), fullgraph=True, dynamic=True, backend="aot_eager")
    inputs, upstream = given[: len(names)], given[len(names) :]
    ones = [torch.ones((), dtype=one.dtype, device=one.device).expand(one.shape) for one in upstream]
    for gradients in (upstream, ones):
        eager = with_gradient(entry, names)(*inputs, *gradients)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # autograd's, which name places of ours
                found = with_gradient(compiled, names)(*inputs, *gradients)
        except torch._dynamo.exc.TorchDynamoException as error:
            raise WrongOperator(f"torch.compile(fullgraph=True): {_first_lines(error)}") from error
        kinds = ["output"] * len(upstream) + ["gradient"] * len(names)
        for name, one, other in zip(kinds, eager, found, strict=True):
            if not torch.equal(one, other):
                raise WrongOperator(f"torch.compile(fullgraph=True): the {name} is not that of the plain call")


class _Recorded(TorchDispatchMode):
    """The operators of the submission that are called, each with the arguments of its first call.

    forward: those that the entry calls. backward: those of its formula.
    """

    def __init__(self) -> None:
        TorchDispatchMode.__init__(self)
        self.forward: dict[Any, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        self.backward: dict[Any, tuple[tuple[Any, ...], dict[str, Any]]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if is_defined_by_submission(func):
            calls = self.backward if torch._C._current_autograd_node() is not None else self.forward
            calls.setdefault(func, (args, dict(kwargs or {})))
        return func(*args, **(kwargs or {}))


def _leaves(call: tuple[tuple[Any, ...], dict[str, Any]], grad: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call, tensors as leaves of a graph of their own."""

    def leaf(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return value.detach().clone().requires_grad_(grad and value.is_floating_point())

    args, kwargs = call
    return tuple(map(leaf, args)), {name: leaf(value) for name, value in kwargs.items()}


def _opcheck(operator: Any, call: tuple[tuple[Any, ...], dict[str, Any]], tests: tuple[str, ...]) -> None:
    for test in tests:
        said = opcheck(operator, *call, test_utils=test, raise_exception=False)[test]
        if isinstance(said, Exception):
            cause = f"opcheck of {operator._schema.name}, {test}: {_first_lines(said)}"
            raise WrongOperator(cause, *_defined(operator)) from said


def _defined(operator: Any) -> tuple[str, int]:
    """Where the function behind an operator of torch.library.custom_op is: its file and its line."""
    known = torch._library.custom_ops.OPDEFS.get(operator._schema.name)
    code = getattr(known and known._init_fn, "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code else ("", 0)


def _first_lines(error: Exception) -> str:
    """What an exception of torch's says before it tells how to debug it."""
    text = " ".join(str(error).partition("\n\n")[0].split())
    return text if len(text) <= 400 else f"{text[:400]}…"
