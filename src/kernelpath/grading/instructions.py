"""Limit the instructions of a kernel: their active lanes, the width of accesses, index arithmetic, special functions,
and spills to local memory.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

from kernelpath import words
from kernelpath.course.problem import Case, arguments
from kernelpath.course.spec import Exercise, Instructions
from kernelpath.device.messages import LaunchProfile
from kernelpath.grading.traffic import NEGLIGIBLE, SPARE
from kernelpath.line_counters import LANES, LineInstructions, LineTraffic
from kernelpath.verdict import Finding, Verdict
from warpcheck.assembler import Assembled, Instruction, assembled, sass_of
from warpcheck.events import Event, EventKind

# The share of the largest case's bytes from which on a case is limited.
#
# In a smaller case, the last lanes that still work may be most of it, since no other work is left to join.
LARGE_CASE = 0.5

# The most lane instructions that an operation of the case takes, with all overhead.
#
# Honest kernels of divergence take 0.9 to 1.8. More are of no use, and would hide idle lanes in the average.
USEFUL = 2.0

# Matches SASS that loads from local memory, or stores to it.
_LOCAL = re.compile(r"\b(LDL|STL)\b")

NO_PTXAS = "local memory: ptxas, which comes with Triton, is not here, or refuses the PTX"


def check_case(
    exercise: Exercise,
    case: Case,
    traffic: Sequence[LineTraffic],
    lines: Sequence[LineInstructions],
    elements: int,
) -> Finding | None:
    """Return the first limit on executed instructions that a case exceeds. `elements` is the size of its outputs."""
    if exercise.active_lanes is not None and _is_large(exercise, case):
        useful = USEFUL * exercise.flops(**case) if exercise.flops else math.inf
        if finding := check_active_lanes(lines, exercise.active_lanes, case, useful):
            return finding
    limits = exercise.instructions
    if case is not exercise.largest:
        return None
    finding = _check_executed(limits, traffic, lines, elements)
    return replace(finding, cause=f"at {arguments(case)}: {finding.cause}") if finding is not None else None


def _check_executed(
    limits: Instructions, traffic: Sequence[LineTraffic], lines: Sequence[LineInstructions], elements: int
) -> Finding | None:
    if limits.access_bytes is not None and (finding := check_access_width(traffic, limits.access_bytes)):
        return finding
    if limits.special is not None and (finding := check_special_functions(lines, limits.special, elements)):
        return finding
    return check_integer_instructions(lines, limits.integer, elements) if limits.integer is not None else None


def _is_large(exercise: Exercise, case: Case) -> bool:
    return exercise.compulsory_bytes(**case) >= LARGE_CASE * exercise.compulsory_bytes(**exercise.largest)


def check_active_lanes(
    lines: Sequence[LineInstructions], limit: float, case: Case, useful: float = math.inf
) -> Finding | None:
    """Return a finding where the average over all instructions of all launches is below the limit.

    It is one average, since a warp pays for each instruction alike.

    Args:
        lines: The counters by line.
        limit: The average number of active lanes that is required.
        case: The case, for the message.
        useful: The lane instructions that count, at most. The excess is subtracted as if full warps had executed it.
    """
    instructions: float = sum(line.instructions for line in lines)
    active: float = sum(line.active_lanes for line in lines)
    excess = max(0.0, active - useful)
    active -= excess
    instructions -= excess / LANES
    if active >= limit * instructions:
        return None
    most_idle_line = max(lines, key=lambda line: line.idle)
    most_divergent_line = max(lines, key=lambda line: line.divergent_branches)
    where = f"{words.line(most_idle_line.line)} ({most_idle_line.active:.3g} active)"
    cause = (
        f"at {arguments(case)}: {active / instructions:.3g} of {LANES} lanes are active in the average instruction,"
        f" {limit:.3g} are required; most are idle in {where}"
    )
    if excess:
        cause += "; instructions that the work does not take are left out"
    if most_divergent_line.divergent_branches:
        cause += f", and they diverge in {words.line(most_divergent_line.line)}"
    return Finding(Verdict.DIVERGENT, cause, most_idle_line.file, most_idle_line.line)


def check_access_width(lines: Sequence[LineTraffic], access_bytes: int) -> Finding | None:
    """Return a finding where lanes access global memory more often than the bytes need, with the line that does so
    most.
    """
    # Only accesses to global memory have sectors.
    needed_accesses = {line: -(-line.bytes // access_bytes) for line in lines if line.sectors}
    if sum(line.lanes - needed for line, needed in needed_accesses.items()) <= SPARE + NEGLIGIBLE * sum(
        needed_accesses.values()
    ):
        return None
    worst = max(needed_accesses, key=lambda line: line.lanes - needed_accesses[line])
    cause = (
        f"{worst.place}: {words.number(worst.bytes_per_access, 3)} bytes per instruction, {access_bytes} are required"
    )
    return _finding(cause, worst.file, worst.line)


def check_integer_instructions(lines: Sequence[LineInstructions], limit: float, elements: int) -> Finding | None:
    """Return a finding where there are too many integer instructions for each element, with the line that has most."""
    executed = sum(line.integer for line in lines)
    if executed <= limit * elements:
        return None
    # Line 0 stands for instructions without a line, which a learner cannot look up.
    worst = max(lines, key=lambda line: (line.line > 0, line.integer))
    cause = (
        f"{executed / elements:.3g} integer instructions per element, at most {limit:.3g} are allowed;"
        f" most in {words.line(worst.line)}: {worst.integer / elements:.3g} (a division is many)"
    )
    return _finding(cause, worst.file, worst.line)


def check_special_functions(lines: Sequence[LineInstructions], limit: float, elements: int) -> Finding | None:
    """Return a finding where there are too many special functions for each element, with the line that has most."""
    executed = sum(line.special for line in lines)
    if executed <= limit * elements:
        return None
    worst = max(lines, key=lambda line: (line.line > 0, line.special))
    cause = (
        f"{executed / elements:.3g} special functions per element, at most {limit:.3g} are allowed;"
        f" most in {words.line(worst.line)}: {worst.special / elements:.3g}"
    )
    return _finding(cause, worst.file, worst.line)


def check_registers(launch: LaunchProfile) -> tuple[Finding | None, str]:
    """Return a finding where a kernel uses local memory, or why that is not known."""
    code = assembled(launch.ptx, launch.kernel)
    if code is None:
        return None, NO_PTXAS
    return check_local_memory(code, sass_of(code.cubin, launch.kernel, launch.file), launch.file), ""


def check_local_memory(code: Assembled, sass: Sequence[Instruction], file: str) -> Finding | None:
    """Return a finding where a kernel uses local memory. Its line is the first access, where SASS has lines."""
    if not code.uses_local_memory:
        return None
    line = next((instruction.line for instruction in sass if instruction.line and _LOCAL.search(instruction.text)), 0)
    spilled = f"{code.spill_stores} bytes spill stores, {code.spill_loads} bytes spill loads"
    cause = f"ptxas: {code.stack} bytes stack frame, {spilled}: some of a thread's data is not in registers"
    return _finding(f"{words.line(line)}: {cause}" if line else cause, file, line)


def _finding(cause: str, file: str, line: int) -> Finding:
    return Finding(Verdict.TOO_MANY_INSTRUCTIONS, cause, file, line)


def overlapped_share(events: Sequence[Event]) -> float:
    """Return the share of wgmma and tcgen05.mma that are issued while a copy to shared memory is in flight, or 0.

    The machine carries out a bulk copy as late as possible: when no warp can go on without it. So a copy is in flight
    while tensor cores multiply only if the program has issued it ahead of the wait for it.
    """
    issued = landed = products = overlapped = 0
    last_landing: tuple[int, int, int] | None = None
    blocks: set[int] = set()
    for event in events:
        if event.kind == EventKind.LAND and event.barrier:
            # A multicast copy lands in each block of the cluster, one after another in the same step.
            landing = event.step, event.line, event.warp
            if landing != last_landing or event.block in blocks:
                landed += 1
                blocks.clear()
            blocks.add(event.block)
            last_landing = landing
            continue
        last_landing = None
        issued += event.kind == EventKind.LOAD
        if event.kind == EventKind.MULTIPLY:
            products += 1
            overlapped += issued > landed
    return overlapped / products if products else 0.0


def check_overlap_share(exercise: Exercise, events: Sequence[Event]) -> Finding | None:
    """Return a finding where fewer of them overlap with copies than the exercise requires."""
    assert exercise.overlap is not None
    share = overlapped_share(events)
    if share >= exercise.overlap:
        return None
    mmas = f"{words.share(share)} of the {exercise.asynchronous_mma}"
    issued = f"{mmas} are issued while a copy to shared memory is in flight"
    cause = f"at {arguments(exercise.largest)}: {issued}, at least {words.share(exercise.overlap)} have to be"
    return Finding(Verdict.NO_OVERLAP, cause)
