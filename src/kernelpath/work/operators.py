"""Exercises whose entry is an operator with a gradient: how it is called, and whether torch.compile can work with it.

Importing this imports what torch compiles with, which takes seconds: the fork server does it once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch._dynamo
import torch._functorch.aot_autograd
import torch.testing._internal.optests
from torch.library import opcheck
from torch.utils._python_dispatch import TorchDispatchMode

from kernelpath.work.blame import WrongOperator
from kernelpath.work.watch import is_submissions

_TESTS = ("test_schema", "test_faketensor")
_WITH_GRADIENT = ("test_autograd_registration",)


def with_gradient(entry: Callable[..., Any]) -> Callable[..., tuple[Any, Any]]:
    """`(x, upstream)` to the entry's output for x, and the gradient that autograd gives to x for the output's.

    What it gives raises WrongOperator where autograd knows no gradient.
    """

    def forward_and_backward(x: torch.Tensor, upstream: torch.Tensor) -> tuple[Any, Any]:
        x = x.detach().requires_grad_()
        out = entry(x)
        if type(out) is not torch.Tensor:
            return out, None
        if not out.requires_grad:
            raise WrongOperator("x requires grad and the output does not: register a backward formula")
        try:
            (gradient,) = torch.autograd.grad(out, x, upstream, allow_unused=True)
        except RuntimeError as error:
            if "no autograd formula" in str(error):
                raise WrongOperator(str(error)) from error
            raise
        if gradient is None:
            raise WrongOperator("the backward formula gives None for the gradient of x")
        return out.detach(), gradient

    return forward_and_backward


def inspect(entry: Callable[..., Any], x: torch.Tensor, upstream: torch.Tensor) -> None:
    """Raise WrongOperator unless opcheck accepts the operators that the entry calls, and one graph holds it all.

    The graph is tried with another gradient, too: that of a sum, one element with strides of 0.
    """
    recorded = _Recorded()
    with recorded:
        with_gradient(entry)(x, upstream)
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
    compiled = torch.compile(lambda x: entry(x), fullgraph=True, dynamic=True, backend="aot_eager")
    for given in (upstream, torch.ones((), dtype=x.dtype, device=x.device).expand(x.shape)):
        eager = with_gradient(entry)(x, given)
        try:
            found = with_gradient(compiled)(x, given)
        except torch._dynamo.exc.TorchDynamoException as error:
            raise WrongOperator(f"torch.compile(fullgraph=True): {_first_lines(error)}") from error
        for name, one, other in zip(("output", "gradient"), eager, found, strict=True):
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
        if is_submissions(func):
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
            raise WrongOperator(f"opcheck of {operator._schema.name}, {test}: {_first_lines(said)}") from said


def _first_lines(error: Exception) -> str:
    """What an exception of torch's says before it tells how to debug it."""
    text = " ".join(str(error).partition("\n\n")[0].split())
    return text if len(text) <= 400 else f"{text[:400]}…"
