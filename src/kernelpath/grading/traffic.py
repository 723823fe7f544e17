"""Limits on what a kernel asks of the memory system, and the line that breaks one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kernelpath.course.problem import Case, arguments
from kernelpath.course.spec import Traffic
from kernelpath.simt.counters import AccessCounters
from kernelpath.simt.layout import Access
from kernelpath.verdict import Complaint, LineTraffic, Verdict

NEGLIGIBLE = 0.02
"""The share of a kernel's sectors that may be moved in vain: by the tail that fills no vector, or a short table."""

_ACCESSES = {Access.LOAD: "load from", Access.STORE: "store to", Access.ATOMIC: "atomic on"}


def line_traffic(counted: Iterable[tuple[str, AccessCounters]]) -> tuple[LineTraffic, ...]:
    """The PTX machine's counters of one call, by the name of the file that they belong to."""
    return tuple(
        LineTraffic(
            file=file,
            line=one.line,
            access=_ACCESSES[one.access],
            memory=one.buffer or "shared memory",
            requests=one.requests,
            sectors=one.sectors,
            ideal_sectors=0 if one.shared else one.least_sectors,
            wavefronts=one.wavefronts,
            ideal_wavefronts=one.least_wavefronts,
        )
        for file, one in counted
    )


def traffic_complaint(lines: Sequence[LineTraffic], limits: Traffic, compulsory: int, case: Case) -> Complaint | None:
    """The first limit broken, with the worst access and what it costs there. compulsory: bytes of the case."""
    sectors = sum(line.sectors for line in lines)
    if not sectors:
        return None
    if limits.sectors is not None:
        scattered = [line for line in lines if line.sectors_over_ideal > limits.sectors]
        if sum(line.sectors - line.ideal_sectors for line in scattered) > NEGLIGIBLE * sectors:
            worst = max(scattered, key=lambda line: line.sectors - line.ideal_sectors)
            return _traffic(worst, f"{worst.place}: {worst.cost}")
    if limits.bank_conflicts is not None:
        worst = max(lines, key=lambda line: line.bank_conflicts_per_request)
        if worst.bank_conflicts_per_request > limits.bank_conflicts:
            return _traffic(worst, f"{worst.place}: {worst.cost}")
    if limits.bytes is not None and 32 * sectors > limits.bytes * compulsory:
        worst = max(lines, key=lambda line: line.sectors)
        allowed = f"at most {int(limits.bytes * compulsory):,} are allowed"
        ideal = f"{compulsory:,} would do if nothing were moved twice"
        found = f"at {arguments(case)}: {32 * sectors:,} bytes moved, {allowed} ({ideal})"
        return _traffic(worst, f"{found}; most in {worst.place}")
    return None


def _traffic(line: LineTraffic, cause: str) -> Complaint:
    return Complaint(Verdict.TOO_MUCH_TRAFFIC, cause, line.file, line.line)
