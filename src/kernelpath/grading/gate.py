"""Whether a measured kernel is fast enough, and where its gate says nothing."""

from __future__ import annotations

from kernelpath.grading import timing
from kernelpath.verdict import Finding, Measurement, Verdict

THIRD_STAR = 0.9
"""The share of the reference kernel's speed, in the same run, that earns the third star."""

GATED = ((9, 0),)
"""Compute capabilities of the GPUs, H100 and H200, on which every `min_speedup` was chosen.

Elsewhere the same kernels may gain less over the same baseline, and the reference kernel tells what can be reached.
"""


def check_speedup(
    measured: Measurement, min_speedup: float, capability: tuple[int, int], raced: str = "the baseline"
) -> Finding | None:
    """TOO_SLOW or INCONCLUSIVE, with the numbers; None when the gate is passed.

    capability: of the GPU. raced: what `min_speedup` is a ratio to.
    """
    side = timing.judge(measured.speedup, min_speedup)
    if side == "above":
        return None
    found = f"{measured.speedup.median:.2f} times {raced}'s speed, {min_speedup:.2f} required"
    if side == "straddles":
        interval = f"between {measured.speedup.low:.2f} and {measured.speedup.high:.2f}"
        return Finding(Verdict.INCONCLUSIVE, f"{found}; after {measured.rounds} rounds it lies {interval}")
    if unfair := _unfair(measured, min_speedup, capability):
        return Finding(Verdict.INCONCLUSIVE, f"{found}, but {unfair}", then="kp bench {name}")
    return Finding(Verdict.TOO_SLOW, found)


def _unfair(measured: Measurement, min_speedup: float, capability: tuple[int, int]) -> str:
    """Why a gate says nothing about a kernel below it; empty where it does.

    A gate is fair where the reference kernel passes it in the same run, and a kernel near the reference's speed is not
    too slow whatever it is compared with.
    """
    of_reference, seconds = measured.of_reference, measured.reference_seconds
    if of_reference is None or seconds is None:
        if capability in GATED:
            return ""
        major, minor = capability
        return f"no gate was measured for sm_{major}{minor}, and there is no reference kernel to compare with"
    if of_reference.median >= THIRD_STAR:
        return f"{of_reference.median:.2f} times the reference kernel's in the same run"
    reached = measured.baseline_seconds / seconds
    return f"the reference kernel reaches {reached:.2f} on this GPU" if reached < min_speedup else ""
