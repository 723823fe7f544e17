"""Dropout, forward and backward: out = x / (1 - p) where an element is kept, else 0, and the same for its gradient.

Two layers run forward, then backward. Which elements are kept follows from p and from the layer's place in a stream of
random numbers, a seed and an offset. How is left to the kernel: a mask is judged by what random masks do not show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from kernelpath.course import draw
from kernelpath.course.problem import BYTES, Problem, Tolerance

Tensor = torch.Tensor

# The difference between the second layer's stream and the first's: seed, and offset; 1 stands for n.
NEXT: Mapping[str, tuple[int, int]] = {
    "offset": (0, 1),
    "seed": (2, 0),
    "high half of the seed": (1 << 32, 0),
    "high half of the offset": (0, 1 << 32),
    "seed and offset": (-1 << 32, 1 << 32),  # whose sum is the same, and so are their bits that differ
}

OUTPUTS = ("out of the first layer", "out of the second layer", "dx of the first layer", "dx of the second layer")

# The permitted deviation of the number of kept elements, which 2e-9 of all masks exceed.
DEVIATIONS = 6

# The permitted deviations of a mask's correlation, with itself or another, at any of some ten thousand distances.
CORRELATED = 10

# The elements from which on a mask's correlations are meaningful.
_FEWEST = 4096

# The least expected number of elements of the rarer kind that two masks share.
#
# Below it, one more shared element is many deviations.
_RARE = 4


def inputs(
    rng: torch.Generator, n: int, p: float, dtype: str, differ: str
) -> tuple[Tensor, Tensor, float, int, int, int, int]:
    """Return x and dout of two layers, without zeros, p, and the 64-bit seed and offset of each layer."""
    x, dout = (draw.normal(rng, 2, n, dtype=dtype) for _ in range(2))
    for tensor in (x, dout):
        if not tensor.is_meta:
            tensor.masked_fill_(tensor == 0, 1)
    seed = (0x5EED << 32) + 2 * n + 1
    offset = (1 << 33) + 4
    further_seed, further = NEXT[differ]
    return x, dout, p, seed, offset, seed + further_seed, offset + (-(-n // 4) * 4 if further == 1 else further)


def reference(
    x: Tensor, dout: Tensor, p: float, seed: int, offset: int, next_seed: int, next_offset: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the outputs of a mask that keeps all elements."""
    out = x.double() / (1 - p)
    dx = dout.double() / (1 - p)
    return out[0], out[1], dx[0], dx[1]


def settled(expected: Sequence[Tensor], outputs: Sequence[Tensor]) -> list[Tensor]:
    """Keep in each layer's backward pass the elements that its forward pass keeps."""
    masks = [out != 0 for out in outputs[:2]]
    return [truth * mask for truth, mask in zip(expected, masks * 2, strict=True)]


def operators(
    x: Tensor, dout: Tensor, p: float, seed: int, offset: int, next_seed: int, next_offset: int
) -> tuple[Tensor, ...]:
    """Call PyTorch's operators, which keep a mask of one byte per element for the backward pass."""
    out, mask = torch.native_dropout(x[0], p, True)
    next_out, next_mask = torch.native_dropout(x[1], p, True)
    next_dx = torch.ops.aten.native_dropout_backward(dout[1], next_mask, 1 / (1 - p))
    return out, next_out, torch.ops.aten.native_dropout_backward(dout[0], mask, 1 / (1 - p)), next_dx


def judged_masks(p: float, outputs: Sequence[Tensor]) -> str | None:
    """Describe a property that random masks of this p do not have, or return None. x and dout have no zeros."""
    masks = [output != 0 for output in outputs]
    for layer, name in enumerate(("first", "second")):
        differ = masks[layer] != masks[layer + 2]
        if bool(differ.any()):
            description = f"{int(differ.sum()):,} of {differ.numel():,} elements are kept by only one of its two passes"
            return f"the {name} layer does not have one mask: {description}"
    for mask, name in zip(masks, ("first", "second"), strict=False):
        n = mask.numel()
        kept_count = int(mask.sum())
        # With p = 0 all elements must be kept.
        if abs(kept_count - n * (1 - p)) > DEVIATIONS * (n * p * (1 - p)) ** 0.5 + (DEVIATIONS if p else 0):
            share = f"a share of {kept_count / n:.3f}"
            description = f"the {name} layer keeps {kept_count:,} of {n:,} elements, {share}, with p = {p}"
            return description + _period(mask)
    return _correlated(masks[0], masks[1], p)


def _period(mask: Tensor) -> str:
    """Describe a power-of-two period of a mask, as block sizes are; empty without one."""
    if bool((mask == mask[0]).all()):
        return ""
    blocks = (1 << power for power in range(4, (len(mask) - 1).bit_length()))
    period = next((block for block in blocks if torch.equal(mask[block:], mask[:-block])), None)
    return f"; it repeats itself after {period} elements, so few numbers are drawn" if period else ""


def _correlated(first: Tensor, second: Tensor, p: float) -> str | None:
    if len(first) < _FEWEST or len(first) * min(p, 1 - p) ** 2 < _RARE:
        return None
    for mask_a, mask_b, template in (
        (first, first, "the mask of the first layer repeats itself after {} elements"),
        (first, second, "the masks of the two layers, whose streams differ, are the same at a distance of {} elements"),
    ):
        deviations = correlations(mask_a, mask_b, p)
        if mask_a is mask_b:
            deviations[0] = 0
        worst = int(deviations.abs().argmax())
        if float(deviations[worst].abs()) > CORRELATED:
            distance = worst if worst < len(first) else worst - len(deviations)
            return (
                f"{template.format(abs(distance))}: their correlation is {float(deviations[worst]):.0f} deviations off"
            )
    return None


def correlations(mask_a: Tensor, mask_b: Tensor, p: float) -> Tensor:
    """Return the correlation of two masks at every distance up to 3/4 n, in standard deviations.

    Distance d is at index d, and -d at the d-th from the end of 2 n numbers; the value is 0 where the masks hardly
    overlap.
    """
    n = len(mask_a)
    # A product of spectra is a circular correlation. Zeros up to 2 n keep its ends apart.
    spectra = [torch.fft.rfft(mask.double() - (1 - p), 2 * n) for mask in (mask_a, mask_b)]
    sums = torch.fft.irfft(spectra[0].conj() * spectra[1], 2 * n)
    place = torch.arange(2 * n, device=mask_a.device)
    overlap = n - torch.minimum(place, 2 * n - place)
    return torch.where(overlap >= n // 4, sums / (p * (1 - p) * overlap.clamp(min=1).sqrt()), 0.0)


def extreme(
    rng: torch.Generator,
    x: Tensor,
    dout: Tensor,
    p: float,
    seed: int,
    offset: int,
    next_seed: int,
    next_offset: int,
) -> None:
    """Set values that float16 does not have. A mask depends on none of them."""
    for layer in (*x, *dout):
        draw.special_(rng, layer, [1e30, -1e30, 1e-30, -1e-30, 7e4, -7e4])


def largest_of_float16(x: Tensor, dout: Tensor, *scalars: float) -> tuple[Tensor, ...]:
    p, *numbers = scalars
    return reference(x.clamp(-65_504, 65_504), dout.clamp(-65_504, 65_504), p, *map(int, numbers))


PROBLEM = Problem(
    inputs=inputs,
    # The first serves vectors and says most: a wrong kernel is compiled once.
    cases=(
        {"n": 32_768, "p": 0.1, "dtype": "float32", "differ": "offset"},
        {"n": 16_384, "p": 0.98, "dtype": "float32", "differ": "seed"},
        {"n": 10_000, "p": 0.9, "dtype": "float32", "differ": "high half of the seed"},
        {"n": 4096, "p": 0.0, "dtype": "float32", "differ": "seed"},
        {"n": 16_384, "p": 0.1, "dtype": "bfloat16", "differ": "high half of the offset"},
        {"n": 4112, "p": 0.5, "dtype": "bfloat16", "differ": "seed and offset"},
        {"n": 1040, "p": 0.25, "dtype": "bfloat16", "differ": "seed"},
        {"n": 3, "p": 0.5, "dtype": "float32", "differ": "offset"},
    ),
    vary=("n",),
    # A p that 8 bits do not hold, and 1 - p has no error.
    limits=({"n": 65_552, "p": 1 - 2**-9, "dtype": "float32", "differ": "offset"},),
    far=({"n": (1 << 32) + 64, "p": 0.5, "dtype": "float32", "differ": "offset"},),
    reference=reference,
    settled=settled,
    outputs=OUTPUTS,
    tolerance={
        # 1 / (1 - p) in float32 is off by 1e-6 for p = 0.98. TF32 inside is off by 5e-4.
        "float32": Tolerance(rtol=1e-5, atol=0.0),
        # Rounding to bfloat16 costs 2^-8 = 3.9e-3, bfloat16 inside 1e-2 and more.
        "bfloat16": Tolerance(rtol=4e-3, atol=0.0),
    },
    extreme=extreme,
    faults={"values cut off at the largest of float16": largest_of_float16},
    compulsory_bytes=lambda n, p, dtype, differ: 8 * BYTES[dtype] * n,
)
