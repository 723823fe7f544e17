"""Implement `kp checkpoint`: the exam of a phase, its questions, its marks and its certificate."""

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
from kernelpath.exam import ExamError
from kernelpath.files import MOST_BYTES, Unreadable, read_source, write_atomically
from kernelpath.show import view

if TYPE_CHECKING:
    from kernelpath.exam.certificate import Certificate
    from kernelpath.exam.questions import Exam, ExamQuestion
    from kernelpath.exam.sheet import Sheet
    from kernelpath.grading.grade import Device


@click.command()
@click.argument("number", metavar="[N]", type=click.IntRange(1), required=False)
@click.option("--name", help="Start the exam under your name, which selects numbers, kernels, and deliverable.")
@click.option(
    "--from",
    "folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The folder with the kernels and answers.toml. [phases/N_...]",
)
@click.option("--ask/--no-ask", default=None, help="Ask the open questions. [yes in a terminal]")
@click.option("--week", type=int, metavar="W", help="Only ask that week's questions; nothing is graded.")
@click.option("--deliverable", is_flag=True, help="Only grade the deliverable.")
@click.option("--mark", is_flag=True, help="Mark your written answers by the rubric; nothing is graded.")
@click.option(
    "--verify",
    "certificate",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Check a certificate, and grade its submission again if that is here.",
)
@click.option(
    "--out", "out_folder", type=click.Path(path_type=Path), help="The folder for the certificate. [.kernelpath]"
)
@device_option
@seed_option
def checkpoint(
    number: int | None,
    name: str | None,
    folder: Path | None,
    ask: bool | None,
    week: int | None,
    deliverable: bool,
    mark: bool,
    certificate: Path | None,
    out_folder: Path | None,
    device: Device,
    seed: int | None,
) -> int:
    """Take the exam of phase N.

    The first run, with --name, writes answers.toml and the stub of your deliverable next to your kernels. Later runs
    grade your exercises and the deliverable, ask the open questions, and show how many answers are right. After a
    pass, they also show which ones, and write a certificate as JSON and HTML.
    """
    with errors.status("starting"):
        grading.start_workers()
        from kernelpath.exam import questions
        from kernelpath.grading.grade import Usage
    # A script or CI must not wait for an answer that nobody types.
    ask_now = sys.stdin.isatty() if ask is None else ask
    try:
        if certificate is not None:
            return _verify(certificate, number, folder, device)
        if number is None:
            raise click.UsageError("name the checkpoint, such as: kp checkpoint 1")
        exam = questions.find_exam(number)
        command = f"kp checkpoint {number}" + (f" --from {shlex.quote(str(folder))}" if folder else "")
        answers = _open_sheet(exam, folder or exam.folder, name, ask_now, command)
        if answers is None:
            return NOT_YET
        if mark:
            return _mark_answers(answers, ask_now, command)
        if deliverable:
            return _grade_deliverable(answers, device, seed)
        if week is not None:
            return _ask_week(answers, week, ask_now, command)
        result = _grade_exam(answers, command, ask_now, device, seed)
    except (ExamError, Usage) as error:
        raise Failure(str(error)) from error
    if not result.passed:
        view.step(out, _next_step(result, answers, command))
        return NOT_YET
    _write_certificate(result, exam, out_folder or progress.folder(exam.root))
    # Marks do not change the score, so they may follow after the certificate.
    unmarked = result.written and not result.marked_by
    view.step(out, f"{command} --mark, then {command} for a certificate with your marks" if unmarked else "kp next")
    return PASSED


def _open_sheet(exam: Exam, folder: Path, name: str | None, asking: bool, command: str) -> Sheet | None:
    """Return the answer sheet, or None if the exam has only just begun, after printing what to do."""
    from kernelpath.exam import sheet, sitting
    from kernelpath.show import exam as show

    path = folder / sheet.ANSWERS
    is_new = not path.exists()
    if is_new and name is None and asking:
        name = click.prompt("your name, as it will appear on the certificate")
    with errors.status("setting the exam"):
        # The name seeds the paper: a sheet that exists keeps its name, and a new one is drawn for the name given here.
        answers = sheet.Sheet(exam, path, name)
        answers.save()
        stub_paths = sitting.write_stub(answers.paper, folder)
    if not is_new:
        return answers
    show.print_parts(out, answers.paper)
    out.print("\nyours, drawn by your name:")
    for path_to_show in (path, *stub_paths):
        out.print(f"  {words.path(path_to_show, exam.root)}", soft_wrap=True)
    view.step(out, f"read {words.path(path, exam.root)} and the deliverable, then {command} --deliverable")
    return None


def _grade_deliverable(answers: Sheet, device: Device, seed: int | None) -> int:
    from kernelpath.exam import sitting
    from kernelpath.grading import traffic

    item = answers.paper.item
    answers.paper.require_files(answers.path.parent)
    with errors.status("deliverable") as status:
        report = sitting.grade_item(answers, item, device, seed, status.update)
    # The report lists only lines beyond the limits of this variant. Others would hint at the solution.
    wasted = traffic.lines_beyond_limits(answers.paper.variant.exercise.traffic, report.traffic)
    view.report(out, item, dataclasses.replace(report, traffic=wasted), explain="")
    return PASSED if report.verdict.passed else NOT_YET


def _grade_exam(answers: Sheet, command: str, ask: bool, device: Device, seed: int | None) -> Certificate:
    """Ask the open questions, grade the exam, save the result and print it."""
    from kernelpath.exam import sitting
    from kernelpath.show import exam as show

    paper = answers.paper
    paper.require_files(answers.path.parent)
    show.print_parts(out, paper)
    if ask:
        _ask_questions(answers, answers.unanswered(paper.questions), command)
    for sentence in answers.warnings():
        warn(f"{words.path(answers.path, paper.exam.root)}: {sentence}")
    with errors.status(f"checkpoint {paper.exam.number}") as status:
        result = sitting.grade_exam(answers, device=device, seed=seed, report_progress=status.update)
    try:
        # An attempt is saved before it is shown, passed or not. Without write access, the result is still shown.
        Progress(paper.exam.root, warn).save_attempt(paper.exam.number, result.to_json())
    except progress.NotSaved as error:
        warn(str(error))
    out.print()
    show.print_result(out, paper, result)
    return result


def _write_certificate(result: Certificate, exam: Exam, folder: Path) -> None:
    from kernelpath.exam import course
    from kernelpath.show import certificate as certificate_page

    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        f"checkpoint{exam.number}.json": result.to_json(),
        f"checkpoint{exam.number}.html": certificate_page.render_certificate(result),
    }
    for name, text in texts.items():
        write_atomically(folder / name, text)
        out.print(f"certificate: {words.path(folder / name, exam.root)}", soft_wrap=True)
    # The last of the phases completes the course.
    if course_certificate := course.certify_course(folder, exam.root):
        for name, text in {
            "course.json": course_certificate.to_json(),
            "course.html": certificate_page.render_course(course_certificate),
        }.items():
            write_atomically(folder / name, text)
        summary = (
            f"\nthe whole course, {course_certificate.score} of 100: {words.path(folder / 'course.html', exam.root)}"
        )
        out.print(summary, soft_wrap=True)


def _ask_week(answers: Sheet, week: int, ask: bool, command: str) -> int:
    """Ask the questions of one week. `command` grades the whole exam."""
    questions = [question for question in answers.paper.questions if question.week == week]
    if not questions:
        weeks = sorted({question.week for question in answers.paper.questions_in("questions")})
        raise click.UsageError(f"--week is one of {', '.join(map(str, weeks))}.")
    if ask:
        _ask_questions(answers, questions, f"{command} --week {week}")
    unanswered_count = len(answers.unanswered(questions))
    out.print(f"\n{len(questions) - unanswered_count} of {len(questions)} questions of week {week} have an answer")
    preparation = next(
        (question.preparation for question in questions if question in answers.unanswered(questions)), ""
    )
    view.step(
        out,
        f"{f'read {preparation}, then ' * bool(preparation)}{command} --week {week}" if unanswered_count else command,
    )
    return NOT_YET if unanswered_count else PASSED


def _ask_questions(answers: Sheet, questions: Sequence[ExamQuestion], command: str) -> None:
    """Ask these questions. Each answer is saved at once, so that `command` goes on from there."""
    from kernelpath.show import exam as show

    if questions:
        introduction = f"\n{words.count(len(questions), 'question')}; Ctrl-C stops, and what you answered is kept"
        out.print(Text(introduction, "dim"))
    for position, question in enumerate(questions, start=1):
        show.print_question(out, question, f"question {position} of {len(questions)}")

        # The default binds this question: a closure would see the last one of the loop.
        def validate(text: str, question: ExamQuestion = question) -> str:
            if text and not question.understands(text):
                raise click.BadParameter(f"type {question.expected_format}")
            return text

        previous = answers.answer_text(question)
        answer = _prompt(f"your answer (Enter {f'keeps {previous}' if previous else 'skips'})", validate, command)
        if answer:
            answers.answer(question, answer)


def _prompt(text: str, validate: Callable[[str], str], command: str) -> str:
    try:
        return click.prompt(text, default="", show_default=False, value_proc=validate)
    except click.Abort:
        out.print(f"\nkept; go on with {command}", soft_wrap=True)
        raise


def _mark_answers(answers: Sheet, ask: bool, command: str) -> int:
    """Ask for the points of each criterion, one prompt after another."""
    from kernelpath.show import exam as show

    if not ask:
        raise click.UsageError(f"--mark asks for points; write them below [marks] in {answers.path.name} instead.")
    for prompt in answers.prompts:
        show.print_written_answer(out, prompt, answers)
        points = []
        for criterion in prompt.rubric:
            out.print(f"  0 to {criterion.points}: {criterion.text}")

            # The default binds this maximum, as above.
            def validate(text: str, maximum: int = criterion.points) -> str:
                if not (text.isdecimal() and int(text) <= maximum):
                    raise click.BadParameter(f"type a number from 0 to {maximum}")
                return text

            points.append(int(_prompt("points", validate, f"{command} --mark")))
        answers.mark(prompt, points)
        out.print(f"{prompt.name}: {sum(points)} of {prompt.points}, by your own assessment")
    view.step(out, command)
    return PASSED


def _next_step(result: Certificate, answers: Sheet, command: str) -> str:
    """Return the next step on the way to a pass."""
    paper = answers.paper
    # Exercises come first, because the deliverable and the questions build on them.
    for item, report in zip(paper.exam.items, result.exercises, strict=True):
        if not report.verdict.passed:
            return f"kp watch {item.name}"
    if not result.deliverable.verdict.passed:
        return f"{command} --deliverable --seed {result.deliverable.seed}"
    return f"answer in {words.path(answers.path, paper.exam.root)}, then {command}"


def _verify(path: Path, number: int | None, folder: Path | None, device: Device) -> int:
    from kernelpath.exam import questions, verification
    from kernelpath.exam.certificate import Certificate
    from kernelpath.exam.sheet import ANSWERS, Sheet

    try:
        old = Certificate.from_json(read_source(path, MOST_BYTES))
    except Unreadable as error:
        raise ExamError(str(error)) from error
    if number not in (None, old.checkpoint):
        raise ExamError(f"it is a certificate of checkpoint {old.checkpoint}, not of {number}")
    exam = questions.find_exam(old.checkpoint)
    summary = words.shown(f"{old.name}, {old.score} of 100 on {old.date}, {old.device}, seed {old.seed}", 300)
    sheet = (folder or exam.folder) / ANSWERS
    command = f"kp checkpoint --verify {shlex.quote(str(path))} --from DIR"
    if not sheet.exists() or (folder is None and Sheet(exam, sheet).paper.name != old.name):
        untouched = f"the digest holds: {summary}\nnothing was graded again, and anybody can write a digest: "
        out.print(f"{untouched}the submission is not here", soft_wrap=True)
        view.step(out, f"with the certified submission: {command}")
        return PASSED
    with errors.status("checking the certificate") as status:
        verification_result = verification.verify(Sheet(exam, sheet), old, device=device, report_progress=status.update)
    for sentence in verification_result.differences:
        out.print(words.shown(sentence, 300), soft_wrap=True)
    if verification_result.differences:
        view.step(out, f"give the folder of the certified submission: {command}")
        return NOT_YET
    out.print(f"the certificate holds: {summary}", soft_wrap=True)
    out.print(f"not checked: {', '.join(verification_result.unverified)}", soft_wrap=True)
    return PASSED
