"""Operators that overwrite their inputs, and a limit on launches: graded on the PTX machine."""

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


def graded(text: str, folder: Path) -> Report:
    file = folder / "w13d_adam.py"
    file.write_text(text)
    return grade.grade(registry.find("adam"), file, device="cpu", seed=1, brief=True)


def changed(before: str, after: str) -> str:
    assert PLAIN.count(before) == 1
    return PLAIN.replace(before, after)


def test_what_may_be_overwritten_is_every_tensor_but_the_gradients() -> None:
    inputs = registry.load(registry.find("adam")).inputs
    drawn = inputs(torch.Generator(), **adam.case("odd", 3))
    params, grads, moments, squares = adam.lists(drawn[0], drawn[6:])
    overwritten = adam.updated(*drawn)
    assert [id(one) for one in overwritten] == [id(one) for one in (*params, *moments, *squares)]
    assert not {id(one) for one in grads} & {id(one) for one in overwritten}


def test_a_process_with_a_gpu_tells_what_was_overwritten_and_what_may_not_be() -> None:
    exercise = registry.load(registry.find("adam"))
    case = adam.case("odd", 5, begin="anywhere")
    drawn, sent = (generate_inputs(exercise, case, 3, "cpu") for _ in "ab")
    call = GuardedCall("adamw", sent, torch.device("cpu"), SubmissionThread(), AuditLog(), False, exercise)
    given: Any = call.inputs
    adam.one_by_one(*given)
    outputs = call.outputs(None)
    expected = adam.PROBLEM.reference(*drawn)
    assert len(outputs) == 15
    for output, right in zip(outputs, expected, strict=True):
        torch.testing.assert_close(output.double(), right, rtol=3e-5, atol=1e-5)

    def finding() -> Finding | None:
        told = call.to_result(outputs, "", "", lambda outputs: [output[:0] for output in outputs])
        return process_finding(told, drawn, exercise.overwritten(drawn))

    assert finding() is None
    adam.lists(given[0], given[6:])[1][2].zero_()  # a gradient
    assert finding() == MUTATED


MASK = "    mask = offsets < numel\n"
BESIDE = "    tl.store(p - 1, 0.0, mask=(p.to(tl.int64) % 16 != 0) & (numel == 1024))\n"
CHUNKS = "    owners = np.repeat("


def test_other_elements_of_the_storage_may_not_be_overwritten(tmp_path: Path) -> None:
    """They lie before a tensor that does not begin where its storage does."""
    report = graded(changed(MASK, MASK + BESIDE), tmp_path)
    assert report.verdict is Verdict.MUTATED_INPUT, report.cause
    assert "begin=anywhere" in arguments(next(one.case for one in report.cases if not one.verdict.passed))


def test_a_tensor_that_no_kernel_was_given_is_as_it_was(tmp_path: Path) -> None:
    report = graded(changed(CHUNKS, "    chunks[1:] = [*chunks[1:-1], *([0] * (count > 1))]\n" + CHUNKS), tmp_path)
    assert report.verdict is Verdict.WRONG_VALUES, report.cause
    assert "of p[10] are wrong" in report.cause
