"""What a notebook's cell shows: HTML in Jupyter, the same as text everywhere else."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from matplotlib.figure import Figure
from rich.console import Console

from kernelpath.show import templates
from kernelpath.verdict import Report

WIDTH = 110
"""Columns of the text."""


class Stop(Exception):
    """Ends a cell, and a run of all cells with it. In Jupyter its message is printed and no traceback."""


def console() -> Console:
    """Of text that stands for itself."""
    return Console(width=WIDTH)


def shell() -> Any:
    """The IPython shell of a Jupyter kernel, or None: in a terminal and in plain Python there is only text."""
    from IPython.core.getipython import get_ipython

    found = get_ipython()
    return found if hasattr(found, "kernel") else None


def setup() -> None:
    """Prepare the Jupyter kernel, where there is one, for what this module shows: its styles, figures, `Stop`."""
    from IPython.core.pylabtools import select_figure_formats

    if jupyter := shell():
        select_figure_formats(jupyter, {"retina"})  # type: ignore[no-untyped-call]
        jupyter.set_custom_exc((Stop,), lambda shell, kind, stop, trace, tb_offset=None: print(stop))
        text = jupyter.display_formatter.formatters["text/plain"]
        text.for_type(Report, lambda report, printer, cycle: printer.text(summary(report)))
        _publish(templates.render("styles.html"), "")


def summary(report: Report) -> str:
    """What a cell shows whose value is a report: `notebook.check` has shown the rest."""
    return f"{report.exercise}: {report.verdict.value}"


def put(html: Callable[[], str], write: Callable[[Console], None]) -> None:
    """Show what `html` returns in Jupyter, with what `write` prints as its text, and only that elsewhere."""
    if not shell():
        return write(console())
    text = Console(width=WIDTH, file=io.StringIO(), force_jupyter=False)
    write(text)
    _publish(html(), text.file.getvalue())  # type: ignore[attr-defined]


def _publish(html: str, text: str) -> None:
    from IPython.display import display

    display({"text/html": html, "text/plain": text}, raw=True)  # type: ignore[no-untyped-call]


def picture(figure: Figure) -> None:
    """Show a figure that is not the value of the cell's last expression. Plain Python has no place for it."""
    if shell():
        from IPython.display import display

        display(figure)  # type: ignore[no-untyped-call]
