"""Render an exam for a terminal: its parts, a question, a written answer, the result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kernelpath import words
from kernelpath.course.checkpoint import MAX_WORDS, MIN_WORDS, Prompt
from kernelpath.exam.certificate import POINTS, Certificate
from kernelpath.show import overview, view

if TYPE_CHECKING:
    from kernelpath.exam.questions import ExamQuestion, Paper
    from kernelpath.exam.sheet import Sheet

_MAX_KEYS_SHOWN = 10


def print_parts(console: Console, paper: Paper) -> None:
    """Print the parts of the exam and their points."""
    count = len(paper.questions)
    needed = paper.exam.correct_answers_needed(count)
    prompts = len(paper.exam.checkpoint.prompts)
    weeks = sorted({question.week for question in paper.questions_in("questions")})
    descriptions = {
        "exercises": f"all {len(paper.exam.items)} must pass",
        "questions": f"{len(paper.questions_in('questions'))} on weeks {weeks[0]} to {weeks[-1]}",
        "reading": f"{len(paper.questions_in('reading'))} tasks; of all {count} answers {needed} must be right",
        "deliverable": f"drawn for you from {len(paper.exam.checkpoint.variants)}",
    }
    rows = Table.grid(padding=(0, 2))
    for part, points in POINTS.items():
        rows.add_row(f"  {part}", f"{points:3}", descriptions[part])
    if prompts:
        limits = f"{MIN_WORDS} to {MAX_WORDS} words"
        rows.add_row("  written", "", f"{words.count(prompts, 'answer')} of {limits}, marked by you or a teacher")
    console.print(Text(f"checkpoint {paper.exam.number} of {paper.name}: 100 points", "bold"))
    console.print(rows)


def print_result(console: Console, paper: Paper, certificate: Certificate) -> None:
    """Print the exam's parts with their verdicts, the score, and what is missing."""
    rows = overview.create_table("week", "exercise", "verdict", "stars", "ratio")
    for item, report in zip(paper.exam.items, certificate.exercises, strict=True):
        ratio = words.factor(report.measurement.speedup.median) if report.measurement else ""
        rows.add_row(
            f"{item.week}", item.name, view.verdict(report.verdict), words.stars(report.stars, item.stars), ratio
        )
    rows.add_row("", "deliverable", view.verdict(certificate.deliverable.verdict), "", "")
    console.print(rows)
    for part in ("questions", "reading"):
        console.print(f"{part}: {certificate.count_right(part)} right", soft_wrap=True)
    empty = [report.key for report in certificate.answers if not report.given]
    if empty:
        remainder = f" and {len(empty) - _MAX_KEYS_SHOWN} more" if empty[_MAX_KEYS_SHOWN:] else ""
        console.print(f"no answer yet: {', '.join(empty[:_MAX_KEYS_SHOWN])}{remainder}")
    if certificate.passed:
        _print_wrong_answers(
            console, paper, {report.key for report in certificate.answers if report.given and not report.right}
        )
    if certificate.written:
        console.print(f"written: {certificate.written_points or 'not marked yet; they count no points'}")
    points_by_part = ", ".join(f"{part} {points}/{POINTS[part]}" for part, points in certificate.points.items())
    console.print(f"points: {points_by_part}")
    style = "bold green" if certificate.passed else "bold yellow"
    outcome = "passed" if certificate.passed else "not yet passed"
    summary = f"checkpoint {certificate.checkpoint} {outcome} with {certificate.score} of 100 points"
    console.print(
        Text.assemble((summary, style), (f"\n{certificate.device}, seed {certificate.seed}", "dim")), soft_wrap=True
    )
    for sentence in certificate.missing:
        console.print(f"missing: {sentence}")


def print_question(console: Console, question: ExamQuestion, position: str) -> None:
    """Print a question with its choices and its listing."""
    console.print(Text(f"\n{position}, {question.place}", "dim"))
    console.print(Text(question.ask, "bold"))
    if question.listing:
        console.print(f"\n{question.listing}\n", soft_wrap=True)
    for letter, choice in question.lettered:
        console.print(f"  {letter}) {choice}")


def _print_wrong_answers(console: Console, paper: Paper, keys: set[str]) -> None:
    """Print the wrong answers with their explanations, once the exam is passed: these reveal the answers."""
    for question in paper.questions:
        if question.key in keys:
            reference = f" (read {question.preparation})" if question.preparation else ""
            console.print(f"not right: {question.key}: {question.why}{reference}", soft_wrap=True)


def print_written_answer(console: Console, prompt: Prompt, sheet: Sheet) -> None:
    """Print a written answer below its prompt."""
    text = sheet.written(prompt)
    console.print(Text(f"\n{prompt.name}, {words.count(len(text.split()), 'word')}", "dim"))
    console.print(Text(prompt.ask, "bold"))
    console.print(Padding(words.shown(text) or "(nothing is written)", (1, 2)))
