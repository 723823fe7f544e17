"""The planted bad submissions in tests/rejects: each must get the verdict that its name begins with.

A program of its own is a .py, with its .cu beside it, and its docstring says what is wrong. What differs by a few lines
from a program that passes is a .patch against that program. It says what is wrong, then what changes in which file:

    C1, an accident: the number of blocks is rounded down, so the last elements are never written.

    --- solutions/1_architecture/w01b_vector_add.py
    @@
    -    blocks = (n + 255) // 256
    +    blocks = n // 256

A hunk has no line numbers, so that it survives changes elsewhere. It is found by its text, lines of context (which
begin with a blank) included, and that has to stand in the file exactly once.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernelpath import files
from kernelpath.verdict import Verdict


class PatchError(Exception):
    """A patch that does not (or no longer) fit its program. The message names both."""


@dataclass(frozen=True)
class Reject:
    """One planted submission. path: its .py or .patch. root: the checkout."""

    path: Path
    root: Path

    @property
    def name(self) -> str:
        """Such as w01b_vector_add/RACE_no_barrier."""
        return f"{self.path.parent.name}/{self.path.stem}"

    @property
    def exercise(self) -> str:
        return self.path.parent.name

    @property
    def verdict(self) -> Verdict:
        return next(verdict for verdict in Verdict if self.path.name.startswith(f"{verdict.value}_"))

    @property
    def why(self) -> str:
        """What is wrong with it."""
        text = self.path.read_text(encoding="utf-8")
        if self.path.suffix == ".py":
            return ast.get_docstring(ast.parse(text)) or ""
        return text.partition("\n--- ")[0].strip()

    def submission(self, folder: Path) -> Path:
        """Its Python file. Raises PatchError.

        The patches of one program are written to one place below `folder`, each over the one before, as a learner saves
        a file again and again: what compilers made of a kernel that they leave alone serves all of them.
        """
        if self.path.suffix == ".py":
            return self.path
        changes = dict(self._changes())
        base = _program(next(iter(changes)))
        place = folder / self.exercise / base.parent.name
        for file in sorted({*base.parent.glob(f"{base.stem}.*"), *files.submitted(base)}):
            if file.is_file():
                text, copy = file.read_text(encoding="utf-8"), place / file.relative_to(base.parent)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_text(self._patched(text, file, changes.get(file, "")), encoding="utf-8")
        return place / base.name

    def _changes(self) -> Iterator[tuple[Path, str]]:
        """Each file that the patch changes, with its hunks."""
        _, *parts = re.split(r"^--- (.+)\n", self.path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        if not parts:
            raise PatchError(f"{self.path.name} changes no file: write `--- FILE` above its hunks")
        for file, hunks in zip(parts[::2], parts[1::2], strict=True):
            if not (self.root / file).is_file():
                raise PatchError(f"{self.path.name} changes {file}, which is not there")
            yield self.root / file, hunks

    def _patched(self, text: str, file: Path, hunks: str) -> str:
        places = []
        for hunk in re.split(r"^@@.*\n", hunks, flags=re.MULTILINE)[1:]:
            lines = hunk.rstrip("\n").split("\n")
            old, new = (_lines(lines, besides=sign) for sign in "+-")
            found = list(re.finditer(f"^{re.escape(old)}", text, re.MULTILINE))
            if len(found) != 1:
                shown = f"{self.path.name} does not fit {file.relative_to(self.root)}"
                raise PatchError(f"{shown}: these lines occur {len(found)} times, not once\n{old}")
            places.append((*found[0].span(), new))
        for begin, end, new in sorted(places, reverse=True):
            text = text[:begin] + new + text[end:]
        return text


def _program(file: Path) -> Path:
    """The Python file that a file is handed in with."""
    beside = (folder.with_name(f"{folder.name}.py") for folder in file.parents if folder.name)
    return next((one for one in beside if one.is_file()), file.with_suffix(".py"))


def _lines(hunk: list[str], besides: str) -> str:
    return "".join(f"{line[1:]}\n" for line in hunk if not line.startswith(besides))


def find(root: Path, *folders: str) -> list[Reject]:
    """Those in these folders of tests/rejects, exercise by exercise: "cpu", "gpu", or "any" for both devices."""
    return _planted(root, *(Path("rejects", folder) for folder in folders))


def honest(root: Path) -> list[Reject]:
    """Those in tests/accepts, which pass: no verdict begins their names, and a patch is against a reference kernel."""
    return _planted(root, Path("accepts"))


def _planted(root: Path, *folders: Path) -> list[Reject]:
    paths = (path for folder in folders for path in (root / "tests" / folder).glob("w*/*"))
    planted = [Reject(path, root) for path in paths if path.suffix in (".py", ".patch")]
    return sorted(planted, key=lambda one: one.name)
