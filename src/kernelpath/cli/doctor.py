"""Implement `kp doctor`: what this machine can run."""

from __future__ import annotations

import click

from kernelpath.cli.common import NOT_YET, PASSED, errors, out
from kernelpath.cli.grading import interruptible
from kernelpath.show import view


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
