"""next, list, hint, reset and progress: answered at once, without torch."""

from __future__ import annotations

import dataclasses

import click
from rich.text import Text

from kernelpath import words
from kernelpath.cli import record
from kernelpath.cli.common import PASSED, Failure, name_argument, out, warn
from kernelpath.course import lesson, registry
from kernelpath.course.progress import Progress
from kernelpath.course.registry import Item
from kernelpath.files import write_atomically
from kernelpath.show import overview, view


@click.command("next")
def next_() -> int:
    """Show what to read, edit and type next."""
    return show_next()


def show_next() -> int:
    """What `kp` does without a verb."""
    items = registry.exercises()
    item = record.next_item()
    if item is None:
        out.print(f"All {len(items)} exercises are passed.")
        view.step(out, "kp progress")
        return PASSED
    out.print(Text.assemble((item.name, "bold"), f"  {item.title}"))
    place = f"exercise {items.index(item) + 1} of {len(items)}"
    out.print(Text(f"week {item.week}, {view.LANES[item.lane]}, {place}\n", "dim"))
    if item.notebook is not None:
        out.print(f"read  {words.path(item.notebook, item.root)}", soft_wrap=True)
    for position, path in enumerate(item.files("phases")):
        out.print(f"{'' if position else 'edit':6s}{words.path(path, item.root)}", soft_wrap=True)
    view.step(out, f"kp watch {item.name}")
    return PASSED


@click.command("list")
def list_() -> int:
    """List all exercises in syllabus order."""
    overview.syllabus(out, record.records())
    return PASSED


@click.command()
@name_argument
@click.argument("level", type=click.IntRange(1, 3), required=False)
def hint(item: Item, level: int | None) -> int:
    """Show a hint.

    The next one that you have not seen, or the one of LEVEL 1, 2 or 3. After a pass they are not counted.
    """
    hints = lesson.read(item.lesson).hints
    known = dict(record.records())[item]
    level = level or min(known.hints + 1, len(hints))
    out.print(Text.assemble((f"hint {level} of {len(hints)}: ", "bold"), hints[level - 1]))
    if known.passed:
        view.step(out, f"kp hint {item.name} {level + 1}" if level < len(hints) else f"kp solution {item.name}")
        return PASSED
    if level > known.hints:
        record.save(item, lambda before: dataclasses.replace(before, hints=level))
    view.step(out, f"kp watch {item.name}")
    return PASSED


@click.command()
@name_argument
def reset(item: Item) -> int:
    """Put the stub back; your files are kept."""
    from kernelpath.course import stubs

    texts = stubs.pristine(item)
    if all(path.is_file() and path.read_bytes() == text.encode() for path, text in texts.items()):
        out.print(f"{item.name} is the stub already")
        view.step(out, f"kp watch {item.name}")
        return PASSED
    try:
        kept = stubs.keep(item)
        for path, text in texts.items():
            write_atomically(path, text)
    except OSError as error:
        raise Failure(f"{item.name} is not reset: {error.strerror}: {error.filename}; make it writable") from error
    if kept is not None:
        out.print(f"your files are kept in {words.path(kept, item.root)}")
    out.print(f"{item.name} is the stub again")
    view.step(out, f"kp watch {item.name}")
    return PASSED


@click.command("progress")
def progress_() -> int:
    """Show what is passed, with stars and times."""
    overview.progress(out, record.records(), Progress(registry.root(), warn).scores())
    item = record.next_item()
    view.step(out, f"kp watch {item.name}" if item else "kp report")
    return PASSED
