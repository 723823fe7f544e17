"""Define what the commands share: consoles, exit statuses, failures, arguments and options."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console
from rich.text import Text

from kernelpath.course import registry
from kernelpath.course.spec import ARCHITECTURES

# Exit statuses.
PASSED = 0
NOT_YET = 1
USED_WRONGLY = 2
INTERRUPTED = 130

out = Console(highlight=False, markup=False, emoji=False)
errors = Console(highlight=False, markup=False, emoji=False, stderr=True)


class Failure(click.ClickException):
    """Report a wrong use of a command. The message ends with what to do."""

    exit_code = USED_WRONGLY


def print_error(message: str) -> None:
    """Print on stderr why the command failed."""
    errors.print(Text.assemble(("error: ", "bold red"), message), soft_wrap=True)


def warn(message: str) -> None:
    """Print on stderr what went wrong while the command continues."""
    errors.print(Text.assemble(("warning: ", "bold yellow"), message), soft_wrap=True)


def _find_exercises(_: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Convert the names of the command line to exercises."""
    if parameter.nargs == -1:
        return tuple(registry.find(name) for name in value)
    return None if value is None else registry.find(value)


def _complete_name(_: click.Context, __: click.Parameter, prefix: str) -> list[str]:
    return [item.name for item in registry.exercises() if item.name.startswith(prefix)]


name_argument = click.argument("item", metavar="NAME", callback=_find_exercises, shell_complete=_complete_name)
optional_name_argument = click.argument(
    "item", metavar="[NAME]", required=False, callback=_find_exercises, shell_complete=_complete_name
)
names_argument = click.argument(
    "items", metavar="[NAME]...", nargs=-1, callback=_find_exercises, shell_complete=_complete_name
)
device_option = click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    help="Where kernels run; auto uses a GPU if there is one.",
)
arch_option = click.option(
    "--arch",
    type=click.Choice(list(ARCHITECTURES)),
    help="The architecture that the PTX machine simulates, instead of the exercise's own; only without a GPU.",
)
tree_option = click.option(
    "--tree",
    type=click.Choice(["phases", "solutions", "expert"]),
    default="phases",
    show_default=True,
    help="Your files, the answers, or the reference kernels.",
)
json_option = click.option("--json", "json_to", metavar="PATH", help="Write the whole report as JSON; - is stdout.")
seed_option = click.option("--seed", type=int, help="Repeat the inputs of an earlier run, which printed its seed.")
jobs_option = click.option(
    "--jobs",
    type=click.IntRange(1),
    help="The number of exercises graded at a time. [limited by cores and memory; 1 on a GPU, at most one per GPU]",
)
