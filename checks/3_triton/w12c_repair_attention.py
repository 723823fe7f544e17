"""Repair attention: faulty masks, rescaling, and accumulation.

Week 12. Four kernels that somebody else wrote. Most of them are right for sizes that their blocks divide.
"""

import torch

from kernelpath.course import draw
from kernelpath.course.problem import Problem, Tolerance
from kernelpath.course.problems.broken import broken_kernels
from kernelpath.course.spec import BrokenKernel, Exercise

HEAD = 32
TOLERANCE = {"float32": Tolerance(rtol=1e-4, atol=1e-4)}

REPAIRS = {
    "padding": BrokenKernel(("WrongValues",), changes=1),
    "rescale": BrokenKernel(("WrongValues",), changes=2),
    "store": BrokenKernel(("OutOfBounds",), changes=1),
    "gradient": BrokenKernel(("Race",), changes=2),
}


def inputs(rng: torch.Generator, tokens: int) -> tuple[torch.Tensor, ...]:
    """Generate three matrices with mean 0: scores are then around 0, as those of masked keys would be."""
    return tuple(draw.normal(rng, tokens, HEAD, large=0, mean=0.0) for _ in range(3))


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q.double() @ k.double().T / HEAD**0.5, dim=1) @ v.double()


def gradient_of_v(q: torch.Tensor, k: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q.double() @ k.double().T / HEAD**0.5, dim=1).T @ grad.double()


def operator(reference: object) -> Problem:
    return Problem(
        inputs=inputs,
        cases=({"tokens": 45},),
        reference=reference,  # type: ignore[arg-type]
        tolerance=TOLERANCE,
        compulsory_bytes=lambda tokens: 16 * HEAD * tokens,
    )


EXERCISE = Exercise(
    entry="run",
    kind="repair",
    problem=broken_kernels(
        {name: operator(gradient_of_v if name == "gradient" else attention) for name in REPAIRS},
        # 64 tokens are two blocks of keys, 45 are not a multiple of any block.
        cases=[{"kernel": kernel, "tokens": tokens} for kernel in REPAIRS for tokens in (64, 45)],
        tolerance=TOLERANCE,
    ),
    repairs=REPAIRS,
    aligned=True,
)
