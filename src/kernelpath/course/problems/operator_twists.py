"""Twists of a differentiable operator: one of PyTorch's own, after an activation, along the rows or the columns.

Each is an operator of torch.library with its gradient, in two kernels of Triton or more, where PyTorch launches one or
several for the activation and one or several for the operator, in both directions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional

from kernelpath.course import draw
from kernelpath.course.checkpoint import Twist
from kernelpath.course.problem import BYTES, Problem, Tolerance
from kernelpath.course.spec import Exercise, Traffic

Tensor = torch.Tensor

LONGEST = 1024
LARGEST = {"count": 96, "length": 960, "dtype": "bfloat16"}
CAP, BOUND, EPS, LEAST = 5.0, 1.7, 1e-5, 1e-3


@dataclass(frozen=True)
class Part:
    """An activation, or an operator along one dimension.

    true: PyTorch's own, of a tensor, and for an operator of its dimension. line: as the statement spells it.
    """

    name: str
    line: str
    true: Callable[..., Tensor]


ACTIVATIONS = (
    Part("soft_cap", f"h = {CAP} * tanh(x / {CAP})", lambda x: CAP * torch.tanh(x / CAP)),
    Part("clamp", f"h = min(max(x, -{BOUND}), {BOUND})", lambda x: functional.hardtanh(x, -BOUND, BOUND)),
    Part("silu", "h = x / (1 + exp(-x))", functional.silu),
)
OPERATORS = (
    Part("log_softmax", "y = h - log(sum(exp(h)))", lambda h, dim: functional.log_softmax(h, dim)),
    Part("softmin", "y = exp(-h) / sum(exp(-h))", lambda h, dim: functional.softmin(h, dim)),
    Part("rms_norm", "y = h / sqrt(mean(h^2) + 1e-5)", lambda h, dim: _normed(functional.rms_norm, h, dim)),
    Part(
        "layer_norm",
        "y = (h - mean(h)) / sqrt(mean((h - mean(h))^2) + 1e-5)",
        lambda h, dim: _normed(functional.layer_norm, h, dim),
    ),
    Part("normalize", f"y = h / max(sqrt(sum(h^2)), {LEAST})", lambda h, dim: functional.normalize(h, 2, dim, LEAST)),
)
DIMENSIONS = {"rows": 1, "columns": 0}


def _normed(of: Callable[..., Tensor], h: Tensor, dim: int) -> Tensor:
    """The norms of PyTorch work along the last dimension."""
    if dim == 0:
        return of(h.T, h.shape[:1], eps=EPS).T
    return of(h, h.shape[1:], eps=EPS)


def twist(operator: Part, activation: Part, along: str) -> Twist:
    """One of each. along: which vectors are normalized, a matrix's rows or its columns."""
    dim = DIMENSIONS[along]

    def inputs(rng: torch.Generator, count: int, length: int, dtype: str) -> tuple[Tensor, Tensor]:
        """dy has a mean of 2, so that its sum matters."""
        shape = (count, length) if dim else (length, count)
        return draw.normal(rng, *shape, dtype=dtype, large=0), draw.normal(rng, *shape, dtype=dtype, large=0) + 1

    def torchs(x: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
        """What PyTorch's operators and autograd make of it."""
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = operator.true(activation.true(x), dim)
            (dx,) = torch.autograd.grad(y, x, dy)
        return y.detach().contiguous(), dx.contiguous()

    def extreme(rng: torch.Generator, x: Tensor, dy: Tensor) -> None:
        """In turn a vector of zeros, a small one, one below 0, a large one, and a plain one. Every fifth dy is 0."""
        vectors = x if dim else x.T
        kinds = torch.arange(len(vectors), device=x.device)
        kinds = (kinds + int(torch.randint(5, (), generator=rng, device=x.device))) % 5
        vectors[kinds == 0] = 0
        vectors[kinds == 1] *= 1e-3
        vectors[kinds == 2] -= 12
        vectors[kinds == 3] *= 100
        (dy if dim else dy.T)[:, ::5] = 0

    problem = Problem(
        inputs=inputs,
        cases=(
            {"count": 5, "length": 257, "dtype": "bfloat16"},
            {"count": 7, "length": 4, "dtype": "float32"},
            {"count": 33, "length": 31, "dtype": "float32"},
            LARGEST,
        ),
        vary=("count", "length"),
        reference=lambda x, dy: torchs(x.double(), dy.double()),
        outputs=("y", "dx"),
        tolerance={
            # dx is a difference, so atol counts. The same in float32 is off by half of this at most, in bfloat16 by
            # much more: tests/test_operator_twists.py.
            "float32": Tolerance(rtol=1e-4, atol=5e-4),
            "bfloat16": Tolerance(rtol=8e-3, atol=8e-3),
        },
        extreme=extreme,
        limits=({"count": 3, "length": LONGEST, "dtype": "float32"},),
        gpu_limits=({"count": 65_537, "length": 4, "dtype": "float32"},),
        compulsory_bytes=lambda count, length, dtype: 5 * BYTES[dtype] * count * length,
        flops=lambda count, length, dtype: 20 * count * length,
    )
    exercise = Exercise(
        entry="operator",
        kind="operator",
        problem=problem,
        bench={"count": 131_072, "length": LONGEST, "dtype": "bfloat16"},  # 256 MiB a tensor, five times an H200's L2
        baseline=torchs,
        min_speedup=0.9,  # on an H200 two plain kernels are 1.0 to 4.9 times as fast as what PyTorch launches
        traffic=Traffic(sectors=1.5, bytes=1.15, edges=None),
    )
    return Twist(f"{operator.name}+{activation.name}+{along}", exercise, {".py": _stub(operator, activation, along)})


def _stub(operator: Part, activation: Part, along: str) -> str:
    vector = {"rows": "row", "columns": "column"}[along]
    return f'''"""The deliverable: an operator that PyTorch lacks, as good as its own.

    operator(x)

takes a contiguous matrix, bfloat16 or float32, and returns a new contiguous
tensor y of its shape and dtype. For each {vector} of x,

    {activation.line}
    {operator.line}

where sums and means are those of the {vector}. It has 4 to {LONGEST} elements, and
there is any number of {along}. The arithmetic is float32, and right for finite
values of any size. Tensors have fewer than 2**31 elements, and are not always
aligned to 16 bytes.

Autograd knows its gradient: dx is that of the formulas, computed in float32
from x and from dy, the gradient of y, in the dtype of x. Where the activation
has a kink its gradient is 0. Register the operator with torch.library, with a
fake implementation and a backward formula, in a namespace made of __name__, as
in f"{{__name__}}::operator". Write the kernels in Triton.

Graded are y and dx, the bytes that the kernels move (at {LARGEST["count"]} {along} of {LARGEST["length"]}
at most 1.15 times five tensors: x read and y written, then x and dy read and
dx written), their sectors, and what is registered. On a GPU it races PyTorch's
own operators and their autograd.
"""

import torch
import triton
import triton.language as tl


def operator(x: torch.Tensor) -> torch.Tensor:
    # TODO: a kernel for each direction, and operators around them
    raise NotImplementedError("register the operator, and return y")
'''


TWISTS = tuple(twist(one, other, along) for one in OPERATORS for other in ACTIVATIONS for along in DIMENSIONS)
"""All 30."""
