"""A phase's exam: its exercises, its questions and its deliverable; a score and a certificate that can be checked."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import platform
import random
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

import pynvml
import tomlkit
import tomlkit.exceptions
import torch

from kernelpath.course import lesson, registry
from kernelpath.course.lesson import Question
from kernelpath.course.progress import write_atomically
from kernelpath.course.registry import Item
from kernelpath.course.spec import Checkpoint
from kernelpath.grading import grade
from kernelpath.grading.truth import derive
from kernelpath.show import templates
from kernelpath.verdict import Report

Tell = Callable[[str], None]

ANSWERS = "answers.toml"
LETTERS = "abcdefgh"
POINTS = {"exercises": 50, "questions": 30, "deliverable": 20}
"""The points that each part can give, 100 in all, in proportion to how much of it is passed or right."""

_INTRODUCTION = """\
Checkpoint {number}: your answers. Answer a choice with its letter and a number with a number, between the quotes.
Give whole numbers exactly and round others to three digits. {needed} of {questions} right answers pass.
Then: kp checkpoint {number}
kp checkpoint {number} --ask repeats in the terminal what is not right yet.
The seed shuffles the choices: leave it as it is."""
_COLUMNS = 110
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}([,_ ][0-9]{3})+(\.[0-9]+)?")


class NotValid(Exception):
    """An answer sheet or a certificate cannot be read, or was changed. The message says what to do."""


@dataclass(frozen=True)
class Asked:
    """A question as one learner sees it.

    week, notebook: what prepares it; the path is relative to the checkout, empty if there is none.
    about: the exercise that asks it, None for the phase's own.
    """

    question: Question
    week: int
    notebook: str
    about: Item | None
    choices: tuple[str, ...]

    @property
    def key(self) -> str:
        """Names the question in the answer sheet for as long as its text stays the same."""
        owner = self.about.name if self.about else "phase"
        return f"{owner}-{hashlib.sha256(self.question.ask.encode()).hexdigest()[:6]}"

    @property
    def place(self) -> str:
        """Where in the course it belongs, in words."""
        return f"week {self.week}, {self.about.name}" if self.about else f"week {self.week}"

    @property
    def wanted(self) -> str:
        """What an answer looks like, in words."""
        return f"a letter, a to {LETTERS[len(self.choices) - 1]}" if self.choices else "a number, such as 1800 or 2^20"

    @property
    def lettered(self) -> list[tuple[str, str]]:
        """The choices with the letters that answer them."""
        return list(zip(LETTERS, self.choices, strict=False))

    def understands(self, text: str) -> bool:
        """Whether the text is an answer at all, right or wrong."""
        return self._meant(text) is not None

    def right(self, text: str) -> bool:
        meant = self._meant(text)
        return meant is not None and self.question.accepts(meant)

    def _meant(self, text: str) -> str | float | None:
        return dict(self.lettered).get(text.strip().lower().rstrip(").")) if self.choices else _number(text)


def _number(text: str) -> float | None:
    """What a learner means by 1,800 or 1 800, 50%, 3e6, 2^20 or 2**20; None if it is no number."""
    text = text.strip().removesuffix("%").rstrip()
    if _THOUSANDS.fullmatch(text):
        text = re.sub("[,_ ]", "", text)
    base, _, exponent = text.replace("**", "^").partition("^")
    try:
        number = float(base) ** float(exponent or 1)
    except (ValueError, ArithmeticError):
        return None
    return number if isinstance(number, float) and math.isfinite(number) else None


@dataclass(frozen=True)
class Exam:
    """The exam of phase `number` of the checkout at `root`."""

    root: Path
    number: int
    phase: str
    declared: Checkpoint
    items: tuple[Item, ...]

    @property
    def folder(self) -> Path:
        """Where the learner works, and where the answer sheet lies."""
        return self.root / "phases" / self.phase

    @cached_property
    def deliverable(self) -> Item:
        return next(item for item in self.items if item.name == self.declared.deliverable)

    def questions(self, seed: int) -> tuple[Asked, ...]:
        """Week by week: the phase's own, then those of each exercise; the choices in the order that the seed gives."""
        own = [(week, None, question) for week, asked in self.declared.questions.items() for question in asked]
        others = [(item.week, item, question) for item in self.items for question in lesson.read(item.lesson).questions]
        return tuple(self._asked(*one, seed) for one in sorted([*own, *others], key=lambda one: one[0]))

    def needed(self, questions: int) -> int:
        """How many of that many questions have to be answered rightly."""
        return math.ceil(self.declared.pass_mark * questions)

    def require_files(self, folder: Path) -> None:
        """Raises NotValid where a file that is graded is not in `folder`."""
        names = {path.name: item.name for item in self.items for path in item.files("solutions")}
        absent = [file for file in names if not (folder / file).is_file()]
        if not absent:
            return
        reset, other = f"kp reset {names[absent[0]]}", f"give --from a folder with all files of phases/{self.phase}"
        remedy = f"{reset} brings the stub back" if folder == self.folder else other
        lacks = f"{len(absent)} of the exam's {len(names)} files, beginning with {absent[0]}"
        raise NotValid(f"{folder} lacks {lacks}; {remedy}")

    def _asked(self, week: int, about: Item | None, question: Question, seed: int) -> Asked:
        notebook = next((item.notebook for item in self.items if item.week == week), None)
        read = str(notebook.relative_to(self.root)) if notebook else ""
        choices = list(question.choices)
        random.Random(derive(seed, question.ask)).shuffle(choices)
        return Asked(question, week, read, about, tuple(choices))


def find(number: int, at: Path | None = None) -> Exam:
    """The exam of a phase. Raises registry.LookupFailed where there is none, and spec.DeclarationError."""
    root = at or registry.root()
    items = tuple(item for item in registry.exercises(root) if item.phase.startswith(f"{number}_"))
    if not items:
        raise registry.LookupFailed(f"there is no phase {number}; kp list shows the exercises that there are")
    return Exam(root, number, items[0].phase, registry.load_checkpoint(items[0].phase, root), items)


class Sheet:
    """The answer sheet: a TOML file in the learner's folder, with every question as a comment above its answer."""

    def __init__(self, exam: Exam, path: Path) -> None:
        """Read the sheet, or begin an empty one that is not saved yet. Raises NotValid."""
        self.path = path
        try:
            self._document = tomlkit.parse(path.read_text(encoding="utf-8")) if path.exists() else _empty(exam)
            self.questions = exam.questions(int(self._document["seed"]))
            self._answers: Any = self._document["answers"]
            self.right = {asked.key: asked.right(self.given(asked)) for asked in self.questions}
        except (tomlkit.exceptions.TOMLKitError, UnicodeDecodeError, TypeError, ValueError, AttributeError) as error:
            raise NotValid(f"{path} cannot be read ({error}); mend it, or remove it to begin anew") from error

    def given(self, asked: Asked) -> str:
        """What stands in the sheet, empty if nothing."""
        return str(self._answers.get(asked.key, ""))

    def complaints(self) -> list[str]:
        """What in the sheet is no answer to any question, or cannot be understood, a sentence each."""
        known = {asked.key: asked for asked in self.questions}
        unknown = [f"unknown key {key}; ignored" for key in self._answers if key not in known]
        unclear = [
            f"{key}: {text!r} is not {asked.wanted}"
            for key, asked in known.items()
            if (text := self.given(asked)) and not asked.understands(text)
        ]
        return unknown + unclear

    def answer(self, asked: Asked, text: str) -> bool:
        """Write an answer down; returns whether it is right."""
        self._answers[asked.key] = text
        self.right[asked.key] = asked.right(text)
        self.save()
        return self.right[asked.key]

    def save(self) -> None:
        """Write the sheet with every question of the exam in it. Raises OSError."""
        for asked in self.questions:
            if asked.key not in self._answers:
                _append(self._answers, asked)
        write_atomically(self.path, tomlkit.dumps(self._document))


def _empty(exam: Exam) -> tomlkit.TOMLDocument:
    document = tomlkit.document()
    count = len(exam.questions(0))
    told = _INTRODUCTION.format(number=exam.number, needed=exam.needed(count), questions=count)
    for line in told.splitlines():
        document.add(tomlkit.comment(line))
    document.add("seed", tomlkit.item(random.SystemRandom().randrange(1 << 31)))
    document.add(tomlkit.nl())
    document.add("answers", tomlkit.table())
    return document


def _append(answers: Any, asked: Asked) -> None:
    answers.add(tomlkit.nl())
    lines = [f"{asked.place}: {asked.question.ask}", *(f"  {letter}) {choice}" for letter, choice in asked.lettered)]
    for line in lines:
        for part in textwrap.wrap(line, _COLUMNS, subsequent_indent="     " if line.startswith("  ") else ""):
            answers.add(tomlkit.comment(part.replace("\n", " ")))
    answers.add(asked.key, "")


@dataclass(frozen=True)
class Certificate:
    """What an exam found; a certificate in the narrow sense where it is passed.

    exercises: the report of each. deliverable: its further reports, one for each size drawn; none if it fails already.
    answers: whether each question is right, by its key. missing: what a pass lacks, a sentence each.
    files: SHA-256 of every file that was submitted, by name. seed: drew sizes and inputs.
    """

    checkpoint: int
    phase: str
    date: str
    device: str
    machine: Mapping[str, str]
    versions: Mapping[str, str]
    seed: int
    score: int
    missing: tuple[str, ...]
    exercises: tuple[Report, ...]
    deliverable: tuple[Report, ...]
    answers: Mapping[str, bool]
    files: Mapping[str, str]

    @property
    def passed(self) -> bool:
        return not self.missing

    @property
    def points(self) -> dict[str, int]:
        """What each part gave to the score."""
        return _points(self.exercises, self.deliverable, self.answers)

    def to_json(self) -> str:
        held = dataclasses.asdict(self)
        return json.dumps({"digest": _digest(held), "certificate": held}, indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Certificate:
        """The inverse of `to_json`. Raises NotValid for anything else, and where the contents do not fit the digest."""
        try:
            data = json.loads(text)
            held, digest = data["certificate"], data["digest"]
            reports = {
                part: tuple(Report.from_json(json.dumps(report)) for report in held[part])
                for part in ("exercises", "deliverable")
            }
            certificate = cls(**{**held, **reports, "missing": tuple(held["missing"])})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise NotValid(f"this is no certificate of a checkpoint ({error}); name its JSON file") from error
        if digest != _digest(held):
            raise NotValid("the certificate was changed after it was written; ask for the original")
        return certificate

    def to_html(self) -> str:
        """A page that stands alone."""
        return templates.render("certificate.html", certificate=self, digest=_digest(dataclasses.asdict(self)))


def _digest(held: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(held, sort_keys=True).encode()).hexdigest()


def sit(
    exam: Exam,
    folder: Path,
    *,
    device: grade.Device = "auto",
    seed: int | None = None,
    tell: Tell = lambda what: None,
) -> Certificate:
    """Grade the submission in `folder`: its kernels and its answer sheet. Raises NotValid and grade.Usage."""
    exam.require_files(folder)
    seed = random.SystemRandom().randrange(1 << 32) if seed is None else seed
    right = Sheet(exam, folder / ANSWERS).right

    def graded(item: Item, drawn: int, label: str) -> Report:
        report = grade.grade(
            item,
            folder / item.solution.name,
            device=device,
            seed=drawn,
            report_progress=lambda w: tell(f"{label}: {w}"),
        )
        return dataclasses.replace(report, printed="", traffic=())

    exercises = tuple(
        graded(item, seed, f"{position} of {len(exam.items)}, {item.name}")
        for position, item in enumerate(exam.items, start=1)
    )
    delivered = exercises[exam.items.index(exam.deliverable)].verdict.passed
    draws = range(exam.declared.draws if delivered else 0)
    deliverable = tuple(
        graded(exam.deliverable, derive(seed, "deliverable", draw), f"deliverable, size {draw + 1} of {len(draws)}")
        for draw in draws
    )
    return Certificate(
        checkpoint=exam.number,
        phase=exam.phase,
        date=date.today().isoformat(),
        device=exercises[0].device,
        machine=machine(exercises[0].device),
        versions=grade.versions(),
        seed=seed,
        score=sum(_points(exercises, deliverable, right).values()),
        missing=tuple(_missing(exam, exercises, deliverable, right)),
        exercises=exercises,
        deliverable=deliverable,
        answers=right,
        files=files(exam, folder),
    )


def machine(device: str) -> dict[str, str]:
    """What the exam ran on, in words."""
    found = {"device": device, "system": platform.platform(), "processor": platform.processor() or platform.machine()}
    if torch.cuda.is_available() and device == torch.cuda.get_device_name():
        pynvml.nvmlInit()
        found["driver"] = pynvml.nvmlSystemGetDriverVersion()
        found["compute capability"] = ".".join(map(str, torch.cuda.get_device_capability()))
    return found


def files(exam: Exam, folder: Path) -> dict[str, str]:
    """SHA-256 of everything in `folder` that the exam reads, by name."""
    names = [ANSWERS, *(item.solution.with_suffix(end).name for item in exam.items for end in (".cu", ".py"))]
    paths = {name: folder / name for name in names}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in paths.items() if path.is_file()}


def _points(
    exercises: tuple[Report, ...], deliverable: tuple[Report, ...], right: Mapping[str, bool]
) -> dict[str, int]:
    passed = {
        "exercises": [report.verdict.passed for report in exercises],
        "questions": list(right.values()),
        "deliverable": [report.verdict.passed for report in deliverable],
    }
    return {part: most * sum(passed[part]) // max(len(passed[part]), 1) for part, most in POINTS.items()}


def _missing(
    exam: Exam, exercises: tuple[Report, ...], deliverable: tuple[Report, ...], right: Mapping[str, bool]
) -> list[str]:
    found = [
        f"{item.name} ends as {report.verdict.value}: {report.cause or report.verdict.meaning}"
        for item, report in zip(exam.items, exercises, strict=True)
        if not report.verdict.passed
    ]
    found += [
        f"the deliverable {exam.deliverable.name} ends as {report.verdict.value} at a drawn size: {report.cause};"
        f" kp check {exam.deliverable.name} --seed {report.seed}"
        for report in deliverable
        if not report.verdict.passed
    ]
    needed = exam.needed(len(right))
    if sum(right.values()) < needed:
        found.append(f"{sum(right.values())} of {len(right)} questions are answered rightly, {needed} are needed")
    return found


def verify(
    exam: Exam,
    folder: Path,
    old: Certificate,
    *,
    device: grade.Device = "auto",
    tell: Tell = lambda what: None,
) -> list[str]:
    """Grade the same submission again, with the certificate's seed, and say what differs; nothing if all agrees.

    Another submission is not graded. Times are compared by their stars, and only on the same device.
    Raises NotValid and grade.Usage.
    """
    if old.phase != exam.phase:
        return [f"it is a certificate of {old.phase}, not of {exam.phase}"]
    now = files(exam, folder)
    changed = [name for name in sorted({*now, *old.files}) if now.get(name) != old.files.get(name)]
    if changed:
        return [f"{name} is not the file that was certified" for name in changed]
    new = sit(exam, folder, device=device, seed=old.seed, tell=tell)
    return _differences(old, new)


def _differences(old: Certificate, new: Certificate) -> list[str]:
    found = []
    graded = {report.exercise: report for report in new.exercises}
    for was in old.exercises:
        report = graded.get(was.exercise)
        if report is None or report.verdict is not was.verdict:
            ended = report.verdict.value if report else "no exercise of this course"
            found.append(f"{was.exercise} was {was.verdict.value} and is {ended}")
        elif report.device == was.device and report.stars < was.stars:
            found.append(f"{was.exercise} had {was.stars} stars and has {report.stars}")
    endings = [[report.verdict for report in one.deliverable] for one in (old, new)]
    if endings[0] != endings[1]:
        found.append("the deliverable does not end as it did at the sizes drawn")
    found += [
        f"the answer to {key} was {'right' if was else 'wrong'}"
        for key, was in old.answers.items()
        if new.answers.get(key) is not was
    ]
    if old.score != new.score:
        found.append(f"the score was {old.score} and is {new.score}")
    return found
