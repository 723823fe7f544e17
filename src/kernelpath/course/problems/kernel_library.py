"""Declare a package of fused kernels, with what it computes, refuses and tests: add_rmsnorm, then swiglu of its y.

y, h = add_rmsnorm(x, residual, weight) and z = swiglu(y), with the gradients of x, residual and weight.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from kernelpath.course import draw
from kernelpath.course.library import Fault, Library, Promise, Refusal
from kernelpath.course.problem import BYTES, Case, Problem, Tolerance

EPS = 1e-6
Function = Callable[..., Any]


def case(rows: int, columns: int, dtype: str) -> Case:
    return {"rows": rows, "columns": columns, "dtype": dtype}


def inputs(rng: torch.Generator, rows: int, columns: int, dtype: str) -> tuple[torch.Tensor, ...]:
    x, residual, dh = (draw.normal(rng, rows, columns, dtype=dtype, large=0) for _ in range(3))
    weight = draw.normal(rng, columns, dtype=dtype, large=0)
    return x, residual, weight, draw.normal(rng, rows, columns // 2, dtype=dtype, large=0), dh


def extreme(
    rng: torch.Generator,
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    dz: torch.Tensor,
    dh: torch.Tensor,
) -> None:
    """Set the rows, in turn: a plain one, one that eps decides, a large one; gates far from 0, with sigmoid 0 or 1."""
    # The first kind is random, so that no row has a known kind.
    kinds = (torch.arange(len(x), device=x.device) + int(torch.randint(3, (), generator=rng, device=rng.device))) % 3
    for tensor in (x, residual):
        tensor[kinds == 1] *= 1e-3
        tensor[kinds == 2] *= 1e4
    weight[::2] *= 16


def forward(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute z and h in torch's operators. y is rounded to the dtype of x in between, as h is before normalization."""
    h = x + residual
    gate, up = F.rms_norm(h, (h.shape[1],), weight, EPS).chunk(2, dim=1)
    return F.silu(gate) * up, h


def step(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, dz: torch.Tensor, dh: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Return z, h and the gradients by autograd, in the dtype of x."""
    # Detached, so that gradients end at these tensors, whatever graph the inputs belong to.
    leaves = [tensor.detach().requires_grad_() for tensor in (x, residual, weight)]
    with torch.enable_grad():
        outputs = forward(*leaves)
    return *(tensor.detach() for tensor in outputs), *torch.autograd.grad(outputs, leaves, (dz, dh))


def reference(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return step(*(tensor.double() for tensor in inputs))


def without_eps(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, dz: torch.Tensor, dh: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Normalize rows of 1e-3 to the size of all others."""
    _, h, *gradients = reference(x, residual, weight, dz, dh)
    y = h * h.square().mean(1, keepdim=True).rsqrt() * weight.double()
    gate, up = y.chunk(2, dim=1)
    return F.silu(gate) * up, h, *gradients


def compulsory_bytes(rows: int, columns: int, dtype: str) -> int:
    """Count add_rmsnorm's 4 matrices forward and 4 backward, and swiglu's one and a half, and two and a half."""
    return BYTES[dtype] * (12 * rows * columns + 3 * columns)


def _random(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Callable[[torch.device], torch.Tensor]:
    return lambda device: torch.randn(shape, device=device).to(dtype)


def _transposed(rows: int, columns: int) -> Callable[[torch.device], torch.Tensor]:
    """Create a transposed matrix."""
    return lambda device: _random(columns, rows)(device).t()


def _arguments(*parts: Any) -> Callable[[torch.device], list[Any]]:
    return lambda device: [part(device) if callable(part) else part for part in parts]


_X = _random(3, 48)
_W = _random(48)
_FLOAT32_X = _random(3, 48, dtype=torch.float32)
_HALF = _random(3, 48, dtype=torch.float16)
_DOUBLE = _random(3, 48, dtype=torch.float64)

# Each refusal breaks one rule of the statement, with arguments that are valid otherwise, and names the argument that
# the message must name.
REFUSALS = (
    Refusal("add_rmsnorm", "x in float16", TypeError, "x", _arguments(_HALF, _HALF, _random(48, dtype=torch.float16))),
    Refusal("add_rmsnorm", "a list for x", TypeError, "x", _arguments([[1.0]], _X, _W)),
    Refusal("add_rmsnorm", "x of three axes", ValueError, "x", _arguments(_random(1, 3, 48), _random(1, 3, 48), _W)),
    Refusal(
        "add_rmsnorm", "8193 columns", ValueError, "x", _arguments(_random(1, 8193), _random(1, 8193), _random(8193))
    ),
    Refusal("add_rmsnorm", "residual in float32", TypeError, "residual", _arguments(_X, _FLOAT32_X, _W)),
    Refusal("add_rmsnorm", "residual of one row in three", ValueError, "residual", _arguments(_X, _random(1, 48), _W)),
    Refusal(
        "add_rmsnorm", "weight in float32", TypeError, "weight", _arguments(_X, _X, _random(48, dtype=torch.float32))
    ),
    Refusal("add_rmsnorm", "a weight of 47 for 48 columns", ValueError, "weight", _arguments(_X, _X, _random(47))),
    Refusal("add_rmsnorm", "a negative eps", ValueError, "eps", _arguments(_X, _X, _W, -1.0)),
    Refusal("swiglu", "gate_up in float64", TypeError, "gate_up", _arguments(_DOUBLE)),
    Refusal("swiglu", "an odd number of columns", ValueError, "gate_up", _arguments(_random(3, 47))),
    Refusal("swiglu", "gate_up of one axis", ValueError, "gate_up", _arguments(_random(48))),
)


_PLAIN = _random(7, 94, dtype=torch.float32)
_COLUMN = _random(94, 1, dtype=torch.float32)


def _wide_turned(device: torch.device) -> torch.Tensor:
    return _random(94, 7, dtype=torch.float32)(device).mT


def _one_row(device: torch.device) -> torch.Tensor:
    return _random(94, dtype=torch.float32)(device).expand(7, 94)


def _every_second(device: torch.device) -> torch.Tensor:
    return _random(188, dtype=torch.float32)(device)[::2]


def _normed(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = EPS
) -> tuple[torch.Tensor, torch.Tensor]:
    h = x + residual
    return F.rms_norm(h, (h.shape[1],), weight, eps), h


def _gated(gate_up: torch.Tensor) -> tuple[torch.Tensor]:
    gate, up = gate_up.chunk(2, dim=1)
    return (F.silu(gate) * up,)


_NO_ROWS = _random(0, 94, dtype=torch.float32)
_WEIGHT = _random(94, dtype=torch.float32)

# Arguments at the edge of what the statement promises to accept.
PROMISES = (
    Promise("add_rmsnorm", "an eps of 2", _arguments(_PLAIN, _PLAIN, _WEIGHT, 2.0), _normed),
    Promise("add_rmsnorm", "strides of three kinds", _arguments(_wide_turned, _one_row, _every_second), _normed),
    Promise("add_rmsnorm", "no rows", _arguments(_NO_ROWS, _NO_ROWS, _WEIGHT), _normed),
    Promise("add_rmsnorm", "one column", _arguments(_COLUMN, _COLUMN, _random(1, dtype=torch.float32)), _normed),
    Promise("swiglu", "a transposed matrix", _arguments(_wide_turned), _gated),
    Promise("swiglu", "one row for all", _arguments(_one_row), _gated),
    Promise("swiglu", "no rows", _arguments(_NO_ROWS), _gated),
)


def _last_row_of_h(real: Function) -> Function:
    def add_rmsnorm(x: torch.Tensor, *tensors: Any, **options: Any) -> Any:
        y, h = real(x, *tensors, **options)
        return y, torch.cat((h[:-1], h[-1:] * 0.5))

    return add_rmsnorm


def _y_without_weight(real: Function) -> Function:
    def add_rmsnorm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, *eps: Any, **options: Any) -> Any:
        # 0 * weight leaves the weight in autograd's graph, so that its gradient is 0. Without a path to the weight,
        # autograd would raise an error.
        return real(x, residual, torch.ones_like(weight) + 0 * weight, *eps, **options)

    return add_rmsnorm


def _gradient_of_weight(real: Function) -> Function:
    def add_rmsnorm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, *eps: Any, **options: Any) -> Any:
        return real(x, residual, _double_gradient(weight), *eps, **options)

    return add_rmsnorm


def _gradient_of_gates(real: Function) -> Function:
    return lambda gate_up: real(_double_gradient(gate_up))


def _double_gradient(leaf: Any) -> Any:
    """Return the same values, with twice the gradient."""
    # The second term is 0, and its derivative is 1.
    return leaf + (leaf - leaf.detach()) if isinstance(leaf, torch.Tensor) and leaf.requires_grad else leaf


def _float16_taken(real: Function) -> Function:
    def add_rmsnorm(*arguments: Any, **options: Any) -> Any:
        def to_float32(value: Any) -> Any:
            return value.float() if isinstance(value, torch.Tensor) and not value.dtype.is_complex else value

        if len({value.dtype for value in (*arguments, *options.values()) if isinstance(value, torch.Tensor)}) > 1:
            return real(*map(to_float32, arguments), **{name: to_float32(value) for name, value in options.items()})
        return real(*arguments, **options)

    return add_rmsnorm


def _strides_ignored(real: Function) -> Function:
    def as_contiguous(value: Any) -> Any:
        """Read the memory row by row."""
        if not isinstance(value, torch.Tensor) or value.is_contiguous() or 0 in value.stride():
            return value
        return value.mT.reshape(value.shape) if value.ndim == 2 else value

    return lambda *arguments, **options: real(
        *map(as_contiguous, arguments), **{name: as_contiguous(value) for name, value in options.items()}
    )


LIBRARY = Library(
    name="fused_kernels",
    requires=("torch", "triton"),
    refusals=REFUSALS,
    promises=PROMISES,
    faults={
        "the last row of h is wrong": Fault("add_rmsnorm", _last_row_of_h),
        "the weight is forgotten": Fault("add_rmsnorm", _y_without_weight),
        "the gradient of weight is doubled": Fault("add_rmsnorm", _gradient_of_weight),
        "the gradient of gate_up is doubled": Fault("swiglu", _gradient_of_gates),
        "tensors of different dtypes are accepted": Fault("add_rmsnorm", _float16_taken),
        "the strides of a transposed matrix are ignored": Fault("swiglu", _strides_ignored),
    },
    benchmark={
        "add_rmsnorm": ({"rows": 5, "columns": 96}, 2 * (4 * 5 * 96 + 96)),
        "swiglu": ({"rows": 5, "columns": 96}, 2 * (5 * 96 + 5 * 48)),
    },
    strided={
        "add_rmsnorm": _arguments(_transposed(3, 48), _transposed(3, 48), _W),
        "swiglu": _arguments(_transposed(3, 48)),
    },
)

PROBLEM = Problem(
    inputs=inputs,
    # Each pair of columns and dtype costs a compilation of every kernel.
    cases=(
        case(3, 94, "float32"),
        case(1, 96, "bfloat16"),
        case(33, 96, "bfloat16"),
        case(1100, 94, "float32"),  # more rows than programs, where there are a few for each multiprocessor
        case(40, 94, "float32"),
    ),
    vary=("rows",),
    reference=reference,
    outputs=("z", "h", "dx", "dresidual", "dweight"),
    tolerance={"float32": Tolerance(rtol=1e-4, atol=1e-5), "bfloat16": Tolerance(rtol=2e-2, atol=0.1)},
    extreme=extreme,
    must_reach={"rows": 1_024},
    gpu_limits=(case(65_537, 96, "bfloat16"),),
    faults={"no eps": without_eps},
    compulsory_bytes=compulsory_bytes,
    flops=lambda rows, columns, dtype: 40 * rows * columns,
)
