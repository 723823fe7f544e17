"""Route tokens to experts: the top_k experts of each token with their weights, and the rows sorted by expert.

Every token takes top_k rows of a matrix in which the rows of an expert are neighbors, in the order of their tokens.
`rows[t, j]` is the row of token t for its expert number j, `source` has the token of each row, and expert e has the
rows from offsets[e] to offsets[e + 1] - 1.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from kernelpath.course import draw
from kernelpath.course.problem import ANY_FINITE, EXACT, Case, Problem, Tolerance

Outputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def inputs(rng: torch.Generator, tokens: int, experts: int, top_k: int, balance: str) -> tuple[torch.Tensor, int]:
    """Generate the logits of a gate.

    Args:
        balance: "even": all experts are alike. "skewed": lower experts are preferred. "one": all tokens go to the same
            experts.
    """
    logits = draw.normal(rng, tokens, experts, large=0, mean=0.0)
    expert = torch.arange(experts, device=rng.device)
    if balance == "skewed":
        # A slope that is large against the deviation of the logits, and leaves some tokens to every expert.
        logits -= 4 * expert / experts
    elif balance == "one":
        # The last experts, so that a kernel which orders by number and not by logit is wrong.
        logits[:, experts - top_k :] += 50
    return logits, top_k


def sort_by_expert(experts_of: torch.Tensor, experts: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return rows, source and offsets for the experts of each token, (tokens, top_k)."""
    # Stable: tokens of one expert keep their order, which makes the result unique.
    order = experts_of.flatten().sort(stable=True).indices
    rows = torch.empty_like(order)
    # The inverse permutation: where each (token, choice) went.
    rows[order] = torch.arange(order.numel(), device=order.device)
    counts = torch.bincount(experts_of.flatten(), minlength=experts)
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return rows.view_as(experts_of).int(), (order // experts_of.shape[1]).int(), offsets.int()


def _routed(logits: torch.Tensor, experts_of: torch.Tensor) -> Outputs:
    """Return the outputs for the experts of each token."""
    weights = logits.double().gather(1, experts_of).softmax(1)
    return weights, *sort_by_expert(experts_of, logits.shape[1])


def reference(logits: torch.Tensor, top_k: int) -> Outputs:
    # Adding 0 turns -0.0 into 0.0: the two are equal, and the lower expert comes first.
    ranked = (logits.double() + 0.0).sort(dim=1, descending=True, stable=True).indices
    return _routed(logits, ranked[:, :top_k])


def eager(logits: torch.Tensor, top_k: int) -> Outputs:
    """Compute by operators: softmax, top-k, a sort of the experts, and a histogram."""
    values, experts_of = logits.softmax(1).topk(top_k, dim=1)
    return values / values.sum(1, keepdim=True), *sort_by_expert(experts_of, logits.shape[1])


def extreme(rng: torch.Generator, logits: torch.Tensor, top_k: int) -> None:
    """Set the rows, in turn: many equal logits, with zeros of both signs; logits that are low, high, or far apart.

    Far apart means that all probabilities but one are 0 in float32.
    """
    tokens, experts = logits.shape
    shape = (tokens, experts)
    kind = torch.arange(tokens, device=rng.device)[:, None] % 4
    equal = torch.randint(-1, 2, shape, generator=rng, device=rng.device).float()
    equal = torch.where((equal == 0) & (torch.rand(shape, generator=rng, device=rng.device) < 0.5), -0.0, equal)
    rank = torch.rand(shape, generator=rng, device=rng.device).argsort(1).float()
    # Both ends of the domain. A softmax without a maximum overflows, and a mask of -1e30 is above these logits.
    low = ANY_FINITE[0] * ((1 + rank) / experts)
    # The lowest float, with which PyTorch's code often masks: to stand for an expert that is gone, it is too high.
    low = torch.where(rank >= experts // 2, torch.finfo(torch.float32).min, low)
    high = ANY_FINITE[1] * ((1 + rank) / experts)
    # exp(-200) is 0 in float32, so only the order of the logits tells which expert is second.
    spread = -200 * rank
    logits.copy_(torch.where(kind == 0, equal, torch.where(kind == 1, low, torch.where(kind == 2, high, spread))))


def unordered(rng: torch.Generator, logits: torch.Tensor, top_k: int) -> None:
    """Change nothing: a wrong order of rows shows with any values."""


def chosen_by_probability(logits: torch.Tensor, top_k: int) -> Outputs:
    """Choose by probabilities in float32: where they are 0, the order of their logits is lost."""
    ranked = logits.softmax(1).sort(dim=1, descending=True, stable=True).indices
    return _routed(logits, ranked[:, :top_k])


def last_of_equals(logits: torch.Tensor, top_k: int) -> Outputs:
    """Choose the higher expert where logits are equal."""
    ranked = (logits.double() + 0.0).flip(1).sort(dim=1, descending=True, stable=True).indices
    return _routed(logits, logits.shape[1] - 1 - ranked[:, :top_k])


def without_maximum(logits: torch.Tensor, top_k: int) -> Outputs:
    """Compute the exponentials of the logits without a maximum, which overflow float32."""
    weights, rows, source, offsets = reference(logits, top_k)
    overflow = logits.amax(1, keepdim=True) > 88
    return weights.masked_fill(overflow, torch.nan), rows, source, offsets


def masked_with(value: float) -> Callable[[torch.Tensor, int], Outputs]:
    """Return a fault that gives an expert that is chosen this logit, which lower logits may not reach."""

    def route(logits: torch.Tensor, top_k: int) -> Outputs:
        remaining = logits.double() + 0.0
        chosen = []
        for _ in range(top_k):
            chosen.append(remaining.sort(dim=1, descending=True, stable=True).indices[:, :1])
            remaining = remaining.scatter(1, chosen[-1], value)
        return _routed(logits, torch.cat(chosen, 1))

    return route


def compulsory_bytes(tokens: int, experts: int, top_k: int, balance: str) -> int:
    return 4 * (tokens * experts + 3 * tokens * top_k + experts + 1)


def case(tokens: int, experts: int, top_k: int, balance: str = "even") -> Case:
    return {"tokens": tokens, "experts": experts, "top_k": top_k, "balance": balance}


PROBLEM = Problem(
    inputs=inputs,
    # Blocks of 16 to 128 tokens; numbers of experts around powers of two, and of models: 8, 60, 128.
    cases=(
        case(1, 1, 1),
        case(7, 3, 3),
        case(130, 60, 4, "skewed"),
        case(69, 128, 8, "one"),
        case(1000, 13, 1, "skewed"),
        case(1500, 64, 6),
    ),
    vary=("tokens",),
    reference=reference,
    outputs=("weights", "rows", "source", "offsets"),
    # Exponentials and their sum in float32: a few roundings of 2^-24 each, and 2^-21 by the approximate exponential.
    tolerance={"float32": Tolerance(rtol=1e-5, atol=1e-6), "int32": EXACT},
    extreme=extreme,
    unordered=unordered,
    faults={
        "chosen by probability": chosen_by_probability,
        "the last of equal logits": last_of_equals,
        "no maximum subtracted": without_maximum,
        "chosen experts masked with a low value": masked_with(-1e30),
        "chosen experts masked with the lowest float": masked_with(torch.finfo(torch.float32).min),
    },
    limits=(case(65_537, 2, 1), case(5, 512, 16)),
    domain=ANY_FINITE,
    compulsory_bytes=compulsory_bytes,
    flops=lambda tokens, experts, top_k, balance: tokens * experts * top_k,
)
