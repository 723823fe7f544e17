"""Keep the book: the notebooks as they were executed from top to bottom. The book is generated, never edited."""

from __future__ import annotations

import ast
import base64
import io
import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelpath import words
from kernelpath.show.provenance import format_versions

if TYPE_CHECKING:
    from nbformat import NotebookNode

FOLDER = "book"
GLOSSARY = "notebooks/glossary.md"

# The machine of a cell that ran without a GPU.
NO_GPU = "no GPU"

_METADATA = "kernelpath"

# Functions of kernelpath.show.notebook that read only their arguments and files of the course. All others may run a
# kernel, take a time, or depend on the installed compilers.
SAME_ON_EVERY_MACHINE = frozenset({"ask", "hold", "show", "steps"})

# The names of the modules whose functions `depends_on_machine` knows.
_MODULES = {"answers", "notebook"}

# The folder of installed packages, which differs between machines.
_INSTALLED = re.compile(r"(?<![^\s>])/[^\s<>]*/site-packages/")

# The palette size of a picture in the book. Plots have few colors, and a palette halves their file size.
COLORS = 256


def clean_executed(
    executed: NotebookNode, gpu: str = "", *, date: str = "", versions: Mapping[str, str] | None = None
) -> NotebookNode:
    """Clean an executed notebook in place for the book: small files, unfolded answers, reproducible outputs.

    The page records what executed it; a cell that ran without a GPU says so.

    Args:
        gpu: The name of the GPU that executed the notebook.
        date: The day of the execution, as 2026-11-28.
        versions: The versions of the packages that it used.
    """
    executed.metadata = {"kernelspec": executed.metadata["kernelspec"], "language_info": {"name": "python"}}
    _set_machine(executed, gpu)
    if gpu and date:
        executed.metadata[_METADATA] |= {"date": date, "versions": dict(versions or {})}
    for cell in executed.cells:
        cell.source = unfold_details(cell.source)
        if cell.cell_type == "code":
            _set_machine(cell, "" if gpu else NO_GPU)
            cell.outputs = _merge_streams(cell.outputs)
            for output in cell.outputs:
                data = output.get("data", {})
                # Warnings name the file that they come from.
                for texts, key in ((output, "text"), (data, "text/plain"), (data, "text/html")):
                    if key in texts:
                        texts[key] = _INSTALLED.sub("", texts[key])
                if "image/png" in data:
                    data["image/png"] = shrink_png(data["image/png"])
    return executed


def machine(page: NotebookNode) -> str:
    """Return the GPU that made a page or a cell, NO_GPU for a cell that ran without one, or "" if unknown."""
    return str(page.metadata.get(_METADATA, {}).get("machine", ""))


def date(page: NotebookNode) -> str:
    """Return the day on which a page was executed, as an ISO date, or "" if unknown."""
    return str(page.metadata.get(_METADATA, {}).get("date", ""))


def provenance(page: NotebookNode) -> str:
    """Describe the machine, day and versions that a page was executed with, or return "" for one without a GPU."""
    record = page.metadata.get(_METADATA, {})
    if not record.get("machine"):
        return ""
    day = f" on {record['date']}" if "date" in record else ""
    versions = f" with {format_versions(record['versions'])}" if record.get("versions") else ""
    return f"Executed on one {record['machine']}{day}{versions}."


def _set_machine(page: NotebookNode, name: str) -> None:
    page.metadata.pop(_METADATA, None)
    if name:
        page.metadata[_METADATA] = {"machine": name}


def keep_gpu_outputs(executed: NotebookNode, previous: NotebookNode) -> int:
    """Copy the outputs that a GPU made of unchanged cells into a page that was executed without a GPU.

    An author who adds a cell on a laptop renews the page without losing the numbers that a laptop cannot measure. Cells
    that are the same on every machine, such as questions, keep their new outputs, since the wording of a question
    changes without a change of its cell. Returns the number of cells that keep their previous outputs.
    """
    gpu = machine(previous)
    if not gpu:
        return 0
    kept_count = 0
    recorded = {
        (cell.get("id", ""), cell.source): cell
        for cell in previous.cells
        if cell.cell_type == "code" and machine(cell) != NO_GPU
    }
    for cell in executed.cells:
        earlier = recorded.get((cell.get("id", ""), cell.source))
        if cell.cell_type == "code" and earlier is not None:
            cell.metadata = earlier.metadata
            if depends_on_machine(cell.source):
                cell.outputs = earlier.outputs
                kept_count += 1
    if kept_count:
        executed.metadata[_METADATA] = previous.metadata[_METADATA]
    return kept_count


def is_question(source: str) -> bool:
    """Return whether a cell shows a question, and nothing that depends on the machine or on another cell."""
    # The first prediction of a page also announces that the page shows its answers, so a prediction is not by itself.
    return "notebook.ask(" in source and "notebook.hold(" not in source and not depends_on_machine(source)


def depends_on_machine(source: str) -> bool:
    """Return whether a cell may show something else on another machine.

    It cannot if its statements only assign and show literals, arithmetic of `kernelpath.show.answers`, and what the
    functions of SAME_ON_EVERY_MACHINE read. A variable of another cell counts as measured.
    """
    try:
        statements = ast.parse(source).body
    except SyntaxError:  # magics, such as %%cuda
        return True
    assigned: set[str] = set()
    for statement in statements:
        if isinstance(statement, ast.Assign):
            targets = list(itertools.chain.from_iterable(map(ast.walk, statement.targets)))
            # The target x[0] would change an x of another cell.
            is_new = not any(isinstance(node, (ast.Attribute, ast.Subscript)) for node in targets)
            variables = {node.id for node in targets if isinstance(node, ast.Name)}
            if not is_new or variables & _MODULES or not _is_same_everywhere(statement.value, assigned):
                return True
            assigned |= variables
        elif not (isinstance(statement, ast.Expr) and _is_same_everywhere(statement.value, assigned)):
            return True
    return False


def _is_same_everywhere(expression: ast.expr, assigned: set[str]) -> bool:
    """Return whether an expression has one value on all machines, as far as its text shows it.

    Args:
        assigned: The variables that have one value on all machines.
    """
    functions = [node.func for node in ast.walk(expression) if isinstance(node, ast.Call)]
    # A name or an attribute outside of these calls could be anything.
    names = [node for node in ast.walk(expression) if isinstance(node, (ast.Name, ast.Attribute))]
    allowed: list[ast.expr] = [node for node in names if isinstance(node, ast.Name) and node.id in assigned]
    for function in functions:
        if not (isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)):
            return False
        module = function.value.id
        if module == "answers" or (module == "notebook" and function.attr in SAME_ON_EVERY_MACHINE):
            allowed += [function, function.value]
    return all(node in allowed for node in names)


def unfold_details(source: str) -> str:
    """Unfold what is folded in a cell's text, since the page shows the answers."""
    return source.replace("<details>", "<details open>")


def _merge_streams(outputs: list[Any]) -> list[Any]:
    """Merge consecutive outputs of one stream, because how a stream is split depends on timing."""
    joined: list[Any] = []
    for output in outputs:
        if output.output_type == "stream" and joined and joined[-1].get("name") == output.name:
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


def shrink_png(picture: str) -> str:
    """Convert a PNG in base64 to a palette on a white background."""
    from PIL import Image

    original = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGBA")
    page = Image.new("RGBA", original.size, "white")
    page.alpha_composite(original)
    file = io.BytesIO()
    page.convert("RGB").quantize(COLORS, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


def cell_sources(notebook: NotebookNode) -> list[tuple[str, str, str]]:
    """Return what a notebook and its executed copy share: the type, the id and the text of each cell."""
    return [(cell.cell_type, cell.get("id", ""), unfold_details(cell.source)) for cell in notebook.cells]


def find_fault(notebook: NotebookNode, executed: NotebookNode) -> str:
    """Return what is wrong with the executed copy of a notebook, as the end of a sentence, or ""."""
    code = [cell for cell in executed.cells if cell.cell_type == "code"]
    if cell_sources(notebook) != cell_sources(executed):
        return "was made from an older version of the notebook"
    if [cell.execution_count for cell in code] != list(range(1, len(code) + 1)):
        return "was not executed from top to bottom"
    if any(output.output_type == "error" for cell in code for output in cell.outputs):
        return "ends in an error"
    return ""


def update_text(notebook: NotebookNode, executed: NotebookNode) -> NotebookNode | None:
    """Give an executed copy the notebook's current text. Return None if the code has changed."""
    outcomes = {cell.get("id", ""): cell for cell in executed.cells if cell.cell_type == "code"}
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if [(cell.get("id", ""), cell.source) for cell in code] != [(key, cell.source) for key, cell in outcomes.items()]:
        return None
    executed.cells = [outcomes.get(cell.get("id", ""), cell) for cell in notebook.cells]
    for cell in executed.cells:
        cell.source = unfold_details(cell.source)
    return executed


def title(notebook: NotebookNode) -> str:
    """Return the heading of a notebook, such as "Week 1 · Threads"."""
    heading = re.search(r"^# (.+)$", notebook.cells[0].source, re.MULTILINE)
    return heading[1].strip() if heading else ""


def executed_notebooks(root: Path) -> list[Path]:
    """Return the executed notebooks of a checkout in the order of the weeks."""
    return sorted(root.glob(f"{FOLDER}/*/week*.ipynb"), key=lambda path: path.name)


@dataclass(frozen=True)
class GlossaryEntry:
    """A term of the glossary and its meaning in Markdown."""

    term: str
    text: str

    @property
    def anchor(self) -> str:
        """Return the anchor of the term in its page, such as "bank-conflict"."""
        return re.sub(r"[^a-z0-9]+", "-", self.term.lower()).strip("-")

    @property
    def initial(self) -> str:
        """Return the first letter of the term, or "#" for a sign or a digit."""
        return self.anchor[0].upper() if self.anchor[:1].isalpha() else "#"


def glossary(root: Path) -> list[GlossaryEntry]:
    """Return the terms in the order of the file, in which each is a heading `## term` above its text.

    Without the file there are no terms.
    """
    file = root / GLOSSARY
    text = words.without_expressions(file.read_text(encoding="utf-8")) if file.is_file() else ""
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    return [
        GlossaryEntry(term.strip(), text.strip()) for term, _, text in (section.partition("\n") for section in sections)
    ]
