"""Name the entries of a class's folder that belong to nobody or are empty, since silence would look like a grade."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from kernelpath import words


def describe_skipped(folder: Path, own_files: Iterable[Path] = ()) -> list[str]:
    """Return a sentence for each entry of the folder that is not graded.

    Args:
        own_files: The teacher's own files, which are not mentioned.
    """
    own_paths = {os.path.realpath(path) for path in own_files}  # unlike Path.resolve, it accepts circular links
    sentences = []
    for path in sorted(folder.iterdir()):
        reason = _reason_to_skip(path)
        if reason and os.path.realpath(path) not in own_paths:
            sentences.append(f"{words.escaped(path.name)} {reason}")
    return sentences


def _reason_to_skip(path: Path) -> str:
    """Return why an entry has nothing to grade, or "" for a learner's folder that is not empty."""
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
