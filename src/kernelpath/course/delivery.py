"""Deliver the course's files to a learner's folder, without overwriting a file that the learner changed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import kernelpath
from kernelpath.course import ladder, places
from kernelpath.course.places import DELIVERED_TREES, Marker
from kernelpath.course.progress import NotSaved
from kernelpath.course.registry import ExerciseRef
from kernelpath.files import write_atomically

SOLUTIONS = "solutions"
README = "README.md"

# The command that opens the notebooks in a course folder.
OPEN_NOTEBOOKS = "jupyter lab notebooks"

_IGNORED_NAMES = {"__pycache__", ".ipynb_checkpoints"}


@dataclass(frozen=True)
class DeliveryResult:
    """The result of a delivery. Files are named by their paths in the learner's folder.

    Attributes:
        aside: Each changed file with the path of its new version.
        left: Changed files that the course no longer has.
    """

    version: str
    written: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    aside: tuple[tuple[str, str], ...] = ()
    left: tuple[str, ...] = ()


def deliver(folder: Path, previous: Marker | None = None) -> DeliveryResult:
    """Bring a folder, which is created if needed, to this version of the course. Raises OSError.

    A delivery can be repeated after an interruption: no file of the learner's is ever replaced.

    Args:
        previous: The folder's marker, which identifies files that the learner has not changed. Without a marker, every
            existing file counts as changed.
    """
    known_digests = previous.files if previous else {}
    source = places.given()
    version = kernelpath.__version__
    files = dict(_files_to_deliver(source, [name for name in known_digests if name.startswith(f"{SOLUTIONS}/")]))
    # The marker has the digests of what was delivered, and not of what is there: the next delivery tells by them which
    # files the learner has changed.
    marker = Marker(version, {name: _digest(content) for name, content in files.items()})
    written = []
    aside = []
    for name, content in files.items():
        path = folder / name
        # A broken link counts as a file of the learner's: reading it raises OSError, so nothing replaces it.
        existing = path.read_bytes() if os.path.lexists(path) else None
        if existing == content:
            continue
        if existing is None or _digest(existing) == known_digests.get(name):
            _write(path, content)
            written.append(name)
        # The learner changed this file. The course's version is put aside only if the course changed it, too.
        elif known_digests.get(name) != marker.files[name]:
            new_file = f"new-{version}/{name}"
            if not (folder / new_file).exists():
                _write(folder / new_file, content)
            aside.append((name, new_file))
    removed, kept_files = _remove_superseded(folder, known_digests, marker.files)
    # Written last: after an interruption the old marker is still there, and the delivery is repeated.
    marker.write(folder)
    return DeliveryResult(version, tuple(written), tuple(removed), tuple(aside), tuple(kept_files))


def reveal(item: ExerciseRef) -> tuple[Path, ...]:
    """Copy answer, reference kernel and ladder of a passed exercise to the learner's folder. Raises NotSaved.

    Files in the folder are not replaced. Returns the files that it wrote; none in a checkout, which has every solution.
    """
    if item.course == item.root:
        return ()
    paths = (*item.files("solutions"), *item.files("expert"), *ladder.step_files(item))
    contents = {str(path.relative_to(item.course)): path.read_bytes() for path in paths}
    written = {name: content for name, content in contents.items() if not (item.root / name).exists()}
    try:
        for name, content in written.items():
            _write(item.root / name, content)
        if written:
            marker = places.marker(item.root)
            digests = {name: _digest(content) for name, content in written.items()}
            replace(marker, files={**marker.files, **digests}).write(item.root)
    except OSError as error:
        reason = f"{error.strerror}: {error.filename}"
        raise NotSaved(f"the solution was not put into your folder: {reason}") from error
    return tuple(item.root / name for name in written)


def _files_to_deliver(source: Path, revealed: list[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the files of the course, with solutions that the learner already has, by path in the learner's folder."""
    yield README, _readme().encode()
    for name in DELIVERED_TREES:
        tree = source / name
        for path in [tree] if tree.is_file() else sorted(tree.rglob("*")):
            if path.is_file() and not _IGNORED_NAMES & set(path.parts):
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
4. `kp hint NAME` helps; `kp solution NAME` compares your kernel with the answer after a pass, and
   `kp solution NAME --expert` with the reference kernel.

| folder | what it has |
|---|---|
| `phases/` | your kernels: stubs to complete |
| `notebooks/` | a lesson for each week, without outputs |
| `solutions/` | answers to what you have passed, reference kernels in `expert/`, and ladders in `steps/` |
| `results/traces/` | recordings of weeks 5 and 13, to look at |
| `benchmarks/` | a program that week 16 starts on several GPUs |
| `.kernelpath/` | your progress, reports and pictures |

`kp doctor` says what this machine can run; most of the course needs no GPU. `kp upgrade` brings this folder up to date
with the installed kernelpath, and never overwrites a file that you changed.
"""


def _remove_superseded(
    folder: Path, known_digests: Mapping[str, str], files: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Remove unchanged files that the course no longer has. Return these, and the changed ones, which stay."""
    removed = []
    changed = []
    for name in sorted(set(filter(_is_inside, known_digests)) - set(files)):
        path = folder / name
        if not path.is_file():
            continue
        if _digest(path.read_bytes()) == known_digests[name]:
            path.unlink()
            removed.append(name)
        else:
            changed.append(name)
    return removed, changed


def _is_inside(name: str) -> bool:
    """Return whether a path in a marker, which anybody may have written, is a file of the course in the folder."""
    path = Path(name)
    is_delivered = any(path.is_relative_to(tree) for tree in (*DELIVERED_TREES, SOLUTIONS))
    return is_delivered and path.parts[1:] != () and ".." not in path.parts


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _write(path: Path, content: bytes) -> None:
    # Atomically, so that an interruption leaves either no file or a whole one.
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)
