"""The book: the notebooks as they were executed from top to bottom, to be read. Generated, never edited."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbformat import NotebookNode

FOLDER = "book"
GLOSSARY = "notebooks/glossary.md"

NO_GPU = "no GPU"
"""The machine of a cell that ran without a GPU."""

_METADATA = "kernelpath"

COLORS = 256
"""Of a picture in the book: drawn figures have few, and a palette halves their size."""


def finished(executed: NotebookNode, gpu: str = "") -> NotebookNode:
    """A notebook that has run, in place, as the book keeps it: small, open, and the same after each run.

    gpu: the name of the one that it ran on, which the page and each of its cells of code say.
    """
    executed.metadata = {"kernelspec": executed.metadata["kernelspec"], "language_info": {"name": "python"}}
    _set_machine(executed, gpu)
    for cell in executed.cells:
        cell.source = opened(cell.source)
        if cell.cell_type == "code":
            _set_machine(cell, "" if gpu else NO_GPU)
            cell.outputs = _joined(cell.outputs)
            for output in cell.outputs:
                data = output.get("data", {})
                if "image/png" in data:
                    data["image/png"] = smaller(data["image/png"])
    return executed


def machine(page: NotebookNode) -> str:
    """The GPU that made a page or a cell: NO_GPU for a cell that ran without one, empty where nothing is said."""
    return str(page.metadata.get(_METADATA, {}).get("machine", ""))


def _set_machine(page: NotebookNode, name: str) -> None:
    page.metadata.pop(_METADATA, None)
    if name:
        page.metadata[_METADATA] = {"machine": name}


def keep_gpu_outputs(executed: NotebookNode, before: NotebookNode) -> int:
    """Put the outputs that a GPU made of unchanged cells into a page that was executed without one, in place.

    Whoever adds a cell on a laptop renews the page, and not the numbers that a laptop cannot measure. Returns how many
    cells keep their outputs.
    """
    gpu = machine(before)
    if not gpu:
        return 0
    kept = 0
    recorded = {
        (cell.get("id", ""), cell.source): cell
        for cell in before.cells
        if cell.cell_type == "code" and machine(cell) != NO_GPU
    }
    for cell in executed.cells:
        earlier = recorded.get((cell.get("id", ""), cell.source))
        if cell.cell_type == "code" and earlier is not None:
            cell.outputs = earlier.outputs
            cell.metadata = earlier.metadata
            kept += 1
    if kept:
        _set_machine(executed, gpu)
    return kept


def opened(source: str) -> str:
    """A cell's text with what stands folded in it unfolded, since the answers are on the page."""
    return source.replace("<details>", "<details open>")


def _joined(outputs: list[Any]) -> list[Any]:
    """Outputs in which what one stream wrote in pieces is one piece: the pieces depend on time."""
    joined: list[Any] = []
    for output in outputs:
        if output.output_type == "stream" and joined and joined[-1].get("name") == output.name:
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


def smaller(picture: str) -> str:
    """A PNG with a palette and on white, from and as base64."""
    from PIL import Image

    given = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGBA")
    page = Image.new("RGBA", given.size, "white")
    page.alpha_composite(given)
    file = io.BytesIO()
    page.convert("RGB").quantize(COLORS, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


def sources(notebook: NotebookNode) -> list[tuple[str, str, str]]:
    """What a notebook and its executed copy have in common: the kind, the id and the text of each cell."""
    return [(cell.cell_type, cell.get("id", ""), opened(cell.source)) for cell in notebook.cells]


def fault(notebook: NotebookNode, executed: NotebookNode) -> str:
    """What is wrong with the executed copy of a notebook, as the end of a sentence; empty if nothing is."""
    code = [cell for cell in executed.cells if cell.cell_type == "code"]
    if sources(notebook) != sources(executed):
        return "was made from an older version of the notebook"
    if [cell.execution_count for cell in code] != list(range(1, len(code) + 1)):
        return "was not executed from top to bottom"
    if any(output.output_type == "error" for cell in code for output in cell.outputs):
        return "ends in an error"
    return ""


def retold(notebook: NotebookNode, executed: NotebookNode) -> NotebookNode | None:
    """The executed copy of a notebook with the notebook's text of today; None if its code is another."""
    outcomes = {cell.get("id", ""): cell for cell in executed.cells if cell.cell_type == "code"}
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if [(cell.get("id", ""), cell.source) for cell in code] != [(key, cell.source) for key, cell in outcomes.items()]:
        return None
    executed.cells = [outcomes.get(cell.get("id", ""), cell) for cell in notebook.cells]
    for cell in executed.cells:
        cell.source = opened(cell.source)
    return executed


def title(notebook: NotebookNode) -> str:
    """The heading of a notebook: "Week 1 · Threads"."""
    found = re.search(r"^# (.+)$", notebook.cells[0].source, re.MULTILINE)
    return found[1].strip() if found else ""


def copies(root: Path) -> list[Path]:
    """The executed notebooks of a checkout, in the order of the weeks."""
    return sorted(root.glob(f"{FOLDER}/*/week*.ipynb"), key=lambda path: path.name)


@dataclass(frozen=True)
class Entry:
    """A term of the glossary and what it means, in Markdown."""

    term: str
    text: str

    @property
    def anchor(self) -> str:
        """Its place in a page: "bank-conflict"."""
        return re.sub(r"[^a-z0-9]+", "-", self.term.lower()).strip("-")

    @property
    def initial(self) -> str:
        """Its first letter; "#" for a sign or a digit."""
        return self.anchor[0].upper() if self.anchor[:1].isalpha() else "#"


def glossary(root: Path) -> list[Entry]:
    """The terms in the order of the file: each is a heading `## term` and the text below it. None without the file."""
    file = root / GLOSSARY
    sections = re.split(r"^## ", file.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:] if file.is_file() else []
    return [Entry(term.strip(), text.strip()) for term, _, text in (section.partition("\n") for section in sections)]
