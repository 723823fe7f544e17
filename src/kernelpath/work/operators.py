"""Call operators with their gradients, and check that torch.compile can work with them.

Importing this imports torch's compiler, which takes seconds: the fork server does it once.
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
    """Return a function that takes the entry's arguments and a gradient for each of its outputs.

    It returns the outputs, and the gradients of the arguments that autograd computes from these. It raises
    WrongOperator where autograd knows no gradient.

    `names` are those of the arguments.
    """

    def forward_and_backward(*arguments: torch.Tensor) -> tuple[Any, ...]:
        leaves = [argument.detach().requires_grad_() for argument in arguments[: len(names)]]
        result = entry(*leaves)
        outs = result if isinstance(result, tuple) else (result,)
        if any(type(out) is not torch.Tensor for out in outs):
            # Autograd cannot continue. `check_outputs` reports the first of these that is no plain tensor.
            return *outs, None
        if not all(out.requires_grad for out in outs):
            symptom = "x requires grad and the output does not" if len(outs) == 1 else "an output does not require grad"
            raise WrongOperator(f"{symptom}: register a backward formula")
        try:
            gradients = torch.autograd.grad(outs, leaves, arguments[len(names) :], allow_unused=True)
        except RuntimeError as error:
            if "no autograd formula" in str(error):
                raise WrongOperator(str(error)) from error
            raise
        for name, gradient in zip(names, gradients, strict=True):
            if gradient is None:
                raise WrongOperator(f"the backward formula gives None for the gradient of {name}")
        return *(out.detach() for out in outs), *gradients

    return forward_and_backward


def inspect_operator(entry: Callable[..., Any], names: Sequence[str], *values: torch.Tensor) -> None:
    """Raise WrongOperator unless opcheck accepts the operators that the entry calls, and one graph holds the whole
    entry.

    The graph is also called with other gradients: those of a sum, one element with strides of 0.

    Args:
        entry: The submission's function.
        names: The names of its arguments.
        values: The arguments, and a gradient for each output.
    """
    recorder = _OperatorRecorder()
    with recorder:
        with_gradient(entry, names)(*values)
    if not recorder.forward:
        raise WrongOperator("it calls no operator of yours: register one with torch.library and call that")
    if not recorder.backward:
        raise WrongOperator(
            "the backward formula calls no operator of yours: torch.compile traces it, and cannot trace a launch"
        )
    for operator, arguments in recorder.forward.items():
        _opcheck(operator, _leaves(arguments, grad=True), (*_TESTS, *_WITH_GRADIENT))
    for operator, arguments in recorder.backward.items():
        _opcheck(operator, _leaves(arguments, grad=False), _TESTS)
    torch._dynamo.reset()
    # The backend "aot_eager" traces the forward and the backward graph, and needs no compiler to run them.
    compiled = torch.compile(lambda *x: entry(*x), fullgraph=True, dynamic=True, backend="aot_eager")
    inputs = values[: len(names)]
    upstream = values[len(names) :]
    # expand() gives the strides of 0 that the gradient of a sum has.
    broadcast_ones = [
        torch.ones((), dtype=gradient.dtype, device=gradient.device).expand(gradient.shape) for gradient in upstream
    ]
    for gradients in (upstream, broadcast_ones):
        eager = with_gradient(entry, names)(*inputs, *gradients)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # warnings of autograd that point to the grader's files
                compiled_results = with_gradient(compiled, names)(*inputs, *gradients)
        except torch._dynamo.exc.TorchDynamoException as error:
            raise WrongOperator(f"torch.compile(fullgraph=True): {_first_lines(error)}") from error
        kinds = ["output"] * len(upstream) + ["gradient"] * len(names)
        for kind, eager_result, compiled_result in zip(kinds, eager, compiled_results, strict=True):
            if not torch.equal(eager_result, compiled_result):
                raise WrongOperator(f"torch.compile(fullgraph=True): the {kind} is not that of the plain call")


class _OperatorRecorder(TorchDispatchMode):
    """Records the operators of the submission that are called, each with the arguments of its first call.

    Attributes:
        forward: The operators that the entry calls.
        backward: The operators that its backward formula calls.
    """

    def __init__(self) -> None:
        TorchDispatchMode.__init__(self)
        self.forward: dict[Any, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        self.backward: dict[Any, tuple[tuple[Any, ...], dict[str, Any]]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if is_defined_by_submission(func):
            # A node is current only while autograd runs a backward formula.
            calls = self.backward if torch._C._current_autograd_node() is not None else self.forward
            calls.setdefault(func, (args, dict(kwargs or {})))
        return func(*args, **(kwargs or {}))


def _leaves(call: tuple[tuple[Any, ...], dict[str, Any]], grad: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call with tensors as leaves of a graph of their own."""

    def leaf(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return value.detach().clone().requires_grad_(grad and value.is_floating_point())

    args, kwargs = call
    return tuple(map(leaf, args)), {name: leaf(value) for name, value in kwargs.items()}


def _opcheck(operator: Any, call: tuple[tuple[Any, ...], dict[str, Any]], tests: tuple[str, ...]) -> None:
    for test in tests:
        result = opcheck(operator, *call, test_utils=test, raise_exception=False)[test]
        if isinstance(result, Exception):
            cause = f"opcheck of {operator._schema.name}, {test}: {_first_lines(result)}"
            raise WrongOperator(cause, *_definition_of(operator)) from result


def _definition_of(operator: Any) -> tuple[str, int]:
    """Return the file and the line of the function behind an operator of torch.library.custom_op."""
    definition = torch._library.custom_ops.OPDEFS.get(operator._schema.name)
    code = getattr(definition and definition._init_fn, "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code else ("", 0)


def _first_lines(error: Exception) -> str:
    """Return the part of an exception of torch before its advice on debugging."""
    text = " ".join(str(error).partition("\n\n")[0].split())
    return text if len(text) <= 400 else f"{text[:400]}…"
