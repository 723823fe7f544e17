"""checkpoint: the exam of a phase, its questions, its marks and its certificate."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Callable, Sequence
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
from kernelpath.files import MOST_BYTES, Unreadable, read_source, write_atomically
from kernelpath.show import view

if TYPE_CHECKING:
    from kernelpath.exam.certificate import Certificate
    from kernelpath.exam.questions import Asked, Exam
    from kernelpath.exam.sheet import Sheet
    from kernelpath.grading.grade import Device


@click.command()
@click.argument("number", metavar="[N]", type=click.IntRange(1), required=False)
@click.option("--name", help="Begin the exam under your name; numbers, kernels and deliverable are drawn from it.")
@click.option(
    "--from",
    "place",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The folder with the kernels and answers.toml. [phases/N_...]",
)
@click.option("--ask/--no-ask", default=None, help="Ask what has no answer yet. [if this is a terminal]")
@click.option("--week", type=int, metavar="W", help="Only ask that week's questions; nothing is graded.")
@click.option("--deliverable", is_flag=True, help="Only grade the deliverable.")
@click.option("--mark", is_flag=True, help="Mark your written answers by the rubric; nothing is graded.")
@click.option(
    "--verify",
    "certificate",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Check a certificate; grade its submission again if it is here.",
)
@click.option("--out", "to", type=click.Path(path_type=Path), help="The folder for the certificate. [.kernelpath]")
@device_option
@seed_option
def checkpoint(
    number: int | None,
    name: str | None,
    place: Path | None,
    ask: bool | None,
    week: int | None,
    deliverable: bool,
    mark: bool,
    certificate: Path | None,
    to: Path | None,
    device: Device,
    seed: int | None,
) -> int:
    """Take the exam of phase N.

    The first run, with --name, writes answers.toml and the stub of your deliverable beside your kernels. Later runs
    grade your exercises and the deliverable, ask what has no answer yet, and say how many answers are right; after a
    pass, which. A pass writes a certificate as JSON and HTML.
    """
    with errors.status("starting"):
        grading.start_workers()
        from kernelpath.exam import questions
        from kernelpath.grading.grade import Usage
    asking = sys.stdin.isatty() if ask is None else ask
    try:
        if certificate is not None:
            return _verify(certificate, number, place, device)
        if number is None:
            raise click.UsageError("name the checkpoint, such as: kp checkpoint 1")
        exam = questions.find(number)
        again = f"kp checkpoint {number}" + (f" --from {shlex.quote(str(place))}" if place else "")
        answers = _sheet(exam, place or exam.folder, name, asking, again)
        if answers is None:
            return NOT_YET
        if mark:
            return _mark(answers, asking, again)
        if deliverable:
            return _deliverable(answers, device, seed)
        if week is not None:
            return _ask_week(answers, week, asking, again)
        result = _sit(answers, again, asking, device, seed)
    except (NotValid, Usage) as error:
        raise Failure(str(error)) from error
    if not result.passed:
        view.step(out, _what_is_missing(result, answers, again))
        return NOT_YET
    _write_certificate(result, exam, to or progress.folder(exam.root))
    unmarked = result.written and not result.marked_by
    view.step(out, f"{again} --mark, then {again} for a certificate with your marks" if unmarked else "kp next")
    return PASSED


def _sheet(exam: Exam, folder: Path, name: str | None, asking: bool, again: str) -> Sheet | None:
    """The answer sheet; None if the exam has only just begun, which is printed."""
    from kernelpath.exam import sheet, sitting
    from kernelpath.show import exam as show

    path = folder / sheet.ANSWERS
    begins = not path.exists()
    if begins and name is None and asking:
        name = click.prompt("your name, as the certificate is to carry it")
    with errors.status("setting the exam"):
        answers = sheet.Sheet(exam, path, name)
        answers.save()
        new = sitting.write_stub(answers.paper, folder)
    if not begins:
        return answers
    show.parts(out, answers.paper)
    out.print("\nyours, drawn by your name:")
    for written in (path, *new):
        out.print(f"  {words.path(written, exam.root)}", soft_wrap=True)
    view.step(out, f"read {words.path(path, exam.root)} and the deliverable, then {again} --deliverable")
    return None


def _deliverable(answers: Sheet, device: Device, seed: int | None) -> int:
    from kernelpath.exam import sitting
    from kernelpath.grading import traffic

    item = answers.paper.item
    answers.paper.require_files(answers.path.parent)
    with errors.status("deliverable") as status:
        report = sitting.graded(answers, item, device, seed, status.update)
    wasted = traffic.lines_beyond_limits(answers.paper.twist.exercise.traffic, report.traffic)
    view.report(out, item, dataclasses.replace(report, traffic=wasted), explain="")
    return PASSED if report.verdict.passed else NOT_YET


def _sit(answers: Sheet, again: str, ask: bool, device: Device, seed: int | None) -> Certificate:
    """Ask, grade, keep and show."""
    from kernelpath.exam import sitting
    from kernelpath.show import exam as show

    paper = answers.paper
    paper.require_files(answers.path.parent)
    show.parts(out, paper)
    if ask:
        _interview(answers, answers.unanswered(paper.asked), again)
    for sentence in answers.complaints():
        warn(f"{words.path(answers.path, paper.exam.root)}: {sentence}")
    with errors.status(f"checkpoint {paper.exam.number}") as status:
        result = sitting.sit(answers, device=device, seed=seed, tell=status.update)
    try:
        Progress(paper.exam.root, warn).keep_try(paper.exam.number, result.to_json())
    except progress.NotSaved as error:
        warn(str(error))
    out.print()
    show.result(out, paper, result)
    return result


def _write_certificate(result: Certificate, exam: Exam, folder: Path) -> None:
    from kernelpath.exam import course
    from kernelpath.show import certificate as page

    folder.mkdir(parents=True, exist_ok=True)
    texts = {f"checkpoint{exam.number}.json": result.to_json(), f"checkpoint{exam.number}.html": page.page(result)}
    for name, text in texts.items():
        write_atomically(folder / name, text)
        out.print(f"certificate: {words.path(folder / name, exam.root)}", soft_wrap=True)
    if passed := course.whole(folder, exam.root):
        for name, text in {"course.json": passed.to_json(), "course.html": page.course(passed)}.items():
            write_atomically(folder / name, text)
        told = f"\nthe whole course, {passed.score} of 100: {words.path(folder / 'course.html', exam.root)}"
        out.print(told, soft_wrap=True)


def _ask_week(answers: Sheet, week: int, ask: bool, again: str) -> int:
    """Ask the questions of one week. `again` is the command for the whole exam."""
    questions = [question for question in answers.paper.asked if question.week == week]
    if not questions:
        weeks = sorted({question.week for question in answers.paper.of("questions")})
        raise click.UsageError(f"--week is one of {', '.join(map(str, weeks))}.")
    if ask:
        _interview(answers, questions, f"{again} --week {week}")
    left = len(answers.unanswered(questions))
    out.print(f"\n{len(questions) - left} of {len(questions)} questions of week {week} have an answer")
    read = next((one.prepared for one in questions if one in answers.unanswered(questions)), "")
    view.step(out, f"{f'read {read}, then ' * bool(read)}{again} --week {week}" if left else again)
    return NOT_YET if left else PASSED


def _interview(answers: Sheet, questions: Sequence[Asked], again: str) -> None:
    """Ask these questions. Each answer is saved at once, so that the command `again` goes on."""
    from kernelpath.show import exam as show

    if questions:
        told = f"\n{words.count(len(questions), 'question')}; Ctrl-C stops, and what you answered is kept"
        out.print(Text(told, "dim"))
    for position, question in enumerate(questions, start=1):
        show.question(out, question, f"question {position} of {len(questions)}")

        def understood(text: str, question: Asked = question) -> str:
            if text and not question.understands(text):
                raise click.BadParameter(f"type {question.wanted}")
            return text

        kept = answers.given(question)
        answer = _prompted(f"your answer (Enter {f'keeps {kept}' if kept else 'skips'})", understood, again)
        if answer:
            answers.answer(question, answer)


def _prompted(text: str, understood: Callable[[str], str], again: str) -> str:
    try:
        return click.prompt(text, default="", show_default=False, value_proc=understood)
    except click.Abort:
        out.print(f"\nkept; go on with {again}", soft_wrap=True)
        raise


def _mark(answers: Sheet, ask: bool, again: str) -> int:
    """Ask for the points of each criterion, a prompt at a time."""
    from kernelpath.show import exam as show

    if not ask:
        raise click.UsageError(f"--mark asks for points; write them below [marks] in {answers.path.name} instead.")
    for prompt in answers.prompts:
        show.written(out, prompt, answers)
        points = []
        for criterion in prompt.rubric:
            out.print(f"  0 to {criterion.points}: {criterion.text}")

            def understood(text: str, most: int = criterion.points) -> str:
                if not (text.isdecimal() and int(text) <= most):
                    raise click.BadParameter(f"type a number from 0 to {most}")
                return text

            points.append(int(_prompted("points", understood, f"{again} --mark")))
        answers.mark(prompt, points)
        out.print(f"{prompt.name}: {sum(points)} of {prompt.points}, by your own assessment")
    view.step(out, again)
    return PASSED


def _what_is_missing(result: Certificate, answers: Sheet, again: str) -> str:
    """The one step that brings a pass nearer."""
    paper = answers.paper
    for item, report in zip(paper.exam.items, result.exercises, strict=True):
        if not report.verdict.passed:
            return f"kp watch {item.name}"
    if not result.deliverable.verdict.passed:
        return f"{again} --deliverable --seed {result.deliverable.seed}"
    return f"answer in {words.path(answers.path, paper.exam.root)}, then {again}"


def _verify(path: Path, number: int | None, place: Path | None, device: Device) -> int:
    from kernelpath.exam import questions, verification
    from kernelpath.exam.certificate import Certificate
    from kernelpath.exam.sheet import ANSWERS, Sheet

    try:
        old = Certificate.from_json(read_source(path, MOST_BYTES))
    except Unreadable as error:
        raise NotValid(str(error)) from error
    if number not in (None, old.checkpoint):
        raise NotValid(f"it is a certificate of checkpoint {old.checkpoint}, not of {number}")
    exam = questions.find(old.checkpoint)
    about = words.shown(f"{old.name}, {old.score} of 100 on {old.date}, {old.device}, seed {old.seed}", 300)
    sheet = (place or exam.folder) / ANSWERS
    command = f"kp checkpoint --verify {shlex.quote(str(path))} --from DIR"
    if not sheet.exists() or (place is None and Sheet(exam, sheet).paper.name != old.name):
        untouched = f"the digest holds: {about}\nnothing was graded again, and anybody can write a digest: "
        out.print(f"{untouched}the submission is not here", soft_wrap=True)
        view.step(out, f"with the certified submission: {command}")
        return PASSED
    with errors.status("checking the certificate") as status:
        found = verification.verify(Sheet(exam, sheet), old, device=device, tell=status.update)
    for sentence in found.differences:
        out.print(words.shown(sentence, 300), soft_wrap=True)
    if found.differences:
        view.step(out, f"give the folder of the certified submission: {command}")
        return NOT_YET
    out.print(f"the certificate holds: {about}", soft_wrap=True)
    out.print(f"not checked: {', '.join(found.trusted)}", soft_wrap=True)
    return PASSED
