"""GRPO's loss of ragged answers and its gradient, divided by the number of tokens that count.

Sequence s has the tokens offsets[s] to offsets[s + 1] - 1, and belongs to group s // group_size. With the mean and the
deviation of the rewards of its group, its advantage is A = (rewards[s] - mean) / (deviation + 1e-6). For each token
with mask 1, ratio = exp(logp - old_logp) and d = ref_logp - logp, and the token's loss is

    -min(ratio * A, clip(ratio, 1 - epsilon, 1 + epsilon) * A) + beta * (exp(d) - d - 1)

loss[s] is the sum over these tokens of sequence s, divided by the number of these tokens in all sequences. GRPO is from
DeepSeekMath (arXiv 2402.03300), which averages over the tokens of each answer and then over answers. DAPO (arXiv
2503.14476) divides by the tokens of a batch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from kernelpath.course import draw
from kernelpath.course.problem import Case, Problem, Tolerance

Outputs = tuple[torch.Tensor, torch.Tensor]


class Inputs(NamedTuple):
    """The arguments of the entry, in order."""

    logp: torch.Tensor
    old_logp: torch.Tensor
    ref_logp: torch.Tensor
    mask: torch.Tensor
    rewards: torch.Tensor
    offsets: torch.Tensor
    group_size: int
    longest: int
    epsilon: float
    beta: float


# Added to the deviation of a group's rewards.
EPS = 1e-6

# No ratio is this close to a bound of the clip, where rounding would decide whether a token has a gradient.
GAP = 1e-3

# Differences of 20 make exponentials that are off by 2e-6, a mean of 64 rewards is off by up to 4e-6 of their size,
# which is half of an advantage's terms, and a sum of 64 partial sums in any order is off by up to 4e-6 of their
# magnitudes. Values rounded to bfloat16 are off by 4e-3.
TOLERANCE = Tolerance(rtol=1e-5, atol=0.0, mtol=5e-6)

_GOLDEN_RATIO = 0.618033988749895


def lengths(sequences: int, longest: int) -> list[int]:
    """Return the tokens of each sequence: the second one of several is the longest, most are short, some are empty."""
    fractions = (number * _GOLDEN_RATIO % 1 for number in range(1, sequences))
    tokens = [0 if number % 16 == 5 else int(longest * part**2) for number, part in enumerate(fractions)]
    # The longest one starts in the middle of a sector.
    tokens.insert(1, longest)
    return tokens


def _tool_output(length: int) -> range:
    """Return the tokens of a sequence that a tool wrote, and not the policy: they do not count."""
    return range(length * 2 // 5, length * 3 // 5)


def _inputs(
    rng: torch.Generator, sequence_lengths: list[int], group_size: int, longest: int, epsilon: float, beta: float
) -> Inputs:
    tokens = sum(sequence_lengths)
    old_logp = -draw.normal(rng, tokens, large=0, mean=2.0).abs()
    logp = old_logp + draw.normal(rng, tokens, large=0, mean=0.0) * 0.3
    ref_logp = logp + draw.normal(rng, tokens, large=0, mean=0.0) * 0.3
    logp[::5] = old_logp[::5]  # as in the first step after sampling, where every ratio is 1
    ratio = (logp.double() - old_logp).exp()
    is_near = ((ratio - (1 - epsilon)).abs() < GAP) | ((ratio - (1 + epsilon)).abs() < GAP)
    logp += 8 * GAP * is_near
    mask = torch.ones(tokens, dtype=torch.uint8, device=rng.device)
    start = 0
    for length in sequence_lengths:
        tool_output = _tool_output(length)
        mask[start + tool_output.start : start + tool_output.stop] = 0
        start += length
    # The share of tests that an answer passes, and a part for its form.
    rewards = draw.integers(rng, len(sequence_lengths), least=0, most=10, dtype="int64").float() / 10
    rewards += draw.integers(rng, len(sequence_lengths), least=0, most=1, dtype="int64").float() / 4
    offsets = torch.tensor([0, *sequence_lengths], device=rng.device).cumsum(0).int()
    return Inputs(logp, old_logp, ref_logp, mask, rewards, offsets, group_size, longest, epsilon, beta)


def inputs(rng: torch.Generator, groups: int, group_size: int, longest: int, epsilon: float, beta: float) -> Inputs:
    """Generate ratios on both sides of both bounds, and some equal to 1; a fifth of each sequence has mask 0."""
    return _inputs(rng, lengths(groups * group_size, longest), group_size, longest, epsilon, beta)


def redistributed(
    rng: torch.Generator, groups: int, group_size: int, longest: int, epsilon: float, beta: float
) -> Inputs:
    """Generate sequences of the same lengths in another order."""
    ordered = lengths(groups * group_size, longest)
    order = torch.randperm(len(ordered), generator=rng, device=rng.device).tolist()
    return _inputs(rng, [ordered[place] for place in order], group_size, longest, epsilon, beta)


def extreme(rng: torch.Generator, *arguments: Any) -> None:
    """Set NaN where the mask is 0, groups of equal or similar rewards of either sign, and logarithms that are 20 apart.

    A tenth of the tokens do not count, besides those of tools, so that the number of those that do differs from call to
    call. No token of a single sequence counts.
    """
    batch = Inputs(*arguments)
    by_group = batch.rewards.view(-1, batch.group_size)
    by_group[::2] = 20 * torch.rand(len(by_group[::2]), 1, generator=rng, device=rng.device) - 10
    # The mean square is 98, whose unit in the last place is as large as the variance.
    by_group[1::4] = -9.9 + 0.003 * torch.randn(by_group[1::4].shape, generator=rng, device=rng.device)
    # As similar as a mean in float32 still tells: a lower bound of the deviation would change the advantages.
    by_group[3::4] = 0.25 + 1e-4 * torch.randn(by_group[3::4].shape, generator=rng, device=rng.device)
    by_group.clamp_(-10, 10)
    tokens = len(batch.logp)
    twenty = torch.tensor([20.0, -20.0], device=rng.device).repeat(tokens // 2 + 1)[:tokens]
    for log_probabilities, difference in ((batch.old_logp, twenty), (batch.ref_logp, -twenty)):
        places = torch.randint(tokens, (tokens // 8,), generator=rng, device=rng.device)
        log_probabilities[places] = (batch.logp + difference)[places]
    batch.mask[torch.rand(tokens, generator=rng, device=rng.device) < 0.1] = 0
    if len(batch.rewards) == 1:
        batch.mask.zero_()
    for values in (batch.logp, batch.old_logp, batch.ref_logp):
        values[batch.mask == 0] = torch.nan


def _advantages(batch: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the advantage of each sequence and the magnitude of its terms, both 0 in a group of equal rewards."""
    by_group = batch.rewards.double().view(-1, batch.group_size)
    mean = by_group.mean(1, keepdim=True)
    divisor = (by_group - mean).square().mean(1, keepdim=True).sqrt() + EPS
    # Even in float64, the mean of equal rewards may be another number.
    differ = (by_group != by_group[:, :1]).any(1, keepdim=True)
    advantages = torch.where(differ, (by_group - mean) / divisor, 0.0)
    magnitudes = torch.where(differ, (by_group.abs() + mean.abs()) / divisor, 0.0)
    return advantages.flatten(), magnitudes.flatten()


def _sequence_of_token(batch: Inputs) -> torch.Tensor:
    sequences = torch.arange(len(batch.rewards), device=batch.rewards.device)
    return sequences.repeat_interleave(batch.offsets.diff().long(), output_size=len(batch.logp))


class _Tokens(NamedTuple):
    """The tokens that count: the sequence of each, and in float64 its advantage, its ratio, d, and the clipped term.

    The clipped term is clip(ratio, 1 - epsilon, 1 + epsilon) * advantage.
    """

    sequence: torch.Tensor
    advantage: torch.Tensor
    ratio: torch.Tensor
    d: torch.Tensor
    clipped: torch.Tensor


def _tokens_that_count(batch: Inputs, advantages: torch.Tensor) -> _Tokens:
    counts = batch.mask > 0
    sequence = _sequence_of_token(batch)[counts]
    advantage = advantages.double()[sequence]
    logp = batch.logp.double()[counts]
    ratio = (logp - batch.old_logp[counts]).exp()
    clipped = ratio.clamp(1 - batch.epsilon, 1 + batch.epsilon) * advantage
    return _Tokens(sequence, advantage, ratio, batch.ref_logp[counts] - logp, clipped)


def _divided_sums(batch: Inputs, sequence: torch.Tensor, terms: torch.Tensor, slopes: torch.Tensor) -> Outputs:
    """Divide terms and slopes by the number of tokens, and return the sum of each sequence and the gradient."""
    number = max(1, len(terms))
    dlogp = torch.zeros_like(batch.logp, dtype=torch.float64)
    dlogp[batch.mask > 0] = slopes / number
    return torch.zeros_like(batch.rewards, dtype=torch.float64).index_add(0, sequence, terms / number), dlogp


def losses(batch: Inputs, advantages: torch.Tensor) -> Outputs:
    """Return losses and gradient in float64, given the advantage of each sequence."""
    sequence, advantage, ratio, d, clipped = _tokens_that_count(batch, advantages)
    terms = -torch.minimum(ratio * advantage, clipped) + batch.beta * (d.exp() - d - 1)
    slopes = torch.where(ratio * advantage <= clipped, -ratio * advantage, 0.0) + batch.beta * (1 - d.exp())
    return _divided_sums(batch, sequence, terms, slopes)


def reference(
    logp: torch.Tensor,
    old_logp: torch.Tensor,
    ref_logp: torch.Tensor,
    mask: torch.Tensor,
    rewards: torch.Tensor,
    offsets: torch.Tensor,
    group_size: int,
    longest: int,
    epsilon: float,
    beta: float,
) -> Outputs:
    batch = Inputs(logp, old_logp, ref_logp, mask, rewards, offsets, group_size, longest, epsilon, beta)
    advantages, _ = _advantages(batch)
    return losses(batch, advantages)


def magnitudes(*arguments: Any) -> Outputs:
    """Return the sum of the magnitudes of the terms: of a sequence for its loss, and of a token for its gradient.

    A float32 mean of n rewards is off by at most n * 2^-24 times the mean of their magnitudes (Higham, Accuracy and
    Stability of Numerical Algorithms, 4.2), and all advantages of the group by this error over the deviation. The
    deviations from a mean that is off by e have a root mean square of sqrt(deviation^2 + e^2), which is a second-order
    error. So an advantage has the error of the magnitude that `_advantages` returns, times up to 2e-6 for 64 rewards.
    """
    batch = Inputs(*arguments)
    advantages, advantage_terms = _advantages(batch)
    sequence, advantage, ratio, d, clipped = _tokens_that_count(batch, advantages)
    advantage_term = advantage_terms[sequence]
    clipped_ratio = ratio.clamp(1 - batch.epsilon, 1 + batch.epsilon)
    # The minimum selects the ratio or the clipped ratio by the sign of the advantage. If rounding of the mean may have
    # changed this sign, a right kernel selects either of them.
    is_sign_uncertain = advantage.abs() <= TOLERANCE.mtol * advantage_term
    selects_ratio = ratio * advantage <= clipped
    factor = torch.where(selects_ratio, ratio, clipped_ratio)
    factor = torch.where(is_sign_uncertain, torch.maximum(ratio, clipped_ratio), factor)
    terms = factor * advantage_term + batch.beta * (d.exp() + d.abs() + 1)
    slope_terms = torch.where(selects_ratio | is_sign_uncertain, ratio * advantage_term, 0.0)
    slopes = slope_terms + batch.beta * (1 + d.exp())
    return _divided_sums(batch, sequence, terms, slopes)


def eager(*arguments: Any) -> Outputs:
    """Compute by operators: each reads one or two vectors of all tokens and writes another, forward and backward."""
    batch = Inputs(*arguments)
    by_group = batch.rewards.view(-1, batch.group_size)
    deviation = by_group.std(1, correction=0, keepdim=True)
    advantages = ((by_group - by_group.mean(1, keepdim=True)) / (deviation + EPS)).flatten()
    sequence = _sequence_of_token(batch)
    advantage = advantages[sequence]
    leaf = batch.logp.detach().requires_grad_()
    with torch.enable_grad():
        ratio = (leaf - batch.old_logp).exp()
        clipped = ratio.clamp(1 - batch.epsilon, 1 + batch.epsilon)
        d = batch.ref_logp - leaf
        terms = batch.beta * (d.exp() - d - 1) - torch.minimum(ratio * advantage, clipped * advantage)
        loss = torch.zeros_like(batch.rewards).index_add(0, sequence, terms * batch.mask / batch.mask.sum())
    return loss.detach(), torch.autograd.grad(loss.sum(), leaf)[0]


def masked_by_multiplication(*arguments: Any) -> Outputs:
    """Multiply the values of tokens that do not count by 0, which keeps NaN."""
    batch = Inputs(*arguments)
    loss, dlogp = reference(*arguments)
    products = (batch.logp + batch.old_logp + batch.ref_logp).double() * 0
    return loss.index_add(0, _sequence_of_token(batch), products), dlogp + products


def equal_rewards_in_float32(*arguments: Any) -> Outputs:
    """Subtract a mean in float32, which may differ from rewards that are all equal, by about EPS."""
    batch = Inputs(*arguments)
    by_group = batch.rewards.view(-1, batch.group_size)
    total = torch.zeros_like(by_group[:, 0])
    for reward in by_group.unbind(1):
        total = total + reward
    centered = by_group - (total / batch.group_size)[:, None]
    advantages = centered / (centered.square().mean(1, keepdim=True).sqrt() + EPS)
    return losses(batch, advantages.flatten())


def rewards_from_zero(*arguments: Any) -> Outputs:
    """Take rewards for shares, which are not negative."""
    batch = Inputs(*arguments)
    return reference(*batch._replace(rewards=batch.rewards.clamp(min=0)))


def deviation_from_a_thousandth(*arguments: Any) -> Outputs:
    """Divide by at least 0.001, which changes the advantages of more similar rewards."""
    batch = Inputs(*arguments)
    by_group = batch.rewards.double().view(-1, batch.group_size)
    centered = by_group - by_group.mean(1, keepdim=True)
    deviation = centered.square().mean(1, keepdim=True).sqrt()
    advantages, _ = _advantages(batch)
    return losses(
        batch, advantages * ((deviation + EPS) / deviation.clamp(min=1e-3)).repeat_interleave(batch.group_size)
    )


def compulsory_bytes(groups: int, group_size: int, longest: int, epsilon: float, beta: float) -> int:
    """Count the mask and the gradient of all tokens, and three log-probabilities of those that count."""
    sequence_lengths = lengths(groups * group_size, longest)
    tokens = sum(length - len(_tool_output(length)) for length in sequence_lengths)
    return 5 * sum(sequence_lengths) + 12 * tokens + 12 * len(sequence_lengths) + 4


def flops(groups: int, group_size: int, longest: int, epsilon: float, beta: float) -> int:
    return 20 * sum(lengths(groups * group_size, longest))


def case(groups: int, group_size: int, longest: int, epsilon: float = 0.2, beta: float = 0.04) -> Case:
    return {"groups": groups, "group_size": group_size, "longest": longest, "epsilon": epsilon, "beta": beta}


PROBLEM = Problem(
    inputs=inputs,
    # Sequences around blocks of 128 and 1024 tokens, of which 1024 start in the middle of a sector; so many groups of a
    # size that is no power of two that the float32 mean of some equal rewards is another number in any order of
    # additions; other bounds, and no divergence.
    cases=(
        case(1, 1, 1),
        case(2, 3, 129, beta=0.0),
        case(48, 13, 31, epsilon=0.28),
        case(1, 16, 1024, beta=0.001),
        case(1, 8, 8193),
    ),
    vary=("groups", "longest"),
    reference=reference,
    outputs=("loss", "dlogp"),
    redistributed=redistributed,
    tolerance={"float32": TOLERANCE},
    magnitudes=magnitudes,
    extreme=extreme,
    faults={
        "masked by a multiplication": masked_by_multiplication,
        "equal rewards in float32": equal_rewards_in_float32,
        "negative rewards as 0": rewards_from_zero,
        "a deviation of at least 0.001": deviation_from_a_thousandth,
    },
    # A program for each answer may take a block of 1024 tokens, so that many answers are too much work for the PTX
    # machine.
    limits=(case(2049, 2, 1), case(1, 2, 65_537), case(3, 64, 5)),
    gpu_limits=(case(65_537, 1, 1),),
    must_reach={"groups": 2048, "group_size": 64},
    compulsory_bytes=compulsory_bytes,
    flops=flops,
)
