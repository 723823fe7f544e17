"""Every notebook runs from top to bottom without a GPU, once, with the recordings in results/notebooks.json.

A cell whose measurement has no recording yet is named in OUTSTANDING and runs with the {} that `on_gpu` returns for it;
test_recording.py has the rest of what `on_gpu` does.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import nbformat
import pytest

from kernelpath.course import registry
from kernelpath.show import execute, graded
from kernelpath.verdict import Verdict
from tests.conftest import Solutions
from tests.notebooks import NOTEBOOKS, OUTSTANDING, code_cells, count_images, measurement, read, text_of


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of those parts of the checkout that a notebook may use."""
    folder = tmp_path_factory.mktemp("course")
    for name in ("checks", "phases", "solutions", "results/traces"):
        shutil.copytree(registry.root() / name, folder / name)
    shutil.copy(registry.root() / "results" / "notebooks.json", folder / "results")
    return folder


def run_without_gpu(
    path: Path, course: Path, solutions: Solutions, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> nbformat.NotebookNode:
    """Run a notebook in a Jupyter kernel of its own and return it with its outputs.

    Its gradings reuse the reports of `solutions`, which grades each exercise once per test run.
    """
    copy = course / path.relative_to(registry.root())
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, copy)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv(graded.REPORTS_VARIABLE, str(solutions.folder))
    with pytest.raises(SystemExit) as ended:
        execute.main([str(copy), "--into", str(course / "executed")])
    assert ended.value.code == 0, capsys.readouterr().err
    return read(course / "executed" / path.parent.name / path.name)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_without_a_gpu_and_every_solution_passes(
    path: Path,
    course: Path,
    solutions: Solutions,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    exercises = [item for item in registry.exercises() if item.notebook == path]
    for item in exercises:
        solutions.report(item)
    cells = code_cells(notebook := run_without_gpu(path, course, solutions, monkeypatch, capsys))
    checks = [text_of(cell) for cell in cells if "notebook.check(" in cell.source]
    verdicts = [set(re.findall("|".join(Verdict), text)) for text in checks]
    assert verdicts == [{Verdict.PASSED.value}] * len(exercises)
    assert count_images(notebook) >= 3
    without_recording = {measurement(cell) for cell in cells if "nothing to show" in text_of(cell)}
    assert without_recording == OUTSTANDING & {measurement(cell) for cell in cells}
