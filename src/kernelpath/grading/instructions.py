"""Limit the instructions of a kernel: the width of accesses, index arithmetic, and spills to local memory."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernelpath import words
from kernelpath.course.problem import Case
from kernelpath.course.spec import Exercise
from kernelpath.device.messages import LaunchProfile
from kernelpath.grading.traffic import NEGLIGIBLE, SPARE
from kernelpath.line_counters import LineInstructions, LineTraffic
from kernelpath.verdict import Finding, Verdict
from warpcheck.assembler import Assembled, Instruction, assembled, sass_of

_LOCAL = re.compile(r"\b(LDL|STL)\b")
"""Matches SASS that loads from local memory, or stores to it."""

NO_PTXAS = "local memory: ptxas, which comes with Triton, is not here, or refuses the PTX"


def check_case(
    exercise: Exercise,
    case: Case,
    traffic: Sequence[LineTraffic],
    lines: Sequence[LineInstructions],
    elements: int,
) -> Finding | None:
    """Return the first limit on executed instructions that the largest case exceeds. `elements` is the size of its
    outputs.
    """
    limits = exercise.instructions
    if case is not exercise.largest:
        return None
    if limits.access_bytes is not None and (finding := check_access_width(traffic, limits.access_bytes)):
        return finding
    return check_integer_instructions(lines, limits.integer, elements) if limits.integer is not None else None


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
