"""Cross-entropy of a linear layer: the logits h @ w.T in float32, and of each row the loss and the log-sum-exp.

lse[r] = log(sum over v of exp(h[r] . w[v])) and loss[r] = lse[r] - h[r] . w[labels[r]], 0 where the label is IGNORED.
"""

from __future__ import annotations

import torch

from kernelpath.course import draw
from kernelpath.course.problem import Case, Problem, Tolerance

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Outputs = tuple[torch.Tensor, torch.Tensor]

# The label of a row that does not count, PyTorch's default.
IGNORED = -100


# The permitted error in units of `magnitudes`.
MTOL = 2.0**-15


def inputs(rng: torch.Generator, rows: int, vocabulary: int, hidden: int) -> Inputs:
    """Generate logits with a deviation of 3, around 0, 64, or -64 in turn from row to row.

    The first column of w is 1, so that the first column of h shifts all logits of a row, which changes no loss.
    """
    h = draw.normal(rng, rows, hidden, dtype="bfloat16", large=0, mean=0.0)
    w = draw.normal(rng, vocabulary, hidden, dtype="bfloat16", large=0, mean=0.0).mul_(3 / hidden**0.5)
    w[:, 0] = 1
    _shift(h, 64)
    labels = draw.integers(rng, rows, least=0, most=vocabulary - 1, dtype="int64")
    labels[0] = vocabulary - 1 - labels[0] // 2  # in the upper half, which few bits may not reach
    labels[2::5] = IGNORED
    return h, w, labels


def _shift(h: torch.Tensor, by: float) -> None:
    """Set the first column: 0, by, and -by in turn."""
    h[:, 0] = torch.tensor([0.0, by, -by], dtype=h.dtype, device=h.device).repeat(len(h) // 3 + 1)[: len(h)]


def extreme(rng: torch.Generator, h: torch.Tensor, w: torch.Tensor, labels: torch.Tensor) -> None:
    """Shift the logits of rows by 1984 in both directions, and make the label of every fourth row certain."""
    certain = torch.arange(len(h), device=h.device) % 4 == 3
    h[certain] = 8 * w[labels[certain].clamp(min=0)]
    _shift(h, 1984)


def _losses(h: torch.Tensor, w: torch.Tensor, labels: torch.Tensor, lse: torch.Tensor) -> Outputs:
    target = (h.double() * w.double()[labels.clamp(min=0)]).sum(1)
    return torch.where(labels == IGNORED, 0.0, lse - target), lse


def reference(h: torch.Tensor, w: torch.Tensor, labels: torch.Tensor) -> Outputs:
    return _losses(h, w, labels, (h.double() @ w.double().T).logsumexp(dim=1))


def magnitudes(h: torch.Tensor, w: torch.Tensor, labels: torch.Tensor) -> Outputs:
    """Return the largest sum of the magnitudes of a logit's terms, whose roundings reach both outputs, and, in units of
    MTOL, the error of the sum of exponentials.

    A float32 sum of n terms is off by up to n * 2^-24 of itself (see softmax.magnitudes), and its logarithm by as much.
    """
    largest = (h.double().abs() @ w.double().abs().T).amax(dim=1)
    of_sum = len(w) * 2**-24 / MTOL
    return 2 * largest + of_sum, largest + of_sum


def eager(h: torch.Tensor, w: torch.Tensor, labels: torch.Tensor) -> Outputs:
    """Compute by operators: logits in bfloat16, then a copy in float32, then their log-probabilities."""
    logits = (h @ w.T).float()
    loss = torch.nn.functional.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="none")
    return loss, logits.logsumexp(dim=1)


def without_maximum(h: torch.Tensor, w: torch.Tensor, labels: torch.Tensor) -> Outputs:
    """Compute exponentials of the logits as they are, which overflow float32, or are all 0."""
    logits = h.double() @ w.double().T
    return _losses(h, w, labels, logits.float().exp().sum(1).log().double())


def maximum_from_a_low_value(h: torch.Tensor, w: torch.Tensor, labels: torch.Tensor) -> Outputs:
    """Start the maximum at -1000, which loses logits down to -2000."""
    logits = h.double() @ w.double().T
    top = logits.amax(dim=1, keepdim=True).clamp(min=-1000)
    return _losses(h, w, labels, (logits - top).float().exp().sum(1).log().double() + top[:, 0])


def maximum_from_zero(h: torch.Tensor, w: torch.Tensor, labels: torch.Tensor) -> Outputs:
    """Start the maximum at 0, which loses logits far below."""
    logits = h.double() @ w.double().T
    top = logits.amax(dim=1, keepdim=True).clamp(min=0)
    return _losses(h, w, labels, (logits - top).float().exp().sum(1).log().double() + top[:, 0])


def compulsory_bytes(rows: int, vocabulary: int, hidden: int) -> int:
    return 2 * hidden * (rows + vocabulary) + 16 * rows


def case(rows: int, vocabulary: int, hidden: int) -> Case:
    return {"rows": rows, "vocabulary": vocabulary, "hidden": hidden}


PROBLEM = Problem(
    inputs=inputs,
    # Tiles are 16 to 128 rows high and 32 to 256 classes wide.
    cases=(
        case(1, 1, 16),
        case(33, 127, 32),
        case(129, 65, 48),
        case(5, 1031, 16),
        case(17, 257, 528),
        case(128, 4000, 64),
    ),
    vary=("rows", "vocabulary"),
    reference=reference,
    outputs=("loss", "lse"),
    first_dtype="float32",
    # The products are exact in float32. Tensor cores truncate their sums at 2^-23 of the largest term, once for each 16
    # terms and always towards 0: 2^-15 of all magnitudes for 4096 terms, of which a logit with one large term came
    # close to half. Approximate exponentials are off by 2^-21, and so is the logarithm of their sum. Logits rounded to
    # bfloat16 are off by up to 2^-8.
    tolerance={"float32": Tolerance(rtol=2e-6, atol=2e-6, mtol=MTOL)},
    magnitudes=magnitudes,
    extreme=extreme,
    faults={
        "no maximum": without_maximum,
        "a maximum that begins at 0": maximum_from_zero,
        "a maximum that begins at -1000": maximum_from_a_low_value,
    },
    limits=(case(65_537, 2, 16), case(1, 131_072, 16), case(2, 3, 4096)),
    must_reach={"vocabulary": 131_072, "hidden": 4096},
    compulsory_bytes=compulsory_bytes,
    flops=lambda rows, vocabulary, hidden: 2 * rows * vocabulary * hidden,
    product_dtype="bfloat16",
)
