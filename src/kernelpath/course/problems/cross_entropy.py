"""Cross-entropy over the rows of a matrix of logits, and its gradient, computed in float32.

loss[r] = log(sum of exp(logits[r, :])) - logits[r, labels[r]], 0 where the label is ignore_index, and NaN where it is
neither that nor a class. The gradient is that of the mean of the losses over the rows whose label is not ignore_index:
(softmax - 1 at the label) / their number.
"""

from __future__ import annotations

import torch

from kernelpath.course import draw
from kernelpath.course.problem import BYTES, Problem, Tolerance

# One row in so many is ignored.
IGNORED = 8

Outputs = torch.Tensor | tuple[torch.Tensor, torch.Tensor]


def inputs(
    rng: torch.Generator, rows: int, classes: int, dtype: str, gradient: bool
) -> tuple[torch.Tensor, torch.Tensor, int, bool]:
    """Return logits, labels as int64, ignore_index, and whether the gradient is required.

    Every second row is near 100, where exp overflows; one row in eight is decided by a single value. ignore_index is
    -100, PyTorch's default, or one of the classes, as a padding token is.
    """
    logits = draw.normal(rng, rows, classes, dtype=dtype, large=rows // 8)
    if not logits.is_meta:
        logits[::2] += 100
    labels = draw.integers(rng, rows, least=0, most=classes - 1, dtype="int64")
    ignore_index = classes // 2 if classes % 2 and classes > 1 else -100
    labels[labels == ignore_index] += 1
    labels[1::IGNORED] = ignore_index
    return logits, labels, ignore_index, gradient


def extreme(
    rng: torch.Generator, logits: torch.Tensor, labels: torch.Tensor, ignore_index: int, gradient: bool
) -> None:
    """Set the rows, in turn: a label that is no class, a masked first half, a certain label near -1e6, values far below
    0, a plain row.

    Some labels that are no class are far outside of memory. A single row is ignored, so no row counts.
    """
    rows, classes = logits.shape
    kinds = (torch.arange(rows, device=logits.device) + int(torch.randint(5, (), generator=rng, device=rng.device))) % 5
    # A kernel that converts a label to an int takes (1 << 32) + 1 for class 1, and 1 << 40 for class 0.
    beyond = torch.tensor([1 << 40, -(1 << 40), -1, classes, (1 << 32) + 1], device=labels.device)
    labels[kinds == 0] = beyond[torch.arange(rows, device=labels.device) % len(beyond)][kinds == 0]
    half = classes // 2
    masked = kinds == 1
    logits[masked, :half] = -float("inf")
    inside = masked & (labels != ignore_index)
    labels[inside] = labels[inside].clamp(min=half)
    labels[inside & (labels == ignore_index)] = classes - 1
    if rows >= 5:  # of fewer, no loss might be far from 0, and every error would count
        certain = ((kinds == 2) & (labels != ignore_index)).nonzero()[:, 0]
        logits[certain] -= 1e6
        logits[certain, labels[certain]] = -1e5
    logits[kinds == 3] -= 1000
    if rows == 1:
        labels.fill_(ignore_index)


def reference(logits: torch.Tensor, labels: torch.Tensor, ignore_index: int, gradient: bool) -> Outputs:
    wide_logits = logits.double()
    is_counted = labels != ignore_index
    is_class = is_counted & (labels >= 0) & (labels < logits.shape[1])
    place = torch.where(is_class, labels, 0)[:, None]
    otherwise = torch.where(is_counted, torch.nan, 0.0).double()
    loss = torch.where(is_class, wide_logits.logsumexp(dim=1) - wide_logits.gather(1, place)[:, 0], otherwise)
    if not gradient:
        return loss
    share = torch.where(is_class, 1 / is_counted.sum().double(), otherwise)[:, None]
    return loss, wide_logits.softmax(dim=1).mul_(share).scatter_add_(1, place, -share)


def magnitudes(logits: torch.Tensor, labels: torch.Tensor, ignore_index: int, gradient: bool) -> Outputs:
    """Return the magnitudes of the terms of the loss, and of the error of each probability.

    log(sum of exp(logits)) is as large as the logits. Rounded to float32, it changes the loss by up to 2^-24 of itself,
    and each probability exp(logit - log(sum)) by this error times the probability. The gradient at the label is a
    difference of a probability and 1, so the error of the gradient may be a larger share of the gradient. The sum
    itself, of n terms, is off by up to n * 2^-24 (see softmax.magnitudes), half of mtol for each term.
    """
    wide_logits = logits.double()
    lse = wide_logits.logsumexp(dim=1)
    is_counted = labels != ignore_index
    place = torch.where(is_counted & (labels >= 0) & (labels < logits.shape[1]), labels, 0)[:, None]
    of_sum = logits.shape[1] / 2
    loss = lse.abs() + wide_logits.gather(1, place)[:, 0].abs() + of_sum
    if not gradient:
        return loss
    return loss, wide_logits.softmax(dim=1) * ((lse.abs() + of_sum) / is_counted.sum().clamp(min=1))[:, None]


def operators(logits: torch.Tensor, labels: torch.Tensor, ignore_index: int, gradient: bool) -> Outputs:
    """Call PyTorch's operators: all log-probabilities are written, and read again for the gradient."""
    leaf = logits.detach().requires_grad_(gradient)
    with torch.set_grad_enabled(gradient):
        loss = torch.nn.functional.cross_entropy(leaf, labels, ignore_index=ignore_index, reduction="none")
        if not gradient:
            return loss
        mean = loss.sum() / (labels != ignore_index).sum()
    return loss.detach(), torch.autograd.grad(mean, leaf)[0]


def clamped(logits: torch.Tensor, labels: torch.Tensor, ignore_index: int, gradient: bool) -> Outputs:
    """Replace a label that is no class by the nearest class."""
    nearest = labels.clamp(0, logits.shape[1] - 1)
    return reference(logits, torch.where(labels == ignore_index, labels, nearest), ignore_index, gradient)


def maximum_from_zero(logits: torch.Tensor, labels: torch.Tensor, ignore_index: int, gradient: bool) -> Outputs:
    """Start the maximum at 0, which loses values far below."""
    top = logits.double().amax(dim=1, keepdim=True).clamp(min=0)
    shifted_back = ((logits.double() - top).float().exp().log().double() + top).to(logits.dtype)
    return reference(shifted_back, labels, ignore_index, gradient)


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        {"rows": 1, "classes": 8, "dtype": "float32", "gradient": True},
        {"rows": 5, "classes": 127, "dtype": "bfloat16", "gradient": True},
        {"rows": 5, "classes": 128, "dtype": "bfloat16", "gradient": False},
        {"rows": 5, "classes": 129, "dtype": "bfloat16", "gradient": True},
        {"rows": 10, "classes": 1009, "dtype": "float32", "gradient": True},
        {"rows": 10, "classes": 2056, "dtype": "bfloat16", "gradient": True},
        {"rows": 5, "classes": 20_481, "dtype": "bfloat16", "gradient": True},
        {"rows": 10, "classes": 10_240, "dtype": "float32", "gradient": True},
        {"rows": 4100, "classes": 9, "dtype": "float32", "gradient": True},
    ),
    vary=("rows", "classes"),
    far=({"rows": (1 << 15) + 3, "classes": 1 << 17, "dtype": "bfloat16", "gradient": True},),
    reference=reference,
    outputs=("loss", "dlogits"),
    first_dtype="float32",
    tolerance={
        # A probability has the error of exp. At a label that is certain, the gradient is a difference of two numbers
        # near 1: off by 6e-8 of them, where the root mean square over 20,481 classes is 1 / 143: atol.
        # Near -1000, rounding the logarithm of the sum costs 3e-5 of each probability: mtol, for two roundings. It also
        # covers the sum, one term after another.
        "float32": Tolerance(rtol=2e-5, atol=5e-5, mtol=2.0**-23),
        # Rounding the gradient alone costs 2^-8 = 3.9e-3; a sum in bfloat16 is off by more, in all classes alike.
        "bfloat16": Tolerance(rtol=4e-3, atol=5e-5, mtol=2.0**-23),
    },
    magnitudes=magnitudes,
    extreme=extreme,
    faults={"the nearest class": clamped, "a maximum that begins at 0": maximum_from_zero},
    limits=({"rows": 1, "classes": 262_144, "dtype": "bfloat16", "gradient": True},),
    must_reach={"rows": 4_096},
    gpu_limits=({"rows": 65_537, "classes": 8, "dtype": "float32", "gradient": True},),
    # Nothing needs the logits of an ignored row.
    compulsory_bytes=lambda rows, classes, dtype, gradient: (
        BYTES[dtype] * classes * (rows - len(range(1, rows, IGNORED)) + gradient * rows) + 12 * rows
    ),
    flops=lambda rows, classes, dtype, gradient: (4 + 4 * gradient) * rows * classes,
)
