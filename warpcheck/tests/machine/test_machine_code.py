"""Limit the machine instructions in the check of an access. This notices a slower check without a clock.

The count depends on LLVM's version and on the processor, so the test always generates code for the same processor. If a
change needs more instructions for a reason, measure `benchmarks/simt_speed.py` before and after, and raise the limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import llvmlite.binding as llvm
import pytest

from warpcheck import compiler
from warpcheck.layout import Access, Space
from warpcheck.native import compile_function
from warpcheck.runtime import fast_path, memory
from warpcheck.runtime.memory import MemoryOperation

PROCESSOR = "x86-64-v3"
# Limits on the instructions of the whole check, most of which handle uncommon accesses, and of the part that runs for
# nearly every access (`skip_common_accesses`), without the loops over lanes that it calls.
LIMITS = {
    (Space.GLOBAL, Access.LOAD): (1090, 118),
    (Space.GLOBAL, Access.STORE): (890, 150),
    (Space.SHARED, Access.LOAD): (970, 118),
    (Space.SHARED, Access.STORE): (730, 150),
    (Space.GENERIC, Access.LOAD): (1300, 118),
    (Space.GENERIC, Access.STORE): (1110, 150),
}
# Instructions of the loops over lanes, one for accesses of one granule, and one for others.
LOOP_LIMITS = {fast_path.record_common_reads: 240, fast_path.record_common_writes: 230}


def count_instructions(function: Callable[..., int], constants: Sequence[int] = ()) -> int:
    """Return the machine instructions of a native function, with constants as its last arguments."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    # A fixed target makes the count independent of the processor that runs the test.
    target = llvm.Target.from_triple("x86_64-unknown-linux-gnu").create_target_machine(cpu=PROCESSOR, opt=3)
    text = compile_function(function, constants, "counted")
    # A function that is not inlined would be called by ``counted``.
    text = text.replace('define i64 @"noinline_', 'define internal i64 @"noinline_')
    assembly = target.emit_assembly(compiler.optimize(text, target, speed=3))
    # A line of a directive has a dot, and a label is not indented.
    return len(re.findall(r"^\t[a-z]", assembly, re.MULTILINE))


@pytest.mark.parametrize(("space", "kind"), LIMITS)
def test_the_check_of_an_access_stays_within_its_instruction_limit(space: Space, kind: Access) -> None:
    operation = MemoryOperation(
        named=space, kind=kind, size=4, parts=1, ordering=0, partial=0, drops=0, half=0, spins=0, overwrites=0
    )
    constants = tuple(map(int, operation))
    check = count_instructions(memory.access, constants)
    common_path = count_instructions(memory.skip_common_accesses, constants)
    check_limit, common_limit = LIMITS[space, kind]
    assert check <= check_limit, f"{check} instructions of the check"
    assert common_path <= common_limit, f"{common_path} instructions of the common path"


@pytest.mark.parametrize("loop", LOOP_LIMITS, ids=lambda loop: loop.__name__)
def test_a_loop_over_lanes_has_no_more_machine_instructions_than_recorded(loop: Callable[..., int]) -> None:
    count = count_instructions(loop)
    assert count <= LOOP_LIMITS[loop], f"{count} instructions"
