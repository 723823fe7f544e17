"""Provide what notebooks call: grade, predict, count on the PTX machine, time on a GPU, with the same grader as `kp`.

Notebooks grade the learner's files in phases/. With KERNELPATH_TREE=expert in the environment they use the reference
kernels, which is how `execute` runs them for the tests and for the committed outputs.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import EllipsisType
from typing import Any, get_args

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kernelpath import packages, words
from kernelpath.course import delivery, lesson, registry
from kernelpath.course.ladder import LadderStep, read_ladder
from kernelpath.course.lesson import Question
from kernelpath.course.progress import NotSaved, Progress, with_report
from kernelpath.course.registry import ExerciseRef, Tree
from kernelpath.files import source_text
from kernelpath.grading import grade
from kernelpath.show import barriers, cells, graded, ladders, magic, pipeline_picture, predict, templates, view
from kernelpath.show import pipeline as pipelines
from kernelpath.show.cells import console, picture
from kernelpath.show.counting import Asked, Kernel, annotate, asked, assembled, count, launches, listing
from kernelpath.show.predict import RUN_THROUGH, hold
from kernelpath.show.recording import on_gpu, seconds
from kernelpath.verdict import Report
from warpcheck import frontends, pointers, simt, simulated_gpu
from warpcheck.hooks import Changed

__all__ = [
    "Asked",
    "after_pass",
    "annotate",
    "ask",
    "asked",
    "assembled",
    "check",
    "console",
    "contestants",
    "count",
    "hold",
    "ladder",
    "launches",
    "listing",
    "on_gpu",
    "picture",
    "pipeline",
    "seconds",
    "setup",
    "show",
    "started",
    "steps",
    "times",
    "tree",
]

if not pointers.alive():  # pointers.alive would find no frozen tensor
    gc.freeze()  # imported objects live forever; without this, launches and collections traverse them each time

_DOTS = "Put {} in place of the dots and run the cell again. None shows the answer."


def tree() -> Tree:
    """Return the tree whose kernels are used: "phases" (the learner's) unless KERNELPATH_TREE names another."""
    chosen: Tree = "phases"
    for name in get_args(Tree):
        if os.environ.get("KERNELPATH_TREE") == name:
            chosen = name
    return chosen


def setup(*, triton: bool = False, arch: str = "sm_80", reverse: bool = False) -> None:
    """Set up Jupyter for figures, tables and %%cuda, and print what this machine can do.

    Args:
        triton: Run Triton's kernels on the PTX machine. On a GPU machine, they still run on the GPU inside `on_gpu`.
        arch: The architecture that the PTX machine emulates, as in `Exercise.arch`.
        reverse: Also run every launch in the opposite order of blocks and warps; see `frontends.check`.
    """
    cells.setup()
    frontends.check(reverse=reverse)
    if jupyter := cells.shell():
        magic.register(jupyter)
    if triton:
        from warpcheck.frontends import triton as lane

        try:
            # From here on, `kernel[grid](...)` compiles with Triton and runs on the PTX machine.
            lane.activate("cpu")
        except Changed as error:
            raise cells.Stop(f"{error}. Do: {packages.install_tried()}") from error
    # Messages about a missing feature of the architecture name this call as the place to change.
    simulated_gpu.chosen_by = 'notebook.setup(arch="NAME")'
    if torch.cuda.is_available():
        simulated_gpu.stand_for({}, arch)
        print(f"{torch.cuda.get_device_name()}: kernels are timed here, and counted on the PTX machine.")
    else:
        simulated_gpu.show({}, arch)
        print(
            "No GPU here: the real compilers compile your kernels, and the PTX machine runs them and counts what they "
            "ask of memory.\nTimes are recordings, each from the GPU that it names; with a GPU they are measured."
        )


def check(name: str) -> Report:
    """Grade the learner's file for an exercise, show the report and save a pass, as `kp check` does."""
    item = registry.find(name)
    # A run with the reference kernels, such as that of the book, grades each of them once for all notebooks.
    report = graded.load_report(item) if tree() == "expert" else None
    report = report or grade.grade(item, item.submission(tree()))
    explain = lesson.read(item.lesson).explain
    cells.put(
        lambda: view.page(item, report, explain=explain, fold_times=tree() == "expert"),
        lambda console: view.report(console, item, report, explain=explain),
    )
    if tree() == "phases":
        _remember(item, report)
    return report


def _remember(item: ExerciseRef, report: Report) -> None:
    progress = Progress(item.root)
    try:
        if report.verdict.passed:
            progress.update(item.path_id, lambda record: with_report(record, report))
            delivery.reveal(item)
        progress.save_report(report, item.files("phases"))
    except NotSaved as error:
        print(error)


def ask(name: str, number: int, answer: str | float | EllipsisType | None = ...) -> None:
    """Show question `number` (from 0) of an exercise. With an answer, also show whether it is right, and why.

    None shows the right answer. An impossible answer, such as the number of a choice, reveals nothing.
    """
    question = lesson.read(registry.find(name).lesson).questions[number]
    # A typing error in a choice must not use up the question, so it gets neither "right" nor "wrong".
    possible = answer in question.choices if question.choices else isinstance(answer, (int, float))
    message = _DOTS.format("a number" if not question.choices else "one of the choices, in quotes,")
    right: bool | None = None
    reason = ""
    if answer is None:
        message = f"answer: {question.answer}"
    elif possible and not isinstance(answer, EllipsisType):
        right = question.accepts(answer)
        message = "right" if right else _describe_mistake(question, answer)
        reason = question.reason_against(answer)
    mood = "quiet"
    if right is not None:
        mood = "good" if right else "bad"
    why = question.why if answer is None or right is not None else ""

    def write(console: Console) -> None:
        console.print(Text(question.ask, "bold"))
        for choice in question.choices:
            console.print(Text(f"  - {choice}"))
        console.print(Text(message, {"quiet": "dim", "good": "green", "bad": "red"}[mood]))
        for explanation in filter(None, (reason, why)):
            console.print(Text(explanation))

    cells.put(
        lambda: templates.render(
            "question.html", question=question, told=message, mood=mood, explanations=list(filter(None, (reason, why)))
        ),
        write,
    )


# Factors between an answer and the right number that come from one mistake, and what they separate.
_SLIPS = (
    (100.0, "a share and its percentage"),
    (1e3, "a unit and a thousand of it"),
    (1e6, "a unit and a million of it"),
    (1e9, "a unit and a billion of it"),
    (1024.0, "a KiB and a byte, or a MiB and a KiB"),
)


def _describe_mistake(question: Question, answer: str | float) -> str:
    """Say the right answer, and what is wrong with the learner's, as far as the number shows it."""
    right = question.answer
    if isinstance(answer, str) or isinstance(right, str):
        return f'no: "{right}"; your answer was "{answer}"'
    return f"no: {words.number(right)}; your answer was {words.number(answer)}, {_describe_slip(answer, right)}"


def _describe_slip(answer: float, right: float) -> str:
    if right == 0:
        return f"off by {words.number(abs(answer))}"
    if answer == -right:
        return "which has the wrong sign"
    if answer > 0 and right > 0:
        # A slip within 1% of a known factor is named. Other wrong answers get no guess, which would mislead.
        if right != 1 and abs(answer * right - 1) < 0.01:
            return "which is its inverse: what is divided by what?"
        for factor, separated in _SLIPS:
            for ratio in (answer / right, right / answer):
                if abs(ratio / factor - 1) < 0.01:
                    return f"off by a factor of {words.number(factor)}, as are {separated}"
    difference = answer - right
    if abs(difference) == 1 and float(right).is_integer():
        return f"one too {'many' if difference > 0 else 'few'}: what is at the two ends?"
    return predict.compare(answer, right)


def contestants(name: str) -> dict[str, Kernel]:
    """Return the entries of an exercise by owner: "yours" and "reference", or the reference alone in its own tree."""
    item = registry.find(name)
    entry = registry.load(item).entry
    # In the reference's own tree "yours" would be the same file.
    labels: dict[str, Tree] = {"reference": "expert"}
    if tree() == "phases":
        labels = {"yours": "phases", **labels}
    return {
        label: getattr(
            registry.import_file(item.submission(owner_tree), f"notebook_{label}_{name}", listed=False), entry
        )
        for label, owner_tree in labels.items()
    }


def ladder(name: str) -> dict[str, LadderStep]:
    """Return the steps of an exercise's ladder by name, in order. Each is called like the kernel that it holds.

    They can be counted and timed before a pass; `steps` prints them.
    """
    return read_ladder(registry.find(name))


def steps(name: str, *, peek: bool = False) -> None:
    """Print an exercise's ladder: the first step whole, and of each further step what differs from the step before.

    The steps lead to the answer, so a learner who has not passed the exercise sees their titles alone.

    Args:
        peek: Print the steps before a pass.
    """
    item = registry.find(name)
    ladder_steps = list(read_ladder(item).values())
    if not (peek or _is_open(item)):
        titles = ", ".join(step.title for step in ladder_steps)
        print(f"{len(ladder_steps)} steps lead to {name}: {titles}.\n{_after_a_pass(name, peekable=True)}")
        return
    rungs = list(ladders.rungs(ladder_steps))
    unfolded = tree() == "phases"
    cells.put(
        lambda: templates.render("ladder.html", rungs=rungs, unfolded=unfolded),
        lambda console: ladders.write(console, rungs),
    )


def after_pass(name: str) -> None:
    """Stop the cell unless the learner has passed an exercise whose answer the rest of the cell contains."""
    if not _is_open(registry.find(name)):
        raise cells.Stop(_after_a_pass(name))


def _is_open(item: ExerciseRef) -> bool:
    """Return whether answers of an exercise may be shown: after a pass, and in a run with the reference kernels."""
    if tree() == "expert" or os.environ.get(RUN_THROUGH):
        return True
    record = Progress(item.root).records().get(item.path_id)
    return record is not None and record.passed is not None


def _after_a_pass(name: str, peekable: bool = False) -> str:
    peek = f", or: notebook.steps({name!r}, peek=True)" if peekable else ""
    return f"This cell shows more after you have passed {name}. Do: kp check {name}, and run the cell again{peek}"


def started(kernels: Mapping[str, Kernel], *arguments: Any) -> dict[str, Kernel]:
    """Return the kernels that do not raise NotImplementedError, and print the names of the others."""
    started_kernels = {}
    for label, kernel in kernels.items():
        try:
            kernel(*arguments)
            started_kernels[label] = kernel
        except NotImplementedError:
            print(f"{label}: not started")
    return started_kernels


def show(rows: Mapping[str, Mapping[str, Any]], head: str = "") -> None:
    """Show a table with a row for each label and a column for each key; floats have three digits."""
    columns = list(dict.fromkeys(key for row in rows.values() for key in row))
    texts = {str(label): [_cell(row.get(column)) for column in columns] for label, row in rows.items()}

    def write(console: Console) -> None:
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column(head)
        for column in columns:
            table.add_column(column, justify="right")
        for label, row in texts.items():
            table.add_row(label, *row)
        console.print(table)

    cells.put(lambda: templates.render("table.html", head=head, columns=columns, rows=texts.items()), write)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return words.number(value, 3) if isinstance(value, (int, float)) else str(value)


def pipeline(kernel: Kernel, *arguments: Any) -> None:
    """Show the pipeline of a call's heaviest launch: what the warps of its first block copy, wait for and multiply.

    The table gives the number and the duration of their waits, barrier by barrier, in steps of the PTX machine, not in
    time.
    """
    # Recording events slows a launch down, so it is on only here.
    with simt.recorded():
        call_launches = launches(kernel, *arguments)
    # A call may launch small kernels as well, such as one that fills a buffer.
    heaviest = max(call_launches, key=lambda launch: launch.totals.warp_instructions)
    file = Path(heaviest.file)
    source = (
        source_text(file) if file.is_file() else ""
    )  # without the source of a cell, mbarriers have numbers instead of names
    chart = pipelines.chart(barriers.rename_barriers(heaviest.events, heaviest.barriers, source))
    if not cells.shell():
        return console().print(pipelines.text(chart))
    cells.picture(pipeline_picture.draw(chart, heaviest.kernel))
    cells.put(
        lambda: templates.render("table.html", head="waits", columns=pipelines.HEADINGS, rows=pipelines.rows(chart)),
        lambda console: console.print(pipelines.waits(chart)),
    )


def times(key: str, race: Callable[[], Mapping[str, Callable[[], Any]]]) -> dict[str, float]:
    """Return the median seconds of each contestant, interleaved with a cold L2; recorded without a GPU.

    Args:
        race: Creates the tensors and returns the calls by label. Not called without a GPU.
    """
    seconds_by_label: dict[str, float] = on_gpu(key, lambda: seconds(started(race())))
    return seconds_by_label
