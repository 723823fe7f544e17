"""Test the exams of a class: points, marks and certificates, whatever a folder contains."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelpath import cli
from kernelpath.exam import questions
from kernelpath.exam.certificate import Certificate
from kernelpath.exam.questions import Exam
from kernelpath.exam.sheet import ANSWERS, Sheet

from .test_checkpoint import RIGHT, exam, graded, solve  # noqa: F401

FORMULA = '=HYPERLINK("http://a", "b") ' + "word " * 60


@pytest.fixture
def hand_in(exam: Exam, tmp_path: Path) -> Callable[..., Sheet]:  # noqa: F811
    """Return a function that puts an exam with correct answers into a learner's folder."""

    def put(folder: str, name: str, essay: str = "word " * 60, place: str = "") -> Sheet:
        own = tmp_path / "class" / folder / place
        own.mkdir(parents=True)
        # The fixture has the same text as its stub, and an unchanged stub is not a submission.
        (own / "w01a_double.py").write_text(f"{RIGHT}# solved\n")
        sheet = Sheet(exam, own / ANSWERS, name)
        solve(sheet)
        for question in sheet.paper.questions:
            correct_answer = getattr(question.answer, "correct")  # noqa: B009
            sheet.answer(question, "abcd"[correct_answer] if question.choices else f"{correct_answer:g}")
        sheet._table("written")["essay"] = essay
        sheet.save()
        return sheet

    return put


def grade(capsys: pytest.CaptureFixture[str], folder: Path) -> tuple[int, str, str]:
    """Return the exit status, the output, and the errors."""
    with pytest.raises(SystemExit) as exit_:
        cli.main(["grade", str(folder), "--checkpoint", "1", "--device", "cpu", "--jobs", "1"])
    out, err = capsys.readouterr()
    return int(exit_.value.code or 0), out, err


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_class_is_graded_marked_and_certified(
    hand_in: Callable[..., Sheet], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "class"
    out = tmp_path / "class-grades"
    hand_in("Lovelace Ada_4711_submission", "Ada Lovelace", place="phases/1_architecture")
    grace = hand_in("hopper_grace", "Grace Hopper", essay=FORMULA)
    grace.path.with_name("deliverable.py").write_text("def double(x):\n    return 2 * x\n")
    hand_in("rené", "Rene").path.with_name("w01a_double.py").unlink()
    status, output, _ = grade(capsys, folder)
    assert status == 0
    assert "1 of 3 passed" in output
    assert "mark the written answers in" in output
    points = {row["learner"]: row for row in rows(out / "checkpoint1.csv")}
    summaries = [(row["passed"], row["score"], row["deliverable"], row["exercises"]) for row in points.values()]
    assert summaries == [("yes", "100", "30", "30"), ("no", "70", "0", "30"), ("no", "70", "30", "0")]
    assert points["hopper_grace"]["missing"].startswith("the deliverable ends as WRONG_VALUES")
    assert points["rené"]["missing"].startswith("double ends as NOT_STARTED: nothing was handed in")
    file = out / "checkpoint1-written.csv"
    marking = rows(file)
    assert [row["words"] for row in marking] == ["60", "62", "60"]
    assert marking[1]["text"].startswith("'=HYPERLINK")
    assert marking[0]["rubric"] == "2: names something, in two lines.\n1: says why."

    marking[0] |= {"marks": "2 1", "comment": "very good"}
    marking[1] |= {"marks": "1 0"}
    marking[2] |= {"marks": "3 0"}
    with file.open("w", newline="", encoding="utf-8-sig") as csv_file:
        writer = csv.DictWriter(csv_file, list(marking[0]), delimiter=";")
        writer.writeheader()
        writer.writerows(marking)
    status, output, errors = grade(capsys, folder)
    assert "rené: marks '3 0' are not like 2 1, the maximum" in " ".join(errors.split())
    points = {row["learner"]: row for row in rows(out / "checkpoint1.csv")}
    written = [(row["written"], row["of"], row["marked_by"]) for row in points.values()]
    assert written == [("3", "3", "teacher"), ("1", "3", "teacher"), ("", "3", "")]
    assert [row["marks"] for row in rows(file)] == ["2 1", "1 0", "3 0"]
    certificate = Certificate.from_json((out / "certificates" / "Lovelace Ada_4711_submission.json").read_text())
    assert (certificate.name, certificate.written_points) == ("Ada Lovelace", "3 of 3 (teacher)")
    assert certificate.written[0].comment == "very good"
    assert "very good" in (out / "certificates" / "Lovelace Ada_4711_submission.html").read_text()

    changed_sheet = Sheet(grace.paper.exam, grace.path)
    changed_sheet._table("written")["essay"] = "other " * 60
    changed_sheet.save()
    _, _, errors = grade(capsys, folder)
    assert "hopper_grace has changed the answer essay; mark it again" in " ".join(errors.split())
    assert [row["marks"] for row in rows(file)] == ["2 1", "", "3 0"]


def test_marks_reach_a_learner_whose_folder_looks_like_a_formula(
    hand_in: Callable[..., Sheet], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "class"
    out = tmp_path / "class-grades"
    hand_in("-ada lovelace", "Ada Lovelace")
    hand_in("grace", "Grace")
    grade(capsys, folder)
    file = out / "checkpoint1-written.csv"
    marking = rows(file)
    assert [row["learner"] for row in marking] == ["'-ada lovelace", "grace"]
    marking[0]["marks"] = "2 1"
    with file.open("w", newline="", encoding="utf-8") as csv_file:
        writer = csv.DictWriter(csv_file, list(marking[0]))
        writer.writeheader()
        writer.writerows(marking)
    grade(capsys, folder)
    assert [row["written"] for row in rows(out / "checkpoint1.csv")] == ["3", ""]


def test_a_broken_folder_is_one_row(
    hand_in: Callable[..., Sheet],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "class"
    hand_in("ada", "Ada")
    hand_in("grace", "Grace Hopper")
    for name, content in {
        "broken": b"checkpoint = ",
        "large": b"a = '" + b"x" * 10_000_000 + b"'",
        "noname": b"checkpoint = 1\n",
        "bytes": b"\xff\xfe\x00",
        "tables": b"checkpoint = 1\nname = 'tables'\nwritten = 3\nmarks = [1]\n",
        "nested": b"checkpoint = 1\nname = 'nested'\n[answers.colour]\na = 1\n",
    }.items():
        (folder / name).mkdir()
        (folder / name / ANSWERS).write_bytes(content)
    (folder / "empty").mkdir()
    (folder / "linked").mkdir()
    (folder / "linked" / ANSWERS).symlink_to(folder / "ada" / ANSWERS)
    (folder / "pipe").mkdir()
    os.mkfifo(folder / "pipe" / ANSWERS)
    (folder / "folder" / ANSWERS).mkdir(parents=True)
    status, output, _ = grade(capsys, folder)
    assert status == 0
    points = {row["learner"]: row for row in rows(tmp_path / "class-grades" / "checkpoint1.csv")}
    assert list(points) == sorted(path.name for path in folder.iterdir())
    assert points["ada"]["score"] == "100"
    assert points["grace"]["missing"] == "answers.toml is the sheet of Grace Hopper; name the folder after its learner"
    assert "cannot be read" in points["broken"]["missing"]
    assert "at most 1,048,576" in points["large"]["missing"]
    assert points["noname"]["missing"].endswith("fix it, or remove it to start over")
    for name in ("empty", "linked", "pipe", "folder"):
        assert points[name]["missing"] == f"there is no {ANSWERS}"
    assert "[written] is not a table" in points["tables"]["missing"]
    assert points["nested"]["questions"] == "0"
    assert "1 of 12 passed" in output


def test_exercises_cannot_be_chosen_in_an_exam(tmp_path: Path, exam: Exam) -> None:  # noqa: F811
    (tmp_path / "class" / "ada").mkdir(parents=True)
    with pytest.raises(SystemExit) as exit_:
        cli.main(["grade", str(tmp_path / "class"), "double", "--checkpoint", "1"])
    assert exit_.value.code == 2


def test_a_name_is_found_in_a_folders_name() -> None:
    assert questions.name_words("José Núñez") <= questions.name_words("nunez_JOSE-12 (late)")
    assert not questions.name_words("Ada Lovelace") <= questions.name_words("ada")
    assert questions.name_words("...") == set()
