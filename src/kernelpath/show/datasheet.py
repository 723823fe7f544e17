"""Compare a measurement with a copy, and with the theoretical peaks that the GPU's data sheet states.

A verdict depends on measured ceilings only. The peaks are shown next to them because NVIDIA's documents and Nsight
Compute state throughput as a share of the peaks.
"""

from __future__ import annotations

from kernelpath import words
from kernelpath.course import registry
from kernelpath.grading.roofline import bandwidth
from kernelpath.show import results
from kernelpath.show.results import Datasheet
from kernelpath.verdict import Measurement

# If the measured ceiling takes this many times longer than memory alone, arithmetic sets it.
ARITHMETIC = 1.01


def is_compute_bound(measured: Measurement) -> bool:
    """Return whether arithmetic, not memory, sets the measured ceiling."""
    return measured.light_seconds > ARITHMETIC * measured.compulsory_bytes / bandwidth(measured.ceilings)


def copy_share(measured: Measurement) -> float | None:
    """Return the compulsory bytes per second over the bandwidth of a copy.

    None if arithmetic sets the measured ceiling, or between GPUs. A copy reads half of its bytes and writes the other
    half. DRAM is slower when it alternates between reads and writes, so a kernel that reads and writes cannot reach the
    bandwidth of the read-only ceiling.
    """
    copy = measured.ceilings.get("copy")
    if copy is None or is_compute_bound(measured):
        return None
    return measured.bytes_per_second / copy


def find(device: str) -> Datasheet | None:
    """Return the data sheet of a GPU by the name that its driver reports, or None."""
    return results.datasheets(registry.course()).get(device)


def peak(measured: Measurement, sheet: Datasheet) -> tuple[float, str] | None:
    """Return the share of the theoretical peak that bounds a measurement, and the peak as text.

    None if the data sheet does not state the peak.
    """
    if not is_compute_bound(measured):
        rate = sheet.peaks.get("copy to a peer" if "copy to a peer" in measured.ceilings else "memory")
        return None if rate is None else (measured.bytes_per_second / rate, words.bandwidth(rate))
    rate = max((sheet.peaks.get(name, 0.0) for name in measured.ceilings), default=0.0)
    return (measured.flops / measured.seconds / rate, words.arithmetic(rate)) if rate else None
