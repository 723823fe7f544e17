"""Run notebooks from top to bottom: `python -m kernelpath.show.execute [NOTEBOOK…]` writes the book.

Notebooks run with the reference kernels, so that the tests see every cell work, and so that the book shows a finished
exercise.
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import kernelpath
import warpcheck
from kernelpath import packages
from kernelpath.course import places
from kernelpath.course.registry import Tree
from kernelpath.show import book, predict

if TYPE_CHECKING:
    from nbformat import NotebookNode


class KernelDied(Exception):
    """A cell of a notebook ended the process of the notebook's kernel."""


def execute(
    path: Path, *, tree: Tree = "expert", through: bool = True, record: Path | None = None, timeout: int = 300
) -> NotebookNode:
    """Run a notebook from top to bottom in a kernel of its own and return it with its outputs.

    Args:
        tree: The tree whose kernels the notebook uses.
        through: Run past open predictions, with their answers. Otherwise the run stops there as it does for a learner.
        record: A JSON file for values that only a GPU can provide.
        timeout: Seconds for one cell.

    Raises:
        nbclient.exceptions.CellExecutionError: The first cell that failed.
        nbclient.exceptions.CellTimeoutError: The first cell that took longer.
        KernelDied: A cell ended the kernel's process.
    """
    import nbformat

    return run(
        nbformat.read(path, as_version=4), path.parent, tree=tree, through=through, record=record, timeout=timeout
    )


def run(
    notebook: NotebookNode,
    folder: Path,
    *,
    tree: Tree = "expert",
    through: bool = True,
    record: Path | None = None,
    timeout: int = 300,
) -> NotebookNode:
    """Run the cells of a notebook in a kernel of its own that starts in `folder`, and return it with its outputs.

    The other arguments are those of `execute`.
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import DeadKernelError
    from traitlets.config import Config

    folders = [str(Path(package.__path__[0]).parent) for package in (kernelpath, warpcheck)]
    search_path = [*folders, os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, search_path)),  # the kernel starts in the notebook's folder
        "KERNELPATH_TREE": tree,
        predict.RUN_THROUGH: "1" if through else "",
    }
    started: list[str] = []

    def note_start(cell: NotebookNode, cell_index: int) -> None:
        started.append(cell.id)

    if record is not None:
        environment["KERNELPATH_RECORD"] = str(record.absolute())
    with tempfile.TemporaryDirectory() as sockets:  # not TCP: two kernels may get the same port
        client = NotebookClient(
            notebook,
            timeout=timeout,
            kernel_name="python3",
            # The times of execution would be in the metadata of every cell, and differ in every run.
            record_timing=False,
            on_cell_start=note_start,
            config=Config(KernelManager={"transport": "ipc", "ip": f"{sockets}/kernel"}),
            resources={"metadata": {"path": str(folder)}},
        )
        try:
            client.execute(env=environment)
        except DeadKernelError as error:  # it names no cell
            raise KernelDied(f"the kernel's process ended in cell {started[-1]}") from error
    return notebook


def renew_questions(notebook: NotebookNode, page: NotebookNode, folder: Path) -> NotebookNode | None:
    """Give an executed copy the notebook's current text and the current wording of its questions.

    Only questions run, and all other cells keep their outputs. Returns None if the code has changed.

    Args:
        folder: The folder of the notebook.
    """
    import nbformat

    if (renewed := book.update_text(notebook, page)) is None:
        return None
    questions = [cell for cell in renewed.cells if cell.cell_type == "code" and book.is_question(cell.source)]
    if questions:
        setup = nbformat.v4.new_code_cell("from kernelpath.show import notebook\n\nnotebook.setup()")
        copies = [nbformat.v4.new_code_cell(cell.source, id=cell["id"]) for cell in questions]
        executed = run(
            nbformat.v4.new_notebook(cells=[setup, *copies], metadata={"kernelspec": notebook.metadata["kernelspec"]}),
            folder,
        )
        cleaned = book.clean_executed(executed)
        for question, copy in zip(questions, cleaned.cells[1:], strict=True):
            question.outputs = copy.outputs
    return renewed


def main(arguments: Sequence[str] | None = None) -> None:
    """Execute notebooks and write those that run to their end into the book, or into another folder.

    Without a GPU, cells whose code has not changed keep the outputs that a GPU made, unless they are the same on every
    machine, such as questions.
    """
    import nbformat
    from nbclient.exceptions import CellExecutionError, CellTimeoutError

    parser = argparse.ArgumentParser(prog="python -m kernelpath.show.execute", description=main.__doc__)
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all of them")
    parser.add_argument(
        "--tree", choices=("phases", "solutions", "expert"), default="expert", help="whose kernels to use"
    )
    parser.add_argument("--into", type=Path, help="write below this folder, each into that of its phase; default: book")
    parser.add_argument("--record", type=Path, help="a JSON file for the results that only a GPU can give")
    partial = parser.add_mutually_exclusive_group()
    partial.add_argument(
        "--texts", action="store_true", help="run nothing: renew the text around code that has not changed"
    )
    partial.add_argument("--questions", action="store_true", help="as --texts, but run the cells that show a question")
    options = parser.parse_args(arguments)
    failed = 0
    gpu = gpu_name()
    for path in options.notebooks or all_notebooks():
        target = (options.into or places.checkout() / book.FOLDER) / path.absolute().parent.name / path.name
        try:
            if options.texts:
                executed = book.update_text(nbformat.read(path, 4), nbformat.read(target, 4))
            elif options.questions:
                executed = renew_questions(nbformat.read(path, 4), nbformat.read(target, 4), path.parent)
            else:
                executed = book.clean_executed(
                    execute(path, tree=options.tree, record=options.record),
                    gpu,
                    date=datetime.date.today().isoformat(),
                    versions=packages.versions(),
                )
        except (CellExecutionError, CellTimeoutError, KernelDied) as error:
            print(f"{path.name}: {error}", file=sys.stderr)
            failed += 1
            continue
        if executed is None:
            print(f"{path.name}: its code has changed; execute it", file=sys.stderr)
            failed += 1
            continue
        if not (gpu or options.texts or options.questions) and target.is_file():
            previous = nbformat.read(target, 4)
            if unchanged := book.keep_gpu_outputs(executed, previous):
                renewed = sum(cell.cell_type == "code" for cell in executed.cells) - unchanged
                gpu_machine = book.machine(previous)
                print(
                    f"{path.name}: there is no GPU here, so {unchanged} unchanged cells keep what {gpu_machine} "
                    f"showed, and {renewed} show what this machine does"
                )
        target.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(executed, target)
        print(f"{path.name}: {len(executed.cells)} cells, {target.stat().st_size / 1e6:.1f} MB", flush=True)
    sys.exit(1 if failed else 0)


def gpu_name() -> str:
    """Return the name of the GPU that cells run on, or ""."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else ""


def all_notebooks() -> Iterable[Path]:
    """Return every notebook of the checkout in the order of the weeks."""
    return sorted(places.checkout().glob("notebooks/*/week*.ipynb"), key=lambda path: path.name)


if __name__ == "__main__":
    main()
