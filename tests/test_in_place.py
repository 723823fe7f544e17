"""Test exercises whose operators overwrite their inputs, graded on the PTX machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from kernelpath.course import registry
from kernelpath.course.problem import arguments
from kernelpath.course.problems import adam
from kernelpath.grading import grade
from kernelpath.grading.graders.results import process_finding
from kernelpath.grading.ground_truth import generate_inputs
from kernelpath.grading.provenance import MUTATED
from kernelpath.verdict import Finding, Report, Verdict
from kernelpath.work.call import GuardedCall
from kernelpath.work.dispatch_monitor import AuditLog
from kernelpath.work.tamper_check import SubmissionThread
from tests import planted

ROOT = Path(__file__).parents[1]
PLAIN = next(honest for honest in planted.accepts(ROOT, "w13d_adam") if honest.title == "plain").sources[".py"]


def grade_source(text: str, folder: Path) -> Report:
    file = folder / "w13d_adam.py"
    file.write_text(text)
    return grade.grade(registry.find("adam"), file, device="cpu", seed=1, brief=True)


def edit_source(before: str, after: str) -> str:
    assert PLAIN.count(before) == 1
    return PLAIN.replace(before, after)


def test_every_tensor_but_the_gradients_may_be_overwritten() -> None:
    inputs = registry.load(registry.find("adam")).inputs
    sample_inputs = inputs(torch.Generator(), **adam.case("odd", 3))
    params, grads, moments, squares = adam.lists(sample_inputs[0], sample_inputs[6:])
    overwritten = adam.updated(*sample_inputs)
    assert [id(tensor) for tensor in overwritten] == [id(tensor) for tensor in (*params, *moments, *squares)]
    assert not {id(tensor) for tensor in grads} & {id(tensor) for tensor in overwritten}


def test_a_guarded_call_reports_overwritten_and_mutated_inputs() -> None:
    exercise = registry.load(registry.find("adam"))
    case = adam.case("odd", 5, begin="anywhere")
    expected_inputs, submission_inputs = (generate_inputs(exercise, case, 3, "cpu") for _ in "ab")
    call = GuardedCall("adamw", submission_inputs, torch.device("cpu"), SubmissionThread(), AuditLog(), False, exercise)
    call_inputs: Any = call.inputs
    adam.one_by_one(*call_inputs)
    outputs = call.outputs(None)
    expected = adam.PROBLEM.reference(*expected_inputs)
    assert len(outputs) == 15
    for output, expected_output in zip(outputs, expected, strict=True):
        torch.testing.assert_close(output.double(), expected_output, rtol=3e-5, atol=1e-5)

    def finding() -> Finding | None:
        result = call.to_result(outputs, "", "", lambda outputs: [output[:0] for output in outputs])
        return process_finding(result, expected_inputs, exercise.overwritten(expected_inputs))

    assert finding() is None
    adam.lists(call_inputs[0], call_inputs[6:])[1][2].zero_()  # a gradient
    assert finding() == MUTATED


MASK = "    mask = offsets < numel\n"
STORE_BEFORE = "    tl.store(p - 1, 0.0, mask=(p.to(tl.int64) % 16 != 0) & (numel == 1024))\n"
CHUNKS = "    owners = np.repeat("


def test_other_elements_of_the_storage_may_not_be_overwritten(tmp_path: Path) -> None:
    """The storage of a tensor with an offset has elements before the tensor, which must keep their values."""
    report = grade_source(edit_source(MASK, MASK + STORE_BEFORE), tmp_path)
    assert report.verdict is Verdict.MUTATED_INPUT, report.cause
    assert "begin=anywhere" in arguments(next(case.case for case in report.cases if not case.verdict.passed))


def test_a_skipped_chunk_is_a_wrong_value(tmp_path: Path) -> None:
    report = grade_source(
        edit_source(CHUNKS, "    chunks[1:] = [*chunks[1:-1], *([0] * (count > 1))]\n" + CHUNKS), tmp_path
    )
    assert report.verdict is Verdict.WRONG_VALUES, report.cause
    assert "of p[10] are wrong" in report.cause
