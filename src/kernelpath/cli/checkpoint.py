"""checkpoint: the exam of a phase, its questions and its certificate."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.text import Text

from kernelpath import words
from kernelpath.cli import grading
from kernelpath.cli.common import NOT_YET, PASSED, Failure, device_option, errors, out, seed_option, warn
from kernelpath.course import progress
from kernelpath.course.progress import Progress
from kernelpath.exam import NotValid
from kernelpath.files import write_atomically
from kernelpath.show import view

if TYPE_CHECKING:
    from kernelpath.exam.certificate import Certificate
    from kernelpath.exam.questions import Asked, Exam
    from kernelpath.exam.sheet import Sheet
    from kernelpath.grading.grade import Device


@click.command()
@click.argument("number", metavar="N", type=click.IntRange(1))
@click.option(
    "--from",
    "place",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The folder with the kernels and answers.toml. [phases/N_...]",
)
@click.option("--ask/--no-ask", default=None, help="Ask what is not answered correctly yet. [if this is a terminal]")
@click.option("--week", type=int, metavar="W", help="Only ask that week's questions; nothing is graded.")
@click.option(
    "--verify",
    "certificate",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Check a certificate against the same submission.",
)
@click.option("--out", "to", type=click.Path(path_type=Path), help="The folder for the certificate. [.kernelpath]")
@device_option
@seed_option
def checkpoint(
    number: int,
    place: Path | None,
    ask: bool | None,
    week: int | None,
    certificate: Path | None,
    to: Path | None,
    device: Device,
    seed: int | None,
) -> int:
    """Take the exam of phase N.

    Your exercises of the phase are graded again, its questions are asked, and its deliverable, one of the exercises,
    is graded at further sizes. Questions are answered here or in answers.toml beside your kernels. A pass writes a
    certificate as JSON and HTML.
    """
    with errors.status("starting"):
        grading.start_workers()
        from kernelpath.exam import questions, sheet
        from kernelpath.grading.grade import Usage
    exam = questions.find(number)
    folder = place or exam.folder
    again = f"kp checkpoint {number}" + (f" --from {shlex.quote(str(place))}" if place else "")
    try:
        if certificate is not None:
            return _verify(exam, folder, certificate, device)
        exam.require_files(folder)
        answers = sheet.Sheet(exam, folder / sheet.ANSWERS)
        answers.save()
        if week is not None:
            return _ask_week(answers, week, again)
        result = _sit(exam, folder, answers, again, sys.stdin.isatty() if ask is None else ask, device, seed)
    except (NotValid, Usage) as error:
        raise Failure(str(error)) from error
    if not result.passed:
        view.step(out, _what_is_missing(exam, result, answers, again))
        return NOT_YET
    _write_certificate(result, exam, to or progress.folder(exam.root))
    view.step(out, "kp next")
    return PASSED


def _sit(
    exam: Exam, folder: Path, answers: Sheet, again: str, ask: bool, device: Device, seed: int | None
) -> Certificate:
    """Ask, grade, keep and show."""
    from kernelpath.exam import sitting
    from kernelpath.show import exam as show

    show.parts(out, exam, answers)
    if ask:
        _interview(answers, answers.questions, again)
    for sentence in answers.complaints():
        warn(f"{words.path(answers.path, exam.root)}: {sentence}")
    with errors.status(f"checkpoint {exam.number}") as status:
        result = sitting.sit(exam, folder, device=device, seed=seed, tell=status.update)
    try:
        Progress(exam.root, warn).keep_try(exam.number, result.to_json())
    except progress.NotSaved as error:
        warn(str(error))
    out.print()
    show.result(out, exam, result, answers)
    return result


def _write_certificate(result: Certificate, exam: Exam, folder: Path) -> None:
    from kernelpath.show import certificate as page

    folder.mkdir(parents=True, exist_ok=True)
    for suffix, text in ((".json", result.to_json()), (".html", page.page(result))):
        path = folder / f"checkpoint{exam.number}{suffix}"
        write_atomically(path, text)
        out.print(f"certificate: {words.path(path, exam.root)}", soft_wrap=True)


def _ask_week(answers: Sheet, week: int, again: str) -> int:
    """Ask the questions of one week. `again` is the command for the whole exam."""
    questions = [question for question in answers.questions if question.week == week]
    if not questions:
        weeks = sorted({question.week for question in answers.questions})
        raise click.UsageError(f"--week is one of {', '.join(map(str, weeks))}.")
    _interview(answers, questions, f"{again} --week {week}")
    right = sum(answers.right[question.key] for question in questions)
    out.print(f"\n{right} of {len(questions)} questions of week {week} are answered correctly")
    view.step(out, again if right == len(questions) else f"{again} --week {week}")
    return PASSED if right == len(questions) else NOT_YET


def _interview(answers: Sheet, questions: Sequence[Asked], again: str) -> None:
    """Ask what is not answered correctly yet. Each answer is saved at once, so that the command `again` goes on."""
    from kernelpath.show import exam as show

    asked = [question for question in questions if not answers.right[question.key]]
    if asked:
        told = f"\n{words.count(len(asked), 'question')}; Ctrl-C stops, and what you answered is kept"
        out.print(Text(told, "dim"))
    for position, question in enumerate(asked, start=1):
        show.question(out, question, f"question {position} of {len(asked)}")

        def understood(text: str, question: Asked = question) -> str:
            if text and not question.understands(text):
                raise click.BadParameter(f"type {question.wanted}")
            return text

        try:
            answer = click.prompt("your answer (Enter skips)", default="", show_default=False, value_proc=understood)
        except click.Abort:
            out.print(f"\nkept; go on with {again}", soft_wrap=True)
            raise
        if answer:
            show.answered(out, question, answers.answer(question, answer))


def _what_is_missing(exam: Exam, result: Certificate, answers: Sheet, again: str) -> str:
    """The one step that brings a pass nearer."""
    for item, report in zip(exam.items, result.exercises, strict=True):
        if not report.verdict.passed:
            return f"kp watch {item.name}"
    for report in result.deliverable:
        if not report.verdict.passed:
            return f"kp check {exam.deliverable.name} --seed {report.seed}"
    return f"answer in {words.path(answers.path, exam.root)}, then {again}"


def _verify(exam: Exam, folder: Path, path: Path, device: Device) -> int:
    from kernelpath.exam import verification
    from kernelpath.exam.certificate import Certificate

    old = Certificate.from_json(path.read_bytes())
    with errors.status("checking the certificate") as status:
        differences = verification.verify(exam, folder, old, device=device, tell=status.update)
    for sentence in differences:
        out.print(sentence)
    if differences:
        command = f"kp checkpoint {exam.number} --from DIR --verify ..."
        view.step(out, f"give the folder of the certified submission: {command}")
        return NOT_YET
    holds = f"the certificate holds: {old.score} of 100 on {old.date}, {old.device}, seed {old.seed}"
    out.print(holds, soft_wrap=True)
    return PASSED
