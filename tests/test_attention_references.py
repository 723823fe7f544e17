"""The references of week 29 equal the formulas of their statements, and take few operators at any size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelpath.course.problem import Problem
from kernelpath.course.problems import linear_attention, sink_decode, window_attention


def recur(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return out and the last state of linear attention, token by token, and the magnitudes of their terms."""
    q, k, v, g = (x.double() for x in (q, k, v, g))
    state = torch.zeros(*q.shape[:2], q.shape[3], v.shape[3], dtype=torch.float64)
    magnitude = state.clone()
    outs, magnitudes = [], []
    for token in range(q.shape[2]):
        decay = g[:, :, token, None, None].exp()
        term = k[:, :, token, :, None] * v[:, :, token, None, :]
        state = decay * state + term
        magnitude = decay * magnitude + term.abs()
        outs.append((q[:, :, token, None, :] @ state)[:, :, 0])
        magnitudes.append((q[:, :, token, None, :].abs() @ magnitude)[:, :, 0])
    return torch.stack(outs, 2), state, torch.stack(magnitudes, 2), magnitude


@pytest.mark.parametrize("tokens", [1, 255, 256, 257, 600])
@pytest.mark.parametrize("decay", ["typical", "none", "total", "extreme"])
def test_linear_attention_in_chunks_equals_the_recurrence(tokens: int, decay: str) -> None:
    rng = torch.Generator().manual_seed(tokens)
    q, k, v, g = linear_attention.inputs(rng, **linear_attention.case(tokens, 64, heads=3))
    if decay == "extreme":
        linear_attention.extreme(rng, q, k, v, g)
    elif decay != "typical":
        g.fill_({"none": 0.0, "total": -100.0}[decay])
    out, state, out_magnitude, state_magnitude = recur(q, k, v, g)
    # Terms cancel, so the error is relative to their magnitudes. Running sums reach 25,600, whose unit roundoff is
    # 4e-12; the exponentials are off by as much.
    for actual, expected, scale in zip(
        linear_attention.reference(q, k, v, g), (out, state), (out_magnitude, state_magnitude), strict=True
    ):
        assert float(((actual - expected).abs() / scale).max()) < 1e-11
    for actual, expected in zip(linear_attention.magnitudes(q, k, v, g), (out_magnitude, state_magnitude), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-11, atol=0)


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, hidden: torch.Tensor, sink: torch.Tensor) -> torch.Tensor:
    """Return attention of all pairs in float64, with a sink for each query head."""
    group = q.shape[1] // k.shape[1]
    key, value = (x.double().repeat_interleave(group, 1) for x in (k, v))
    scores = (q.double() @ key.mT * q.shape[-1] ** -0.5).masked_fill(hidden, -torch.inf)
    top = torch.maximum(scores.amax(-1, keepdim=True), sink.double()[:, None, None])
    weights = (scores - top).exp()
    total = weights.sum(-1, keepdim=True) + (sink.double()[:, None, None] - top).exp()
    attended: torch.Tensor = weights / total @ value
    return attended


# The reference has blocks of 512 queries: the window and the sinks reach past the beginning of a block, or not.
@pytest.mark.parametrize(("tokens", "window", "sinks"), [(1, 1, 0), (513, 1, 4), (1100, 70, 600), (1030, 2000, 3)])
def test_window_attention_by_blocks_equals_all_scores(tokens: int, window: int, sinks: int) -> None:
    case = window_attention.case(tokens, 64, window, sinks, batch=2, heads=4, kv_heads=2)
    q, k, v, *_ = window_attention.inputs(torch.Generator().manual_seed(tokens), **case)
    query, key = torch.arange(tokens)[:, None], torch.arange(tokens)
    hidden = (key > query) | ((query - key >= window) & (key >= sinks))
    expected = attend(q, k, v, hidden, torch.full((4,), -torch.inf))
    torch.testing.assert_close(window_attention.reference(q, k, v, window, sinks), expected, rtol=1e-12, atol=1e-12)


def test_sequences_of_a_decode_step_are_computed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    case = sink_decode.case(33, 64, batch=5, heads=4, kv_heads=2)
    q, k, v, sink = sink_decode.inputs(torch.Generator().manual_seed(0), **case)
    expected = attend(q[:, :, None], k, v, torch.zeros(33, dtype=torch.bool), sink)[:, :, 0]
    for sequences in (1, 2, 5):
        monkeypatch.setattr(sink_decode, "_ELEMENTS", sequences * 2 * 33 * 64)
        torch.testing.assert_close(sink_decode.reference(q, k, v, sink), expected, rtol=1e-12, atol=1e-12)


class OperatorCount(TorchDispatchMode):
    """Count the calls of PyTorch's operators. On a GPU, half of them launch a kernel; the others are views."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("problem", "case"),
    [
        (linear_attention.PROBLEM, linear_attention.case(65_537, 64)),
        (sink_decode.PROBLEM, sink_decode.case(1, 64, batch=65_537)),
        (window_attention.PROBLEM, window_attention.case(1, 64, 1, 0, batch=65_537)),
    ],
)
def test_references_of_large_cases_take_few_operators(problem: Problem, case: dict[str, Any]) -> None:
    """A loop over 65,537 tokens, sequences, or heads takes seconds on a GPU, and a grading calls references often."""
    assert case in problem.gpu_limits
    inputs = problem.inputs(torch.Generator().manual_seed(0), **case)
    reference: Callable[..., Any] = problem.reference
    with OperatorCount() as operators:
        reference(*inputs)
    assert 0 < operators.count < 20_000
