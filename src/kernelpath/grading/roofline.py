"""Compute the least time of a kernel on this machine, from ceilings measured on it and never from a data sheet."""

from __future__ import annotations

from collections.abc import Mapping

# The share of the measured least time below which a time cannot be true. It leaves room for a kernel that only
# writes.
MARGIN = 0.85


def bandwidth(ceilings: Mapping[str, float]) -> float:
    """Return the most bytes per second that a kernel can move: the better of copying and reading.

    Between GPUs that is the bandwidth of a copy to a peer.
    """
    peer = ceilings.get("copy to a peer")
    return max(ceilings["copy"], ceilings["read"]) if peer is None else peer


def light_seconds(compulsory_bytes: int, flops: int, ceilings: Mapping[str, float], dtype: str | None = None) -> float:
    """Return the least seconds in which this machine can move these bytes and do these operations, at measured rates.

    At best the two overlap, so the longer one counts. `dtype` names the matrix product whose ceiling bounds `flops`;
    without it only the bytes count. Raises KeyError for a ceiling that was not measured.
    """
    memory_seconds = compulsory_bytes / bandwidth(ceilings)
    return memory_seconds if dtype is None else max(memory_seconds, flops / ceilings[f"matmul_{dtype}"])


def too_fast(seconds: float, light: float) -> bool:
    """Return whether a time beats the least time by more than the ceilings' error, so that it cannot be true.

    This is valid only for a working set much larger than L2: data that fits in L2 may move faster than DRAM allows.
    """
    return seconds < MARGIN * light
