"""Run every notebook from top to bottom without a GPU, with the recordings in results/notebooks.json.

A measurement without a recording is listed in OUTSTANDING, and its cell runs with the empty dictionary that `on_gpu`
returns for it; test_recording.py tests `on_gpu`.

Jupyter kernels are forked from a process that has imported the packages of the notebooks; see kernel_fork.py.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from kernelpath.course import registry
from kernelpath.show import execute, graded
from kernelpath.verdict import Verdict
from tests import kernel_fork, selection
from tests.conftest import Solutions, is_gone
from tests.notebooks import NOTEBOOKS, OUTSTANDING, code_cells, count_images, measurement, read, text_of
from tests.waiting import happens


@pytest.fixture(scope="session")
def forked_kernels() -> Iterator[Path]:
    """Yield a folder for JUPYTER_PATH with the specification of the forked kernel."""
    with tempfile.TemporaryDirectory() as folder, kernel_fork.install(Path(folder)) as path:
        yield path


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the parts of the checkout that a notebook may use."""
    folder = tmp_path_factory.mktemp("course")
    for name in ("checks", "phases", "solutions", "results/traces"):
        shutil.copytree(registry.root() / name, folder / name)
    shutil.copy(registry.root() / "results" / "notebooks.json", folder / "results")
    return folder


def run_without_gpu(
    path: Path,
    course: Path,
    solutions: Solutions,
    forked_kernels: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> nbformat.NotebookNode:
    """Run a notebook in a Jupyter kernel of its own and return it with its outputs.

    Its gradings reuse the reports of `solutions`, which grades each exercise once per test run.
    """
    copy = course / path.relative_to(registry.root())
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, copy)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("JUPYTER_PATH", str(forked_kernels))
    monkeypatch.setenv(graded.REPORTS_VARIABLE, str(solutions.folder))
    with pytest.raises(SystemExit) as exit_error:
        execute.main([str(copy), "--into", str(course / "executed")])
    assert exit_error.value.code == 0, capsys.readouterr().err
    return read(course / "executed" / path.parent.name / path.name)


def weekly_unless_sentinel(path: Path) -> Any:
    """Return the notebook as a parameter that is marked `weekly`, unless every run executes it."""
    marks = [] if path.stem in selection.SENTINEL_NOTEBOOKS else [pytest.mark.weekly]
    return pytest.param(path, id=path.stem, marks=marks)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", [weekly_unless_sentinel(path) for path in NOTEBOOKS])
def test_runs_without_a_gpu_and_every_solution_passes(
    path: Path,
    course: Path,
    solutions: Solutions,
    forked_kernels: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if path.stem in selection.SENTINEL_NOTEBOOKS:
        solutions = solutions.in_few_cases()
    exercises = [item for item in registry.exercises() if item.notebook == path]
    for item in exercises:
        solutions.report(item)
    cells = code_cells(notebook := run_without_gpu(path, course, solutions, forked_kernels, monkeypatch, capsys))
    checks = [text_of(cell) for cell in cells if "notebook.check(" in cell.source]
    verdicts = [set(re.findall("|".join(Verdict), text)) for text in checks]
    assert verdicts == [{Verdict.PASSED.value}] * len(exercises)
    assert count_images(notebook) >= 3
    without_recording = {measurement(cell) for cell in cells if "nothing to show" in text_of(cell)}
    assert without_recording == OUTSTANDING & {measurement(cell) for cell in cells}


PROCESS = """
import gc, json, os, signal, sys, threading
print(json.dumps({
    "path": sys.path, "folder": os.getcwd(),
    "backend": os.environ["MPLBACKEND"], "variable": os.environ["KERNELPATH_X"],
    "child signal": signal.getsignal(signal.SIGCHLD), "collects": gc.isenabled(), "module": __name__,
    "package": __import__("kernelpath").__file__,
}))
"""


@contextmanager
def running_kernel(folder: Path) -> Iterator[tuple[KernelManager, BlockingKernelClient]]:
    """Start the kernel `python3` in a folder with a short path, which has its sockets, and kill it at the end."""
    manager = KernelManager(kernel_name="python3", transport="ipc", ip=str(folder / "kernel"))
    manager.start_kernel(cwd=str(folder))
    client: BlockingKernelClient = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=120)
        yield manager, client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def execute_and_read(client: BlockingKernelClient, code: str) -> str:
    """Execute code in a kernel and return what it prints first."""
    client.execute(code)
    while (message := client.get_iopub_msg(timeout=120))["msg_type"] != "stream":
        assert message["msg_type"] != "error", message["content"]
    text: str = message["content"]["text"]
    return text


def test_a_forked_kernel_behaves_like_a_started_kernel(
    forked_kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELPATH_X", "set by the test")
    processes = []
    for specifications in (forked_kernels, tmp_path):
        monkeypatch.setenv("JUPYTER_PATH", str(specifications))
        with running_kernel(forked_kernels) as (_, client):
            processes.append(json.loads(execute_and_read(client, PROCESS)))
    forked, started = processes
    assert {*forked.pop("path")} - {*started.pop("path")} <= {str(registry.root() / "src")}
    assert forked == started


def test_a_forked_kernel_is_interrupted_and_killed_with_its_launcher(
    forked_kernels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_PATH", str(forked_kernels))
    with running_kernel(forked_kernels) as (manager, client):
        pid = int(
            execute_and_read(client, "import os, time\nprint(os.getpid(), flush=True)\nwhile True: time.sleep(0.01)")
        )
        manager.interrupt_kernel()
        while (reply := client.get_shell_msg(timeout=120))["msg_type"] != "execute_reply":
            pass
        assert reply["content"]["ename"] == "KeyboardInterrupt"
        assert not is_gone(pid)
    assert happens(lambda: is_gone(pid))


def test_a_cell_that_ends_its_process_is_reported_and_the_next_notebook_runs(
    tmp_path: Path, forked_kernels: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JUPYTER_PATH", str(forked_kernels))
    paths = [tmp_path / "course" / f"{name}.ipynb" for name in ("ends", "runs")]
    paths[0].parent.mkdir()
    for path, source in zip(paths, ("import os; os._exit(3)", "6 * 7"), strict=True):
        cells = [nbformat.v4.new_code_cell("1 + 1", id="first"), nbformat.v4.new_code_cell(source, id="second")]
        kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
        nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), path)
    with pytest.raises(SystemExit) as exit_error:
        execute.main([*map(str, paths), "--into", str(tmp_path / "executed")])
    assert exit_error.value.code == 1
    assert "ends.ipynb: the kernel's process ended in cell second" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "executed/course").iterdir()] == ["runs.ipynb"]
