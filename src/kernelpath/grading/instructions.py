"""Limits on the instructions of a kernel: how wide they load, what indices cost, and what registers do not hold."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernelpath import words
from kernelpath.course.problem import Case
from kernelpath.course.spec import Exercise
from kernelpath.device.messages import Drawn
from kernelpath.grading.traffic import NEGLIGIBLE, SPARE
from kernelpath.line_counters import LineInstructions, LineTraffic
from kernelpath.verdict import Finding, Verdict
from warpcheck.assembler import Assembled, Instruction, assembled, sass_of

_LOCAL = re.compile(r"\b(LDL|STL)\b")
"""SASS that loads from local memory, or stores to it."""

NO_PTXAS = "local memory: ptxas, which comes with Triton, is not here, or refuses the PTX"


def check_case(
    exercise: Exercise,
    case: Case,
    traffic: Sequence[LineTraffic],
    lines: Sequence[LineInstructions],
    elements: int,
) -> Finding | None:
    """The first limit on what was executed that the largest case breaks. elements: of its outputs."""
    limits = exercise.instructions
    if case is not exercise.largest:
        return None
    if limits.access_bytes is not None and (found := narrow(traffic, limits.access_bytes)):
        return found
    return too_many_integers(lines, limits.integer, elements) if limits.integer is not None else None


def narrow(lines: Sequence[LineTraffic], wanted: int) -> Finding | None:
    """Whether global memory is accessed by more lanes than the bytes need, and the line that does so most."""
    least = {line: -(-line.bytes // wanted) for line in lines if line.sectors}
    if sum(line.lanes - needed for line, needed in least.items()) <= SPARE + NEGLIGIBLE * sum(least.values()):
        return None
    worst = max(least, key=lambda line: line.lanes - least[line])
    cause = f"{worst.place}: {words.number(worst.bytes_per_access, 3)} bytes per instruction, {wanted} are required"
    return _finding(cause, worst.file, worst.line)


def too_many_integers(lines: Sequence[LineInstructions], limit: float, elements: int) -> Finding | None:
    """Whether more instructions than the limit compute integers for each element, and the line with most of them."""
    executed = sum(line.integer for line in lines)
    if executed <= limit * elements:
        return None
    worst = max(lines, key=lambda line: (line.line > 0, line.integer))
    cause = (
        f"{executed / elements:.3g} integer instructions per element, at most {limit:.3g} are allowed;"
        f" most in {words.line(worst.line)}: {worst.integer / elements:.3g} (a division is many)"
    )
    return _finding(cause, worst.file, worst.line)


def local_memory(drawn: Drawn) -> tuple[Finding | None, str]:
    """Whether the heaviest kernel of a case needs local memory; else why that is not known."""
    code = assembled(drawn.ptx, drawn.kernel)
    if code is None:
        return None, NO_PTXAS
    return check_local_memory(code, sass_of(code.cubin, drawn.kernel, drawn.file), drawn.file), ""


def check_local_memory(code: Assembled, sass: Sequence[Instruction], file: str) -> Finding | None:
    """The line is that of the first access to local memory, where SASS says it."""
    if not code.uses_local_memory:
        return None
    line = next((one.line for one in sass if one.line and _LOCAL.search(one.text)), 0)
    spilled = f"{code.spill_stores} bytes spill stores, {code.spill_loads} bytes spill loads"
    cause = f"ptxas: {code.stack} bytes stack frame, {spilled}: not everything of a thread is in its registers"
    return _finding(f"{words.line(line)}: {cause}" if line else cause, file, line)


def _finding(cause: str, file: str, line: int) -> Finding:
    return Finding(Verdict.TOO_MANY_INSTRUCTIONS, cause, file, line)
