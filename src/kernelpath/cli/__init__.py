"""Implement the command line, in a file for each group of commands. Slow imports are made where they are used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run `kp`. The exit status is 0 for passed, 1 for not yet, 2 for used wrongly, 130 for interrupted."""
    from kernelpath.cli import app

    app.main(arguments)
