"""dev: for contributors."""

from __future__ import annotations

import click
from rich.text import Text

from kernelpath.cli.common import NOT_YET, PASSED, errors, out
from kernelpath.course import registry


@click.group()
def dev() -> None:
    """For contributors."""


@dev.command("check")
@click.option("--quick", is_flag=True, help="Only what needs no grading.")
def check(quick: bool) -> int:
    """Check the invariants that hold the course together."""
    from kernelpath import dev as invariants

    found = 0
    for invariant in invariants.QUICK if quick else invariants.ALL:
        name = invariant.__name__.replace("_", " ")
        with errors.status(name):
            findings = list(invariant(registry.root()))
        found += len(findings)
        out.print(Text.assemble(("FAIL ", "red") if findings else ("ok   ", "green"), name))
        for finding in findings:
            out.print(f"     {finding}")
    return NOT_YET if found else PASSED


@dev.command("tables")
def tables() -> int:
    """Bring the generated tables of the documents up to date."""
    from kernelpath.show import docs

    for name in docs.rewrite(registry.root()):
        out.print(f"rewrote {name}")
    return PASSED
