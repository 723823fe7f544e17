"""Test the exam: its sheet, its score, and the verification of its certificates."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelpath import cli
from kernelpath.course import registry
from kernelpath.course.errors import DeclarationError
from kernelpath.course.progress import Progress
from kernelpath.course.registry import ExerciseRef
from kernelpath.dev import invariants
from kernelpath.exam import ExamError, course, questions, sitting, verification
from kernelpath.exam.certificate import Certificate
from kernelpath.exam.course import CourseCertificate
from kernelpath.exam.questions import Exam, FaultAnswer, NumericAnswer
from kernelpath.exam.sheet import ANSWERS, Sheet
from kernelpath.grading import grade
from kernelpath.show import certificate
from kernelpath.verdict import Interval, Measurement, Report, Verdict

EXAM = '''"""Checkpoint 1."""
import dataclasses
from kernelpath.course import registry
from kernelpath.course.checkpoint import Checkpoint, Numbers, DeliverableVariant
from kernelpath.course.problem import Problem, Tolerance
from kernelpath.course.spec import Exercise


def twist(by):
    problem = Problem(
        inputs=lambda rng, n: (__import__("torch").randn(n, generator=rng),),
        cases=({"n": 1}, {"n": 100}),
        reference=lambda x: by * x.double(),
        tolerance={"float32": Tolerance(1e-6, 1e-6)},
        compulsory_bytes=lambda n: 8 * n,
    )
    exercise = Exercise(entry="double", problem=problem, kind="python")
    return DeliverableVariant(f"times_{by}", exercise, {".py": "def double(x):\\n    raise NotImplementedError\\n"})


CHECKPOINT = Checkpoint(
    deliverable="double",
    variants=[twist(3), twist(5), twist(7)],
    numbers={"threads": Numbers({"warps": range(2, 30)}, lambda warps: {"all": 32 * warps})},
    pass_mark=0.6,
)
'''
QUESTIONS = """\
## Week 1: colour

Which colour?

- [ ] red
- [x] green
- [ ] blue
- [ ] grey

Why: it is green

## Week 1: threads

How many threads have {warps} warps?

Answer: {all} within 10 %

Why: 32 times {warps}

## Week 1: one

One?

Answer: 1

Why: because

## Written: essay

What have you learned?

Rubric:

- 2 points: names something,
  in two lines.
- 1 point: says why.
"""
RIGHT = "def double(x):\n    return 2 * x\n"
ESSAY = "word " * 60
ADA = "Ada Lovelace"


@pytest.fixture
def exam(doubling: ExerciseRef, monkeypatch: pytest.MonkeyPatch) -> Exam:
    """Return the exam of a phase whose single exercise is solved."""
    (doubling.root / "checks" / "1_architecture" / "checkpoint.py").write_text(EXAM)
    (doubling.root / "checks" / "1_architecture" / "checkpoint.md").write_text(QUESTIONS)
    doubling.stub.write_text(RIGHT)
    monkeypatch.chdir(doubling.root)
    return questions.find_exam(1, doubling.root)


@pytest.fixture
def graded(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replace the grader: reports get the requested fields, and the deliverable gets the requested verdict."""

    def set_outcome(delivered: Verdict, **fields: object) -> None:
        def fake_grade(item: ExerciseRef, submission: Path, *, seed: int | None, **_: object) -> Report:
            report = Report(item.path_id, item.title, str(submission), "GPU", seed or 0, Verdict.PASSED, stars=3)
            return dataclasses.replace(report, **({"verdict": delivered} if ":" in item.path_id else fields))

        monkeypatch.setattr(grade, "grade", fake_grade)

    set_outcome(Verdict.PASSED)
    return set_outcome


def solve(sheet: Sheet) -> None:
    """Hand in a correct solution of the deliverable's variant that the learner's name selects."""
    by = sheet.paper.variant.name.partition("_")[2]
    sheet.path.with_name("deliverable.py").write_text(f"def double(x):\n    return {by} * x\n")


def fill(exam: Exam, colour: str = "green", threads: str = "right", one: str = "1", essay: str = ESSAY) -> Sheet:
    """Return a sheet with these answers, next to a solved deliverable."""
    sheet = Sheet(exam, exam.folder / ANSWERS, ADA)
    solve(sheet)
    questions_by_key = {question.key: question for question in sheet.paper.questions}
    letters = {choice: letter for letter, choice in questions_by_key["colour"].lettered}
    answer = questions_by_key["threads"].answer
    assert isinstance(answer, NumericAnswer)
    sheet.answer(questions_by_key["colour"], letters.get(colour, colour))
    sheet.answer(questions_by_key["threads"], f"{answer.correct:g}" if threads == "right" else threads)
    sheet.answer(questions_by_key["one"], one)
    sheet._table("written")["essay"] = essay
    sheet.save()
    return Sheet(exam, sheet.path)


def test_the_sheet_has_every_question_and_no_answer(exam: Exam) -> None:
    sheet = Sheet(exam, exam.folder / ANSWERS, ADA)
    sheet.save()
    text = sheet.path.read_text()
    assert [text.count(part) for part in ("Which colour?", ") green", "How many threads", "One?", "learned?")] == [
        1
    ] * 5
    for secret in ("it is green", "32 times", "says why", "times_"):
        assert secret not in text
    assert text.count(' = ""\n') == 3
    assert max(map(len, text.splitlines())) <= 80


def test_a_name_determines_the_paper(exam: Exam) -> None:
    papers = [exam.paper(f"learner {number}") for number in range(40)]
    assert len({paper.variant.name for paper in papers}) == 3
    assert len({paper.questions[0].choices for paper in papers}) > 8
    assert len({paper.questions[1].ask for paper in papers}) > 10
    assert {frozenset(paper.questions[0].choices) for paper in papers} == {frozenset(("red", "green", "blue", "grey"))}
    ada = exam.paper(ADA)
    respelled = exam.paper("  ada\tLOVELACE ")
    assert (ada.questions, ada.variant) == (respelled.questions, respelled.variant)
    assert respelled.name == "ada LOVELACE"


@pytest.mark.parametrize("name", ["Ada  Lovelace!", "Adá-Lövelace", "Lovelace, Ada", "Ada Ada Lovelace"])
def test_spellings_of_a_name_share_one_paper(exam: Exam, name: str) -> None:
    """A teacher who grades a class must not have to guess which of several papers belongs to a learner."""
    assert exam.paper(name).seed == exam.paper(ADA).seed
    assert exam.paper(name).seed != exam.paper("Ada").seed


@pytest.mark.parametrize("name", ["", "  ", "...", "_", "x" * 101, "Ada\x1b[2J", "Ada\u202e"])
def test_an_invalid_name_is_refused(exam: Exam, name: str) -> None:
    with pytest.raises(ExamError, match="a name has 1 to 100 printable characters, and letters among them"):
        exam.paper(name)


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
        ("1,0240", None),
        ("10^999", None),
        ("(-8)^0.5", None),
        ("many", None),
        ("", None),
    ],
)
def test_numeric_answers_are_accepted_within_their_tolerance(text: str, right: bool | None) -> None:
    assert NumericAnswer(1024, 0.1).is_correct(text) is right


@pytest.mark.parametrize(
    ("text", "slip"), [("2", True), ("2e6", True), ("1.953", True), ("2000", False), ("0", False), ("3e6", False)]
)
def test_an_answer_in_another_unit_is_recognized(text: str, slip: bool) -> None:
    assert NumericAnswer(2000, 0.01).in_another_unit(text) is slip


def test_a_choice_is_answered_by_its_letter_alone(exam: Exam) -> None:
    question = exam.paper(ADA).questions[0]
    right = [choice == "green" for _, choice in question.lettered]
    for form in ("{}", "{})", " {}. "):
        assert [question.is_correct(form.format(letter)) for letter, _ in question.lettered] == right
        assert [question.is_correct(form.format(letter.upper())) for letter, _ in question.lettered] == right
    for text in ("green", "e", "ab", ""):
        assert not question.understands(text)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("race 9 12", True),
        ("Race: lines 12 and 9", True),
        ("race 12, 9", True),
        ("race 9", False),
        ("bounds 9 12", False),
        ("race 9 12 13", False),
        ("race", None),
        ("9 12", None),
        ("race nine", None),
        ("race " + "9" * 10_000, None),
    ],
)
def test_a_fault_answer_names_a_kind_and_lines(text: str, right: bool | None) -> None:
    assert FaultAnswer("race", frozenset({9, 12})).is_correct(text) is right


def test_answers_survive_a_change_of_the_course(exam: Exam) -> None:
    sheet = fill(exam)
    sheet.path.write_text(sheet.path.read_text().replace("[answers]", "# my own note\n[answers]"))
    declaration = exam.root / "checks" / exam.phase / "checkpoint.py"
    declaration.with_suffix(".md").write_text(QUESTIONS.replace("Week 1: one", "Week 1: another"))
    newer = Sheet(questions.find_exam(1, exam.root), sheet.path)
    newer.save()
    assert newer.is_correct == {"colour": True, "threads": True, "another": False}
    assert "# my own note" in newer.path.read_text()
    assert newer.path.read_text().count(' = ""\n') == 1


def test_ignored_entries_of_a_sheet_cause_warnings(exam: Exam) -> None:
    sheet = fill(exam, one="4,5")
    text = sheet.path.read_text().replace("colour = ", "color = ").replace("essay", "assay")
    sheet.path.write_text(text.replace("[marks]", "[marks]\nessay = [3, 0]\nother = 1"))
    sheet_with_mistakes = Sheet(exam, sheet.path)
    assert sheet_with_mistakes.warnings() == [
        "unknown key color; ignored",
        "unknown key assay; ignored",
        "marks of essay are not 2 points in the rubric's range; ignored",
        "unknown key other; ignored",
        "one: '4,5' is not a number, such as 1800 or 2^20",
    ]
    assert sheet_with_mistakes.is_correct == {"colour": False, "threads": True, "one": False}


def test_a_folder_without_the_kernels_is_reported_and_left_empty(
    exam: Exam, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert run(capsys, "--no-ask", "--from", str(elsewhere))[0] == 2
    assert list(elsewhere.iterdir()) == []
    paper = exam.paper(ADA)
    with pytest.raises(ExamError, match=r"lacks 2 of the exam's 2 files, .* w01a_double\.py; give --from a folder"):
        paper.require_files(elsewhere)
    solve(fill(exam))
    exam.items[0].stub.unlink()
    with pytest.raises(ExamError, match="kp reset double restores the stub"):
        paper.require_files(exam.folder)


@pytest.mark.parametrize(
    "text",
    [
        "seed = ",
        "",
        "checkpoint = 1\n",
        "checkpoint = 2\nname = 'Ada'\n",
        "checkpoint = 1\nname = 3\n",
        "checkpoint = 1\nname = 'Ada'\nanswers = 2\n",
        "checkpoint = 1\nname = 'Ada'\n[[answers]]\n",
        "\xff",
        "checkpoint = 1\nname = 'Ada'\na = " + "[" * 5000,
    ],
)
def test_a_broken_sheet_is_reported_and_not_overwritten(exam: Exam, text: str) -> None:
    content = text.encode("latin-1")
    (exam.folder / ANSWERS).write_bytes(content)
    with pytest.raises(ExamError, match=r"answers\.toml cannot be read.* fix it, or remove it to start over$"):
        Sheet(exam, exam.folder / ANSWERS)
    assert (exam.folder / ANSWERS).read_bytes() == content


def test_a_sheet_of_ten_megabytes_is_not_read(exam: Exam) -> None:
    path = exam.folder / ANSWERS
    path.write_text("checkpoint = 1\nname = 'Ada'\n[written]\nessay = '" + "x" * 10_000_000 + "'\n")
    with pytest.raises(ExamError, match=r"10,000,0\d\d bytes; at most 1,048,576 are .* a sheet is text of a few pages"):
        Sheet(exam, path)


def test_a_sheet_belongs_to_one_name(exam: Exam) -> None:
    path = fill(exam).path
    assert Sheet(exam, path, "ADA  lovelace").paper.name == ADA
    with pytest.raises(ExamError, match="is the sheet of Ada Lovelace, not of Grace Hopper; give --from"):
        Sheet(exam, path, "Grace Hopper")


@pytest.mark.parametrize(
    ("answers", "delivered", "verdict", "score", "missing"),
    [
        ({}, "PASSED", "PASSED", 100, []),
        ({"one": "2"}, "PASSED", "PASSED", 93, []),
        ({"one": "", "colour": "red"}, "PASSED", "PASSED", 86, ["1 of 3 questions"]),
        ({}, "WRONG_VALUES", "PASSED", 70, ["the deliverable ends as WRONG_VALUES"]),
        ({}, "PASSED", "TOO_SLOW", 70, ["double ends as TOO_SLOW"]),
        ({"essay": "word " * 49}, "PASSED", "PASSED", 100, ["the written answer essay has 49 words, 50 to 200 are"]),
        ({"essay": "word " * 201}, "PASSED", "PASSED", 100, ["essay has 201 words"]),
    ],
)
def test_score_and_missing_requirements(
    exam: Exam,
    graded: Callable[..., None],
    answers: dict[str, str],
    delivered: str,
    verdict: str,
    score: int,
    missing: list[str],
) -> None:
    graded(Verdict(delivered), verdict=Verdict(verdict))
    result = sitting.grade_exam(fill(exam, **answers), seed=5)
    assert result.score == score
    assert len(result.missing) == len(missing)
    assert all(part in sentence for part, sentence in zip(missing, result.missing, strict=True))
    assert result.passed is not bool(missing)


def test_the_written_answer_never_changes_the_score(exam: Exam, graded: Callable[..., None]) -> None:
    sheet = fill(exam)
    unmarked = sitting.grade_exam(sheet, seed=5)
    sheet.mark(sheet.prompts[0], [2, 0])
    self_marked = sitting.grade_exam(sheet, seed=5)
    teacher_marked = sitting.certify(
        sheet,
        self_marked.exercises,
        self_marked.deliverable,
        5,
        self_marked.files,
        {"essay": ((1, 1), "good")},
        "teacher",
    )
    assert [result.score for result in (unmarked, self_marked, teacher_marked)] == [100] * 3
    assert [result.written_points for result in (unmarked, self_marked, teacher_marked)] == [
        "",
        "2 of 3 (self-assessment)",
        "2 of 3 (teacher)",
    ]
    assert (teacher_marked.written[0].marks, teacher_marked.written[0].comment) == ((1, 1), "good")
    assert teacher_marked.written[0].rubric[0].text == "names something, in two lines."


def test_a_certificate_survives_json_and_its_page_is_complete(exam: Exam, graded: Callable[..., None]) -> None:
    measurement = Measurement(
        {"n": 9}, 1e-3, 2e-3, 1e-3, Interval(2.125, 2.0, 2.25), Interval(0.97, 0.96, 0.98), 8, 1, 9e-4, {}, 9, "paired"
    )
    graded(Verdict.PASSED, measurement=measurement)
    sheet = fill(exam, essay=f"{ESSAY} <script>alert(1)</script>")
    result = sitting.grade_exam(sheet, seed=5)
    assert Certificate.from_json(result.to_json()) == result
    page = certificate.render_certificate(result)
    expected_texts = (
        ADA,
        "2.125",
        "2.000 to 2.250",
        "0.970",
        "90.0%",
        "100 of 100",
        "questions 20 (3 of 3 right)",
        "not marked yet",
        "says why.",
        "GPU",
        result.versions["torch"],
        ">5<",
        result.twist,
        result.digest,
        result.files[ANSWERS][:12],
    )
    assert [part for part in expected_texts if part not in page] == []
    assert "http" not in page
    assert "<script>" not in page


def test_the_course_has_a_certificate_when_every_phase_is_passed(
    exam: Exam, graded: Callable[..., None], tmp_path: Path
) -> None:
    second = exam.root / "checks" / "2_cuda"
    second.mkdir(parents=True, exist_ok=True)
    (second / "checkpoint.py").write_text("")
    graded(Verdict.PASSED)
    first = sitting.grade_exam(fill(exam), seed=5)
    later = dataclasses.replace(first, checkpoint=2, phase="2_cuda", score=91, date="2999-01-02")
    folder = tmp_path / "kept"
    folder.mkdir()

    def certify_with(second_certificate: Certificate) -> CourseCertificate | None:
        for phase_certificate in (first, second_certificate):
            (folder / f"checkpoint{phase_certificate.checkpoint}.json").write_text(phase_certificate.to_json())
        return course.certify_course(folder, exam.root)

    assert certify_with(first) is None
    passed = certify_with(later)
    assert passed is not None
    assert (passed.name, passed.score, passed.date) == (ADA, 95, "2999-01-02")
    assert [phase_certificate.digest for phase_certificate in passed.phases] == [first.digest, later.digest]
    page = certificate.render_course(passed)
    assert [part for part in (ADA, "95 of 100", "2 cuda", first.digest, later.digest) if part not in page] == []
    assert certify_with(dataclasses.replace(later, name="Somebody Else")) is None
    assert certify_with(dataclasses.replace(later, missing=("a question",))) is None
    (folder / "checkpoint2.json").write_text(later.to_json().replace("91", "99", 1))
    assert course.certify_course(folder, exam.root) is None


def test_a_certificate_holds_for_the_same_submission_only(exam: Exam, graded: Callable[..., None]) -> None:
    sheet = fill(exam)
    issued = sitting.grade_exam(sheet, seed=5)
    assert verification.verify(sheet, issued).differences == ()
    (exam.folder / "w01a_double.py").write_text(RIGHT + "#")
    assert verification.verify(sheet, issued).differences == ("w01a_double.py is not the file that was certified",)
    renamed = dataclasses.replace(issued, name="Grace Hopper")
    assert "the certificate is Grace Hopper's" in verification.verify(sheet, renamed).differences[0]


def test_an_edited_certificate_is_refused(exam: Exam, graded: Callable[..., None]) -> None:
    text = sitting.grade_exam(fill(exam, colour="red", one=""), seed=5).to_json()
    with pytest.raises(ExamError, match="was changed"):
        Certificate.from_json(text.replace('"score": 86', '"score": 100'))


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"certificate": {}, "digest": ""}', '{"certificate": 1, "digest": 2}']
)
def test_other_json_is_not_a_certificate(text: str) -> None:
    with pytest.raises(ExamError, match="not a certificate"):
        Certificate.from_json(text)


def test_a_forged_certificate_does_not_survive_grading(exam: Exam, graded: Callable[..., None]) -> None:
    sheet = fill(exam, colour="red", one="")
    honest = sitting.grade_exam(sheet, seed=5)
    answers = tuple(dataclasses.replace(answer, right=True) for answer in honest.answers)
    forged = dataclasses.replace(honest, score=100, missing=(), answers=answers, marked_by="self-assessment")
    forged = dataclasses.replace(forged, written=(dataclasses.replace(forged.written[0], marks=(2, 1)),))
    graded(Verdict.WRONG_VALUES, stars=2)
    verification_result = verification.verify(sheet, Certificate.from_json(forged.to_json()))
    assert verification_result.differences == (
        "1_architecture/w01a_double had 3 stars and has 2",
        f"1_architecture/deliverable:{forged.twist} was PASSED and is WRONG_VALUES",
        "the answer to colour was right",
        "the answer to one was right",
        "the self-assessment differs from the sheet",
        "the score was 100 and is 56",
        f"it was passed, and is not: the deliverable ends as WRONG_VALUES: {Verdict.WRONG_VALUES.meaning}",
    )


def test_verification_names_each_forged_field(exam: Exam, graded: Callable[..., None]) -> None:
    """The digest of a forged certificate is correct, because anybody can compute one."""
    sheet = fill(exam, essay="too short")
    honest = sitting.grade_exam(sheet, seed=5)

    def find_differences(**changes: Any) -> tuple[str, ...]:
        forged = dataclasses.replace(honest, **changes)
        return verification.verify(sheet, Certificate.from_json(forged.to_json())).differences

    assert find_differences() == ()
    (difference,) = find_differences(missing=())
    assert difference.startswith("it was passed, and is not: the written answer essay has 2 words")
    assert find_differences(exercises=()) == ("the exercises and the deliverable differ from the exam",)
    assert find_differences(phase="2_memory") == ("the exercises and the deliverable differ from the exam",)
    assert find_differences(answers=honest.answers[1:]) == ("the answers differ from the sheet",)
    easier = dataclasses.replace(honest.written[0], rubric=honest.written[0].rubric[:1])
    assert find_differences(written=(easier,)) == ("the written answers differ from the sheet",)
    assert find_differences(written=()) == ("the written answers differ from the sheet",)


def test_verification_lists_what_it_cannot_check(exam: Exam, graded: Callable[..., None]) -> None:
    sheet = fill(exam)
    honest = sitting.grade_exam(sheet, seed=5)
    assert verification.verify(sheet, honest).unverified == ("the date", "the machine", "times")
    elsewhere = dataclasses.replace(honest, device="NVIDIA H200", marked_by="teacher")
    times = "times and stars, which were measured on NVIDIA H200"
    assert verification.verify(sheet, elsewhere).unverified == ("the date", "the machine", "a teacher's marks", times)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Return the exit status and the output of kp checkpoint 1."""
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

    assert kp("--no-ask")[0] == 2
    status, out = kp("--no-ask", "--name", ADA)
    assert status == 1
    assert out.startswith("checkpoint 1 of Ada Lovelace: 100 points\n  exercises     30  all 1 must pass")
    assert "  phases/1_architecture/answers.toml\n  phases/1_architecture/deliverable.py\n" in out
    assert "NotImplementedError" in (exam.folder / "deliverable.py").read_text()
    status, out = kp("--no-ask", "--deliverable", "--seed", "5")
    assert (status, "NOT_STARTED" in out) == (1, True)
    assert " ".join(out.split()).endswith("deliverable.py, then kp checkpoint 1 --deliverable --seed 5")
    sheet = Sheet(exam, exam.folder / ANSWERS)
    solve(sheet)
    assert kp("--no-ask", "--deliverable")[0] == 0
    green = {choice: letter for letter, choice in sheet.paper.questions[0].lettered}["green"]
    status, out = kp("--ask", "--seed", "5", typed=f"perhaps\n{green}\n7\n\n")
    assert status == 1
    assert "no answer yet: one\n" in out
    assert "points: exercises 30/30, questions 6/20, reading 20/20, deliverable 30/30\n" in out
    # Before a pass, the output must not reveal which answers are right.
    for secret in ("it is green", "32 times", "not right", "read week"):
        assert secret not in out
    assert "missing: 1 of 3 questions are answered correctly, 2 are needed" in out
    assert "next: answer in phases/1_architecture/answers.toml, then kp checkpoint 1" in out
    assert [(score.score, score.passed) for score in Progress(exam.root).scores()] == [(86, False)]
    fill(exam, one="")
    status, out = kp("--ask", typed="1\n")
    assert status == 0
    assert "Which colour?" not in out
    assert "written: not marked yet" in out
    assert "next: kp checkpoint 1 --mark, then kp checkpoint 1 for" in " ".join(out.split())
    status, out = kp("--mark", "--ask", typed="3\n1\n1\n")
    assert (status, "essay: 2 of 3, by your own assessment" in out) == (0, True)
    assert kp("--no-ask", "--mark")[0] == 2
    assert kp("--no-ask")[0] == 0
    file = exam.root / ".kernelpath" / "checkpoint1.json"
    saved_certificate = json.loads(file.read_text())["certificate"]
    assert (saved_certificate["score"], saved_certificate["name"], saved_certificate["marked_by"]) == (
        100,
        ADA,
        "self-assessment",
    )
    assert [(score.score, score.passed) for score in Progress(exam.root).scores()] == [(100, True)]
    with pytest.raises(SystemExit):
        cli.main(["checkpoint", "--device", "cpu", "--verify", str(file)])
    assert capsys.readouterr().out.startswith("the certificate holds: Ada Lovelace, 100 of 100")


def test_a_certificate_without_its_submission(
    exam: Exam, graded: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sheet = fill(exam)
    file = tmp_path / "c.json"
    file.write_text(sitting.grade_exam(sheet, seed=5).to_json())
    sheet.path.unlink()
    status, out = run(capsys, "--verify", str(file))
    assert status == 0
    assert out.startswith("the digest holds: Ada Lovelace, 100 of 100")
    assert "nothing was graded again" in out
    file.write_text(file.read_text().replace("Lovelace", "Hopper"))
    with pytest.raises(SystemExit) as exit_:
        cli.main(["checkpoint", "--verify", str(file)])
    assert exit_.value.code == 2
    assert "was changed after it was written" in capsys.readouterr().err


def test_no_ask_never_prompts(exam: Exam, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse_prompt(_: str) -> str:
        raise AssertionError("kp checkpoint --no-ask has prompted for an answer")

    monkeypatch.setattr("click.termui.visible_prompt_func", refuse_prompt)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    assert run(capsys, "--no-ask")[0] == 2
    fill(exam, one="")
    assert run(capsys, "--no-ask", "--week", "1")[0] == 1
    assert run(capsys, "--no-ask")[0] == 0


def test_the_questions_of_one_week(
    exam: Exam, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    question_file = exam.root / "checks" / exam.phase / "checkpoint.md"
    question_file.write_text(
        QUESTIONS.replace("Week 1: colour", "Week 2: colour")
        .replace("Week 1: threads", "Week 2: threads")
        .replace("Week 1: one", "Week 1: one, section 3")
    )
    notebook = exam.root / "notebooks" / exam.phase / "week01_x.ipynb"
    notebook.parent.mkdir(parents=True)
    cells = [{"cell_type": "markdown", "source": ["# Week 1\n", "## 3 · The `end`\n", "of it"]}]
    notebook.write_text(json.dumps({"cells": cells}))
    fill(questions.find_exam(1, exam.root), one="")
    typed_lines = iter(["2", ""])
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: next(typed_lines))
    status, out = run(capsys, "--week", "1", "--ask")
    assert status == 0
    assert "question 1 of 1, week 1, one" in out
    assert "1 of 1 questions of week 1 have an answer" in out
    assert out.endswith("next: kp checkpoint 1\n")
    fill(questions.find_exam(1, exam.root), one="")
    status, out = run(capsys, "--week", "1", "--ask")
    assert status == 1
    read = f'week 1, section "3 · The end", notebooks/{exam.phase}/week01_x.ipynb'
    assert " ".join(out.split()).endswith(f"next: read {read}, then kp checkpoint 1 --week 1")
    assert run(capsys, "--week", "3")[0] == 2


def test_ctrl_c_keeps_the_answers_and_says_so(
    exam: Exam, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sheet = fill(exam, colour="", threads="", one="")
    answers = iter(["a"])

    def type_answer(_: str) -> str:
        if (answer := next(answers, None)) is None:
            raise KeyboardInterrupt
        return answer

    monkeypatch.setattr("click.termui.visible_prompt_func", type_answer)
    status, out = run(capsys, "--ask")
    assert status == 130
    assert out.endswith("\nkept; go on with kp checkpoint 1\n")
    assert Sheet(exam, sheet.path).answer_text(sheet.paper.questions[0]) == "a"


def test_a_phase_without_an_exam_is_a_usage_error(doubling: ExerciseRef, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(registry.LookupFailed, match="no checkpoint yet"):
        questions.find_exam(1, doubling.root)
    with pytest.raises(registry.LookupFailed, match="no phase 9"):
        questions.find_exam(9, doubling.root)


def test_a_broken_exam_is_reported(exam: Exam) -> None:
    path = exam.root / "checks" / "1_architecture" / "checkpoint.py"
    path.write_text(EXAM.replace("pass_mark=0.6", "pass_mark=60"))
    with pytest.raises(DeclarationError, match=r"checkpoint\.py.*pass_mark"):
        questions.find_exam(1, exam.root)


def test_the_deliverable_must_be_an_exercise_of_the_phase(exam: Exam) -> None:
    assert list(invariants.checkpoints_are_valid(exam.root)) == []
    path = exam.root / "checks" / "1_architecture" / "checkpoint.py"
    path.write_text(EXAM.replace('deliverable="double"', 'deliverable="quadruple"'))
    assert [finding.partition(": ")[2] for finding in invariants.checkpoints_are_valid(exam.root)] == [
        "its deliverable quadruple is not an exercise of the phase; name one"
    ]
    path.write_text(EXAM)
    path.with_suffix(".md").write_text(QUESTIONS.replace("Week 1: one", "Week 4: one"))
    assert [finding.partition(": ")[2] for finding in invariants.checkpoints_are_valid(exam.root)] == [
        "it has questions of week 4, which has no exercise in the exam; give them another week"
    ]


def test_after_a_pass_wrong_answers_are_explained(exam: Exam, capsys: pytest.CaptureFixture[str]) -> None:
    fill(exam, one="2")
    status, out = run(capsys, "--no-ask")
    assert status == 0
    assert "not right: one: because\n" in out
    assert "it is green" not in out


def test_a_text_cannot_answer_two_questions(exam: Exam, graded: Callable[..., None]) -> None:
    question_file = exam.root / "checks" / exam.phase / "checkpoint.md"
    question_file.write_text(f"{QUESTIONS}\n{QUESTIONS[QUESTIONS.index('## Written') :].replace('essay', 'second')}")
    sheet = fill(questions.find_exam(1, exam.root))
    sheet._table("written")["second"] = ESSAY.replace(" ", "  ").upper()
    assert sitting.grade_exam(sheet, seed=1).missing == (
        "the written answer second repeats an earlier one; each question needs its own",
    )
