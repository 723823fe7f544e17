"""Define variants of a differentiable operator: one of PyTorch's, after an activation, along the rows or columns.

Each is an operator of torch.library with its gradient, in two or more Triton kernels, where PyTorch launches one or
several for the activation and one or several for the operator, in both directions. A fused one combines the rows of two
tensors between the activation and the operator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional

from kernelpath.course import draw
from kernelpath.course.checkpoint import DeliverableVariant
from kernelpath.course.problem import BYTES, Problem, Tolerance
from kernelpath.course.spec import Exercise, Traffic

Tensor = torch.Tensor

LONGEST = 1024
LARGEST = {"count": 96, "length": 960, "dtype": "bfloat16"}
CAP = 5.0
BOUND = 1.7
EPS = 1e-5
MIN_NORM = 1e-3


@dataclass(frozen=True)
class Part:
    """An activation, a combination with another tensor, or an operator along one dimension.

    Attributes:
        true: PyTorch's own function of a tensor and, for an operator, of its dimension.
        line: The formula in the words of the statement.
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
    Part("rms_norm", "y = h / sqrt(mean(h^2) + 1e-5)", lambda h, dim: _normalize(functional.rms_norm, h, dim)),
    Part(
        "layer_norm",
        "y = (h - mean(h)) / sqrt(mean((h - mean(h))^2) + 1e-5)",
        lambda h, dim: _normalize(functional.layer_norm, h, dim),
    ),
    Part(
        "normalize",
        f"y = h / max(sqrt(sum(h^2)), {MIN_NORM})",
        lambda h, dim: functional.normalize(h, 2, dim, MIN_NORM),
    ),
)
MEETINGS = (
    Part("gate", "h = a * other", torch.mul),
    Part("residual", "h = a + other", torch.add),
)
DIMENSIONS = {"rows": 1, "columns": 0}


def _normalize(norm: Callable[..., Tensor], h: Tensor, dim: int) -> Tensor:
    """Apply one of PyTorch's norms, which work along the last dimension."""
    if dim == 0:
        return norm(h.T, h.shape[:1], eps=EPS).T
    return norm(h, h.shape[1:], eps=EPS)


def twist(operator: Part, activation: Part, along: str, meeting: Part | None = None) -> DeliverableVariant:
    """Return the variant of these parts.

    Args:
        along: The vectors that are normalized, rows or columns.
        meeting: The combination with another tensor, if any.
    """
    dim = DIMENSIONS[along]
    arguments = ("x", "other") if meeting else ("x",)

    def inputs(rng: torch.Generator, count: int, length: int, dtype: str) -> tuple[Tensor, ...]:
        """Return the arguments and dy, which has a mean of 2 so that its sum matters."""
        shape = (count, length) if dim else (length, count)
        tensors = [draw.normal(rng, *shape, dtype=dtype, large=0) for _ in (*arguments, "dy")]
        return *tensors[:-1], tensors[-1] + 1

    def torchs(*inputs: Tensor) -> tuple[Tensor, ...]:
        """Compute outputs and gradients by PyTorch's operators and autograd."""
        with torch.enable_grad():
            leaves = [tensor.detach().requires_grad_() for tensor in inputs[:-1]]
            h = activation.true(leaves[0])
            y = operator.true(meeting.true(h, leaves[1]) if meeting else h, dim)
            gradients = torch.autograd.grad(y, leaves, inputs[-1])
        return y.detach().contiguous(), *(gradient.contiguous() for gradient in gradients)

    def extreme(rng: torch.Generator, x: Tensor, *further: Tensor) -> None:
        """Set the vectors, in turn: zeros, a small one, one below 0, a large one, a plain one. Every fifth dy is 0."""
        vectors = x if dim else x.T
        kinds = torch.arange(len(vectors), device=x.device)
        kinds = (kinds + int(torch.randint(5, (), generator=rng, device=x.device))) % 5
        vectors[kinds == 0] = 0
        vectors[kinds == 1] *= 1e-3
        vectors[kinds == 2] -= 12
        vectors[kinds == 3] *= (
            10 if meeting else 100
        )  # a gate multiplies what is large, and exponentials lose its digits
        (further[-1] if dim else further[-1].T)[:, ::5] = 0

    problem = Problem(
        inputs=inputs,
        cases=(
            {"count": 5, "length": 257, "dtype": "bfloat16"},
            {"count": 7, "length": 4, "dtype": "float32"},
            {"count": 33, "length": 31, "dtype": "float32"},
            LARGEST,
        ),
        vary=("count", "length"),
        reference=lambda *inputs: torchs(*(tensor.double() for tensor in inputs)),
        outputs=("y", *(f"d{name}" for name in arguments)),
        tolerance={
            # dx is a difference, so atol counts. The same in float32 is off by half of this at most, in bfloat16 by
            # much more: tests/test_operator_twists.py.
            "float32": Tolerance(rtol=1e-4, atol=5e-4),
            "bfloat16": Tolerance(rtol=8e-3, atol=8e-3),
        },
        extreme=extreme,
        limits=({"count": 3, "length": LONGEST, "dtype": "float32"},),
        gpu_limits=({"count": 65_537, "length": 4, "dtype": "float32"},),
        compulsory_bytes=lambda count, length, dtype: (3 * len(arguments) + 2) * BYTES[dtype] * count * length,
        flops=lambda count, length, dtype: 20 * count * length,
    )
    exercise = Exercise(
        entry="operator",
        kind="operator",
        problem=problem,
        bench={"count": 131_072, "length": LONGEST, "dtype": "bfloat16"},  # 256 MiB a tensor, five times an H200's L2
        baseline=torchs,
        gradients_of=arguments,
        min_speedup=0.9,  # on an H200 plain kernels are 1.0× to 4.9× faster than PyTorch, of two tensors 1.1× to 3.3×
        traffic=Traffic(sectors=1.5, bytes=1.15, edges=None),
    )
    name = f"{operator.name}+{activation.name}+{meeting.name if meeting else along}"
    return DeliverableVariant(name, exercise, {".py": _stub(operator, activation, along, meeting)})


def _stub(operator: Part, activation: Part, along: str, meeting: Part | None) -> str:
    vector = {"rows": "row", "columns": "column"}[along]
    lines = [activation.line, operator.line]
    if meeting is not None:
        lines = [activation.line.replace("h =", "a =", 1), meeting.line, operator.line]
    formulas = "\n".join(f"    {line}" for line in lines)
    return (_FUSED if meeting else _ALONE).format(
        formulas=formulas, vector=vector, along=along, longest=LONGEST, count=LARGEST["count"], length=LARGEST["length"]
    )


# This text is a stub: its TODO is for the learner.
_CODE = """
import torch
import triton
import triton.language as tl


def operator({signature}) -> torch.Tensor:
    # TODO: a kernel for each direction, and operators around them
    raise NotImplementedError("register the operator, and return y")
"""

_ALONE = '''"""The deliverable: an operator that PyTorch lacks, as good as its own.

    operator(x)

takes a contiguous matrix, bfloat16 or float32, and returns a new contiguous
tensor y of its shape and dtype. For each {vector} of x,

{formulas}

where sums and means are those of the {vector}. It has 4 to {longest} elements, and
there is any number of {along}. The arithmetic is float32, and right for finite
values of any size. Tensors have fewer than 2**31 elements, and are not always
aligned to 16 bytes.

Autograd knows its gradient: dx is that of the formulas, computed in float32
from x and from dy, the gradient of y, in the dtype of x. Where the activation
has a kink its gradient is 0. Register the operator with torch.library, with a
fake implementation and a backward formula, in a namespace made of __name__, as
in f"{{__name__}}::operator". Write the kernels in Triton.

Graded are y and dx, the bytes that the kernels move (at {count} {along} of {length}
at most 1.15 times five tensors: x read and y written, then x and dy read and
dx written), their sectors, and what is registered. On a GPU it races PyTorch's
own operators and their autograd.
"""
''' + _CODE.replace("{signature}", "x: torch.Tensor")

_FUSED = '''"""The deliverable: an operator for your library, fused from three.

    operator(x, other)

takes two contiguous matrices of the same shape and dtype, bfloat16 or float32,
and returns a new contiguous tensor y like them. For each {vector} of both,

{formulas}

where sums and means are those of the {vector}. It has 4 to {longest} elements, and
there is any number of {along}. The arithmetic is float32, and right for finite
values of any size. Tensors have fewer than 2**31 elements, and are not always
aligned to 16 bytes.

Autograd knows its gradients: dx and dother are those of the formulas, computed
in float32 from x, other and dy, the gradient of y, in the dtype of x. Where
the activation has a kink its gradient is 0. Register the operator with
torch.library, with a fake implementation and a backward formula, in a
namespace made of __name__, as in f"{{__name__}}::operator". Write the kernels
in Triton.

Graded are y, dx and dother, the bytes that the kernels move (at {count} {along} of
{length} at most 1.15 times eight tensors: x and other read and y written, then
x, other and dy read and both gradients written), their sectors, and what is
registered. On a GPU it races PyTorch's own operators and their autograd.
"""
''' + _CODE.replace("{signature}", "x: torch.Tensor, other: torch.Tensor")


# All 30 variants with one tensor.
TWISTS = tuple(
    twist(operator, activation, along) for operator in OPERATORS for activation in ACTIVATIONS for along in DIMENSIONS
)

# All 30 variants with two tensors.
FUSED_TWISTS = tuple(
    twist(operator, activation, "rows", meeting)
    for operator in OPERATORS
    for activation in ACTIVATIONS
    for meeting in MEETINGS
)
