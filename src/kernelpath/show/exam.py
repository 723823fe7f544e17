"""Renders an exam for a terminal: its parts, a question and its answer, a rubric, the result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kernelpath import words
from kernelpath.course.checkpoint import FEWEST_WORDS, MOST_WORDS, Prompt
from kernelpath.exam.certificate import POINTS, Certificate
from kernelpath.show import overview, view

if TYPE_CHECKING:
    from kernelpath.exam.questions import Asked, Paper
    from kernelpath.exam.sheet import Sheet

_KEYS_SHOWN = 10


def parts(console: Console, paper: Paper) -> None:
    """What the exam consists of, and how its points are made."""
    count, prompts = len(paper.asked), len(paper.exam.declared.prompts)
    weeks = sorted({asked.week for asked in paper.of("questions")})
    told = {
        "exercises": f"all {len(paper.exam.items)} must pass",
        "questions": f"{len(paper.of('questions'))} on weeks {weeks[0]} to {weeks[-1]}",
        "reading": f"{len(paper.of('reading'))} tasks; of all {count} answers {paper.exam.needed(count)} must be right",
        "deliverable": f"drawn for you from {len(paper.exam.declared.twists)}",
    }
    rows = Table.grid(padding=(0, 2))
    for part, points in POINTS.items():
        rows.add_row(f"  {part}", f"{points:3}", told[part])
    if prompts:
        limits = f"{FEWEST_WORDS} to {MOST_WORDS} words"
        rows.add_row("  written", "", f"{words.count(prompts, 'answer')} of {limits}, marked by you or a teacher")
    console.print(Text(f"checkpoint {paper.exam.number} of {paper.name}: 100 points", "bold"))
    console.print(rows)


def result(console: Console, paper: Paper, sat: Certificate) -> None:
    """The exam's parts with their verdicts, the score, and what is missing."""
    rows = overview.rows_of("week", "exercise", "verdict", "stars", "ratio")
    for item, one in zip(paper.exam.items, sat.exercises, strict=True):
        ratio = words.factor(one.measurement.speedup.median) if one.measurement else ""
        rows.add_row(f"{item.week}", item.name, view.verdict(one.verdict), words.stars(one.stars, item.stars), ratio)
    rows.add_row("", "deliverable", view.verdict(sat.deliverable.verdict), "", "")
    console.print(rows)
    for part in ("questions", "reading"):
        console.print(f"{part}: {sat.right(part)} right", soft_wrap=True)
    empty = [one.key for one in sat.answers if not one.given]
    if empty:
        more = f" and {len(empty) - _KEYS_SHOWN} more" if empty[_KEYS_SHOWN:] else ""
        console.print(f"no answer yet: {', '.join(empty[:_KEYS_SHOWN])}{more}")
    if sat.passed:
        _wrong(console, paper, {one.key for one in sat.answers if one.given and not one.right})
    if sat.written:
        console.print(f"written: {sat.written_points or 'not marked yet; they count no points'}")
    made = ", ".join(f"{part} {points}/{POINTS[part]}" for part, points in sat.points.items())
    console.print(f"points: {made}")
    style = "bold green" if sat.passed else "bold yellow"
    ending = "passed" if sat.passed else "not yet passed"
    about = f"checkpoint {sat.checkpoint} {ending} with {sat.score} of 100 points"
    console.print(Text.assemble((about, style), (f"\n{sat.device}, seed {sat.seed}", "dim")), soft_wrap=True)
    for sentence in sat.missing:
        console.print(f"missing: {sentence}")


def question(console: Console, asked: Asked, position: str) -> None:
    """A question with its choices, and what is to be read for it."""
    console.print(Text(f"\n{position}, {asked.place}", "dim"))
    console.print(Text(asked.ask, "bold"))
    if asked.listing:
        console.print(f"\n{asked.listing}\n", soft_wrap=True)
    for letter, choice in asked.lettered:
        console.print(f"  {letter}) {choice}")


def _wrong(console: Console, paper: Paper, keys: set[str]) -> None:
    """The wrong answers of an exam that is passed, each with its why. Before, they would give the answers away."""
    for asked in paper.asked:
        if asked.key in keys:
            read = f" (read {asked.prepared})" if asked.prepared else ""
            console.print(f"not right: {asked.key}: {asked.why}{read}", soft_wrap=True)


def written(console: Console, prompt: Prompt, sheet: Sheet) -> None:
    """A written answer below its prompt."""
    text = sheet.written(prompt)
    console.print(Text(f"\n{prompt.name}, {words.count(len(text.split()), 'word')}", "dim"))
    console.print(Text(prompt.ask, "bold"))
    console.print(Padding(words.shown(text) or "(nothing is written)", (1, 2)))
