"""new and upgrade: a learner's folder, and how it follows the course."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from kernelpath import words
from kernelpath.cli.common import PASSED, Failure, out
from kernelpath.course import delivery, places
from kernelpath.show import view

_SHOWN = 20
"""Files that are named one by one."""


@click.command()
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
def new(folder: Path) -> int:
    """Make a folder to learn in, with the stubs, the notebooks and a README.

    Solutions appear in it as you pass. A file that FOLDER has already is never overwritten.
    """
    if places.is_learners(folder):
        raise Failure(f"{folder} is a course folder already; kp upgrade, in it, brings it up to date")
    if places.is_checkout(folder):
        raise Failure(f"{folder} is a checkout of the course, which needs no kp new; name another folder")
    _require_folder(folder)
    done = delivery.deliver(folder)
    _tell(done)
    out.print(f"{words.count(len(done.written), 'file')} in {folder}", soft_wrap=True)
    out.print(f"{delivery.README} in it says what to do first; {delivery.OPEN_NOTEBOOKS} opens the notebooks")
    view.step(out, f"cd {shlex.quote(str(folder))} && kp next")
    return PASSED


def _require_folder(folder: Path) -> None:
    """Raises Failure where no folder can be."""
    above = next(path for path in (folder, *folder.absolute().parents) if path.exists() or path.is_symlink())
    if not above.is_dir():
        raise Failure(f"{above} is a file; name another folder")


@click.command()
def upgrade() -> int:
    """Bring your folder to the installed version of kernelpath.

    A file that you changed stays as it is; its new version is put into new-VERSION/.
    """
    folder = places.learners()
    before = places.require_version(folder, older=True)
    done = delivery.deliver(folder, before)
    for name in done.removed:
        out.print(f"removed {name}, which the course no longer has", soft_wrap=True)
    _tell(done)
    out.print(
        f"{folder} is of version {done.version}: {words.count(len(done.written), 'file')} written", soft_wrap=True
    )
    view.step(out, "kp next")
    return PASSED


def _tell(done: delivery.Delivered) -> None:
    """Name the learner's own files that a delivery passed over."""
    told = [f"kept your {name}; the new version is {other}" for name, other in done.aside]
    told += [f"kept your {name}, which the course no longer has" for name in done.left]
    for line in told[:_SHOWN]:
        out.print(line, soft_wrap=True)
    if len(told) > _SHOWN:
        out.print(
            f"kept {words.count(len(told) - _SHOWN, 'more file')} of yours; new versions are in new-{done.version}/"
        )
