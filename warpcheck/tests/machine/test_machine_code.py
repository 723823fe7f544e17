"""Limit the machine instructions in the check of an access. This notices a slower check without a clock.

The count depends on LLVM's version and on the processor, so the test always generates code for the same processor. If a
change needs more instructions for a reason, measure `benchmarks/simt_speed.py` before and after, and raise the limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import llvmlite.binding as llvm
import pytest

from warpcheck import compiler
from warpcheck.layout import Access, Space
from warpcheck.native import compile_function
from warpcheck.runtime import memory
from warpcheck.runtime.memory import MemoryOperation

PROCESSOR = "x86-64-v3"
# Limits on the instructions of the whole check, most of which handle uncommon accesses, and of the part that runs for
# nearly every lane (`skip_common_accesses`).
LIMITS = {
    (Space.GLOBAL, Access.LOAD): (1300, 128),
    (Space.GLOBAL, Access.STORE): (990, 142),
    (Space.SHARED, Access.LOAD): (1210, 128),
    (Space.SHARED, Access.STORE): (850, 142),
    (Space.GENERIC, Access.LOAD): (1510, 128),
    (Space.GENERIC, Access.STORE): (1210, 142),
}


def count_instructions(function: Callable[..., int], operation: MemoryOperation) -> int:
    """Return the machine instructions of a native function for one kind of access."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    # A fixed target makes the count independent of the processor that runs the test.
    target = llvm.Target.from_triple("x86_64-unknown-linux-gnu").create_target_machine(cpu=PROCESSOR, opt=3)
    text = compile_function(function, tuple(map(int, operation)), "counted")
    assembly = target.emit_assembly(compiler.optimize(text, target, speed=3))
    # A line of a directive has a dot, and a label is not indented.
    return len(re.findall(r"^\t[a-z]", assembly, re.MULTILINE))


@pytest.mark.parametrize(("space", "kind"), LIMITS)
def test_the_check_of_an_access_stays_within_its_instruction_limit(space: Space, kind: Access) -> None:
    operation = MemoryOperation(
        named=space, kind=kind, size=4, parts=1, ordering=0, partial=0, drops=0, half=0, spins=0, overwrites=0
    )
    check = count_instructions(memory.access, operation)
    common_path = count_instructions(memory.skip_common_accesses, operation)
    check_limit, common_limit = LIMITS[space, kind]
    assert check <= check_limit, f"{check} instructions of the check"
    assert common_path <= common_limit, f"{common_path} instructions of the common path"
