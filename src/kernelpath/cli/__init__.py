"""The command line: a file for each group of verbs. Whatever is slow to import is imported where it is used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run `kp`. Exit status: 0 passed, 1 not yet, 2 used wrongly, 130 interrupted."""
    from kernelpath.cli import app

    app.main(arguments)
