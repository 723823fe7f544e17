"""Where the course lies: in a checkout; or a learner's part in a folder, and the rest in the installed package.

`kp new` makes a learner's folder. It has phases/ and notebooks/, the recordings to look at, and solutions/ of what is
passed; checks/, every solution and results/ stay in the package, so that an upgrade of the package renews them and no
edit breaks a check: what is graded reads the package's own recordings.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import kernelpath
from kernelpath.course.errors import LookupFailed
from kernelpath.files import write_atomically
from kernelpath.verdict import ValidationError, decode, encode

MARKER = "kernelpath.json"
"""The file by which a learner's folder is known."""

CARRIED = Path(kernelpath.__file__).parent / "data"
"""The course's files in an installed package; setup.py puts them there. A checkout has no such folder."""

GIVEN = ("phases", "notebooks", "results/traces", "benchmarks/all_reduce.py")
"""Files and folders that a learner gets: what is edited and read, and what notebooks, hints and stubs tell to open.

The course keeps the rest.
"""

_VERSION = re.compile(r"\d{1,9}\.\d{1,9}\.\d{1,9}")


@dataclass(frozen=True)
class Marker:
    """What a learner's folder says of itself.

    version: of the course that gave its files. files: the SHA-256 of each as it was given, by its path in the folder.
    """

    version: str
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def number(self) -> tuple[int, ...]:
        return tuple(map(int, self.version.split(".")))

    def write(self, folder: Path) -> None:
        """Raises OSError."""
        write_atomically(folder / MARKER, encode(self, indent=1) + "\n")


_package_serves = False


@contextlib.contextmanager
def anywhere() -> Iterator[None]:
    """Inside, `root` is the package's own course where no folder is one: for what edits nothing there."""
    global _package_serves
    before, _package_serves = _package_serves, True
    try:
        yield
    finally:
        _package_serves = before


def root() -> Path:
    """The nearest folder from here up that is a checkout or a learner's folder; else the checkout of the package.

    Raises LookupFailed, for a learner's folder of another major or minor version as well.
    """
    for folder in _upward(Path.cwd()):
        if is_checkout(folder):
            return folder
        if is_learners(folder):
            require_version(folder)
            return folder
    if is_checkout(_source()):
        return _source()
    if _package_serves and is_checkout(CARRIED):
        return CARRIED
    raise LookupFailed("no folder from here up is one of the course; cd to yours, or make one: kp new FOLDER")


def around() -> Path | None:
    """The nearest folder from here up that is a checkout or a learner's folder, of whatever version; None without."""
    return next((folder for folder in _upward(Path.cwd()) if is_checkout(folder) or is_learners(folder)), None)


def require_course() -> None:
    """Raises LookupFailed where no folder from here up is one of the course, be a checkout installed or not.

    `root` serves programs and notebooks that run elsewhere; a learner's command must not grade files of another folder.
    """
    if around() is not None:
        return
    installed = f", or cd to the checkout that is installed, {_source()}" if is_checkout(_source()) else ""
    raise LookupFailed(
        f"{Path.cwd()} is not a course folder, and no folder above it is one; "
        f"cd to yours, or make one: kp new FOLDER{installed}"
    )


def checkout() -> Path:
    """The checkout, for what changes the course itself. Raises LookupFailed elsewhere."""
    require_course()
    if is_checkout(at := root()):
        return at
    raise LookupFailed(f"{at} is a learner's folder; the course itself is changed in a checkout: clone it and cd there")


def course(at: Path | None = None) -> Path:
    """Where checks/, solutions/ and results/ of a checkout or a learner's folder lie. at: default is `root()`."""
    at = at or root()
    if is_checkout(at) or not is_learners(at):
        return at
    return CARRIED if CARRIED.is_dir() else _source()


def given() -> Path:
    """The folder that holds what a learner gets: of the package, or the checkout that the package lies in."""
    return CARRIED if CARRIED.is_dir() else _source()


def learners() -> Path:
    """The nearest learner's folder from here up, of whatever version. Raises LookupFailed."""
    for folder in _upward(Path.cwd()):
        if is_learners(folder):
            return folder
    raise LookupFailed(f"no folder from here up has a {MARKER}; cd to your course folder, or make one: kp new FOLDER")


def is_checkout(folder: Path) -> bool:
    return (folder / "checks").is_dir() and (folder / "phases").is_dir()


def is_learners(folder: Path) -> bool:
    return (folder / MARKER).is_file()


def marker(folder: Path) -> Marker:
    """What a learner's folder says of itself. Raises LookupFailed."""
    path = folder / MARKER
    try:
        found = decode(path.read_bytes(), Marker)
    except OSError as error:
        raise LookupFailed(f"{path} cannot be read: {error.strerror}; make it readable") from error
    except ValidationError as error:
        raise LookupFailed(f"{path} is broken ({error}); {_renew(folder)}") from error
    if not _VERSION.fullmatch(found.version):
        raise LookupFailed(f"{path} names no version like 1.2.3; {_renew(folder)}")
    return found


def require_version(folder: Path, older: bool = False) -> Marker:
    """The marker of a learner's folder. Raises LookupFailed where its major or minor version is another one.

    older: take any that this version can bring up to date.
    """
    found, here = marker(folder), Marker(kernelpath.__version__)
    if found.number > here.number if older else found.number[:2] != here.number[:2]:
        raise LookupFailed(_apart(folder, found, here))
    return found


def patch_apart() -> str:
    """What to do about a learner's folder of another patch version, which serves meanwhile; else nothing."""
    here = Marker(kernelpath.__version__)
    with contextlib.suppress(LookupFailed):
        folder = root()
        found = here if is_checkout(folder) else marker(folder)
        return _apart(folder, found, here) if found.number != here.number else ""
    return ""


def _apart(folder: Path, found: Marker, here: Marker) -> str:
    told = f"{folder} is of version {found.version} of the course, and kernelpath is {here.version}"
    if found.number > here.number:
        return f"{told}; upgrade it: pip install --upgrade kernelpath"
    return f"{told}; bring the folder up to date, which keeps your files: kp upgrade"


def _renew(folder: Path) -> str:
    return f"remove it, then renew it, which keeps your files: kp new {folder}"


def _source() -> Path:
    """The checkout that this package would lie in, as src/kernelpath."""
    return Path(kernelpath.__file__).resolve().parents[2]


def _upward(start: Path) -> Iterator[Path]:
    yield from (start, *start.parents)
