"""Renders an exam for a terminal: its parts, a question and its answer, the result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kernelpath import words
from kernelpath.exam.certificate import POINTS, Certificate
from kernelpath.show import overview, view

if TYPE_CHECKING:
    from kernelpath.exam.questions import Asked, Exam
    from kernelpath.exam.sheet import Sheet

_KEYS_SHOWN = 10


def parts(console: Console, exam: Exam, sheet: Sheet) -> None:
    """What the exam consists of, and how its points are made."""
    count, name = len(sheet.questions), exam.deliverable.name
    told = {
        "exercises": f"all {len(exam.items)} must pass",
        "questions": f"{exam.needed(count)} of {count} must be answered correctly",
        "deliverable": f"your {name} at {exam.declared.draws} drawn sizes; you write nothing more",
    }
    rows = Table.grid(padding=(0, 2))
    for part, points in POINTS.items():
        rows.add_row(f"  {part}", f"{points}", told[part])
    console.print(Text(f"checkpoint {exam.number}: 100 points", "bold"))
    console.print(rows)


def result(console: Console, exam: Exam, sat: Certificate, sheet: Sheet) -> None:
    """The exam's parts with their verdicts, the score, and what is missing."""
    rows = overview.rows_of("week", "exercise", "verdict", "stars", "ratio")
    for item, one in zip(exam.items, sat.exercises, strict=True):
        ratio = words.factor(one.measurement.speedup.median) if one.measurement else ""
        rows.add_row(f"{item.week}", item.name, view.verdict(one.verdict), words.stars(one.stars, item.stars), ratio)
    for one in sat.deliverable:
        size = words.case(one.cases[-1].case) if one.cases else ""
        rows.add_row("", f"deliverable, {size}", view.verdict(one.verdict), "", "")
    console.print(rows)
    if not sat.deliverable:
        console.print(f"deliverable: not run, {exam.deliverable.name} has not passed")
    right = sum(sat.answers.values())
    told = f"\n{right} of {len(sat.answers)} questions are answered correctly in {words.path(sheet.path, exam.root)}"
    console.print(told, soft_wrap=True)
    wrong = [key for key, fine in sat.answers.items() if not fine]
    if wrong:
        more = f" and {len(wrong) - _KEYS_SHOWN} more" if wrong[_KEYS_SHOWN:] else ""
        console.print(f"not right yet: {', '.join(wrong[:_KEYS_SHOWN])}{more}")
    made = ", ".join(f"{part} {points} of {POINTS[part]}" for part, points in sat.points.items())
    console.print(f"points: {made}", soft_wrap=True)
    style = "bold green" if sat.passed else "bold yellow"
    ending = "passed" if sat.passed else "not yet passed"
    about = f"checkpoint {exam.number} {ending} with {sat.score} of 100 points"
    console.print(Text.assemble((about, style), (f"  {sat.device}, seed {sat.seed}", "dim")), soft_wrap=True)
    for sentence in sat.missing:
        console.print(f"missing: {sentence}", soft_wrap=True)


def question(console: Console, asked: Asked, position: str) -> None:
    """A question with its choices."""
    console.print(Text(f"\n{position}, {asked.place}", "dim"))
    console.print(Text(asked.question.ask, "bold"))
    for letter, choice in asked.lettered:
        console.print(f"  {letter}) {choice}")


def answered(console: Console, asked: Asked, right: bool) -> None:
    """Whether the answer is right. The why gives the answer away, so it waits until then."""
    if right:
        console.print(Text.assemble(("right. ", "green"), asked.question.why))
        return
    console.print(Text("not yet; kept, and asked again next time", "yellow"))
    if asked.notebook:
        console.print(f"read {asked.place}, in {asked.notebook}", soft_wrap=True)
