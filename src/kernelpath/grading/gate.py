"""Decide whether a measured kernel is fast enough, and whether the gate is valid on this GPU."""

from __future__ import annotations

from kernelpath.grading import timing
from kernelpath.verdict import Finding, Measurement, Verdict

# The share of the reference kernel's speed, in the same run, that earns the third star.
THIRD_STAR = 0.9

# Compute capabilities of the GPUs, H100 and H200, on which every `min_speedup` was chosen.
#
# On other GPUs the same kernels may gain less over the same baseline, and the reference kernel shows what is possible.
GATED = ((9, 0),)


def check_speedup(
    measurement: Measurement, min_speedup: float, capability: tuple[int, int], baseline: str = "the baseline"
) -> Finding | None:
    """Return TOO_SLOW or INCONCLUSIVE with the numbers; None where the gate is passed.

    Args:
        measurement: The measurement.
        min_speedup: The gate.
        capability: The GPU's compute capability.
        baseline: The name of the implementation that `min_speedup` is relative to.
    """
    side = timing.compare_with_gate(measurement.speedup, min_speedup)
    if side == "above":
        return None
    speedup = f"{measurement.speedup.median:.2f} times {baseline}'s speed, {min_speedup:.2f} required"
    if side == "straddles":
        interval = f"between {measurement.speedup.low:.2f} and {measurement.speedup.high:.2f}"
        return Finding(Verdict.INCONCLUSIVE, f"{speedup}; after {measurement.rounds} rounds it lies {interval}")
    if reason := _invalid_gate_reason(measurement, min_speedup, capability):
        return Finding(Verdict.INCONCLUSIVE, f"{speedup}, but {reason}", then="kp bench {name}")
    return Finding(Verdict.TOO_SLOW, speedup)


def _invalid_gate_reason(measurement: Measurement, min_speedup: float, capability: tuple[int, int]) -> str:
    """Return the reason why the gate is not valid for a kernel below it; empty where the gate is valid.

    A gate is valid where the reference kernel passes it in the same run. A kernel near the reference's speed is not too
    slow, whatever it is compared with.
    """
    of_reference = measurement.of_reference
    seconds = measurement.reference_seconds
    if of_reference is None or seconds is None:
        if capability in GATED:
            return ""
        major, minor = capability
        return f"no gate was measured for sm_{major}{minor}, and there is no reference kernel to compare with"
    if of_reference.median >= THIRD_STAR:
        return f"{of_reference.median:.2f} times the reference kernel's in the same run"
    reference_speedup = measurement.baseline_seconds / seconds
    return (
        f"the reference kernel reaches {reference_speedup:.2f} on this GPU" if reference_speedup < min_speedup else ""
    )
