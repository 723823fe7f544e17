"""Vector addition: one element a thread, then a grid-stride loop with bytes in flight.

Week 1. out = x + y for float32 vectors of any length, contiguous but not always aligned to 16 bytes.
"""

import torch

from kernelpath.spec import Exercise, Question, Tolerance, Traffic


def inputs(rng: torch.Generator, n: int, offset: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Two vectors of n elements that begin `offset` elements into their storage."""
    x, y = torch.randn(2, n + offset, generator=rng, device=rng.device).add_(1.0)
    return x[offset:], y[offset:]


def reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.double() + y.double()


EXERCISE = Exercise(
    entry="vector_add",
    inputs=inputs,
    cases=(
        {"n": 1, "offset": 0},
        {"n": 255, "offset": 0},
        {"n": 256, "offset": 0},
        {"n": 257, "offset": 0},
        {"n": 10_007, "offset": 1},
        {"n": 65_536, "offset": 0},
    ),
    vary=("n",),
    reference=reference,
    tolerance={"float32": Tolerance(rtol=2e-7, atol=1e-7)},
    bench={"n": 1 << 28, "offset": 0},
    baseline=torch.add,
    min_speedup=0.7,
    bytes_moved=lambda n, offset: 12 * n,
    flops=lambda n, offset: n,
    traffic=Traffic(sectors=1.3, bytes=1.3),
    hints=(
        "Every thread needs to know which element is its own. Which three built-in variables tell it?",
        "i = blockIdx.x * blockDim.x + threadIdx.x. The last block may reach past the end: guard it with `if (i < n)`.",
        "For any n and any grid: `for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < n;"
        " i += (long)gridDim.x * blockDim.x) out[i] = x[i] + y[i];`",
    ),
    questions=(
        Question(
            ask="How many bytes does adding two float32 vectors of n = 1,000,000 elements have to move, in MB (10^6 bytes)?",
            answer=12.0,
            why="Two vectors are read and one is written, 4 bytes an element each: 3 * 4 * 10^6 bytes.",
        ),
    ),
    explain="Placeholder.",
)
