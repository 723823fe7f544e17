"""book: the notebooks as web pages."""

from __future__ import annotations

from pathlib import Path

import click

from kernelpath import words
from kernelpath.cli.common import PASSED, Failure, out
from kernelpath.course import progress, registry
from kernelpath.show import view
from kernelpath.show.book import FOLDER, copies


@click.command("book")
@click.option("--out", "to", type=click.Path(file_okay=False, path_type=Path), help="A folder. [.kernelpath/book]")
def book_(to: Path | None) -> int:
    """Write the book as web pages.

    The notebooks with their outputs, with a syllabus and a glossary. The pages need no network.
    """
    from kernelpath.show import site

    root, course = registry.root(), registry.course()
    if not copies(course):
        raise Failure(f"there are no notebooks in {FOLDER}/; python -m kernelpath.show.execute writes them")
    index = site.write(course, to or progress.folder(root) / "book")
    view.step(out, f"open {words.path(index, root)} in a browser")
    return PASSED
