"""Limits on what a kernel asks of the memory system, and the line that breaks one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kernelpath import words
from kernelpath.course.problem import Case, arguments
from kernelpath.course.spec import Exercise, Traffic
from kernelpath.line_counters import LineTraffic
from kernelpath.verdict import Finding, Verdict
from warpcheck.counters import AccessCounters
from warpcheck.layout import SECTOR, Access

NEGLIGIBLE = 0.02
"""The share of a kernel's sectors that may be wasted: by a tail that fills no vector, or a short table."""

COLUMNS_OF_A_SECTOR = 8
"""Columns of float32 in a sector. In a matrix of fewer, neighboring threads that compute an element each are in
different rows of what they read (an embedding of one column, a matrix times a vector): whichever thread takes which
element, each access is a sector of its own."""

SPARE = 32
"""Sectors, or wavefronts, that any case may spend on its edges."""

EDGE = 2.0
"""How many times the limit on bytes a smaller case may use: what is read once in the largest may be read twice here.

Each request may also touch one more sector, which its first and its last lane share with others."""

BANKS = "kp profile {name}"
"""The next step after a bank conflict: it draws the banks, while the first hints are about global memory."""

WIDTHS = "kp profile {name} --sass"
"""The next step where a line has instructions of several widths: it shows them."""

OPERATIONS_PER_CYCLE = 256
"""Of an SM of Hopper in float32: 128 multiply-adds, of two operations each."""

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
            scattered=one.scattered,
            same_address=one.same_address,
            asynchronous=one.asynchronous,
            bulk=one.bulk,
            lanes=one.lanes,
            bytes=one.bytes,
        )
        for file, one in counted
    )


def beyond(limits: Traffic, lines: Iterable[LineTraffic]) -> tuple[LineTraffic, ...]:
    """The lines that waste more than the limits allow for each."""
    return tuple(
        line
        for line in lines
        if (limits.sectors is not None and line.sectors_over_ideal > limits.sectors)
        or (limits.bank_conflicts is not None and line.bank_conflicts_per_request > limits.bank_conflicts)
    )


def check_case(
    exercise: Exercise, case: Case, lines: Sequence[LineTraffic], returned: int, columns: int = COLUMNS_OF_A_SECTOR
) -> Finding | None:
    """Return the first limit that a case breaks. On the largest they hold as declared, on others with room for edges.

    Same-address contention is limited on every case. returned: bytes of the outputs. columns: the length of their
    shortest rows; where it is below COLUMNS_OF_A_SECTOR, scattered requests are not limited on smaller cases.
    """
    if found := check_contention(lines, exercise.traffic, case):
        return found
    compulsory = exercise.compulsory_bytes(**case)
    if case is exercise.largest:
        operations = exercise.flops(**case) if exercise.flops else 0
        return (
            check_global_memory(lines, exercise.traffic, compulsory, case, returned)
            or check_shared_memory(lines, exercise.traffic, operations, case)
            or check_asynchronous_copies(lines, exercise.traffic, case)
            or check_bulk_copies(lines, exercise.traffic, case)
        )
    limits = exercise.traffic
    if columns < COLUMNS_OF_A_SECTOR:
        limits = replace(limits, sectors=None)
    if case in exercise.limits:
        return check_edge_case(lines, limits, None, case, returned)
    most = exercise.compulsory_bytes(**exercise.largest)  # 0: a report moves nothing
    share = compulsory / most if most else 0.0
    return check_edge_case(lines, limits, compulsory, case, returned, share)


def check_global_memory(
    lines: Sequence[LineTraffic], limits: Traffic, compulsory: int, case: Case, returned: int
) -> Finding | None:
    """The first limit broken, with the worst access and what it costs there. compulsory: bytes of the case.

    returned: bytes of its outputs.
    """
    sectors = sum(line.sectors for line in lines)
    if not sectors:
        return None
    if limits.sectors is not None:
        scattered = [line for line in lines if line.sectors_over_ideal > limits.sectors]
        if sum(line.sectors - line.ideal_sectors for line in scattered) > NEGLIGIBLE * sectors:
            worst = max(scattered, key=lambda line: line.sectors - line.ideal_sectors)
            if not worst.mixed:
                return _traffic(worst, f"{worst.place}: {worst.cost}")
            told = _traffic(worst, f"at {arguments(case)}: {worst.place}: {worst.cost}; {_widths(worst)}")
            return replace(told, then=WIDTHS)
        if found := _scattered(lines, case):
            return found
    if limits.bank_conflicts is not None and (found := _conflicts(lines, limits.bank_conflicts)):
        return found
    if limits.bytes is not None:
        return _bytes(lines, limits.bytes * compulsory, compulsory, case, returned)
    return None


def check_edge_case(
    lines: Sequence[LineTraffic], limits: Traffic, compulsory: int | None, case: Case, returned: int, share: float = 0.0
) -> Finding | None:
    """As `check_global_memory`, for a case that may be all edges: small, of odd sizes, not aligned, or a row too long.

    Each request for shared memory may take one more wavefront, as two 2-byte elements of a word do.
    compulsory: None where bytes are not limited. share: of those of the largest case.
    """
    requests = sum(line.requests for line in lines if line.sectors)
    if limits.bytes is not None and compulsory is not None and limits.large is not None and share >= limits.large:
        allowed = limits.bytes * compulsory + SECTOR * (requests + SPARE)
        if found := _bytes(lines, allowed, compulsory, case, returned):
            return found
    if limits.edges is None:
        return None
    if limits.sectors is not None and (found := _scattered(lines, case, limits.edges)):
        return found
    if limits.bank_conflicts is not None and (found := _conflicts(lines, limits.bank_conflicts + 1, SPARE)):
        return found
    if limits.bytes is not None and compulsory is not None:
        allowed = EDGE * limits.bytes * compulsory + SECTOR * (requests + SPARE)
        return _bytes(lines, allowed, compulsory, case, returned)
    return None


def check_contention(lines: Sequence[LineTraffic], limits: Traffic, case: Case) -> Finding | None:
    """Of a line whose atomics on global memory meet at one address more often than the limit, by more than SPARE."""
    if limits.same_address is None:
        return None
    over = {line: line.same_address - limits.same_address * line.requests for line in lines if line.sectors}
    worst = max(over, key=lambda line: over[line], default=None)
    if worst is None or over[worst] <= SPARE:
        return None
    turns = words.taking_turns(worst.same_address_per_request)
    return _traffic(worst, f"at {arguments(case)}: {worst.place}: {turns}")


def check_shared_memory(lines: Sequence[LineTraffic], limits: Traffic, operations: int, case: Case) -> Finding | None:
    """Of a kernel whose shared memory takes longer than its arithmetic; operations: of the case."""
    cycles, wavefronts = operations // OPERATIONS_PER_CYCLE, sum(line.wavefronts for line in lines)
    if limits.shared is None or wavefronts <= limits.shared * cycles:
        return None
    worst = max(lines, key=lambda line: line.wavefronts)
    told = f"at {arguments(case)}: {wavefronts:,} wavefronts beside {cycles:,} cycles of multiply-adds"
    return _traffic(worst, f"{told}, at most {int(limits.shared * cycles):,} are allowed; most in {worst.place}")


def check_asynchronous_copies(lines: Sequence[LineTraffic], limits: Traffic, case: Case) -> Finding | None:
    """Of a kernel whose tiles go through registers."""
    stores = [line for line in lines if line.wavefronts and line.access == _ACCESSES[Access.STORE]]
    total, copied = sum(one.ideal_wavefronts for one in stores), sum(one.asynchronous for one in stores)
    if limits.asynchronous is None or (copied > 0 and copied >= limits.asynchronous * total):
        return None
    told = (
        f"at {arguments(case)}: {copied / max(total, 1):.0%} of what is stored to shared memory are asynchronous copies"
    )
    least = f"at least {limits.asynchronous:.0%} should be"
    if not stores:
        return Finding(Verdict.TOO_MUCH_TRAFFIC, f"{told}, {least}")
    worst = max(stores, key=lambda line: line.ideal_wavefronts - line.asynchronous)
    return _traffic(worst, f"{told}, {least}; most of the rest in {worst.place}")


def check_bulk_copies(lines: Sequence[LineTraffic], limits: Traffic, case: Case) -> Finding | None:
    """Of a kernel that moves by its threads what the TMA unit is to move."""
    total, moved = sum(line.sectors for line in lines), sum(line.bulk for line in lines)
    if limits.bulk is None or not total or moved >= limits.bulk * total:
        return None
    worst = max(lines, key=lambda line: line.sectors - line.bulk)
    told = f"at {arguments(case)}: bulk and tensor copies (TMA) move {moved / total:.0%} of the bytes in global memory"
    return _traffic(worst, f"{told}, at least {limits.bulk:.0%} are theirs; most of the rest in {worst.place}")


def _scattered(lines: Sequence[LineTraffic], case: Case, share: float = NEGLIGIBLE) -> Finding | None:
    """Counts single requests over the whole kernel: good ones in the same line do not make up for scattered ones."""
    scattered = sum(line.scattered for line in lines)
    if scattered <= SPARE + share * sum(line.sectors for line in lines):
        return None
    worst = max(lines, key=lambda line: line.scattered)
    saved = f"{worst.scattered:,} of its {worst.sectors:,} sectors are there because requests are scattered"
    return _traffic(worst, f"at {arguments(case)}: {worst.place}: {saved}; on average {worst.cost}")


def _conflicts(lines: Sequence[LineTraffic], limit: float, spare: int = 0) -> Finding | None:
    over = {line: line.wavefronts - line.ideal_wavefronts - limit * line.requests for line in lines}
    broken = [line for line, beyond in over.items() if beyond > spare]
    if not broken:
        return None
    worst = max(broken, key=lambda line: line.bank_conflicts_per_request)
    return replace(_traffic(worst, f"{worst.place}: {worst.cost}: {_ways(worst)}"), then=BANKS)


def _ways(line: LineTraffic) -> str:
    """Say how many words of one bank a request of a line asks for: "a 32-way bank conflict"."""
    ways = line.wavefronts / max(line.ideal_wavefronts, 1)
    return f"a {ways:.0f}-way bank conflict" if ways == int(ways) else f"bank conflicts, {ways:.3g}-way on average"


def _bytes(lines: Sequence[LineTraffic], allowed: float, compulsory: int, case: Case, returned: int) -> Finding | None:
    asked = SECTOR * sum(line.sectors for line in lines)
    if asked <= allowed:
        return None
    told = f"at {arguments(case)}: {asked:,} bytes asked for, at most {int(allowed):,} are allowed"
    worst, where = _most(_beyond_their_due(lines, compulsory, returned))
    return _traffic(worst, f"{told} ({compulsory:,} are compulsory); most in {where}")


def _beyond_their_due(lines: Sequence[LineTraffic], compulsory: int, returned: int) -> list[LineTraffic]:
    """The loads, or all others, whichever ask for more than they have to: the outputs are to be stored once."""
    loads = [line for line in lines if line.access == _ACCESSES[Access.LOAD]]
    others = [line for line in lines if line.access != _ACCESSES[Access.LOAD]]
    asked, stored = (SECTOR * sum(line.sectors for line in of) for of in (loads, others))
    return loads if asked - (compulsory - returned) >= stored - returned else others


def _most(lines: Sequence[LineTraffic]) -> tuple[LineTraffic, str]:
    """The line to blame for too many bytes, and where most of them are asked for.

    One line may do with what is compulsory, and another ask for the same tensor once more: the last of those that ask
    for about as much is to blame.
    """
    alike: dict[tuple[str, str], list[LineTraffic]] = {}
    for line in lines:
        alike.setdefault((line.access, line.memory), []).append(line)
    group = max(alike.values(), key=lambda lines: sum(line.sectors for line in lines))
    most = max(line.sectors for line in group)
    full = sorted((line for line in group if 2 * line.sectors > most), key=lambda line: line.line)
    worst = full[-1]
    if len(full) == 1:
        return worst, worst.place
    asked = SECTOR * sum(line.sectors for line in full)
    numbers = f"{', '.join(str(line.line) for line in full[:-1])} and {worst.line}"
    return worst, f"lines {numbers}, {worst.access} {worst.memory}: {asked:,} bytes together"


def _widths(line: LineTraffic) -> str:
    """Say that a line has accesses of several widths, and in CUDA C++ what keeps a vector whole.

    The line may name a single vector. Assigned as a struct it is four stores, which NVRTC does not always join.
    """
    each = f"{line.bytes_per_access:.3g} bytes per lane on average"
    if line.file.endswith(".cu"):
        return f"the compiler split this vector into accesses of several widths, {each}: __ldg and __stwb keep it whole"
    return f"the compiler made accesses of several widths of it, {each}"


def _traffic(line: LineTraffic, cause: str) -> Finding:
    return Finding(Verdict.TOO_MUCH_TRAFFIC, cause, line.file, line.line)
