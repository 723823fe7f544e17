"""Read notebooks: their cells, the outputs of the cells, and their measurements."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat

from kernelpath.show import execute

NOTEBOOKS = list(execute.all_notebooks())

# The keys of measurements without a recording in results/notebooks.json. Remove a key when its recording is added.
OUTSTANDING: set[str] = set()

_MEASUREMENT = re.compile(r"notebook\.(?:on_gpu|times)\(\s*\"([^\"]+)\"")


def read(path: Path) -> nbformat.NotebookNode:
    """Return the notebook in a file."""
    notebook: nbformat.NotebookNode = nbformat.read(path, as_version=4)
    return notebook


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """Return the cells of a notebook that hold code."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def text_of(cell: nbformat.NotebookNode) -> str:
    """Return all text that a code cell printed."""
    outputs = (output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs)
    return "\n".join(outputs)


def count_images(notebook: nbformat.NotebookNode) -> int:
    """Count the PNG pictures among the outputs."""
    return sum("image/png" in output.get("data", {}) for cell in code_cells(notebook) for output in cell.outputs)


def measurement(cell: nbformat.NotebookNode) -> str:
    """Return the key under which results/notebooks.json has the measurement of a cell; "" if it measures nothing."""
    match = _MEASUREMENT.search(cell.source)
    return match[1] if match else ""
