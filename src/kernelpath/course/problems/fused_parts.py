"""Define the parts of a fused operator: a chain of operations, a layout in memory, and a statistic of each row."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from kernelpath.course import draw

Tensor = torch.Tensor
Scalars = Mapping[str, Callable[[int, int], float | int]]

EPS = 1e-5


@dataclass(frozen=True)
class Operator:
    """A chain of operations on x and other, both (rows, columns).

    Attributes:
        true: Computes y in the dtype of its arguments, one PyTorch operator at a time.
        lines: The chain in the words of the statement.
        vectors: Further arguments with a value for each column, followed by scalars of rows and columns.
    """

    name: str
    lines: tuple[str, ...]
    true: Callable[..., Tensor]
    vectors: tuple[str, ...] = ()
    scalars: Scalars = field(default_factory=dict)


@dataclass(frozen=True)
class OperandLayout:
    """The layout of x, other and out in memory.

    Attributes:
        shapes: The shapes of the given tensors, in the words of the statement.
        generate: Generates those tensors from rows, columns and scalars.
        views: Returns x and other as (rows, columns), which share their memory.
        place: The index of an element of each, and of out.
    """

    name: str
    shapes: Mapping[str, str]
    generate: Callable[..., tuple[Tensor, ...]]
    views: Callable[..., tuple[Tensor, Tensor]]
    place: tuple[str, str, str]
    scalars: Scalars = field(default_factory=dict)
    transposed: bool = False


@dataclass(frozen=True)
class Statistic:
    """An output for each row besides out, before anything is rounded or stored.

    Attributes:
        true: Computes out and the statistic from y.
    """

    name: str
    lines: tuple[str, ...]
    true: Callable[..., tuple[Tensor, Tensor]]
    scalars: Scalars = field(default_factory=dict)


# The operators of the statement, each line as its own PyTorch operator, so that autograd and float64 work as well.
def _gelu(x: Tensor, other: Tensor, bias: Tensor) -> Tensor:
    h = x + bias
    return other + 0.5 * h * (1 + torch.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3)))


def _silu(x: Tensor, other: Tensor, alpha: float) -> Tensor:
    h = alpha * x
    return h / (1 + torch.exp(-h)) * other


def _layer_norm(x: Tensor, other: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    h = x + other
    centered = h - h.mean(1, keepdim=True)
    return centered * torch.rsqrt((centered * centered).mean(1, keepdim=True) + EPS) * weight + bias


def _rms_norm(x: Tensor, other: Tensor, bias: Tensor, weight: Tensor) -> Tensor:
    h = x + bias + other
    return h * torch.rsqrt((h * h).mean(1, keepdim=True) + EPS) * weight


def _clamped(y: Tensor, limit: float) -> tuple[Tensor, Tensor]:
    out = y.clamp(-limit, limit)
    return out, (out * out).sum(1)


# Scalars depend on the sizes, so that a kernel cannot contain one as a constant.
OPERATORS = (
    Operator(
        "bias_gelu",
        (
            "h = x + bias[column]",
            "y = other + 0.5 * h * (1 + tanh(0.7978845608 * (h + 0.044715 * h^3)))",
        ),
        _gelu,
        ("bias",),
    ),
    Operator(
        "silu_gate",
        ("h = alpha * x", "y = h / (1 + exp(-h)) * other"),
        _silu,
        scalars={"alpha": lambda rows, columns: 0.5 + (rows + 2 * columns) % 7 / 4},
    ),
    Operator(
        "layer_norm",
        (
            "h = x + other",
            "y = (h - mean) / sqrt(variance + 1e-5) * weight[column] + bias[column]",
            "with mean = the mean of h over the row",
            "and variance = the mean of (h - mean)^2 over the row",
        ),
        _layer_norm,
        ("weight", "bias"),
    ),
    Operator(
        "rms_norm",
        (
            "h = x + bias[column] + other",
            "y = h / sqrt(mean + 1e-5) * weight[column]",
            "with mean = the mean of h^2 over the row",
        ),
        _rms_norm,
        ("bias", "weight"),
    ),
)


def _first(rows: int, columns: int) -> int:
    # Not always a multiple of 4, so that rows of a slice begin at addresses that 16-byte loads cannot take.
    return 8 + (3 * rows + columns) % 16


# Rows with a pitch, two operands in one tensor, and rows along the slow axis: each breaks one assumption about strides.
LAYOUTS = (
    OperandLayout(
        "slice",
        {"x": "(rows, columns + 2 * first)", "other": "(rows, columns)"},
        lambda rng, rows, columns, first: (
            draw.normal(rng, rows, columns + 2 * first),
            draw.normal(rng, rows, columns),
        ),
        lambda x, other, first: (x[:, first : x.shape[1] - first], other),
        ("x[row, first + column]", "other[row, column]", "out[row, column]"),
        {"first": _first},
    ),
    OperandLayout(
        "side_by_side",
        {"both": "(rows, 2 * columns)"},
        lambda rng, rows, columns: (draw.normal(rng, rows, 2 * columns),),
        lambda gate_and_up: (gate_and_up[:, : gate_and_up.shape[1] // 2], gate_and_up[:, gate_and_up.shape[1] // 2 :]),
        ("both[row, column]", "both[row, columns + column]", "out[row, column]"),
    ),
    OperandLayout(
        "columns_first",
        {"x": "(columns, rows)", "other": "(columns, rows)"},
        lambda rng, rows, columns: (draw.normal(rng, columns, rows), draw.normal(rng, columns, rows)),
        lambda x, other: (x.T, other.T),
        ("x[column, row]", "other[column, row]", "out[column, row]"),
        transposed=True,
    ),
)
STATISTICS = (
    Statistic(
        "sums",
        ("out = y", "sums[row] = the sum of y over the row"),
        lambda y: (y, y.sum(1)),
    ),
    Statistic(
        "largest",
        ("out = y", "largest[row] = the maximum of |y| over the row"),
        lambda y: (y, y.abs().amax(1)),
    ),
    Statistic(
        "squares",
        ("out = min(max(y, -limit), limit)", "squares[row] = the sum of out^2 over the row"),
        _clamped,
        {"limit": lambda rows, columns: 0.75 + (2 * rows + columns) % 5 / 4},
    ),
)
