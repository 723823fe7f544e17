"""Sample from the nucleus of each row of logits: temperature, top-k, top-p, and a given uniform number.

With the probabilities softmax(logits / temperature), a token is in the nucleus if fewer than top_k logits of the row
are greater than its own, and if their probabilities sum to less than p. Tokens with equal logits are in it together.
The sampled token is the first one, in the order of the vocabulary, at which the probabilities of the nucleus sum to
more than uniform times those of the whole nucleus, which are the third output.
"""

from __future__ import annotations

import torch

from kernelpath.course import draw
from kernelpath.course.problem import EXACT, Case, Problem, Tolerance

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
Outputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]

# No sum of probabilities that a kernel compares is closer to its limit: 500 times the unit roundoff of float32.
MARGIN = 2.0**-15

# The probability that a token or a group of equal ones must have for a limit to be put into its middle.
_SMALLEST = 8 * MARGIN


def inputs(rng: torch.Generator, rows: int, vocabulary: int) -> Inputs:
    """Generate logits whose probabilities fall with about the power 1.5 of their rank. See `_set_limits` for the rest.

    Every third row is rounded to bfloat16, as models return logits, and has many equal ones. Every second row, counted
    from the last one, has no limit on the number of tokens.
    """
    shape = (rows, vocabulary)
    rank = torch.rand(shape, generator=rng, device=rng.device).argsort(1) + 1
    noise = 0.3 * torch.randn(shape, generator=rng, device=rng.device)
    temperature = 0.5 + torch.rand(rows, generator=rng, device=rng.device)
    shift = 5 * torch.randn(rows, 1, generator=rng, device=rng.device)
    logits = temperature[:, None] * (noise - 1.5 * rank.log()) + shift
    logits[::3] = logits[::3].bfloat16().float()
    top_k = draw.integers(rng, rows, least=1, most=min(60, vocabulary), dtype="int32")
    top_k[(rows - 1) % 2 :: 2] = vocabulary
    p, uniform = torch.empty_like(temperature), torch.empty_like(temperature)
    _set_limits(rng, logits, temperature, top_k, p, uniform)
    return logits, temperature, top_k, p, uniform


def _above(logits: torch.Tensor, temperature: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return for each token its probability, and the number and the probability of those with greater logits."""
    probability = (logits.double() / temperature.double()[:, None]).softmax(1)
    values, order = (logits + 0.0).sort(dim=1, descending=True)
    cumulated = probability.gather(1, order).cumsum(1)
    before = torch.cat([torch.zeros_like(cumulated[:, :1]), cumulated[:, :-1]], 1)
    begins = torch.ones_like(values, dtype=torch.bool)
    begins[:, 1:] = values[:, 1:] != values[:, :-1]
    # Both grow along a row, so the greatest so far belongs to the beginning of a token's group.
    place = torch.arange(values.shape[1], device=values.device)
    count = torch.where(begins, place, 0).cummax(1).values
    mass = torch.where(begins, before, 0.0).cummax(1).values
    # The inverse of the sort: it brings the results back to the order of the vocabulary.
    back = order.argsort(1)
    return probability, count.gather(1, back), mass.gather(1, back)


def _set_limits(
    rng: torch.Generator,
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    p: torch.Tensor,
    uniform: torch.Tensor,
) -> None:
    """Set p and uniform, in place, to the middle of what a group of equal tokens, and a token, adds to a sum.

    So rounding cannot move a sum across them. The groups are those in which the cumulated probability passes a number
    from 0.3 to 0.9, or the last group before it that is large enough.
    """
    probability, count, mass = _above(logits, temperature)
    # The probability of a token's group: the next greater sum, or 1, less its own.
    ordered = mass.sort(dim=1).values
    following = torch.searchsorted(ordered, mass, right=True).clamp(max=ordered.shape[1] - 1)
    end = ordered.gather(1, following)
    group = torch.where(end > mass, end, 1.0) - mass
    goal = 0.3 + 0.6 * torch.rand(len(logits), 1, generator=rng, device=logits.device).double()
    middle = mass + group / 2
    p.copy_(torch.where((mass < goal) & (group >= _SMALLEST), middle, -1.0).amax(1))
    in_nucleus = (count < top_k[:, None]) & (mass < p.double()[:, None])
    share = torch.where(in_nucleus, probability, 0.0)
    share = share / share.sum(1, keepdim=True)
    drawn = torch.multinomial(torch.where(share >= _SMALLEST, share, 0.0), 1, generator=rng)
    # uniform ends up in the middle half of the drawn token's share.
    part = 0.25 + 0.5 * torch.rand(len(logits), 1, generator=rng, device=logits.device).double()
    uniform.copy_((share.cumsum(1).gather(1, drawn) - part * share.gather(1, drawn))[:, 0])
    # With 0, the nucleus's first token is drawn, whose share may be small: rounding leaves it above 0.
    uniform[2::4] = 0
    assert margin(logits, temperature, top_k, p, uniform) >= MARGIN


def margin(
    logits: torch.Tensor, temperature: torch.Tensor, top_k: torch.Tensor, p: torch.Tensor, uniform: torch.Tensor
) -> float:
    """Return the least distance of a cumulated probability from p, and of one in the nucleus from uniform.

    Sums before the nucleus are exactly 0, and so may uniform be. Rounding moves neither.
    """
    probability, count, mass = _above(logits, temperature)
    in_nucleus = (count < top_k[:, None]) & (mass < p.double()[:, None])
    share = torch.where(in_nucleus, probability, 0.0).cumsum(1)
    from_p = (mass - p.double()[:, None]).abs().amin()
    distance = (share / share[:, -1:] - uniform.double()[:, None]).abs()
    from_uniform = distance.masked_fill(uniform[:, None] == 0, 1.0).amin()
    return float(torch.minimum(from_p, from_uniform))


def reference(
    logits: torch.Tensor, temperature: torch.Tensor, top_k: torch.Tensor, p: torch.Tensor, uniform: torch.Tensor
) -> Outputs:
    probability, count, mass = _above(logits, temperature)
    return _sample(probability, (count < top_k[:, None]) & (mass < p.double()[:, None]), uniform)


def _sample(probability: torch.Tensor, in_nucleus: torch.Tensor, uniform: torch.Tensor) -> Outputs:
    cumulated = torch.where(in_nucleus, probability, 0.0).cumsum(1)
    token = (cumulated <= uniform.double()[:, None] * cumulated[:, -1:]).sum(1)
    return token.int(), in_nucleus.sum(1).int(), cumulated[:, -1]


def eager(
    logits: torch.Tensor, temperature: torch.Tensor, top_k: torch.Tensor, p: torch.Tensor, uniform: torch.Tensor
) -> Outputs:
    """Compute by operators, as libraries did for a long time: sort the whole row, and cumulate in the sorted order.

    Of equal logits, some may be in the nucleus and some not, and uniform selects in the sorted order.
    """
    probability, order = (logits / temperature[:, None]).softmax(1).sort(dim=1, descending=True)
    before = probability.cumsum(1) - probability
    place = torch.arange(logits.shape[1], device=logits.device)
    in_nucleus = (before < p[:, None]) & (place < top_k[:, None])
    cumulated = torch.where(in_nucleus, probability, 0.0).cumsum(1)
    chosen = (cumulated <= uniform[:, None] * cumulated[:, -1:]).sum(1, keepdim=True)
    return order.gather(1, chosen)[:, 0].int(), in_nucleus.sum(1).int(), cumulated[:, -1]


def extreme(
    rng: torch.Generator,
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    p: torch.Tensor,
    uniform: torch.Tensor,
) -> None:
    """Set the rows, in turn: few different logits with zeros of both signs; logits near 10,000 and -10,000; one that is
    certain. In all of them, most tokens are masked by -inf: past 3000 of the first kind, and past 500 of the others.
    """
    kind = torch.arange(len(logits), device=logits.device)[:, None] % 4
    rank = torch.rand(logits.shape, generator=rng, device=logits.device).argsort(1)
    equal = 0.25 * torch.randint(-1, 2, logits.shape, generator=rng, device=logits.device)
    # Two of three zeros are 0.0, so that p is between the sums without and with the others.
    equal = torch.where((equal == 0) & (rank % 3 == 0), -0.0, equal)
    spread = torch.where(rank < 50, -0.125 * rank, -20.0)
    certain = torch.where(rank == 0, 0.0, -60.0 - rank % 7)
    values = torch.where(kind == 0, equal, torch.where(kind == 1, 1e4 + spread, spread - 1e4))
    logits.copy_(torch.where(kind == 3, certain, values))
    logits[rank >= torch.where(kind == 0, 3000, 500)] = -float("inf")
    _set_limits(rng, logits, temperature, top_k, p, uniform)


def magnitudes(
    logits: torch.Tensor, temperature: torch.Tensor, top_k: torch.Tensor, p: torch.Tensor, uniform: torch.Tensor
) -> Outputs:
    """Return for kept the vocabulary times kept: the error of float32 sums of as many terms (see softmax.magnitudes).

    The greatest probability is a third of the sum. A thread that adds a thousand others to it loses those below half a
    unit in the last place, and with 131,072 tokens most are.
    """
    token, size, kept = reference(logits, temperature, top_k, p, uniform)
    return token, size, logits.shape[1] * kept


def unordered(rng: torch.Generator, *arguments: torch.Tensor) -> None:
    """Change nothing: the last bits of a float sum of hundreds of probabilities depend on its order."""


def without_maximum(
    logits: torch.Tensor, temperature: torch.Tensor, top_k: torch.Tensor, p: torch.Tensor, uniform: torch.Tensor
) -> Outputs:
    """Compute exponentials of the logits as they are, which overflow float32, or are all 0."""
    token, size, kept = reference(logits, temperature, top_k, p, uniform)
    is_far = logits.amax(1).abs() > 1000
    return torch.where(is_far, 0, token).int(), torch.where(is_far, 0, size).int(), torch.where(is_far, torch.nan, kept)


def signed_zeros(
    logits: torch.Tensor, temperature: torch.Tensor, top_k: torch.Tensor, p: torch.Tensor, uniform: torch.Tensor
) -> Outputs:
    """Take -0.0 for less than 0.0, as an order of bits does."""
    is_negative_zero = (logits == 0) & torch.signbit(logits)
    lowered = torch.where(is_negative_zero, -1e-30, logits)
    return reference(lowered, temperature, top_k, p, uniform)


def token_that_reaches(
    logits: torch.Tensor, temperature: torch.Tensor, top_k: torch.Tensor, p: torch.Tensor, uniform: torch.Tensor
) -> Outputs:
    """Sample the token at which the sum reaches the number, which may be one before the nucleus if both are 0."""
    token, size, kept = reference(logits, temperature, top_k, p, uniform)
    return torch.where(uniform == 0, 0, token).int(), size, kept


def compulsory_bytes(rows: int, vocabulary: int) -> int:
    return 4 * rows * vocabulary + 28 * rows


def case(rows: int, vocabulary: int) -> Case:
    return {"rows": rows, "vocabulary": vocabulary}


PROBLEM = Problem(
    inputs=inputs,
    cases=(case(1, 1), case(5, 33), case(8, 1000), case(3, 4099), case(4, 20_000)),
    vary=("rows", "vocabulary"),
    reference=reference,
    outputs=("token", "size", "kept"),
    first_dtype="int32",
    # Exponentials are off by 2^-20 at most, and a sum by a few roundings of 2^-24 if it is a tree: mtol is for others.
    tolerance={"int32": EXACT, "float32": Tolerance(rtol=1e-5, atol=0.0, mtol=2**-24)},
    magnitudes=magnitudes,
    extreme=extreme,
    unordered=unordered,
    faults={
        "no maximum": without_maximum,
        "zeros of two signs": signed_zeros,
        "the token at which the sum reaches the number": token_that_reaches,
    },
    # A row takes a block, and a block clears and searches its counters whatever the vocabulary is. With 2048 counters,
    # which one thread searches, that takes 2.7 million instructions of lanes, and the PTX machine stops a launch after
    # 2^31. 300 rows leave 7 million for each.
    limits=(case(300, 2), case(1, 131_072)),
    must_reach={"rows": 256, "vocabulary": 131_072},
    gpu_limits=(case(65_537, 2),),
    compulsory_bytes=compulsory_bytes,
    flops=lambda rows, vocabulary: 4 * rows * vocabulary,
)
