"""Report facts about Inductor's output, and define a function for which it is to write one kernel."""

from __future__ import annotations

import random

import torch
from torch.nn import functional as F

from kernelpath.course import draw
from kernelpath.course.problem import Problem, Tolerance
from kernelpath.course.traces import Facts, TraceFile, inductor, recordings

RECORDING = "inductor"

# The functions that the notebook shows.
NOTEBOOK_FUNCTIONS = ("norm", "mlp", "centered", "guarded", "attention")
FURTHER_FUNCTIONS = (
    "swiglu",
    "entropy",
    "ordered",
    "normed",
    "embedded",
    "joined",
    "total",
    "both_axes",
    "told",
    "apart",
    "running",
)

# The number of recordings of each function, with different shapes and dtypes.
SHAPES = 2

EPS = 1e-6
LIMIT = 8.0


def inputs(rng: torch.Generator, function: str, others: int) -> tuple[TraceFile]:
    """Return the code for a function with one set of shapes, then the code for other functions, like graph breaks."""
    python_rng = random.Random(int(torch.randint(1 << 31, (), generator=rng, device=rng.device)))
    names = [
        function,
        *python_rng.sample(
            [candidate for candidate in (*NOTEBOOK_FUNCTIONS, *FURTHER_FUNCTIONS) if candidate != function], others
        ),
    ]
    texts = [recordings.read(RECORDING, f"{name}{python_rng.randrange(SHAPES)}.py").decode() for name in names]
    modules = [inductor.renumber(python_rng, module) for text in texts for module in inductor.modules(text)]
    return (TraceFile("output_code.py", inductor.joined(modules).encode()),)


def reference(code: TraceFile) -> Facts:
    return inductor.of(code.content.decode())


def gated(x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Compute what the stub spells: two graphs, and five kernels."""
    normed = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS)
    if normed.abs().max() > LIMIT:
        normed = normed.clamp(-LIMIT, LIMIT)
    return F.gelu(normed @ torch.diag(scale) + bias)


def tensors(rng: torch.Generator, rows: int, columns: int, large: int) -> tuple[torch.Tensor, ...]:
    """Generate tensors; with large=True values of a hundred times the size, beyond the limit."""
    x = draw.normal(rng, rows, columns, large=large, mean=0.0)
    return x, draw.normal(rng, columns, large=0), draw.normal(rng, columns, large=0)


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        *({"function": name, "others": 0} for name in NOTEBOOK_FUNCTIONS),
        {"function": "ordered", "others": 3},
        {"function": "entropy", "others": 5},
        {"function": "told", "others": 7},
    ),
    reference=reference,
    tolerance={"float64": Tolerance(rtol=1e-9, atol=0.0)},
    compulsory_bytes=lambda function, others: 0,
)
