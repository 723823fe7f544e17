"""Test that a reference kernel that uses local memory is reported unless its declaration gives a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelpath.course import registry
from kernelpath.course.registry import ExerciseRef
from kernelpath.dev.spills import reference_kernels_do_not_spill
from tests import fresh_process
from tests.test_cards import copy_exercise
from warpcheck.assembler import _tool

pytestmark = pytest.mark.skipif(_tool("ptxas") is None, reason="there is no ptxas")


def find_in_fresh_process(item: ExerciseRef) -> list[str]:
    """Return the findings of the check, which forks, from a process without threads."""
    return fresh_process.call(list_findings, ExerciseRef(item.root, item.path_id))


def list_findings(item: ExerciseRef) -> list[str]:
    return list(reference_kernels_do_not_spill(item))


@pytest.fixture
def spilling(tmp_path: Path) -> ExerciseRef:
    """Return vector_add with an array of 64 floats whose index ptxas cannot compute, so it is in local memory."""
    item = copy_exercise(registry.find("vector_add"), tmp_path)
    source = item.solution.with_suffix(".cu")
    text = source.read_text(encoding="utf-8")
    kernel = text.index("{", text.index("__global__"))
    array = (
        "float kept[64]; for (int k = 0; k < 64; ++k) kept[(k * gridDim.x) % 64] = k; if (kept[gridDim.y] < 0) return;"
    )
    source.write_text(f"{text[: kernel + 1]}\n    {array}\n{text[kernel + 1 :]}", encoding="utf-8")
    return item


def test_a_reference_without_local_memory_has_no_findings() -> None:
    assert find_in_fresh_process(registry.find("vector_add")) == []


def test_a_kernel_with_a_stack_frame_is_reported_with_its_case(spilling: ExerciseRef) -> None:
    messages = find_in_fresh_process(spilling)
    assert len(messages) >= 1
    for message in messages:
        assert message.startswith(f"solutions/{spilling.path_id}.py: ")
        assert ", for sm_80: 256 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads; " in message
    assert "at n=" in messages[0]


def test_a_declared_reason_suppresses_the_finding(spilling: ExerciseRef) -> None:
    declaration = spilling.declaration.read_text(encoding="utf-8")
    assert "EXERCISE = Exercise(" in declaration
    reason = 'EXERCISE = Exercise(\n    spills="the array is the lesson, since NVRTC 13.0",'
    spilling.declaration.write_text(declaration.replace("EXERCISE = Exercise(", reason), encoding="utf-8")
    assert find_in_fresh_process(spilling) == []


def test_a_case_that_raises_is_reported(tmp_path: Path) -> None:
    item = copy_exercise(registry.find("vector_add"), tmp_path)
    item.solution.write_text("def vector_add(x, y):\n    raise RuntimeError('no launch')\n", encoding="utf-8")
    messages = find_in_fresh_process(item)
    assert messages
    assert all("RuntimeError: no launch" in message for message in messages)
