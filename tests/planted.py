"""Read the planted submissions: wrong ones in tests/rejects, honest ones in tests/accepts, a file for each exercise.

A section of such a Markdown file is a submission. The heading of a wrong submission is its required verdict and a name;
the heading of an honest submission is a name. A submission that differs by a few lines from a passing program is a
patch:

    ## NOT_WRITTEN grid_rounded_down

    C1, an accident: the number of blocks is rounded down, so the last elements are never written.

    ```diff
    --- solutions/1_architecture/w01b_vector_add.py
    @@
    -    blocks = (n + 255) // 256
    +    blocks = n // 256
    ```

The text explains why the submission is wrong. A path in a patch is relative to the checkout, and a bare name such as
`plain.cu` is a file of the honest submission `plain` to the same exercise. A hunk has no line numbers, so it survives
changes elsewhere in the file. It is located by its text, including the lines of context (which start with a blank), and
this text must occur in the file exactly once.

Any other program is a complete block of `python`, followed by a block of `cuda` if necessary. Its docstring explains
why the submission is wrong if the section does not. Lines `key: value` directly below the heading are options:

    device: cpu                   the submission is graded on the PTX machine alone; `gpu`: on a GPU alone
    case: rows=33 columns=1000    it is called directly in this case, where the fault shows (direct.py)
    case: large offsets           it runs in the cases past 2^31 elements alone, where the fault shows
    case: few                     an honest submission is called directly in few cases (few_cases.py)
    graded: few                   a wrong one is graded in few cases, where it gets the same verdict (few_cases.py);
                                  `make weekly` grades it in all

A submission with more files is a Python file in a folder of the exercise, such as tests/accepts/w16d_kernel_library,
with its other files in a folder of the same stem. A submission whose exact bytes or location matter, or that a notebook
runs, is stored in the same way.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

from kernelpath import files
from kernelpath.verdict import Verdict

Device = Literal["cpu", "gpu"]
Kind = Literal["accepts", "rejects"]

# The options of a section, with the allowed values if there are only a few.
OPTIONS = {"device": ("cpu", "gpu"), "case": None, "graded": ("few",)}

_SUFFIXES = {"python": ".py", "cuda": ".cu"}
_SECTION = re.compile(r"^## (.+)\n", re.MULTILINE)
_OPTION = re.compile(r"(\w+): (.+)\n")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


class FormatError(Exception):
    """A section that does not follow the format, or a patch that no longer fits its program. The message names both."""


@dataclass(frozen=True)
class Planted:
    """A planted submission.

    Attributes:
        exercise: The path's last part of its exercise, such as w01b_vector_add.
        title: Its heading with an underscore for the blank, such as RACE_no_barrier.
        root: The checkout.
        why: What the section says of it.
        patch: The changes to a program that passes; empty for a whole program.
        sources: The files of a whole program, by their suffixes.
        options: The lines below the heading.
        path: The Python file, where the submission lies in files of its own.
        kind: The folder of tests that has it.
    """

    exercise: str
    title: str
    root: Path
    why: str = ""
    patch: str = ""
    sources: Mapping[str, str] = field(default_factory=dict, hash=False)
    options: Mapping[str, str] = field(default_factory=dict, hash=False)
    path: Path | None = None
    kind: Kind = "rejects"

    @property
    def is_honest(self) -> bool:
        return self.kind == "accepts"

    @property
    def name(self) -> str:
        """The exercise and the title, such as w01b_vector_add/RACE_no_barrier."""
        return f"{self.exercise}/{self.title}"

    @property
    def verdict(self) -> Verdict:
        """The verdict that a wrong submission must get."""
        return next(verdict for verdict in Verdict if self.title.startswith(f"{verdict.value}_"))

    def submission(self, folder: Path) -> Path:
        """Return the Python file to grade, written below `folder`. Raises FormatError.

        The patches of one program are written to one place, each over the one before, as a learner saves a file again
        and again: what compilers made of a kernel that a patch leaves alone serves all of them.
        """
        if self.path is not None:
            return self.path
        if self.sources:
            place = folder / self.exercise
            place.mkdir(parents=True, exist_ok=True)
            for suffix, source in self.sources.items():
                (place / f"{self.title}{suffix}").write_text(source, encoding="utf-8")
            return place / f"{self.title}.py"
        changes = dict(self._changes(folder))
        base = _program(next(iter(changes)))
        place = folder / self.exercise / base.parent.name
        for file in sorted({*base.parent.glob(f"{base.stem}.*"), *files.submitted(base)}):
            if file.is_file():
                text = file.read_text(encoding="utf-8")
                copy = place / file.relative_to(base.parent)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_text(self._patched(text, file, changes.get(file, "")), encoding="utf-8")
        return place / base.name

    def _changes(self, folder: Path) -> Iterator[tuple[Path, str]]:
        """Yield each file that the patch changes, with its hunks. Honest submissions are written below `folder`."""
        _, *parts = re.split(r"^--- (.+)\n", self.patch, flags=re.MULTILINE)
        if not parts:
            raise FormatError(f"{self.name} changes no file: write `--- FILE` above its hunks")
        for name, hunks in zip(parts[::2], parts[1::2], strict=True):
            path = self.root / name if "/" in name else self._honest_file(name, folder)
            if not path.is_file():
                raise FormatError(f"{self.name} changes {name}, which is not there")
            yield path, hunks

    def _honest_file(self, name: str, folder: Path) -> Path:
        stem = name.partition(".")[0]
        for honest in accepts(self.root, self.exercise):
            if honest.title == stem:
                # The folder differs from that of patched copies, and the path of a copy keeps the name of the exercise.
                return honest.submission(folder / "honest").with_name(name)
        raise FormatError(f"{self.name} changes {name}, but {self.exercise} has no honest submission {stem}")

    def _patched(self, text: str, file: Path, hunks: str) -> str:
        places = []
        for hunk in re.split(r"^@@.*\n", hunks, flags=re.MULTILINE)[1:]:
            lines = hunk.rstrip("\n").split("\n")
            old, new = (_lines(lines, besides=sign) for sign in "+-")
            matches = list(re.finditer(f"^{re.escape(old)}", text, re.MULTILINE))
            if len(matches) != 1:
                misfit = f"{self.name} does not fit {file.name}"
                raise FormatError(f"{misfit}: these lines occur {len(matches)} times, not once\n{old}")
            places.append((*matches[0].span(), new))
        for begin, end, new in sorted(places, reverse=True):
            text = text[:begin] + new + text[end:]
        return text


def _program(file: Path) -> Path:
    """Return the Python file that a file is handed in with."""
    candidates = (folder.with_name(f"{folder.name}.py") for folder in file.parents if folder.name)
    return next((candidate for candidate in candidates if candidate.is_file()), file.with_suffix(".py"))


def _lines(hunk: list[str], besides: str) -> str:
    return "".join(f"{line[1:]}\n" for line in hunk if not line.startswith(besides))


def read(file: Path, root: Path, kind: Kind) -> list[Planted]:
    """Return the submissions of one Markdown file. Raises FormatError."""
    return _parse(file, root, kind, file.read_text(encoding="utf-8"))


@cache  # several test modules list the submissions in every process of a run
def _parse(file: Path, root: Path, kind: Kind, text: str) -> list[Planted]:
    _, *parts = _SECTION.split(text)
    return [_section(file, root, kind, heading, body) for heading, body in zip(parts[::2], parts[1::2], strict=True)]


def _section(file: Path, root: Path, kind: Kind, heading: str, body: str) -> Planted:
    where = f"{file.name}, {heading}"
    options: dict[str, str] = {}
    while option := _OPTION.match(body):
        options[option[1]] = option[2]
        body = body[option.end() :]
    for key, value in options.items():
        values = OPTIONS.get(key, ())
        if values is not None and value not in values:
            raise FormatError(f"{where}: there is no option `{key}: {value}`")
    blocks = _BLOCK.findall(body)
    languages = [language for language, _ in blocks]
    why = _BLOCK.sub("", body).strip()
    if "```" in why or languages not in (["diff"], ["python"], ["python", "cuda"]):
        raise FormatError(f"{where}: a section has a block of `diff`, or one of `python` and perhaps one of `cuda`")
    title = heading.replace(" ", "_")
    if languages == ["diff"]:
        return Planted(file.stem, title, root, why, patch=blocks[0][1], options=options, kind=kind)
    sources = {_SUFFIXES[language]: source for language, source in blocks}
    return Planted(
        file.stem, title, root, why or _docstring(sources[".py"]), sources=sources, options=options, kind=kind
    )


def _docstring(source: str) -> str:
    return ast.get_docstring(ast.parse(source)) or ""


def rejects(root: Path, device: Device | None = None) -> list[Planted]:
    """Return the wrong submissions, sorted by name; those that `device` grades, where one is given."""
    planted = _planted(root, "rejects", "w*")
    return [reject for reject in planted if device in (None, reject.options.get("device", device))]


def accepts(root: Path, exercise: str = "w*") -> list[Planted]:
    """Return the honest submissions, sorted by name; those to `exercise`, where one is given."""
    return _planted(root, "accepts", exercise)


def named(root: Path, name: str) -> Planted:
    """Return the wrong submission of a name such as w01b_vector_add/RACE_no_barrier. Raises ValueError."""
    (reject,) = (reject for reject in _planted(root, "rejects", name.partition("/")[0]) if reject.name == name)
    return reject


def set_option(submission: Planted, key: str, value: str) -> None:
    """Write an option into a submission's section, in place of the value that it had."""
    file = submission.root / "tests" / submission.kind / f"{submission.exercise}.md"
    text = file.read_text(encoding="utf-8")
    (heading,) = (match for match in _SECTION.finditer(text) if match[1].replace(" ", "_") == submission.title)
    end = heading.end()
    while option := _OPTION.match(text, end):
        if option[1] == key:
            text = text[:end] + text[option.end() :]
        else:
            end = option.end()
    file.write_text(f"{text[:end]}{key}: {value}\n{text[end:]}", encoding="utf-8")


def reread(submission: Planted) -> Planted:
    """Return the submission as its file has it now."""
    submissions = _planted(submission.root, submission.kind, submission.exercise)
    return next(submission_now for submission_now in submissions if submission_now.title == submission.title)


def _planted(root: Path, kind: Kind, exercise: str) -> list[Planted]:
    folder = root / "tests" / kind
    planted = [submission for file in folder.glob(f"{exercise}.md") for submission in read(file, root, kind)]
    for path in folder.glob(f"{exercise}/*.py"):
        why = _docstring(path.read_text("utf-8"))
        planted.append(Planted(path.parent.name, path.stem, root, why, path=path, kind=kind))
    return sorted(planted, key=lambda submission: submission.name)
