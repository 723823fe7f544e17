"""A reference kernel that needs local memory is found, unless its declaration says why it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelpath.course import registry
from kernelpath.course.registry import ExerciseRef
from kernelpath.dev.spills import reference_kernels_do_not_spill
from tests import fresh_process
from tests.test_cards import copied
from warpcheck.assembler import _tool

pytestmark = pytest.mark.skipif(_tool("ptxas") is None, reason="there is no ptxas")


def findings(item: ExerciseRef) -> list[str]:
    """What the check says, from a process that has no threads before it forks."""
    return fresh_process.call(find, ExerciseRef(item.root, item.path_id))


def find(item: ExerciseRef) -> list[str]:
    return list(reference_kernels_do_not_spill(item))


@pytest.fixture
def spilling(tmp_path: Path) -> ExerciseRef:
    """vector_add with an array of 64 floats that is indexed by a number which ptxas does not know."""
    item = copied(registry.find("vector_add"), tmp_path)
    source = item.solution.with_suffix(".cu")
    text = source.read_text(encoding="utf-8")
    kernel = text.index("{", text.index("__global__"))
    array = (
        "float kept[64]; for (int k = 0; k < 64; ++k) kept[(k * gridDim.x) % 64] = k; if (kept[gridDim.y] < 0) return;"
    )
    source.write_text(f"{text[: kernel + 1]}\n    {array}\n{text[kernel + 1 :]}", encoding="utf-8")
    return item


def test_a_reference_without_local_memory_has_no_findings() -> None:
    assert findings(registry.find("vector_add")) == []


def test_every_kernel_in_local_memory_is_found_with_its_case(spilling: ExerciseRef) -> None:
    found = findings(spilling)
    assert len(found) >= 1
    for one in found:
        assert one.startswith(f"solutions/{spilling.path_id}.py: ")
        assert ", for sm_80: 256 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads; " in one
    assert "at n=" in found[0]


def test_a_declaration_may_say_why_a_reference_spills(spilling: ExerciseRef) -> None:
    declaration = spilling.declaration.read_text(encoding="utf-8")
    assert "EXERCISE = Exercise(" in declaration
    reason = 'EXERCISE = Exercise(\n    spills="the array is the lesson, since NVRTC 13.0",'
    spilling.declaration.write_text(declaration.replace("EXERCISE = Exercise(", reason), encoding="utf-8")
    assert findings(spilling) == []


def test_a_case_that_fails_is_no_kernel_without_spills(tmp_path: Path) -> None:
    item = copied(registry.find("vector_add"), tmp_path)
    item.solution.write_text("def vector_add(x, y):\n    raise RuntimeError('no launch')\n", encoding="utf-8")
    found = findings(item)
    assert found
    assert all("RuntimeError: no launch" in one for one in found)
