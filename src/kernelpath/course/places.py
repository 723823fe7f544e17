"""Locate the course: in a checkout; or a learner's part in a folder, and the rest in the installed package.

`kp new` creates a learner's folder. It has phases/ and notebooks/, the recordings to look at, and solutions/ of passed
exercises. checks/, every solution and results/ stay in the package, so that an upgrade of the package renews them and
no edit breaks a check: grading reads the package's own recordings.
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

# The file that marks a learner's folder.
MARKER = "kernelpath.json"

# The course's files in an installed package, which the build puts there. A checkout has no such folder.
PACKAGE_DATA = Path(kernelpath.__file__).parent / "data"

# Files and folders that a learner gets: to edit, to read, and to open as notebooks, hints and stubs say.
#
# The course keeps all others.
DELIVERED_TREES = ("phases", "notebooks", "results/traces", "benchmarks/all_reduce.py")

_VERSION = re.compile(r"\d{1,9}\.\d{1,9}\.\d{1,9}")


@dataclass(frozen=True)
class Marker:
    """The contents of the marker file of a learner's folder.

    Attributes:
        version: The version of the course that delivered the files.
        files: The SHA-256 digest of each delivered file, by its path in the folder.
    """

    version: str
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def number(self) -> tuple[int, ...]:
        return tuple(map(int, self.version.split(".")))

    def write(self, folder: Path) -> None:
        """Write the marker file. Raises OSError."""
        write_atomically(folder / MARKER, encode(self, indent=1) + "\n")


_package_serves = False


@contextlib.contextmanager
def allow_package_course() -> Iterator[None]:
    """Let `root` return the package's own course outside of any folder, for code that edits nothing there."""
    global _package_serves
    # Nested calls restore what the outer one has set.
    previous = _package_serves
    _package_serves = True
    try:
        yield
    finally:
        _package_serves = previous


def root() -> Path:
    """Return the nearest enclosing checkout or learner's folder, else the package's checkout.

    Raises LookupFailed, also for a learner's folder of another major or minor version.
    """
    # The nearest folder wins, so that a learner's folder inside a checkout is graded as the learner's.
    for folder in _upward(Path.cwd()):
        if is_checkout(folder):
            return folder
        if is_learners(folder):
            require_version(folder)
            return folder
    if is_checkout(_source_checkout()):
        return _source_checkout()
    if _package_serves and is_checkout(PACKAGE_DATA):
        return PACKAGE_DATA
    raise LookupFailed("no folder from here up is one of the course; cd to yours, or make one: kp new FOLDER")


def find_course_folder() -> Path | None:
    """Return the nearest enclosing checkout or learner's folder, of any version, or None."""
    return next((folder for folder in _upward(Path.cwd()) if is_checkout(folder) or is_learners(folder)), None)


def require_course() -> None:
    """Raise LookupFailed unless the current folder is in a course folder, even if a checkout is installed.

    `root` serves programs and notebooks that run elsewhere; a learner's command must not grade files of another folder.
    """
    if find_course_folder() is not None:
        return
    installed = (
        f", or cd to the checkout that is installed, {_source_checkout()}" if is_checkout(_source_checkout()) else ""
    )
    raise LookupFailed(
        f"{Path.cwd()} is not a course folder, and no folder above it is one; "
        f"cd to yours, or make one: kp new FOLDER{installed}"
    )


def checkout() -> Path:
    """Return the checkout, for code that changes the course itself. Raises LookupFailed elsewhere."""
    require_course()
    if is_checkout(found_root := root()):
        return found_root
    raise LookupFailed(
        f"{found_root} is a learner's folder; the course itself is changed in a checkout: clone it and cd there"
    )


def course(at: Path | None = None) -> Path:
    """Return the folder that has checks/, solutions/ and results/ for a checkout or a learner's folder.

    Args:
        at: The checkout or the learner's folder. The default is `root()`.
    """
    at = at or root()
    if is_checkout(at) or not is_learners(at):
        return at
    return PACKAGE_DATA if PACKAGE_DATA.is_dir() else _source_checkout()


def given() -> Path:
    """Return the folder with a learner's files: the package's, or that of the checkout that contains the package."""
    return PACKAGE_DATA if PACKAGE_DATA.is_dir() else _source_checkout()


def find_learners_folder() -> Path:
    """Return the nearest enclosing learner's folder, of any version. Raises LookupFailed."""
    for folder in _upward(Path.cwd()):
        if is_learners(folder):
            return folder
    raise LookupFailed(f"no folder from here up has a {MARKER}; cd to your course folder, or make one: kp new FOLDER")


def is_checkout(folder: Path) -> bool:
    return (folder / "checks").is_dir() and (folder / "phases").is_dir()


def is_learners(folder: Path) -> bool:
    return (folder / MARKER).is_file()


def marker(folder: Path) -> Marker:
    """Read the marker of a learner's folder. Raises LookupFailed."""
    path = folder / MARKER
    try:
        content = decode(path.read_bytes(), Marker)
    except OSError as error:
        raise LookupFailed(f"{path} cannot be read: {error.strerror}; make it readable") from error
    except ValidationError as error:
        raise LookupFailed(f"{path} is broken ({error}); {_renewal_hint(folder)}") from error
    # The version is compared as numbers, and anybody may have written the file.
    if not _VERSION.fullmatch(content.version):
        raise LookupFailed(f"{path} names no version like 1.2.3; {_renewal_hint(folder)}")
    return content


def require_version(folder: Path, older: bool = False) -> Marker:
    """Read the marker of a learner's folder. Raises LookupFailed for another major or minor version.

    Args:
        older: Accept any version that this version can upgrade.
    """
    folder_marker = marker(folder)
    installed = Marker(kernelpath.__version__)
    if folder_marker.number > installed.number if older else folder_marker.number[:2] != installed.number[:2]:
        raise LookupFailed(_describe_mismatch(folder, folder_marker, installed))
    return folder_marker


def describe_patch_mismatch() -> str:
    """Return what to do about a learner's folder of another patch version, which still works, or ""."""
    installed = Marker(kernelpath.__version__)
    with contextlib.suppress(LookupFailed):
        folder = root()
        folder_marker = installed if is_checkout(folder) else marker(folder)
        return _describe_mismatch(folder, folder_marker, installed) if folder_marker.number != installed.number else ""
    return ""


def _describe_mismatch(folder: Path, folder_marker: Marker, installed: Marker) -> str:
    mismatch = f"{folder} is of version {folder_marker.version} of the course, and kernelpath is {installed.version}"
    if folder_marker.number > installed.number:
        return f"{mismatch}; upgrade it: pip install --upgrade kernelpath"
    return f"{mismatch}; bring the folder up to date, which keeps your files: kp upgrade"


def _renewal_hint(folder: Path) -> str:
    return f"remove it, then renew it, which keeps your files: kp new {folder}"


def _source_checkout() -> Path:
    """Return the checkout that contains this package as src/kernelpath, if it is one."""
    return Path(kernelpath.__file__).resolve().parents[2]


def _upward(start: Path) -> Iterator[Path]:
    yield from (start, *start.parents)
