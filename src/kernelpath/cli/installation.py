"""Implement new, upgrade and doctor: create a learner's folder, update it, and show what this machine can run."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from kernelpath import words
from kernelpath.cli.common import NOT_YET, PASSED, Failure, errors, out
from kernelpath.cli.grading import interruptible
from kernelpath.course import delivery, places
from kernelpath.show import view

# The number of files that are named one by one.
_MAX_FILES_NAMED = 20


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
    delivered = delivery.deliver(folder)
    _print_kept_files(delivered)
    out.print(f"{words.count(len(delivered.written), 'file')} in {folder}", soft_wrap=True)
    out.print(f"{delivery.README} in it says what to do first; {delivery.OPEN_NOTEBOOKS} opens the notebooks")
    view.step(out, f"cd {shlex.quote(str(folder))} && kp next")
    return PASSED


def _require_folder(folder: Path) -> None:
    """Raise Failure if `folder` cannot be created."""
    ancestor = next(path for path in (folder, *folder.absolute().parents) if path.exists() or path.is_symlink())
    if not ancestor.is_dir():
        raise Failure(f"{ancestor} is a file; name another folder")


@click.command()
def upgrade() -> int:
    """Bring your folder to the installed version of kernelpath.

    A file that you changed stays as it is; its new version is put into new-VERSION/.
    """
    folder = places.find_learners_folder()
    previous_version = places.require_version(folder, older=True)
    delivered = delivery.deliver(folder, previous_version)
    for name in delivered.removed:
        out.print(f"removed {name}, which the course no longer has", soft_wrap=True)
    _print_kept_files(delivered)
    out.print(
        f"{folder} is of version {delivered.version}: {words.count(len(delivered.written), 'file')} written",
        soft_wrap=True,
    )
    view.step(out, "kp next")
    return PASSED


def _print_kept_files(delivered: delivery.DeliveryResult) -> None:
    """Name the learner's own files that a delivery did not overwrite."""
    lines = [f"kept your {name}; the new version is {new_file}" for name, new_file in delivered.aside]
    lines += [f"kept your {name}, which the course no longer has" for name in delivered.left]
    for line in lines[:_MAX_FILES_NAMED]:
        out.print(line, soft_wrap=True)
    if len(lines) > _MAX_FILES_NAMED:
        unnamed = words.count(len(lines) - _MAX_FILES_NAMED, "more file")
        out.print(f"kept {unnamed} of yours; new versions are in new-{delivered.version}/")


@click.command()
def doctor() -> int:
    """Show what this machine can run.

    For each missing part, show the command that installs it.
    """
    with errors.status("looking"), interruptible():
        from kernelpath import doctor as examination

        findings = examination.examine()
    view.findings(out, findings)
    return PASSED if any(finding.works for finding in findings if finding.lane) else NOT_YET
