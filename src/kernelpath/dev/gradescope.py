"""Pack exercises as an autograder for Gradescope: a zip with setup.sh, run_autograder, a wheel and the course's data.

Gradescope unpacks the zip to /autograder/source, runs setup.sh there once when it builds the image, and copies
run_autograder to /autograder. For each submission, run_autograder grades /autograder/submission with `kp grade` and
writes /autograder/results/results.json. Only setup.sh needs a network.
https://gradescope-autograders.readthedocs.io/en/latest/specs/

Reference kernels are left out, since no grade needs them without a GPU. The exams are left out, too.
"""

from __future__ import annotations

import io
import shlex
import shutil
import string
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from kernelpath.course import registry, stubs
from kernelpath.course.registry import ExerciseRef
from kernelpath.files import write_atomically
from kernelpath.show import results

_NOT_IN_A_WHEEL = shutil.ignore_patterns(
    *(".*", "__pycache__", "*.egg-info", "build", "dist", "book", "results", "tests", "benchmarks", "solutions"),
    "setup.py",  # may add the course to the package, reference kernels and exams included
)

# Files in results/ that exercises read and that messages compare with.
_RECORDING_PATTERNS = (results.RECORDINGS, "traces/*/*.gz")

_EXAMS = ("checkpoint.py", "checkpoint.md")
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)


# The memory of the container to choose. A grading needs at most 1.6 GB, and runs alone.
GIGABYTES = 2


class PackingError(Exception):
    """The autograder cannot be written. The message says why and what to do."""


class InvalidIndex(Exception):
    """The address of a package index is unusable. The message says why and what to do."""


def pack(items: Sequence[ExerciseRef], to: Path, checkout: Path, extra_index: str = "") -> None:
    """Write the autograder of some exercises of a course as a zip, with a wheel of the sources in `checkout`.

    Args:
        extra_index: An index that pip uses besides its own, such as that of PyTorch's wheels for CPUs.

    Raises InvalidIndex, PackingError, stubs.NoStub for an exercise whose stub is neither here nor in git, and OSError.
    """
    if to.exists() and not zipfile.is_zipfile(to):
        raise PackingError(f"{to} exists and is not a zip; give --out another name")
    wheels = [_wheel(checkout / package) for package in ("warpcheck", ".")]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, "setup.sh", _setup([name for name, _ in wheels], items, extra_index), executable=True)
        names = " ".join(item.name for item in items)
        _add(archive, "run_autograder", _RUN.substitute(names=names), executable=True)
        for wheel in wheels:
            _add(archive, *wheel)
        for name, content in _course(items):
            _add(archive, f"course/{name}", content)
    write_atomically(to, packed.getvalue())


def check_index(address: str) -> str:
    """Return the address of an index. Raises InvalidIndex for an invalid address or one with a password."""
    try:
        parts = urlsplit(address)
        carries_password = parts.username is not None or parts.password is not None
    except ValueError as error:
        raise InvalidIndex(f"{address!r} is not the address of an index: {error}") from error
    if carries_password:
        raise InvalidIndex("the index carries a user name or a password, which others would read; leave it out")
    if parts.scheme not in ("http", "https") or not parts.hostname or not address.isprintable() or " " in address:
        raise InvalidIndex(f"{address!r} is not the address of an index, which begins with https://")
    return address


def _setup(wheels: Sequence[str], items: Sequence[ExerciseRef], extra_index: str) -> str:
    address = shlex.quote(check_index(extra_index)) if extra_index else ""
    *libraries, course = (f"./{wheel}" for wheel in wheels)
    required = " ".join(f"'{path}'" for path in (*libraries, course + required_extras(items)))
    return _SETUP.substitute(required=required, extra_index=address, gigabytes=GIGABYTES)


def _add(archive: zipfile.ZipFile, name: str, content: str | bytes, executable: bool = False) -> None:
    # A fixed date makes the zip reproducible.
    entry = zipfile.ZipInfo(name, _ZIP_EPOCH)
    # The upper half holds the mode of a Unix file. Without it, unzip would not make the scripts executable.
    entry.external_attr = (0o100755 if executable else 0o100644) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, content)


def _course(items: Sequence[ExerciseRef]) -> Iterator[tuple[str, bytes | str]]:
    """Yield every declaration, as one may name another, the stubs of the graded exercises, and the recordings."""
    root = items[0].root
    for name in _RECORDING_PATTERNS:
        for path in sorted((root / results.FOLDER).glob(name)):
            yield str(path.relative_to(root)), path.read_bytes()
    for path in sorted((root / "checks").glob("[0-9]_*/*.*")):
        if path.name not in _EXAMS:
            yield str(path.relative_to(root)), path.read_bytes()
    for item in items:
        stub = {path: path.read_text(encoding="utf-8") for path in item.files("phases")}
        if not stubs.is_open(stub.get(item.stub, "")):  # the stub is solved in this checkout
            stub = stubs.pristine(item)
        for path, text in stub.items():
            yield str(path.relative_to(root)), text


def required_extras(items: Sequence[ExerciseRef]) -> str:
    """Return the extras that exercises need in pip's syntax: "[all,pallas]".

    `all` is always among them: a kernel of another lane may be the baseline, or compute torch.mm on the PTX machine.
    """
    return f"[{','.join(sorted({'all', *(extra for item in items for extra in _extras(item))}))}]"


def _extras(item: ExerciseRef) -> Iterator[str]:
    if registry.load(item).kind == "program":
        yield "nvcc"
    if item.lane == "pallas":
        yield "pallas"
    texts = [path.read_text("utf-8") for path in item.files("solutions") or item.files("phases")]
    if any("#include <cute/" in text for text in texts):
        yield "cutlass"
    if any("import host_program" in text for text in texts):
        yield "nvcc"


def _wheel(checkout: Path) -> tuple[str, bytes]:
    """Build a wheel from a copy of the checkout, since setuptools leaves folders beside the sources."""
    if not (checkout / "pyproject.toml").is_file():
        raise PackingError(
            f"there is no {checkout / 'pyproject.toml'} to build a wheel from; run this in a git checkout"
        )
    with tempfile.TemporaryDirectory(prefix="kernelpath-wheel-") as folder:
        copy = Path(folder) / "copy"
        built = Path(folder) / "built"
        shutil.copytree(checkout, copy, ignore=_NOT_IN_A_WHEEL)
        # setuptools is called without pip, which would download it again for an isolated build.
        command = [sys.executable, "-c", f"import setuptools.build_meta as b; b.build_wheel({str(built)!r})"]
        process = subprocess.run(command, cwd=copy, capture_output=True, text=True)
        if process.returncode:
            last = next((line for line in reversed(process.stderr.splitlines()) if line.strip()), "no reason given")
            raise PackingError(f"the wheel of {checkout} cannot be built: {last.strip()}")
        (wheel,) = built.glob("*.whl")
        return wheel.name, wheel.read_bytes()


_SETUP = string.Template("""\
#!/usr/bin/env bash
# Gradescope runs this once, when it builds the image. It is the only step that uses a network.
# Choose a container with $gigabytes GB of memory in its settings: in a smaller one gradings end as CRASHED.
set -euo pipefail
cd "$$(dirname "$${BASH_SOURCE[0]}")"

if ! { command -v g++ && python3 -c 'import ensurepip, venv'; } >/dev/null 2>&1; then
    apt-get update
    apt-get install -y g++ python3-dev python3-venv
fi
if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
    echo "kernelpath needs Python 3.10 or newer: choose Ubuntu 22.04 or newer as the base image" >&2
    exit 1
fi
# The index of PyTorch's wheels for CPUs, without which pip takes those with CUDA's libraries: 3 GB that no exercise
# uses here. From the environment, else from `kp dev gradescope --torch-index`; empty for none.
extra_index=$extra_index
export PIP_EXTRA_INDEX_URL="$${PIP_EXTRA_INDEX_URL:-$$extra_index}"
python3 -m venv venv
venv/bin/pip install $required
""")

_RUN = string.Template("""\
#!/usr/bin/env bash
# Grades the submission beside this file into results/results.json. Needs no network.
# Without a results.json something kept the grader from grading: the output says what, and no score is recorded.
set -euo pipefail
root=$$(cd "$$(dirname "$${BASH_SOURCE[0]}")" && pwd)
class=$$(mktemp -d)
trap 'rm -rf "$$class" "$$class-grades"' EXIT

mkdir "$$class/submission"
cp -R "$$root/submission/." "$$class/submission"
cd "$$root/source/course"
if ! "$$root/source/venv/bin/kp" grade "$$class" $names --out "$$class-grades"; then
    cat "$$class-grades/grades.csv"
    exit 1
fi
cp "$$class-grades/gradescope/submission.json" "$$root/results/results.json"
""")
