"""Test the exam of each phase in a folder made by `kp new`, from the stubs to a certificate."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelpath import cli
from kernelpath.course import delivery, registry
from kernelpath.course.registry import DELIVERABLE, ExerciseRef
from kernelpath.exam import questions
from kernelpath.exam.questions import ChoiceAnswer, ExamQuestion, FaultAnswer, NumericAnswer
from kernelpath.exam.sheet import ANSWERS, Sheet
from kernelpath.grading import grade
from kernelpath.verdict import Report, Verdict

PHASES = [exam.parent.name for exam in sorted(registry.root().glob("checks/*/checkpoint.py"))]
NAME = "Ada Lovelace"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def delivered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a learner's folder as `kp new` makes it."""
    folder = tmp_path_factory.mktemp("course")
    delivery.deliver(folder)
    return folder


@pytest.fixture
def kp(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command and returns its exit status, output and errors."""

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exit_:
            cli.main([*arguments, "--device", "cpu"])
        captured = capsys.readouterr()
        return int(exit_.value.code or 0), captured.out, captured.err

    return run


@pytest.fixture
def verdicts(monkeypatch: pytest.MonkeyPatch) -> dict[str, Verdict]:
    """Replace grading by these verdicts, by exercise name. An exercise without a verdict here is really graded."""
    real = grade.grade
    verdict_of: dict[str, Verdict] = {}

    def report(item: ExerciseRef, submission: Path, **options: object) -> Report:
        assert submission.is_file(), f"{item.name} is graded from {submission}, which does not exist"
        if item.name not in verdict_of:
            return real(item, submission, **options)  # type: ignore[arg-type]
        return Report(item.path_id, item.title, str(submission), "cpu", 1, verdict_of[item.name])

    monkeypatch.setattr(grade, "grade", report)
    return verdict_of


def right_answer(question: ExamQuestion) -> str:
    answer = question.answer
    if isinstance(answer, ChoiceAnswer):
        return questions.LETTERS[answer.correct]
    if isinstance(answer, NumericAnswer):
        return repr(answer.correct)
    assert isinstance(answer, FaultAnswer)
    return " ".join([answer.kind, *map(str, answer.lines)])


# The exam of the first phase, whose stubs are really graded, stands for the others in every run.
@pytest.mark.parametrize("phase", [PHASES[0], *(pytest.param(phase, marks=pytest.mark.weekly) for phase in PHASES[1:])])
def test_every_exam_leads_from_stubs_to_a_certificate(
    phase: str, delivered: Path, tmp_path: Path, kp: Run, verdicts: dict[str, Verdict], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "course"
    shutil.copytree(delivered, folder)
    monkeypatch.chdir(folder)
    number = phase.partition("_")[0]
    exam = questions.find_exam(int(number))
    names = [*(item.name for item in exam.items), DELIVERABLE]

    if phase != PHASES[0]:  # the stubs of one phase are really graded
        verdicts.update(dict.fromkeys(names, Verdict.NOT_STARTED))
    status, out, err = kp("checkpoint", number, "--no-ask", "--name", NAME)
    assert (status, err) == (1, "")
    assert f"{DELIVERABLE}.py" in out

    verdicts.update(dict.fromkeys(names, Verdict.NOT_STARTED))
    status, out, err = kp("checkpoint", number, "--no-ask", "--deliverable")
    assert (status, err, "NOT_STARTED" in out) == (1, "", True)
    status, out, err = kp("checkpoint", number, "--no-ask")
    assert (status, err) == (1, "")
    assert out.count("missing:") >= len(names)

    for item in exam.items:
        for solution in item.files("solutions"):
            stub = folder / "phases" / solution.relative_to(item.course / "solutions")
            stub.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(solution, stub)
    sheet = Sheet(exam, exam.folder / ANSWERS)
    for question in sheet.paper.questions:
        sheet.answer(question, right_answer(question))
    # A written answer has at least 50 words.
    for prompt in sheet.prompts:
        sheet._table("written")[prompt.name] = f"{prompt.name} " * 60
    sheet.save()
    verdicts.update(dict.fromkeys(names, Verdict.PASSED))
    verdicts.pop("kernel_library", None)  # the only exercise of several files in a folder is really graded
    status, out, err = kp("checkpoint", number, "--no-ask")
    assert (status, err) == (0, ""), out
    certificate = json.loads((folder / ".kernelpath" / f"checkpoint{number}.json").read_text())["certificate"]
    assert (certificate["score"], certificate["missing"]) == (100, [])
    submitted = {str(path.relative_to(exam.folder)) for item in exam.items for path in item.files("phases")}
    assert submitted < set(certificate["files"])


def test_a_missing_project_file_is_named(
    delivered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kp: Run
) -> None:
    folder = tmp_path / "course"
    shutil.copytree(delivered, folder)
    monkeypatch.chdir(folder)
    kp("checkpoint", "4", "--no-ask", "--name", NAME)
    (folder / "phases/4_fusion/w16d_kernel_library/src/fused_kernels/kernels.py").unlink()
    status, _, err = kp("checkpoint", "4", "--no-ask", "--deliverable")
    assert status == 2
    assert "lacks 1 of the exam's 26 files, beginning with w16d_kernel_library/src/fused_kernels/kernels.py" in err
    assert "kp reset kernel_library restores the stub" in err
