"""The measured ceiling on this machine, from ceilings measured on it in the same process, never from a data sheet."""

from __future__ import annotations

from collections.abc import Mapping

MARGIN = 0.85
"""The share of the measured ceiling below which a time cannot be true. It leaves room for a kernel that only writes."""


def bandwidth(ceilings: Mapping[str, float]) -> float:
    """The most bytes per second that a kernel can move: the better of copying and reading, or of copying to a peer."""
    peer = ceilings.get("copy to a peer")
    return max(ceilings["copy"], ceilings["read"]) if peer is None else peer


def light_seconds(compulsory_bytes: int, flops: int, ceilings: Mapping[str, float], dtype: str | None = None) -> float:
    """The least time in which this machine can move so many bytes and do so many operations, in seconds.

    At best the two overlap, so the longer one counts. `dtype` names the matrix product whose ceiling bounds `flops`;
    without it only the bytes count. Raises KeyError for a ceiling that was not measured.
    """
    moving = compulsory_bytes / bandwidth(ceilings)
    return moving if dtype is None else max(moving, flops / ceilings[f"matmul_{dtype}"])


def too_fast(seconds: float, light: float) -> bool:
    """Whether a time beats the measured ceiling by more than the ceilings' error, so that it cannot be true.

    Holds only for a working set well past L2: what fits there may legitimately beat DRAM.
    """
    return seconds < MARGIN * light
