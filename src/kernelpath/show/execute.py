"""Run notebooks from top to bottom: `python -m kernelpath.show.execute [NOTEBOOK…]` writes the book.

Notebooks run with the reference kernels, so that the tests see every cell work, and so that the book shows a finished
exercise.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import kernelpath
import warpcheck
from kernelpath import packages
from kernelpath.course import places, registry
from kernelpath.course.registry import Tree
from kernelpath.show import book, graded, predict, results
from kernelpath.verdict import Report

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
    reports: Path | None = None,
    timeout: int = 300,
) -> NotebookNode:
    """Run the cells of a notebook in a kernel of its own that starts in `folder`, and return it with its outputs.

    Args:
        reports: A folder with reports of `graded.save_report`, which are shown instead of graded again.

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
    if reports is not None:
        environment[graded.REPORTS_VARIABLE] = str(reports.absolute())
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
    if (renewed := book.update_text(notebook, page)) is not None:
        _renew_outputs(renewed, [cell for cell in _code(renewed) if book.is_question(cell.source)], folder)
    return renewed


# A cell that shows the report of an exercise, and does nothing else.
_CHECK = re.compile(r"""(?:\w+ = )?notebook\.check\(["'](\w+)["']\)""")


def renew_reports(notebook: NotebookNode, page: NotebookNode, folder: Path) -> NotebookNode | None:
    """Give an executed copy the notebook's current text, and show its reports with the current lessons.

    The reports are those in results/ of the reference kernels on the GPU that made the page. Nothing is graded or
    measured. All other cells keep their outputs, as do cells of exercises whose report is missing or older than the
    page. Returns None if the code has changed.

    Args:
        folder: The folder of the notebook.
    """
    if (renewed := book.update_text(notebook, page)) is None:
        return None
    published = _published_reports(book.machine(page), since=book.date(page))
    with tempfile.TemporaryDirectory() as reports:
        cells = []
        for cell in _code(renewed):
            if match := _CHECK.fullmatch(cell.source.strip()):
                item = registry.find(match[1])
                if report := published.get(item.path_id):
                    graded.save_report(item, report, Path(reports))
                    cells.append(cell)
                else:
                    print(
                        f"{item.name}: results/ has no report on {book.machine(page)} as new as the page, so its cell "
                        "stays as it is"
                    )
        _renew_outputs(renewed, cells, folder, reports=Path(reports))
    return renewed


def _published_reports(gpu: str, since: str) -> dict[str, Report]:
    """Return the reports in results/ on a GPU that are not older than an ISO date, by exercise."""
    return {
        report.exercise: report
        for machine in results.machines(registry.root())
        if machine.gpu == gpu
        for report in machine.reports
        if machine.report_dates.get(report.exercise, "") >= since
    }


def _renew_outputs(
    page: NotebookNode, cells: Sequence[NotebookNode], folder: Path, reports: Path | None = None
) -> None:
    """Run cells that need nothing but `notebook`, and replace their outputs."""
    import nbformat

    if not cells:
        return
    setup = nbformat.v4.new_code_cell("from kernelpath.show import notebook\n\nnotebook.setup()")
    copies = [nbformat.v4.new_code_cell(cell.source, id=cell["id"]) for cell in cells]
    executed = run(
        nbformat.v4.new_notebook(cells=[setup, *copies], metadata={"kernelspec": page.metadata["kernelspec"]}),
        folder,
        reports=reports,
    )
    for cell, copy in zip(cells, book.clean_executed(executed).cells[1:], strict=True):
        cell.outputs = copy.outputs


def execute_cells(
    notebook: NotebookNode, page: NotebookNode, folder: Path, patterns: Sequence[str], *, tree: Tree = "expert"
) -> NotebookNode | None:
    """Run some cells of a notebook without the rest, and add those that are new or changed to its executed copy.

    The cells run in the notebook's order in a kernel of its own, so they have to include the cells whose names they
    use. A cell among them that has not changed keeps the outputs that a GPU made, and all other cells keep theirs.
    Returns None if the code of another cell has changed.

    Args:
        folder: The folder of the notebook.
        patterns: The ids of the cells, where * stands for any characters.
        tree: The tree whose kernels the cells use.
    """
    import nbformat

    chosen = [cell for cell in _code(notebook) if any(fnmatchcase(cell["id"], pattern) for pattern in patterns)]
    previous = {(cell["id"], cell.source): cell for cell in _code(page)}
    if any((cell["id"], cell.source) not in previous for cell in _code(notebook) if cell not in chosen):
        return None
    copies = [nbformat.v4.new_code_cell(cell.source, id=cell["id"]) for cell in chosen]
    executed = run(
        nbformat.v4.new_notebook(cells=copies, metadata={"kernelspec": notebook.metadata["kernelspec"]}),
        folder,
        tree=tree,
    )
    outcomes = {cell["id"]: cell for cell in book.clean_executed(executed, gpu_name()).cells}
    previous = {
        key: cell for key, cell in previous.items() if key[0] not in outcomes or book.machine(cell) != book.NO_GPU
    }
    page.cells = [
        previous.get((cell["id"], cell.source), outcomes.get(cell["id"], cell)) if cell.cell_type == "code" else cell
        for cell in notebook.cells
    ]
    for cell in page.cells:
        cell.source = book.unfold_details(cell.source)
    for place, cell in enumerate(_code(page), start=1):
        cell.execution_count = place
    return page


def _code(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


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
    partial.add_argument(
        "--reports", action="store_true", help="as --texts, but show the reports in results/ with the current lessons"
    )
    partial.add_argument(
        "--cells",
        metavar="ID",
        nargs="+",
        help="run only these cells, such as 'intro-01' 'tiles-*', and add those that are new or changed to the page",
    )
    options = parser.parse_args(arguments)
    failed = 0
    gpu = gpu_name()
    is_complete = not (options.texts or options.questions or options.reports or options.cells)
    for path in options.notebooks or all_notebooks():
        target = (options.into or places.checkout() / book.FOLDER) / path.absolute().parent.name / path.name
        try:
            if options.texts:
                executed = book.update_text(nbformat.read(path, 4), nbformat.read(target, 4))
            elif options.questions:
                executed = renew_questions(nbformat.read(path, 4), nbformat.read(target, 4), path.parent)
            elif options.reports:
                executed = renew_reports(nbformat.read(path, 4), nbformat.read(target, 4), path.parent)
            elif options.cells:
                page = nbformat.read(target, 4)
                if gpu and gpu != book.machine(page):
                    parser.error(f"{path.name} was executed on {book.machine(page)}; execute the whole page on {gpu}")
                executed = execute_cells(nbformat.read(path, 4), page, path.parent, options.cells, tree=options.tree)
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
        if is_complete and not gpu and target.is_file():
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
