"""Delivers the course's files to a learner's folder, and never overwrites one that the learner changed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import kernelpath
from kernelpath.course import places
from kernelpath.course.places import GIVEN, Marker
from kernelpath.course.progress import NotSaved
from kernelpath.course.registry import Item
from kernelpath.files import write_atomically

SOLUTIONS = "solutions"
README = "README.md"
OPEN_NOTEBOOKS = "jupyter lab notebooks"
"""The command that opens the notebooks, in a course folder."""

_NOT_GIVEN = {"__pycache__", ".ipynb_checkpoints"}


@dataclass(frozen=True)
class Delivered:
    """What became of a learner's folder. Files are named by their paths in it.

    aside: the new version, by the changed file that it is for. left: changed files that the course no longer has.
    """

    version: str
    written: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    aside: tuple[tuple[str, str], ...] = ()
    left: tuple[str, ...] = ()


def deliver(folder: Path, before: Marker | None = None) -> Delivered:
    """Bring a folder to this version of the course; it is made if it does not exist.

    before: its marker, which says which files the learner has not changed. Without one, every file that is there counts
    as changed. It can be repeated after an interruption: nothing of the learner's is ever replaced. Raises OSError.
    """
    known = before.files if before else {}
    source, version = places.given(), kernelpath.__version__
    files = dict(_files(source, [name for name in known if name.startswith(f"{SOLUTIONS}/")]))
    marker = Marker(version, {name: _digest(content) for name, content in files.items()})
    written, aside = [], []
    for name, content in files.items():
        place = folder / name
        there = place.read_bytes() if os.path.lexists(place) else None
        if there == content:
            continue
        if there is None or _digest(there) == known.get(name):
            _write(place, content)
            written.append(name)
        elif known.get(name) != marker.files[name]:
            other = f"new-{version}/{name}"
            if not (folder / other).exists():
                _write(folder / other, content)
            aside.append((name, other))
    removed, left = _superseded(folder, known, marker.files)
    marker.write(folder)
    return Delivered(version, tuple(written), tuple(removed), tuple(aside), tuple(left))


def reveal(item: Item) -> tuple[Path, ...]:
    """Put the solution of a passed exercise into the learner's folder; what is there already stays. Raises NotSaved.

    Returns the files that it wrote; none in a checkout, which has every solution.
    """
    if item.course == item.root:
        return ()
    contents = {str(path.relative_to(item.course)): path.read_bytes() for path in item.files("solutions")}
    written = {name: content for name, content in contents.items() if not (item.root / name).exists()}
    try:
        for name, content in written.items():
            _write(item.root / name, content)
        if written:
            marker = places.marker(item.root)
            digests = {name: _digest(content) for name, content in written.items()}
            replace(marker, files={**marker.files, **digests}).write(item.root)
    except OSError as error:
        told = f"{error.strerror}: {error.filename}"
        raise NotSaved(f"the solution was not put into your folder: {told}") from error
    return tuple(item.root / name for name in written)


def _files(source: Path, revealed: list[str]) -> Iterator[tuple[str, bytes]]:
    """What the course gives, with the solutions that the learner has got already; by path in the learner's folder."""
    yield README, _readme().encode()
    for name in GIVEN:
        place = source / name
        for path in [place] if place.is_file() else sorted(place.rglob("*")):
            if path.is_file() and not _NOT_GIVEN & set(path.parts):
                yield str(path.relative_to(source)), path.read_bytes()
    for name in revealed:
        if _is_inside(name) and (source / name).is_file():
            yield name, (source / name).read_bytes()


def _readme() -> str:
    return f"""\
# Your course folder

Run these commands in this folder.

1. `kp` says what to read and to edit next. `kp list` is the syllabus, `kp progress` what you have passed.
2. `{OPEN_NOTEBOOKS}` opens the notebooks in a browser. Each week begins with one; `kp book` writes all of them, with
   their outputs, as web pages.
3. Edit the file in `phases/` that `kp` names. `kp watch NAME` grades it whenever you save, `kp check NAME` once.
4. `kp hint NAME` helps; `kp solution NAME` compares your kernel with the reference kernel after a pass.

| folder | what it has |
|---|---|
| `phases/` | your kernels: stubs to complete |
| `notebooks/` | a lesson for each week, without outputs |
| `solutions/` | the reference kernels of what you have passed |
| `results/traces/` | recordings of weeks 5 and 13, to look at |
| `benchmarks/` | a program that week 16 starts on several GPUs |
| `.kernelpath/` | your progress, reports and pictures |

`kp doctor` says what this machine can run; most of the course needs no GPU. `kp upgrade` brings this folder up to date
with the installed kernelpath, and never overwrites a file that you changed.
"""


def _superseded(folder: Path, known: Mapping[str, str], files: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Remove the unchanged files that the course no longer has. Returns these, and the changed ones, which stay."""
    removed, left = [], []
    for name in sorted(set(filter(_is_inside, known)) - set(files)):
        place = folder / name
        if not place.is_file():
            continue
        if _digest(place.read_bytes()) == known[name]:
            place.unlink()
            removed.append(name)
        else:
            left.append(name)
    return removed, left


def _is_inside(name: str) -> bool:
    """Whether a path that a marker names leads to a file of the course in the folder: the marker may be anybody's."""
    path = Path(name)
    given = any(path.is_relative_to(tree) for tree in (*GIVEN, SOLUTIONS))
    return given and path.parts[1:] != () and ".." not in path.parts


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)
