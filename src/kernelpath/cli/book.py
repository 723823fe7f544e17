"""Implement `kp book`: the notebooks as web pages."""

from __future__ import annotations

from pathlib import Path

import click

from kernelpath import words
from kernelpath.cli.common import PASSED, Failure, errors, out
from kernelpath.course import places, progress, registry
from kernelpath.show import view
from kernelpath.show.book import FOLDER, executed_notebooks


@click.command("book")
@click.option(
    "--out",
    "to",
    type=click.Path(file_okay=False, path_type=Path),
    help="A folder. [.kernelpath/book; outside of a course folder kernelpath-book]",
)
@click.option("--colab", metavar="OWNER/REPO[@BRANCH]", help="Where the pages will be on GitHub. [BRANCH: gh-pages]")
def book_(to: Path | None, colab: str | None) -> int:
    """Write the book as web pages.

    The notebooks with their outputs, with a syllabus and a glossary. The pages need no network. With --colab, each
    week's page has a link that opens its notebook in Colab; without, it says how to upload the notebook there.
    """
    from kernelpath.show import site
    from kernelpath.show.colab import Address

    root = places.find_course_folder() or Path.cwd()
    course = registry.course()
    if not executed_notebooks(course):
        raise Failure(f"there are no notebooks in {FOLDER}/; python -m kernelpath.show.execute writes them")
    try:
        address = Address.of(colab) if colab else None
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--colab") from error
    default = progress.folder(root) / "book" if places.find_course_folder() else root / "kernelpath-book"
    with errors.status("book") as status:
        index = site.write(course, to or default, address, lambda page: status.update(f"book: {page}"))
    view.step(out, f"open {words.path(index, root)} in a browser")
    return PASSED
