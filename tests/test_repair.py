"""Test the kernels to be repaired: each has its declared faults, and changes are counted by statement."""

from __future__ import annotations

import pytest
import torch

import warpcheck
from kernelpath.course import edits, registry, stubs
from kernelpath.course.errors import DeclarationError
from kernelpath.course.registry import ExerciseRef
from kernelpath.course.spec import WRONG_VALUES_FAULT, Exercise
from kernelpath.grading import compare, ground_truth
from kernelpath.grading.job import Job
from warpcheck import simulated_gpu

REPAIRS = [item for item in registry.exercises() if item.given]

PROGRAM = """
#include <cuda_pipeline.h>

// ---- first ----
__global__ void first(float* x, int n) {
    for (int i = threadIdx.x; i < n; i += 32) x[i] = 0;
}

// ---- second ----
__global__ void second(float* x) { x[0] = 1; __syncthreads(); x[1] = 2; }
"""


def count_changes(after: str, before: str = PROGRAM, suffix: str = ".cu") -> dict[str, int]:
    return dict(edits.count_changes(edits.split_statements(before, suffix), edits.split_statements(after, suffix)))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("x[0] = 1;", "x[0]=\n1; // the first one\n", {}),
        ("// ---- second ----", "", {}),
        ("i < n", "i < n - 1", {"first": 1}),
        ("x[0] = 1;", "x[0] = 1; x[2] = 3;", {"second": 1}),
        ("x[1] = 2;", "", {"second": 1}),
        ("x[0] = 1; __syncthreads();", "__syncthreads(); x[0] = 1;", {"second": 2}),
        ("#include <cuda_pipeline.h>", "#include <cuda_pipeline.h>\n#include <cuda/ptx>", {"": 1}),
        ("x[i] = 0;", "{ x[i] = 0; __syncwarp(); }", {"first": 4}),  # the header, two statements, and a brace
        ("x[i] = 0;", "x[int{}] = 0;", {"first": 1}),
        # One statement may contain others.
        ("x[1] = 2;", "f([&] { x[1] = 2; x[2] = 3; });", {"second": 4}),
        ("x[1] = 2;", 'asm volatile("fence.proxy.async;" ::: "memory");', {"second": 1}),
        ("x[1] = 2;", 'asm volatile("fence.proxy.async;\\n" ::: "memory");', {"second": 1}),
        ("x[1] = 2;", 'asm volatile("mov.u32 %0, 1; add.u32 %0, %0, 1;" : "=r"(x));', {"second": 2}),
        ("#include <cuda_pipeline.h>", "#define second(x) f(x) { x[0] = 1; } void g(x)", {"": 4}),
    ],
)
def test_changes_are_counted_by_statement(old: str, new: str, expected: dict[str, int]) -> None:
    assert PROGRAM.count(old) == 1
    assert count_changes(PROGRAM.replace(old, new)) == expected


def test_the_table_of_causes_does_not_count_as_a_change() -> None:
    before = (
        '"""Text."""\nCAUSES = {"first": "TODO"}\n# ---- first ----\ndef first(x):\n    """Text."""\n    return x + 1\n'
    )
    after = 'CAUSES: dict = {"first": "Race"}\n\ndef first(x):  # text\n    return (x\n            + 2)\n'
    assert count_changes(after, before, ".py") == {"first": 1}


def test_inline_assembly_in_python_is_counted_by_instruction() -> None:
    before = "# ---- first ----\ndef first(x):\n    return x + 1\n"
    after = before.replace("x + 1", "asm('add.u32 $0, $1, 1; mul.lo.u32 $0, $0, 2; mov.u32 $0, $0;')")
    assert count_changes(after, before, ".py") == {"first": 3}


def test_a_program_that_is_too_long_is_refused() -> None:
    with pytest.raises(edits.Unreadable):
        count_changes(";".join(f"int x{number}" for number in range(1_000_000)))


@pytest.mark.parametrize("item", REPAIRS, ids=lambda item: item.name)
def test_kernels_to_be_repaired_have_their_declared_faults(item: ExerciseRef) -> None:
    """Run the unrepaired kernels with every schedule of warps and blocks."""
    exercise = registry.load(item)
    if exercise.multiprocessors:
        simulated_gpu.show({"multi_processor_count": exercise.multiprocessors}, exercise.arch)
    entry = getattr(registry.import_file(item.given[-1], f"given_{item.name}", listed=False), exercise.entry)
    faults: dict[str, set[str]] = {name: set() for name in exercise.repairs}
    for case in exercise.cases:
        for schedule in warpcheck.Schedule:
            inputs = ground_truth.generate_inputs(exercise, case, 1, "cpu")
            faults[case["kernel"]] |= find_fault(exercise, entry, inputs, schedule)
    assert faults == {name: set(kernel.faults) for name, kernel in exercise.repairs.items()}


def find_fault(exercise: Exercise, entry: object, inputs: tuple[object, ...], schedule: warpcheck.Schedule) -> set[str]:
    """Return the name of the fault of a call in a set, which is empty if the call has no fault."""
    try:
        report = warpcheck.run(entry, *inputs, arch=exercise.arch, schedules=[schedule])  # type: ignore[arg-type]
    except (warpcheck.Fault, warpcheck.Deadlock) as error:
        return {type(error).__name__}
    expected = ground_truth.expected_outputs(exercise, inputs)
    outputs = report.result if isinstance(report.result, tuple) else (report.result,)
    finding = compare.check_outputs(outputs, expected, exercise.tolerance)
    return {WRONG_VALUES_FAULT} if finding else set()


@pytest.mark.parametrize("item", REPAIRS, ids=lambda item: item.name)
def test_the_stub_is_restored_as_it_was_given(item: ExerciseRef) -> None:
    assert stubs.pristine(item) == {path: path.read_text("utf-8") for path in item.files("phases")}


@pytest.mark.parametrize("item", REPAIRS, ids=lambda item: item.name)
def test_the_statement_names_how_many_statements_may_change(item: ExerciseRef) -> None:
    statement = " ".join((registry.import_file(item.stub, "stub", listed=False).__doc__ or "").split())
    for name, kernel in registry.load(item).repairs.items():
        assert f"{kernel.changes} in {name}" in statement


@pytest.mark.parametrize("item", REPAIRS, ids=lambda item: item.name)
def test_the_statement_leaves_what_is_around_the_kernels_alone(item: ExerciseRef) -> None:
    statement = " ".join((registry.import_file(item.stub, "stub", listed=False).__doc__ or "").split())
    assert "no statement outside of the kernels but an #include" in statement or "none outside of the" in statement


def test_repairs_are_graded_on_the_machine_where_there_is_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    item = registry.find("repair_tiles")
    assert Job.create(item, item.stub, device="cuda").device == "cpu"


def test_the_cases_run_every_kernel() -> None:
    exercise = registry.load(registry.find("repair_tiles"))
    with pytest.raises(DeclarationError, match="repairs"):
        Exercise(entry="run", kind="repair", problem=exercise.problem, repairs={"tile": exercise.repairs["tile"]})
