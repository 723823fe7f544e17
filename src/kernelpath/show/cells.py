"""Show the output of a notebook's cell: HTML in Jupyter, the same as text everywhere else."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from matplotlib.figure import Figure
from rich.console import Console

from kernelpath.show import templates
from kernelpath.verdict import Report

# The width of the text in columns.
WIDTH = 110


class Stop(Exception):
    """End a cell, and with it a run of all cells. Jupyter prints the message without a traceback."""


def console() -> Console:
    """Return a console for text alone."""
    return Console(width=WIDTH)


def shell() -> Any:
    """Return the IPython shell of a Jupyter kernel, or None in a terminal and in plain Python."""
    from IPython.core.getipython import get_ipython

    ipython = get_ipython()
    return ipython if hasattr(ipython, "kernel") else None


def setup() -> None:
    """Set up the Jupyter kernel, if there is one, with the styles, the figure format and `Stop`."""
    from IPython.core.pylabtools import select_figure_formats

    if jupyter := shell():
        select_figure_formats(jupyter, {"retina"})  # type: ignore[no-untyped-call]
        jupyter.set_custom_exc((Stop,), lambda shell, kind, stop, trace, tb_offset=None: print(stop))
        text = jupyter.display_formatter.formatters["text/plain"]
        text.for_type(Report, lambda report, printer, cycle: printer.text(summary(report)))
        _publish(templates.render("styles.html"), "")


def summary(report: Report) -> str:
    """Return the text of a cell whose value is a report. `notebook.check` has already shown the rest."""
    return f"{report.exercise}: {report.verdict.value}"


def put(html: Callable[[], str], write: Callable[[Console], None]) -> None:
    """Show what `html` returns in Jupyter, with the output of `write` as its text, and only that output elsewhere."""
    if not shell():
        return write(console())
    # In a Jupyter kernel rich would otherwise display the output itself, and write nothing to the file.
    text = Console(width=WIDTH, file=io.StringIO(), force_jupyter=False)
    write(text)
    _publish(html(), text.file.getvalue())  # type: ignore[attr-defined]


def _publish(html: str, text: str) -> None:
    from IPython.display import display

    display({"text/html": html, "text/plain": text}, raw=True)  # type: ignore[no-untyped-call]


def picture(figure: Figure) -> None:
    """Show a figure that is not the value of the cell's last expression. Plain Python cannot show figures."""
    if shell():
        from IPython.display import display

        display(figure)  # type: ignore[no-untyped-call]
