"""Run the command line: collect its commands, and report each way in which one ends."""

from __future__ import annotations

import sys
import tempfile
import textwrap
import traceback
from collections.abc import Sequence
from typing import NoReturn

import click

from kernelpath import __version__, packages
from kernelpath.cli import check, checkpoint, course, dev, grade, installation, profiling, study
from kernelpath.cli.common import INTERRUPTED, PASSED, USED_WRONGLY, Failure, print_error, warn
from kernelpath.course import places, progress, registry
from kernelpath.course.errors import DeclarationError
from kernelpath.course.stubs import NoStub
from kernelpath.verdict import ValidationError
from warpcheck.hooks import Changed

# Exceptions whose message ends with what to do.
_EXPECTED_ERRORS = (registry.LookupFailed, DeclarationError, NoStub, progress.NotSaved, ValidationError, Failure)


# Commands that need no file of a learner. A teacher, for example, has no folder of the course.
_COMMANDS_ANYWHERE = ("book", "dev", "doctor", "grade", "new", "upgrade")


class _CourseGroup(click.Group):
    """Refuse a command that needs a course folder outside of one. Its --help is shown everywhere."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if not (name in _COMMANDS_ANYWHERE or ctx.resilient_parsing or {"-h", "--help"} & set(rest)):
            places.require_course()
        return name, command, rest


@click.group(cls=_CourseGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kernelpath")
@click.pass_context
def kp(context: click.Context) -> int | None:
    """Learn GPU kernel engineering: edit a stub, get a verdict, read why, continue.

    Without a command: shows what to do next.
    """
    verb = context.invoked_subcommand
    if verb in _COMMANDS_ANYWHERE:
        context.with_resource(places.allow_package_course())
    elif verb is None:
        places.require_course()
    if verb not in (installation.new.name, installation.upgrade.name) and (
        mismatch := places.describe_patch_mismatch()
    ):
        warn(mismatch)
    return None if verb else course.show_next()


for _verb in (
    *(course.next_, course.list_, check.check, check.watch, course.hint, course.reset, course.progress_),
    *(study.solution, profiling.profile, study.bench, study.report, study.book_),
    *(checkpoint.checkpoint, grade.grade_, installation.doctor, installation.new, installation.upgrade, dev.dev),
):
    kp.add_command(_verb)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command line, by default this process's, and exit with its status."""
    # A character that the terminal's encoding lacks must not end a command.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    sys.exit(_status(arguments))


def _status(arguments: Sequence[str] | None) -> int:
    try:
        return kp.main(arguments, prog_name="kp", standalone_mode=False) or PASSED
    except click.UsageError as error:
        error.show()
        return USED_WRONGLY
    except _EXPECTED_ERRORS as error:
        print_error(str(error))
        return USED_WRONGLY
    except Changed as error:
        print_error(f"{error}; kp doctor says what to install")
        return USED_WRONGLY
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        # Otherwise Python reports at exit that it cannot flush stdout.
        sys.stderr.close()
        return PASSED
    except OSError as error:
        print_error(f"{error.filename or 'the system says'}: {error.strerror or error}; fix that and try again")
        return USED_WRONGLY
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and (advice := packages.missing_extra(error.name or "")):
            print_error(advice)
            return USED_WRONGLY
        summary = textwrap.shorten(repr(error), 300, placeholder=" [...]")
        print_error(f"kernelpath itself failed: {summary}; please report it together with {_crash_file()}")
        return USED_WRONGLY


def _crash_file() -> str:
    with tempfile.NamedTemporaryFile("w", prefix="kernelpath-", suffix=".txt", delete=False, encoding="utf-8") as file:
        file.write(" ".join(sys.argv) + "\n" + traceback.format_exc())
    return file.name
