"""The exam: what the learner sees, what counts, and what a certificate is worth."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelpath import cli
from kernelpath.course import registry
from kernelpath.course.errors import DeclarationError
from kernelpath.course.progress import Progress
from kernelpath.course.registry import Item
from kernelpath.dev import invariants
from kernelpath.exam import NotValid, questions, sitting, verification
from kernelpath.exam.certificate import Certificate
from kernelpath.exam.questions import Exam
from kernelpath.exam.sheet import ANSWERS, Sheet
from kernelpath.grading import grade
from kernelpath.show import certificate
from kernelpath.verdict import Interval, Measurement, Report, Verdict

EXAM = '''"""Checkpoint 1."""
from kernelpath.course.spec import Checkpoint

CHECKPOINT = Checkpoint(
    deliverable="double",
    draws=2,
    pass_mark=0.6,
)
'''
QUESTIONS = """\
## Week 1: question

Which colour?

- [ ] red
- [x] green
- [ ] blue
- [ ] grey

Why: it is green

## Week 1: question

How many threads?

Answer: 1024 within 10 %

Why: 32 times 32
"""
RIGHT = "def double(x):\n    return 2 * x\n"


@pytest.fixture
def exam(doubling: Item, monkeypatch: pytest.MonkeyPatch) -> Exam:
    """The exam of a phase of one exercise, which is passed. Its questions: colour (green), threads (1024), ? (1)."""
    (doubling.root / "checks" / "1_architecture" / "checkpoint.py").write_text(EXAM)
    (doubling.root / "checks" / "1_architecture" / "checkpoint.md").write_text(QUESTIONS)
    doubling.stub.write_text(RIGHT)
    monkeypatch.chdir(doubling.root)
    return questions.find(1, doubling.root)


@pytest.fixture
def graded(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replaces grading by reports with the given fields, and with the given verdict for the deliverable's sizes."""

    def become(*drawn: Verdict, **fields: object) -> None:
        endings = iter(drawn)

        def fake(item: Item, submission: Path, *, seed: int, **_: object) -> Report:
            report = Report(item.stem, item.title, str(submission), "GPU", seed, Verdict.PASSED, stars=3)
            return dataclasses.replace(report, **(fields if seed == 5 else {"verdict": next(endings)}))

        monkeypatch.setattr(grade, "grade", fake)

    become(Verdict.PASSED, Verdict.PASSED)
    return become


def fill(exam: Exam, *texts: str) -> Sheet:
    sheet = Sheet(exam, exam.folder / ANSWERS)
    for asked, text in zip(sheet.questions, texts, strict=True):
        letters = {choice: letter for letter, choice in asked.lettered}
        sheet.answer(asked, letters.get(text, text))
    return sheet


def test_the_sheet_has_every_question_and_no_answer(exam: Exam) -> None:
    sheet = Sheet(exam, exam.folder / ANSWERS)
    sheet.save()
    text = sheet.path.read_text()
    assert [text.count(part) for part in ("Which colour?", ") green", "How many threads?", "double: ?")] == [1] * 4
    assert "1024" not in text
    assert "it is green" not in text
    assert text.count(' = ""') == 3


def test_each_learner_has_an_order_of_choices_that_stays(exam: Exam) -> None:
    orders = {seed: exam.questions(seed)[0].choices for seed in range(20)}
    assert len(set(orders.values())) > 5
    assert orders[3] == exam.questions(3)[0].choices
    assert {frozenset(order) for order in orders.values()} == {frozenset(("red", "green", "blue", "grey"))}


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("1024", True),
        ("1,024", True),
        ("1 024", True),
        ("2^10", True),
        ("2**10", True),
        ("1024 %", True),
        ("9.9e2", True),
        ("900", False),
        ("1130", False),
        ("1,0240", False),
        ("10^999", False),
        ("(-8)^0.5", False),
        ("many", False),
        ("", False),
    ],
)
def test_numbers_are_taken_within_their_tolerance(exam: Exam, text: str, right: bool) -> None:
    assert exam.questions(0)[1].right(text) is right


def test_a_choice_is_answered_by_its_letter_alone(exam: Exam) -> None:
    asked = exam.questions(0)[0]
    right = [choice == "green" for _, choice in asked.lettered]
    for form in ("{}", "{})", " {}. "):
        assert [asked.right(form.format(letter)) for letter, _ in asked.lettered] == right
        assert [asked.right(form.format(letter.upper())) for letter, _ in asked.lettered] == right
    assert not asked.understands("green")
    assert not asked.understands("e")


def test_what_the_learner_wrote_outlives_a_change_of_the_course(exam: Exam) -> None:
    sheet = fill(exam, "green", "1000", "7")
    sheet.path.write_text(sheet.path.read_text().replace("[answers]", "# my own note\n[answers]"))
    declaration = exam.root / "checks" / exam.phase / "checkpoint.py"
    declaration.write_text(EXAM.replace("draws=2", "draws=3"))
    declaration.with_suffix(".md").write_text(QUESTIONS.replace("How many threads?", "How many threads at all?"))
    newer = Sheet(questions.find(1, exam.root), sheet.path)
    newer.save()
    assert list(newer.right.values()) == [True, False, False]
    assert "# my own note" in newer.path.read_text()
    assert newer.path.read_text().count(' = ""') == 1


def test_what_a_sheet_says_in_vain_is_named(exam: Exam) -> None:
    sheet = fill(exam, "green", "4,5", "1")
    sheet.path.write_text(sheet.path.read_text().replace("double-", "dobule-"))
    broken = Sheet(exam, sheet.path)
    keys = [asked.key for asked in broken.questions]
    assert broken.complaints() == [
        f"unknown key {keys[2].replace('double', 'dobule')}; ignored",
        f"{keys[1]}: '4,5' is not a number, such as 1800 or 2^20",
    ]
    assert broken.right == {keys[0]: True, keys[1]: False, keys[2]: False}


def test_a_folder_without_the_kernels_is_named_and_left_empty(
    exam: Exam, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert run(capsys, "--from", str(elsewhere))[0] == 2
    assert list(elsewhere.iterdir()) == []
    with pytest.raises(NotValid, match=r"lacks 1 of the exam's 1 files, .* w01a_double\.py; give --from a folder"):
        exam.require_files(elsewhere)
    exam.deliverable.stub.unlink()
    with pytest.raises(NotValid, match="kp reset double brings the stub back"):
        exam.require_files(exam.folder)


@pytest.mark.parametrize("text", ["seed = ", "[answers]\n", "seed = 'x'\n[answers]\n", "seed = 1\nanswers = 2\n"])
def test_a_broken_sheet_is_named_and_left_alone(exam: Exam, text: str) -> None:
    (exam.folder / ANSWERS).write_text(text)
    with pytest.raises(NotValid, match=r"answers\.toml cannot be read"):
        Sheet(exam, exam.folder / ANSWERS)
    assert (exam.folder / ANSWERS).read_text() == text


@pytest.mark.parametrize(
    ("answers", "drawn", "verdict", "score", "missing"),
    [
        (("green", "1000", "1"), "PASSED", "PASSED", 100, []),
        (("green", "1000", "2"), "PASSED", "PASSED", 90, []),
        (("red", "1000", ""), "PASSED", "PASSED", 80, ["1 of 3 questions"]),
        (("green", "1000", "1"), "WRONG_VALUES", "PASSED", 90, ["deliverable double ends as WRONG_VALUES"]),
        (("green", "1000", "1"), "PASSED", "TOO_SLOW", 30, ["double ends as TOO_SLOW"]),
    ],
)
def test_score_and_what_is_missing(
    exam: Exam,
    graded: Callable[..., None],
    answers: tuple[str, ...],
    drawn: str,
    verdict: str,
    score: int,
    missing: list[str],
) -> None:
    fill(exam, *answers)
    graded(Verdict.PASSED, Verdict(drawn), verdict=Verdict(verdict))
    result = sitting.sit(exam, exam.folder, seed=5)
    assert result.score == score
    assert len(result.missing) == len(missing)
    assert all(part in sentence for part, sentence in zip(missing, result.missing, strict=True))
    assert result.passed is not bool(missing)


def test_a_certificate_survives_json_and_shows_its_ratios(exam: Exam, graded: Callable[..., None]) -> None:
    measured = Measurement(
        {"n": 9}, 1e-3, 2e-3, 1e-3, Interval(2.125, 2.0, 2.25), Interval(0.97, 0.96, 0.98), 8, 1, 9e-4, {}, 9, "paired"
    )
    graded(Verdict.PASSED, Verdict.PASSED, measurement=measured)
    fill(exam, "green", "1000", "1")
    result = sitting.sit(exam, exam.folder, seed=5)
    assert Certificate.from_json(result.to_json()) == result
    page = certificate.page(result)
    shown = (
        "2.125",
        "2.000 to 2.250",
        "0.970",
        "90.0%",
        "100 of 100",
        "exercises 50, questions 30, deliverable 20",
        "GPU",
        result.versions["torch"],
        ">5<",
    )
    assert [part for part in shown if part not in page] == []
    assert "http" not in page


def test_a_certificate_holds_for_the_same_submission_only(exam: Exam, graded: Callable[..., None]) -> None:
    fill(exam, "green", "1000", "1")
    old = sitting.sit(exam, exam.folder, seed=5)
    graded(Verdict.PASSED, Verdict.PASSED)
    assert verification.verify(exam, exam.folder, old) == []
    (exam.folder / "w01a_double.py").write_text(RIGHT + "#")
    assert verification.verify(exam, exam.folder, old) == ["w01a_double.py is not the file that was certified"]


def test_an_edited_certificate_is_refused(exam: Exam, graded: Callable[..., None]) -> None:
    fill(exam, "red", "1000", "")
    text = sitting.sit(exam, exam.folder, seed=5).to_json()
    with pytest.raises(NotValid, match="was changed"):
        Certificate.from_json(text.replace('"score": 80', '"score": 100'))


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"certificate": {}, "digest": ""}', '{"certificate": 1, "digest": 2}']
)
def test_something_else_is_no_certificate(text: str) -> None:
    with pytest.raises(NotValid, match="not a certificate"):
        Certificate.from_json(text)


def test_a_forged_certificate_does_not_survive_grading(exam: Exam, graded: Callable[..., None]) -> None:
    fill(exam, "red", "1000", "")
    honest = sitting.sit(exam, exam.folder, seed=5)
    forged = dataclasses.replace(honest, score=100, missing=(), answers=dict.fromkeys(honest.answers, True))
    graded(Verdict.PASSED, Verdict.PASSED, verdict=Verdict.PASSED, stars=2)
    found = verification.verify(exam, exam.folder, Certificate.from_json(forged.to_json()))
    assert found[0] == "1_architecture/w01a_double had 3 stars and has 2"
    assert [sentence.rpartition(" was ")[2] for sentence in found[1:]] == ["right", "right", "100 and is 80"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit status and output of kp checkpoint 1."""
    with pytest.raises(SystemExit) as exit_:
        cli.main(["checkpoint", "1", "--device", "cpu", *arguments])
    return int(exit_.value.code or 0), capsys.readouterr().out


def test_the_exam_in_a_terminal(
    exam: Exam, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def kp(*arguments: str, typed: str = "") -> tuple[int, str]:
        lines = typed.splitlines()
        monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: lines.pop(0))
        return run(capsys, *arguments)

    Sheet(exam, exam.folder / ANSWERS).save()
    sheet = Sheet(exam, exam.folder / ANSWERS)
    green = {choice: letter for letter, choice in sheet.questions[0].lettered}["green"]
    status, out = kp("--ask", "--seed", "5", typed=f"perhaps\n{green}\n7\n\n")
    assert status == 1
    assert out.startswith("checkpoint 1: 100 points\n  exercises    50  all 1 must pass")
    assert "  deliverable  20  your double at 2 drawn sizes; you write nothing more" in out
    assert out.count("not yet; kept, and asked again next time") == 1
    assert f"not right yet: {sheet.questions[1].key}, {sheet.questions[2].key}\n" in out
    assert "points: exercises 50 of 50, questions 10 of 30, deliverable 20 of 20" in out
    assert "it is green" in out
    assert "32 times 32" not in out
    assert "missing: 1 of 3 questions are answered correctly, 2 are needed" in out
    assert "next: answer in phases/1_architecture/answers.toml, then kp checkpoint 1" in out
    assert [(score.score, score.passed) for score in Progress(exam.root).scores()] == [(80, False)]
    status, out = kp("--ask", typed="1000\n1\n")
    assert status == 0
    assert "Which colour?" not in out
    certificate = exam.root / ".kernelpath" / "checkpoint1.json"
    assert json.loads(certificate.read_text())["certificate"]["score"] == 100
    kp("--no-ask", "--from", str(exam.folder), "--seed", "6")
    assert [(score.score, score.passed) for score in Progress(exam.root).scores()] == [(100, True)]
    status, out = kp("--verify", str(certificate))
    assert (status, out.startswith("the certificate holds: 100 of 100")) == (0, True)


def test_without_the_exercise_its_deliverable_is_not_run(
    exam: Exam, graded: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    graded(verdict=Verdict.WRONG_VALUES)
    _, out = run(capsys, "--no-ask", "--seed", "5")
    assert "deliverable: not run, double has not passed" in out
    assert "points: exercises 0 of 50, questions 0 of 30, deliverable 0 of 20" in out


def test_the_questions_of_one_week(
    exam: Exam, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = exam.root / "checks" / exam.phase / "checkpoint.md"
    asked.write_text(QUESTIONS.replace("Week 1", "Week 2"))
    notebook = exam.root / "notebooks" / exam.phase / "week01_x.ipynb"
    notebook.parent.mkdir(parents=True)
    notebook.write_text("{}")
    typed = iter(["2", ""])
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: next(typed))
    status, out = run(capsys, "--week", "1")
    assert status == 1
    assert "question 1 of 1, week 1, double" in out
    assert f"read week 1, double, in notebooks/{exam.phase}/week01_x.ipynb" in out
    assert "0 of 1 questions of week 1 are answered correctly" in out
    assert out.endswith("next: kp checkpoint 1 --week 1\n")
    fill(questions.find(1, exam.root), "1", "green", "2")
    status, out = run(capsys, "--week", "1")
    assert (status, out.count("question 1")) == (0, 0)
    assert out.endswith("next: kp checkpoint 1\n")
    assert run(capsys, "--week", "3")[0] == 2


def test_ctrl_c_keeps_what_was_answered_and_says_so(
    exam: Exam, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = iter(["a"])

    def typed(_: str) -> str:
        if (answer := next(answers, None)) is None:
            raise KeyboardInterrupt
        return answer

    monkeypatch.setattr("click.termui.visible_prompt_func", typed)
    status, out = run(capsys, "--ask")
    assert status == 130
    assert out.endswith("\nkept; go on with kp checkpoint 1\n")
    sheet = Sheet(exam, exam.folder / ANSWERS)
    assert sheet.given(sheet.questions[0]) == "a"


def test_a_phase_without_exam_is_wrong_use(doubling: Item, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(registry.LookupFailed, match="no checkpoint yet"):
        questions.find(1, doubling.root)
    with pytest.raises(registry.LookupFailed, match="no phase 9"):
        questions.find(9, doubling.root)


def test_a_broken_exam_is_named(exam: Exam) -> None:
    path = exam.root / "checks" / "1_architecture" / "checkpoint.py"
    path.write_text(EXAM.replace("pass_mark=0.6", "pass_mark=60"))
    with pytest.raises(DeclarationError, match=r"checkpoint\.py.*pass_mark"):
        questions.find(1, exam.root)


def test_the_deliverable_must_be_an_exercise_whose_size_varies(exam: Exam) -> None:
    assert list(invariants.checkpoints_are_valid(exam.root)) == []
    path = exam.root / "checks" / "1_architecture" / "checkpoint.py"
    path.write_text(EXAM.replace('deliverable="double"', 'deliverable="triple"'))
    assert [found.partition(": ")[2] for found in invariants.checkpoints_are_valid(exam.root)] == [
        "its deliverable triple is not an exercise of the phase; name one"
    ]
    path.write_text(EXAM)
    path.with_suffix(".md").write_text(QUESTIONS.replace("Week 1", "Week 4"))
    assert [found.partition(": ")[2] for found in invariants.checkpoints_are_valid(exam.root)] == [
        "it has questions of week 4, which has no exercise in the phase; give them another week"
    ]
