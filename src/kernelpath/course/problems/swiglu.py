"""SwiGLU, forward and backward: h = silu(gate) * up, where gate and up are the two halves of x @ w.T.

silu(g) = g sigmoid(g). w has a row for each column of gate, then one for each of up, as nn.Linear has its weights, so
n, the columns of h, are half of its rows. With the gradient dh of h come dx and dw; without it, none (inference).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import silu

from kernelpath.course import draw
from kernelpath.course.problem import Case, Problem, Tolerance
from kernelpath.course.problems import matmul, matmul_half

Tensors = tuple[torch.Tensor, ...]


def inputs(
    rng: torch.Generator, m: int, n: int, k: int, dtype: str, backward: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Scale w so that gates are a few units in size, where silu bends. There are no large values."""
    x = draw.normal(rng, m, k, dtype=dtype, large=0)
    w = draw.normal(rng, 2 * n, k, dtype=dtype, large=0, mean=0.0).mul_((k / 2) ** -0.5)
    return x, w, draw.normal(rng, m, n, dtype=dtype, large=0) if backward else None


def extreme(rng: torch.Generator, x: torch.Tensor, w: torch.Tensor, dh: torch.Tensor | None) -> None:
    """Set gates whose exponentials overflow: without dh integers that cancel, or infinities where k is odd times 8.

    Then a row and a column of h are infinite, by one product of positive factors each.
    """
    if dh is not None:
        w[: len(w) // 2] *= 64
    elif x.shape[1] % 16:
        for line in (x[:, -1], w[:, -1]):
            line.abs_().clamp_(min=1)
        x[-1, -1] = w[0, -1] = float("inf")
    else:
        matmul_half.cancelling(rng, x, w.T)
        w[len(w) // 2 :] /= 256


def reference(x: torch.Tensor, w: torch.Tensor, dh: torch.Tensor | None) -> torch.Tensor | Tensors:
    gate, up = (x.double() @ w.double().T).chunk(2, dim=1)
    return gated(x, w, dh, gate, up, gate.sigmoid())


def gated(
    x: torch.Tensor,
    w: torch.Tensor,
    dh: torch.Tensor | None,
    gate: torch.Tensor,
    up: torch.Tensor,
    sigmoid: torch.Tensor,
) -> torch.Tensor | Tensors:
    """Compute the outputs from both halves of the product."""
    h = gate * sigmoid * up
    if dh is None:
        return h
    d_gate = dh * up * sigmoid * (1 + gate * (1 - sigmoid))
    d_up = dh * gate * sigmoid
    d_gate_up = torch.cat([d_gate, d_up], dim=1)
    return h, d_gate_up @ w.double(), d_gate_up.T @ x.double()


def quotient_of_exponentials(x: torch.Tensor, w: torch.Tensor, dh: torch.Tensor | None) -> torch.Tensor | Tensors:
    """Compute sigmoid(g) as exp(g) / (1 + exp(g)) in float32: infinity over infinity for large g."""
    gate, up = (x.double() @ w.double().T).chunk(2, dim=1)
    grown = gate.float().exp()
    return gated(x, w, dh, gate, up, (grown / (1 + grown)).double())


def summed_in_halves(x: torch.Tensor, w: torch.Tensor, dh: torch.Tensor | None) -> torch.Tensor | Tensors:
    """Round the sum of each half of k to the dtype of the inputs."""
    gate, up = matmul_half.summed_in_halves(x, w.T).chunk(2, dim=1)
    return gated(x, w, dh, gate, up, gate.sigmoid())


def rest_times_zero(x: torch.Tensor, w: torch.Tensor, dh: torch.Tensor | None) -> torch.Tensor | Tensors:
    """Multiply the padding beyond k in the last step by 0 instead of leaving it out."""
    gate, up = (x.double() @ w.double().T + 0 * x.double().sum()).chunk(2, dim=1)
    return gated(x, w, dh, gate, up, gate.sigmoid())


ROUNDED_ONCE = Tolerance(rtol=1.01 * 2**-8, atol=1e-4)


def rounded_once(inputs: Sequence[Any], outputs: Sequence[torch.Tensor]) -> str | None:
    """Check that h is rounded once; dx and dw include the rounding of their factors, so their tolerance is wider.

    Values that are wrong by more than that are listed as usual.
    """
    x, w, _ = inputs
    h = outputs[0].double().cpu()
    truth = reference(x, w, None)
    assert isinstance(truth, torch.Tensor)
    finite = truth.isfinite().cpu()
    h = h[finite]
    truth = truth.cpu()[finite]
    off = (h - truth).abs()
    scale = truth.square().mean().sqrt()
    wrong = int((off > ROUNDED_ONCE.rtol * truth.abs() + ROUNDED_ONCE.atol * scale).sum())
    if not wrong or not bool((off <= 0.03 * (truth.abs() + scale)).all()):
        return None
    return f"{wrong:,} of {finite.numel():,} elements of h are off by more than one rounding: gate and up stay float32"


def library(x: torch.Tensor, w: torch.Tensor, dh: torch.Tensor | None) -> torch.Tensor | Tensors:
    """Compute by torch's operators, one for each step."""
    gate, up = (x @ w.T).chunk(2, dim=1)
    if dh is None:
        return silu(gate) * up
    sigmoid = gate.sigmoid()
    d_gate_up = torch.cat([dh * up * sigmoid * (1 + gate * (1 - sigmoid)), dh * gate * sigmoid], dim=1)
    return silu(gate) * up, d_gate_up @ w, d_gate_up.T @ x


def compulsory_bytes(m: int, n: int, k: int, dtype: str, backward: bool) -> int:
    """Count x, w and h; with dh also dh, dx and dw. gate and up can be recomputed and need no memory."""
    return 2 * (m * k + 2 * n * k + m * n) * (2 if backward else 1)


def case(m: int, n: int, k: int, dtype: str = "bfloat16", backward: bool = False) -> Case:
    return {"m": m, "n": n, "k": k, "dtype": dtype, "backward": backward}


PROBLEM = Problem(
    inputs=inputs,
    # Rows of tensors that TMA can describe begin at multiples of 16 bytes: n and k are multiples of 8.
    cases=(
        case(72, 40, 112, "float16"),
        case(1, 8, 8, "float16"),
        case(33, 72, 104, backward=True),
        case(66, 80, 80, "float16", backward=True),
        case(328, 272, 32),  # bytes of h, more than those of x and w
    ),
    vary=("m",),
    limits=(case(65_537, 8, 8), case(8, 2_056, 8), case(8, 8, 4_104)),
    must_reach=matmul.BEYOND_A_TILE,
    reference=reference,
    outputs=("h", "dx", "dw"),
    # dx and dw are sums of products whose factors were rounded once or twice, by up to 2^-8 of each: some thousandths
    # of the root mean square, and five times that for the worst element. A derivative that is wrong is off by tenths.
    tolerance={"bfloat16": Tolerance(rtol=2**-7, atol=3e-2), "float16": Tolerance(rtol=2**-10, atol=4e-3)},
    extreme=extreme,
    faults={
        "the rest of a tile times 0": rest_times_zero,
        "sums rounded halfway": summed_in_halves,
        "sigmoid as a quotient of exponentials": quotient_of_exponentials,
    },
    compulsory_bytes=compulsory_bytes,
    flops=lambda m, n, k, dtype, backward: (12 if backward else 4) * m * n * k,
)
