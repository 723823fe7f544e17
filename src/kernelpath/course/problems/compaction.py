"""Stream compaction: the positive elements of a float32 vector, in order, and how many there are.

The operator writes to tensors that the caller passes, as a kernel of a library does: the number of elements is known
only on the device, so no host could allocate a tensor of the right length without waiting for it.
"""

from __future__ import annotations

import torch

from kernelpath.course import draw
from kernelpath.course.problem import EXACT, Problem

# The bits of the NaN that most computations return.
_USUAL_NAN = 0x7FC00000


def kept_elements(n: int, share: float) -> int:
    """Return the number of positive elements of a case."""
    return round(n * share)


def inputs(rng: torch.Generator, n: int, share: float, order: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Generate a vector, of whose elements a share is positive, an output of the same length, and a count.

    Args:
        order: "mixed": positive elements at random places. "runs": all of them in the last part of the vector.
    """
    kept_count = kept_elements(n, share)
    magnitudes = torch.rand(n, generator=rng, device=rng.device).add_(0.5)
    is_kept = torch.arange(n, device=rng.device) >= n - kept_count
    if order == "mixed":
        is_kept = is_kept[torch.randperm(n, generator=rng, device=rng.device)]
    x = torch.where(is_kept, magnitudes, -magnitudes)
    # What the output held before is no value of x, and shows where it must not be written.
    out = torch.arange(n, dtype=torch.float32, device=rng.device).add_(2)
    return x, out, torch.full((1,), -1, dtype=torch.int32, device=rng.device)


def reference(x: torch.Tensor, out: torch.Tensor, count: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    selected = x[x > 0]
    return torch.cat([selected, out[selected.numel() :]]), torch.full_like(count, selected.numel())


def extreme(rng: torch.Generator, x: torch.Tensor, out: torch.Tensor, count: torch.Tensor) -> None:
    """Set a third of the elements, as many positive ones as others: zeros of both signs, denormals, infinities, NaNs.

    What the output held before has any bits.
    """
    draw.any_bits_(rng, out)
    tiny = 1e-45  # the smallest denormal
    positive = torch.tensor([tiny, torch.inf, 3e38], device=rng.device)
    not_positive = torch.tensor([0.0, -0.0, -tiny, -torch.inf, torch.nan], device=rng.device)
    places = torch.randperm(x.numel(), generator=rng, device=rng.device)[: (x.numel() + 2) // 3]
    was_positive = x[places] > 0
    rejected = not_positive[places % 5]
    rejected = torch.where(rejected.isnan(), draw.nans(rng, len(places)), rejected)
    x[places] = torch.where(was_positive, positive[places % 3], rejected)


def unordered(rng: torch.Generator, x: torch.Tensor, out: torch.Tensor, count: torch.Tensor) -> None:
    """Change nothing: the result does not depend on any order."""


def _compacted(keep: torch.Tensor, x: torch.Tensor, out: torch.Tensor, count: torch.Tensor) -> tuple[torch.Tensor, ...]:
    selected = x[keep]
    return torch.cat([selected, out[selected.numel() :]]), torch.full_like(count, selected.numel())


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        {"n": 1, "share": 1.0, "order": "mixed"},
        {"n": 32, "share": 0.0, "order": "mixed"},
        {"n": 257, "share": 0.5, "order": "mixed"},
        {"n": 1024, "share": 1.0, "order": "mixed"},
        {"n": 4100, "share": 0.1, "order": "mixed"},
        {"n": 10_008, "share": 0.5, "order": "runs"},
        {"n": 65_536, "share": 0.9, "order": "mixed"},
        {"n": 300_007, "share": 0.5, "order": "mixed"},
    ),
    vary=("n",),
    reference=reference,
    in_place=lambda x, out, count: (out, count),
    outputs=("out", "count"),
    tolerance={"float32": EXACT, "int32": EXACT},
    extreme=extreme,
    unordered=unordered,
    faults={
        "denormals dropped": lambda x, out, count: _compacted(draw.flush_denormals(x) > 0, x, out, count),
        "NaN kept": lambda x, out, count: _compacted(~(x <= 0), x, out, count),
        "NaN known by the bits of one NaN": lambda x, out, count: _compacted(
            (x > 0) | (x.isnan() & (x.view(torch.int32) > 0) & (x.view(torch.int32) != _USUAL_NAN)), x, out, count
        ),
        "zeros kept": lambda x, out, count: _compacted(x >= 0, x, out, count),
    },
    compulsory_bytes=lambda n, share, order: 4 * (n + kept_elements(n, share) + 1),
    flops=lambda n, share, order: n,
)
