"""Invariants of the notebooks, the book and the glossary; `invariants` has those of everything else."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kernelpath.show import book, endings, results

if TYPE_CHECKING:
    from nbformat import NotebookNode

FOLDED = "<details><summary>After your prediction</summary>\n\n"
"""How a text begins that gives away what was to be predicted."""

_NOTHING_TOLD = ("#", "**Predict.**", FOLDED)
_EXECUTE = "python -m kernelpath.show.execute"


def notebooks_have_no_outputs(root: Path) -> Iterator[str]:
    """No notebook shows what the learner should predict: outputs are in the book."""
    for path, notebook in _notebooks(root):
        cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
        if any(cell.outputs or cell.execution_count is not None for cell in cells):
            yield f"{path.relative_to(root)} has outputs; clear them all (kernelpath.show.execute writes the book)"


def answers_are_withheld(root: Path) -> Iterator[str]:
    """The text after a prediction is folded, or gives nothing away: it is a heading or the next prediction."""
    for path, notebook in _notebooks(root):
        held = False
        for cell in notebook.cells:
            if cell.cell_type == "code":
                held = held or "notebook.hold(" in cell.source
                continue
            if held and not cell.source.startswith(_NOTHING_TOLD):
                begun = cell.source.splitlines()[0][:40] if cell.source else ""
                yield f'{path.relative_to(root)}: "{begun}…" follows a prediction; fold its answer: {FOLDED.strip()}'
            held = False


def the_book_is_current(root: Path) -> Iterator[str]:
    """If there is a book, it has the current version of every notebook, executed to its end, and the endings."""
    import nbformat

    folder = root / book.FOLDER
    if not folder.is_dir():
        return
    notebooks = dict(_notebooks(root))
    for path, notebook in notebooks.items():
        name = path.relative_to(root / "notebooks")
        executed = folder / name
        told = "is missing"
        if executed.is_file():
            told = book.find_fault(notebook, nbformat.read(executed, as_version=4))
        if told:
            yield f"{executed.relative_to(root)} {told}; {_EXECUTE} {path.relative_to(root)}"
        elif lost := _lost(root, name, nbformat.read(executed, as_version=4)):
            yield f"{executed.relative_to(root)} {lost}"
    wanted = {root / endings.FILE, *(folder / path.relative_to(root / "notebooks") for path in notebooks)}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path not in wanted and ".ipynb_checkpoints" not in path.parts:
            yield f"{path.relative_to(root)} belongs to no notebook; remove it"


def _lost(root: Path, name: Path, page: NotebookNode) -> str:
    """What a page lacks that must show what a GPU did, as results/ says of its week; empty if nothing."""
    week = name.stem.partition("_")[0]
    recorded = results.recordings(root / results.FOLDER / results.RECORDINGS)
    gpus = sorted({one.device for key, one in recorded.items() if key.startswith(f"{week}/")})
    if not gpus or book.machine(page) in gpus:
        return ""
    shows = book.machine(page) or "no GPU"
    restore = f"git checkout -- {book.FOLDER}/{name}, or execute it there: {_EXECUTE} notebooks/{name}"
    return (
        f"was executed with {shows}, and {results.RECORDINGS} has its week's numbers of {' and '.join(gpus)}; {restore}"
    )


def the_glossary_is_in_order(root: Path) -> Iterator[str]:
    """Every term occurs once, in alphabetical order, and is explained."""
    entries = book.glossary(root)
    terms = [entry.term for entry in entries]
    for before, after in itertools.pairwise(terms):
        if before.casefold() >= after.casefold():
            yield f"{book.GLOSSARY}: {after} comes after {before}; list each term once, in order"
    for entry in entries:
        if not entry.text.endswith((".", ")")):
            yield f"{book.GLOSSARY}: {entry.term} is not explained in sentences; write them"


def _notebooks(root: Path) -> Iterator[tuple[Path, NotebookNode]]:
    import nbformat

    for path in sorted(root.glob("notebooks/*/week*.ipynb")):
        try:
            yield path, nbformat.read(path, as_version=4)
        except (OSError, ValueError, AttributeError):  # others say so
            continue
