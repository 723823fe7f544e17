"""Check the notebooks, the book and the glossary; `invariants` checks everything else."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kernelpath.show import book, endings, results

if TYPE_CHECKING:
    from nbformat import NotebookNode

# The beginning of a text that reveals the answer of a prediction.
FOLDED = "<details><summary>After your prediction</summary>\n\n"

_HARMLESS_STARTS = ("#", "**Predict.**", FOLDED)
_EXECUTE = "python -m kernelpath.show.execute"


def notebooks_have_no_outputs(root: Path) -> Iterator[str]:
    """Require that no notebook shows what the learner should predict. Outputs are in the book."""
    for path, notebook in _notebooks(root):
        cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
        if any(cell.outputs or cell.execution_count is not None for cell in cells):
            yield f"{path.relative_to(root)} has outputs; clear them all (kernelpath.show.execute writes the book)"


def answers_are_withheld(root: Path) -> Iterator[str]:
    """Require that the text after a prediction is folded, a heading, or the next prediction."""
    for path, notebook in _notebooks(root):
        has_prediction = False
        for cell in notebook.cells:
            if cell.cell_type == "code":
                has_prediction = has_prediction or "notebook.hold(" in cell.source
                continue
            if has_prediction and not cell.source.startswith(_HARMLESS_STARTS):
                beginning = cell.source.splitlines()[0][:40] if cell.source else ""
                place = f'{path.relative_to(root)}: "{beginning}…"'
                yield f"{place} follows a prediction; fold its answer: {FOLDED.strip()}"
            has_prediction = False


def the_book_is_current(root: Path) -> Iterator[str]:
    """Require that the book, if it exists, has the current notebooks, fully executed, and the endings."""
    import nbformat

    folder = root / book.FOLDER
    if not folder.is_dir():
        return
    notebooks = dict(_notebooks(root))
    for path, notebook in notebooks.items():
        name = path.relative_to(root / "notebooks")
        executed = folder / name
        fault = "is missing"
        if executed.is_file():
            fault = book.find_fault(notebook, nbformat.read(executed, as_version=4))
        if fault:
            yield f"{executed.relative_to(root)} {fault}; {_EXECUTE} {path.relative_to(root)}"
        elif missing := _missing_gpu_outputs(root, name, nbformat.read(executed, as_version=4)):
            yield f"{executed.relative_to(root)} {missing}"
    expected_files = {root / endings.FILE, *(folder / path.relative_to(root / "notebooks") for path in notebooks)}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path not in expected_files and ".ipynb_checkpoints" not in path.parts:
            yield f"{path.relative_to(root)} belongs to no notebook; remove it"


def _missing_gpu_outputs(root: Path, name: Path, page: NotebookNode) -> str:
    """Return what a page lacks whose week has GPU recordings in results/, or ""."""
    week = name.stem.partition("_")[0]
    recorded = results.recordings(root / results.FOLDER / results.RECORDINGS)
    gpus = sorted({recording.device for key, recording in recorded.items() if key.startswith(f"{week}/")})
    if not gpus or book.machine(page) in gpus:
        return ""
    machine = book.machine(page) or "no GPU"
    restore = f"git checkout -- {book.FOLDER}/{name}, or execute it there: {_EXECUTE} notebooks/{name}"
    recordings = f"{results.RECORDINGS} has its week's numbers of {' and '.join(gpus)}"
    return f"was executed with {machine}, and {recordings}; {restore}"


def the_glossary_is_in_order(root: Path) -> Iterator[str]:
    """Require that every term occurs once, in alphabetical order, and is explained."""
    entries = book.glossary(root)
    terms = [entry.term for entry in entries]
    for previous, term in itertools.pairwise(terms):
        if previous.casefold() >= term.casefold():
            yield f"{book.GLOSSARY}: {term} comes after {previous}; list each term once, in order"
    for entry in entries:
        if not entry.text.endswith((".", ")")):
            yield f"{book.GLOSSARY}: {entry.term} is not explained in sentences; write them"


def _notebooks(root: Path) -> Iterator[tuple[Path, NotebookNode]]:
    import nbformat

    for path in sorted(root.glob("notebooks/*/week*.ipynb")):
        try:
            yield path, nbformat.read(path, as_version=4)
        except (OSError, ValueError, AttributeError):  # other invariants report invalid notebooks
            continue
