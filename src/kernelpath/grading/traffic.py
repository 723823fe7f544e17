"""Limit the memory accesses of a kernel, and name the line that exceeds a limit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kernelpath import words
from kernelpath.course.problem import Case, arguments
from kernelpath.course.spec import Exercise, Traffic
from kernelpath.line_counters import ACCESSES, LineTraffic
from kernelpath.verdict import Finding, Verdict
from warpcheck.layout import SECTOR, Access

# The share of a kernel's sectors that may be wasted, for example by a tail that fills no vector, or by a short
# table.
NEGLIGIBLE = 0.02

# Columns of float32 in a sector.
#
# In a matrix with fewer columns, neighboring threads that compute an element each are in different rows of what they
# read (an embedding of one column, a matrix times a vector): whichever thread takes which element, each access is a
# sector of its own.
COLUMNS_OF_A_SECTOR = 8

# Sectors, or wavefronts, that any case may spend on its edges.
SPARE = 32

# The factor by which a smaller case may exceed the limit on bytes, since data that is read once in the largest case
# may be read twice in a smaller case.
#
# Each request may also touch one more sector, which its first and its last lane share with others.
EDGE = 2.0

# The next step after a bank conflict. It plots the banks, while the first hints are about global memory.
BANKS_COMMAND = "kp profile {name}"

# The next step where a line has instructions of several widths. It shows them.
WIDTHS_COMMAND = "kp profile {name} --sass"

# Operations of an SM of Hopper in float32: 128 FMAs, of two operations each.
OPERATIONS_PER_CYCLE = 256


def lines_beyond_limits(limits: Traffic, lines: Iterable[LineTraffic]) -> tuple[LineTraffic, ...]:
    """Return the lines that waste more than the limits allow for each line."""
    return tuple(
        line
        for line in lines
        if (limits.sectors is not None and line.sectors_over_ideal > limits.sectors)
        or (limits.bank_conflicts is not None and line.bank_conflicts_per_request > limits.bank_conflicts)
    )


def check_case(
    exercise: Exercise, case: Case, lines: Sequence[LineTraffic], returned: int, columns: int = COLUMNS_OF_A_SECTOR
) -> Finding | None:
    """Return the first limit that a case exceeds.

    On the largest case the limits hold as declared, on other cases with a margin for edges. Same-address contention is
    limited on every case.

    Args:
        exercise: The exercise.
        case: The case.
        lines: The counters by line.
        returned: The bytes of the outputs.
        columns: The length of the outputs' shortest rows. Where it is below COLUMNS_OF_A_SECTOR, scattered requests are
            not limited on smaller cases.
    """
    if finding := check_contention(lines, exercise.traffic, case):
        return finding
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
    # Edges dominate a smaller case, so its limits are wider, and some do not apply.
    if columns < COLUMNS_OF_A_SECTOR:
        limits = replace(limits, sectors=None)
    # The bytes of these cases are not limited, see Problem.limits.
    if case in exercise.limits:
        return check_edge_case(lines, limits, None, case, returned)
    largest_bytes = exercise.compulsory_bytes(**exercise.largest)  # 0: a report moves nothing
    share = compulsory / largest_bytes if largest_bytes else 0.0
    return check_edge_case(lines, limits, compulsory, case, returned, share)


def check_global_memory(
    lines: Sequence[LineTraffic], limits: Traffic, compulsory: int, case: Case, returned: int
) -> Finding | None:
    """Return the first limit that is exceeded, with the worst access and its cost.

    Args:
        lines: The counters by line.
        limits: The limits.
        compulsory: The bytes that the case must move.
        case: The case, for messages.
        returned: The bytes of its outputs.
    """
    sectors = sum(line.sectors for line in lines)
    if not sectors:
        return None
    if limits.sectors is not None:
        scattered = [line for line in lines if line.sectors_over_ideal > limits.sectors]
        # A line far above its ideal is no fault where it moves next to nothing of the kernel's bytes.
        if sum(line.sectors - line.ideal_sectors for line in scattered) > NEGLIGIBLE * sectors:
            worst = max(scattered, key=lambda line: line.sectors - line.ideal_sectors)
            cause = f"at {arguments(case)}: {worst.place}: {worst.cost}"
            if not worst.mixed:
                return _line_finding(worst, f"{cause}{_describe_spacing(worst)}")
            return replace(_line_finding(worst, f"{cause}; {_describe_widths(worst)}"), then=WIDTHS_COMMAND)
        if finding := _check_scattered(lines, case):
            return finding
    if limits.bank_conflicts is not None and (finding := _check_conflicts(lines, case, limits.bank_conflicts)):
        return finding
    if limits.bytes is not None:
        return _check_bytes(lines, limits.bytes * compulsory, compulsory, case, returned)
    return None


def check_edge_case(
    lines: Sequence[LineTraffic], limits: Traffic, compulsory: int | None, case: Case, returned: int, share: float = 0.0
) -> Finding | None:
    """Return the first limit that a case exceeds which may consist of edges: small, of odd sizes, misaligned, or a long
    row.

    This is `check_global_memory` with a margin. Each request for shared memory may take one more wavefront, as two
    2-byte elements of a word do.

    Args:
        lines: The counters by line.
        limits: The limits.
        compulsory: The bytes that the case must move; None where bytes are not limited.
        case: The case, for messages.
        returned: The bytes of its outputs.
        share: The case's share of the largest case's compulsory bytes.
    """
    requests = sum(line.requests for line in lines if line.sectors)
    if limits.bytes is not None and compulsory is not None and limits.large is not None and share >= limits.large:
        allowed = limits.bytes * compulsory + SECTOR * (requests + SPARE)
        if finding := _check_bytes(lines, allowed, compulsory, case, returned):
            return finding
    if limits.edges is None:
        return None
    if limits.sectors is not None and (finding := _check_scattered(lines, case, limits.edges)):
        return finding
    if limits.bank_conflicts is not None:
        finding = _check_conflicts(lines, case, limits.bank_conflicts + 1, SPARE)
        if finding is not None:
            return finding
    if limits.bytes is not None and compulsory is not None:
        allowed = EDGE * limits.bytes * compulsory + SECTOR * (requests + SPARE)
        return _check_bytes(lines, allowed, compulsory, case, returned)
    return None


def check_contention(lines: Sequence[LineTraffic], limits: Traffic, case: Case) -> Finding | None:
    """Return a finding about a line whose atomics on global memory contend for one address more often than the limit.

    SPARE more are allowed.
    """
    if limits.same_address is None:
        return None
    # Only accesses to global memory have sectors. In shared memory, contention costs wavefronts, which are limited as
    # bank conflicts.
    excess = {line: line.same_address - limits.same_address * line.requests for line in lines if line.sectors}
    worst = max(excess, key=lambda line: excess[line], default=None)
    if worst is None or excess[worst] <= SPARE:
        return None
    turns = words.taking_turns(worst.same_address_per_request)
    return _line_finding(worst, f"at {arguments(case)}: {worst.place}: {turns}")


def check_shared_memory(lines: Sequence[LineTraffic], limits: Traffic, operations: int, case: Case) -> Finding | None:
    """Return a finding about a kernel whose shared memory takes longer than its arithmetic.

    `operations` is the number of operations of the case.
    """
    cycles = operations // OPERATIONS_PER_CYCLE
    wavefronts = sum(line.wavefronts for line in lines)
    if limits.shared is None or wavefronts <= limits.shared * cycles:
        return None
    worst = max(lines, key=lambda line: line.wavefronts)
    symptom = f"at {arguments(case)}: {wavefronts:,} wavefronts beside {cycles:,} cycles of multiply-adds"
    return _line_finding(
        worst, f"{symptom}, at most {int(limits.shared * cycles):,} are allowed; most in {worst.place}"
    )


def check_asynchronous_copies(lines: Sequence[LineTraffic], limits: Traffic, case: Case) -> Finding | None:
    """Return a finding about a kernel that loads its tiles through registers."""
    stores = [line for line in lines if line.wavefronts and line.access == ACCESSES[Access.STORE]]
    total = sum(line.ideal_wavefronts for line in stores)
    copied = sum(line.asynchronous for line in stores)
    # A kernel that stores nothing to shared memory has a total of 0, and must not pass without any copy.
    if limits.asynchronous is None or (copied > 0 and copied >= limits.asynchronous * total):
        return None
    symptom = (
        f"at {arguments(case)}: {copied / max(total, 1):.0%} of what is stored to shared memory are asynchronous copies"
    )
    requirement = f"at least {limits.asynchronous:.0%} should be"
    if not stores:
        return Finding(Verdict.TOO_MUCH_TRAFFIC, f"{symptom}, {requirement}")
    worst = max(stores, key=lambda line: line.ideal_wavefronts - line.asynchronous)
    return _line_finding(worst, f"{symptom}, {requirement}; most of the rest in {worst.place}")


def check_bulk_copies(lines: Sequence[LineTraffic], limits: Traffic, case: Case) -> Finding | None:
    """Return a finding about a kernel whose threads move what the TMA unit should move."""
    total = sum(line.sectors for line in lines)
    moved = sum(line.bulk for line in lines)
    if limits.bulk is None or not total or moved >= limits.bulk * total:
        return None
    worst = max(lines, key=lambda line: line.sectors - line.bulk)
    symptom = (
        f"at {arguments(case)}: bulk and tensor copies (TMA) move {moved / total:.0%} of the bytes in global memory"
    )
    return _line_finding(worst, f"{symptom}, at least {limits.bulk:.0%} are theirs; most of the rest in {worst.place}")


def _check_scattered(lines: Sequence[LineTraffic], case: Case, share: float = NEGLIGIBLE) -> Finding | None:
    """Return a finding about scattered requests.

    Single requests are counted over the whole kernel: coalesced requests in the same line do not compensate for
    scattered ones.
    """
    scattered = sum(line.scattered for line in lines)
    if scattered <= SPARE + share * sum(line.sectors for line in lines):
        return None
    worst = max(lines, key=lambda line: line.scattered)
    excess = f"{worst.scattered:,} of its {worst.sectors:,} sectors are there because requests are scattered"
    return _line_finding(worst, f"at {arguments(case)}: {worst.place}: {excess}; on average {worst.cost}")


def _check_conflicts(lines: Sequence[LineTraffic], case: Case, limit: float, spare: int = 0) -> Finding | None:
    excess = {line: line.wavefronts - line.ideal_wavefronts - limit * line.requests for line in lines}
    conflicting = [line for line, conflicts in excess.items() if conflicts > spare]
    if not conflicting:
        return None
    worst = max(conflicting, key=lambda line: line.bank_conflicts_per_request)
    cause = f"at {arguments(case)}: {worst.place}: {worst.cost}: {_describe_ways(worst)}"
    return replace(_line_finding(worst, cause), then=BANKS_COMMAND)


def _describe_ways(line: LineTraffic) -> str:
    """Say how many words of one bank a request needs: "a 32-way bank conflict"."""
    ways = line.wavefronts / max(line.ideal_wavefronts, 1)
    if ways != int(ways):
        return f"bank conflicts, {ways:.3g}-way on average"
    article = "an" if ways in (8, 11, 18) else "a"
    return f"{article} {ways:.0f}-way bank conflict"


def _check_bytes(
    lines: Sequence[LineTraffic], allowed: float, compulsory: int, case: Case, returned: int
) -> Finding | None:
    requested = SECTOR * sum(line.sectors for line in lines)
    if requested <= allowed:
        return None
    symptom = f"at {arguments(case)}: {requested:,} bytes asked for, at most {int(allowed):,} are allowed"
    worst, location = _select_worst(_select_excessive(lines, compulsory, returned))
    cause = f"{symptom} ({compulsory:,} are compulsory); most in {location}"
    # A line of one vector that the compiler split asks for each sector several times, and its author sees no reason.
    if worst.mixed and SECTOR * (worst.sectors - worst.ideal_sectors) >= requested - allowed:
        return replace(_line_finding(worst, f"{cause}; {_describe_widths(worst)}"), then=WIDTHS_COMMAND)
    return _line_finding(worst, cause)


def _select_excessive(lines: Sequence[LineTraffic], compulsory: int, returned: int) -> list[LineTraffic]:
    """Return the loads, or all other accesses, whichever exceed their minimum more: the outputs must be stored once."""
    loads = [line for line in lines if line.access == ACCESSES[Access.LOAD]]
    stores = [line for line in lines if line.access != ACCESSES[Access.LOAD]]
    loaded_bytes, stored_bytes = (SECTOR * sum(line.sectors for line in group) for group in (loads, stores))
    # `compulsory - returned` are the bytes of the inputs, which must be loaded once.
    return loads if loaded_bytes - (compulsory - returned) >= stored_bytes - returned else stores


def _select_worst(lines: Sequence[LineTraffic]) -> tuple[LineTraffic, str]:
    """Return the line to blame for too many bytes, and a description of where most of them are requested.

    One line may need its bytes, and another request the same tensor again. So the last of the lines that request about
    as much is to blame.
    """
    groups: dict[tuple[str, str], list[LineTraffic]] = {}
    for line in lines:
        groups.setdefault((line.access, line.memory), []).append(line)
    group = max(groups.values(), key=lambda lines: sum(line.sectors for line in lines))
    largest = max(line.sectors for line in group)
    large_lines = sorted((line for line in group if 2 * line.sectors > largest), key=lambda line: line.line)
    worst = large_lines[-1]
    requested = SECTOR * sum(line.sectors for line in large_lines)
    if len(large_lines) == 1:
        # These tell a line that reads much at once from one whose threads read little each, but often.
        return worst, f"{worst.place}: {requested:,} bytes in {words.count(worst.requests, 'request')}"
    numbers = f"{', '.join(str(line.line) for line in large_lines[:-1])} and {worst.line}"
    return worst, f"lines {numbers}, {worst.access} {worst.memory}: {requested:,} bytes together"


def _describe_widths(line: LineTraffic) -> str:
    """Say that a line has accesses of several widths, and in CUDA C++ how to keep a vector whole.

    The line may contain a single vector. Assigned as a struct it is four stores, which NVRTC does not always join.
    """
    average = f"{line.bytes_per_access:.3g} bytes per lane on average"
    if line.file.endswith(".cu"):
        return (
            f"the compiler split this vector into accesses of several widths, {average}: __ldg and __stwb keep it whole"
        )
    return f"the compiler made accesses of several widths of it, {average}"


def _describe_spacing(line: LineTraffic) -> str:
    """Say how far apart lanes are if each takes a part of a vector, or half of a sector.

    The source of such a line often looks contiguous: Triton gives each thread neighboring elements, as many as its
    widest access in bytes allows, and a narrower or a masked access of them takes several instructions.
    """
    width = line.bytes_per_access
    distance = width * line.sectors_over_ideal
    part_of_a_vector = width < distance < SECTOR
    half_of_a_sector = 2 * width == distance == SECTOR
    if not (part_of_a_vector or half_of_a_sector) or line.sectors_over_ideal not in (2, 4, 8):
        return ""
    return f", as many as for lanes that take {width:g} bytes each, {distance:g} bytes apart"


def _line_finding(line: LineTraffic, cause: str) -> Finding:
    return Finding(Verdict.TOO_MUCH_TRAFFIC, cause, line.file, line.line)
