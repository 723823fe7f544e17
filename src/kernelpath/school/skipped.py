"""Name what lies in a class's folder and is nobody's, or holds nothing to grade: silence would look like a grade."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from kernelpath import words


def describe_skipped(folder: Path, besides: Iterable[Path] = ()) -> list[str]:
    """Return a sentence for each entry of the folder that is not graded. besides: files of the teacher's own."""
    own = {os.path.realpath(path) for path in besides}  # unlike Path.resolve, it takes links that form a circle
    sentences = []
    for path in sorted(folder.iterdir()):
        reason = _why(path)
        if reason and os.path.realpath(path) not in own:
            sentences.append(f"{words.escaped(path.name)} {reason}")
    return sentences


def _why(path: Path) -> str:
    """Return why an entry holds nothing to grade; nothing for a learner's folder with something in it."""
    if path.is_symlink() and not path.exists():
        return "is a link to nothing"
    if not path.is_dir():
        return "is a file; a learner has a folder"
    if path.name.startswith("."):
        return "begins with a dot, as folders of tools do; rename it if it is a learner's"
    try:
        with os.scandir(path) as entries:
            return "" if any(entries) else "is empty"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
