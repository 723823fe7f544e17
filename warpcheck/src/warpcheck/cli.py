"""The command `warpcheck`: run a script, a test suite or a self-test on the CPU, and describe PTX."""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import runpy
import shutil
import sys
import textwrap
import traceback
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warpcheck import __version__
from warpcheck.findings import KERNEL_ERRORS, MACHINE_PACKAGES, WIDTH, count_by_kind, format_count, format_finding

if TYPE_CHECKING:
    from warpcheck import machine
    from warpcheck.counters import LineCounters
    from warpcheck.findings import KernelFinding
    from warpcheck.monitor import LaunchMonitor
    from warpcheck.report import Launch

__all__ = ["main"]

OK = 0
FAULTS = 1
USAGE = 2
NOT_CHECKED = 3
_STATUSES = (
    "Exit status: 0 if nothing is wrong; 1 for a fault, or if the script fails; 2 for a wrong command line; 3 if "
    "something could not be checked."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["pytest"]:  # all that follows is for pytest, --help included
        return _run_pytest(words[1:])
    options = _parser().parse_args(words)
    status: int = options.command(options)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="warpcheck", description="Run and check GPU kernels on a CPU.", epilog=_STATUSES
    )
    parser.add_argument("--version", action="version", version=f"warpcheck {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    run = commands.add_parser(
        "run",
        help="run a script, and check the kernels that it launches",
        description="Run a Python script, check the kernels that it launches, and print faults and counters by line.",
        epilog=_STATUSES,
    )
    run.add_argument("--arch", default="sm_80", metavar="ARCH", help="sm_80, sm_90a or sm_100a (default: sm_80)")
    run.add_argument(
        "--schedules",
        default="forward",
        metavar="NAME",
        help="the orders of blocks and warps: forward, reverse, strided or all (default: forward)",
    )
    run.add_argument("--json", metavar="FILE", help='write faults and counters to FILE as JSON; "-" is standard output')
    run.add_argument(
        "--timeline",
        metavar="FILE",
        help="write what the warps of each launch's first block did to FILE, a trace for ui.perfetto.dev",
    )
    run.add_argument("script", help="the script")
    run.add_argument("arguments", nargs=argparse.REMAINDER, help="the arguments of the script")
    run.set_defaults(command=_run_script)

    # Handled before the arguments are parsed; here for the help.
    commands.add_parser(
        "pytest", help="run pytest with --warpcheck; all arguments after --arch ARCH are for pytest", add_help=False
    )

    ptx = commands.add_parser(
        "ptx",
        help="describe the kernels of a PTX file",
        description="Describe the kernels of a PTX file, with what warpcheck does not support.",
        epilog=_STATUSES,
    )
    ptx.add_argument(
        "--arch", default="", metavar="ARCH", help="sm_80, sm_90a or sm_100a (default: the target of the file)"
    )
    ptx.add_argument("file", type=Path, help="the file")
    ptx.set_defaults(command=_describe_ptx)

    selftest = commands.add_parser(
        "selftest",
        help="plant each kind of fault, and find it",
        description="Plant each kind of fault in a kernel, and check that it is found there and not in the corrected "
        "kernel, with each compiler that is installed.",
        epilog=_STATUSES,
    )
    selftest.set_defaults(command=_run_selftest)
    return parser


def _print_error(message: str) -> None:
    print(f"warpcheck: {message}", file=sys.stderr)


# warpcheck pytest


def _run_pytest(arguments: Sequence[str]) -> int:
    if find_spec("pytest") is None:
        from warpcheck import packages

        _print_error(packages.missing("pytest"))
        return USAGE
    import pytest

    is_enabled = any(word == "--warpcheck" or word.startswith("--warpcheck=") for word in arguments)
    if arguments[:1] == ["--arch"] and len(arguments) > 1:
        arguments = [f"--warpcheck={arguments[1]}", *arguments[2:]]
    elif arguments and arguments[0].startswith("--arch="):
        arguments = [f"--warpcheck={arguments[0].removeprefix('--arch=')}", *arguments[1:]]
    elif not is_enabled:
        arguments = ["--warpcheck=", *arguments]  # without a value, so that addopts may choose the architecture
    return int(pytest.main([*arguments]))


# warpcheck run


def _run_script(options: argparse.Namespace) -> int:
    from warpcheck import events
    from warpcheck.monitor import LaunchMonitor, ScopeSettings

    if not Path(options.script).is_file():
        _print_error(f"there is no file {options.script}")
        return USAGE
    try:
        settings = ScopeSettings.parse(options.arch, options.schedules)
    except ValueError as error:
        _print_error(str(error))
        return USAGE
    monitor = LaunchMonitor(settings)
    to_stdout = options.json == "-"
    with contextlib.ExitStack() as stack:
        if to_stdout:  # which has the JSON alone
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        monitor.open()
        stack.callback(monitor.close)
        stack.enter_context(events.recorded(bool(options.timeline)))
        status = _run_as_main(options.script, options.arguments, monitor)
        findings = [recorded.finding() for recorded in monitor.take_errors()]
    counts = monitor.take_counts()
    status = status or _status(findings, counts.launches)
    if options.timeline:
        from warpcheck.timeline_trace import trace_document

        _write_json(options.timeline, trace_document(monitor.report.launches))
    if options.json:
        document = _json_document(monitor, findings, counts.to_json(), status)
        _write_json(options.json, document)
        if to_stdout:
            return status
    sys.stdout.flush()
    for paragraph in _paragraphs(monitor, findings):
        print(f"\n{paragraph}")
    print(f"\n{_summary(monitor, findings, counts.launches, len(counts.kernels))}")
    print(f"{counts.running:.1f} s in kernels, {counts.compiling:.1f} s in compilers")
    return status


def _write_json(file: str, document: dict[str, Any]) -> None:
    """Write a document to a file, whose folder is made if there is none, or to standard output for "-"."""
    text = json.dumps(document, indent=2) + "\n"
    if file == "-":
        sys.stdout.write(text)
        return
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _run_as_main(script: str, arguments: Sequence[str], monitor: LaunchMonitor) -> int:
    """Run a script as `python script arguments` does, and return its exit status; 0 for a fault of a kernel."""
    argv = sys.argv
    path = list(sys.path)
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).resolve().parent))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        print(error.code, file=sys.stderr)
        return 1
    except KERNEL_ERRORS as error:
        monitor.record_error(error, "")
        _print_traceback(error)
    except Exception as error:
        _print_traceback(error)
        return 1
    finally:
        sys.argv = argv
        sys.path[:] = path
    return 0


def _print_traceback(error: BaseException) -> None:
    """Print a traceback without the frames of the machine, the compilers, and the start of the script.

    The causes of an error of the program are printed first, as Python does. Those of KERNEL_ERRORS are internal.
    """
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None and not isinstance(error, KERNEL_ERRORS):
        _print_traceback(cause)
        link = "The above exception was the direct cause of the following exception:"
        if error.__cause__ is None:
            link = "During handling of the above exception, another exception occurred:"
        print(f"\n{link}\n", file=sys.stderr)
    frames = [
        (frame, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__", "").partition(".")[0] not in (*MACHINE_PACKAGES, "runpy", "")
    ]
    summary = traceback.StackSummary.extract(iter(frames))
    print("Traceback (most recent call last):", file=sys.stderr)
    print("".join(summary.format()), end="", file=sys.stderr)
    print("".join(traceback.format_exception_only(type(error), error)), end="", file=sys.stderr)


def _status(findings: Sequence[KernelFinding], launches: int) -> int:
    if any(finding.is_fault for finding in findings):
        return FAULTS
    return NOT_CHECKED if findings or not launches else OK


def _summary(monitor: LaunchMonitor, findings: Sequence[KernelFinding], launches: int, kernels: int) -> str:
    if not launches and not findings:
        return "No kernel was launched: nothing was checked."
    kinds = ", ".join(f"{count} {kind}" for kind, count in count_by_kind(findings).items())
    work = f"{format_count(launches, 'launch', 'es')} of {format_count(kernels, 'kernel')} ({monitor.settings})"
    return f"{work}: {kinds or 'no faults'}"


def _paragraphs(monitor: LaunchMonitor, findings: Sequence[KernelFinding]) -> Iterator[str]:
    """Yield what terminals show: the findings, and a table of counters for each kernel."""
    yield from map(format_finding, findings)
    for launches in _by_kernel(monitor.report.launches):
        yield "\n".join(_counter_table(launches))


def _by_kernel(launches: Iterable[Launch]) -> list[list[Launch]]:
    """Return the launches of each kernel together, in the order of their first launches."""
    kernels: dict[tuple[str, str, str, str], list[Launch]] = {}
    for launch in launches:
        kernels.setdefault((launch.language, launch.file, launch.kernel, launch.source), []).append(launch)
    return list(kernels.values())


def _sum_by_line(launches: Iterable[Launch]) -> dict[int, LineCounters]:
    from warpcheck.counters import LineCounters

    sums: dict[int, LineCounters] = {}
    for launch in launches:
        for line, counters in launch.lines.items():
            sums.setdefault(line, LineCounters()).add(counters)
    return dict(sorted(sums.items()))


def _counter_table(launches: Sequence[Launch]) -> Iterator[str]:
    """Yield the rows of a table that fits a terminal."""
    first = launches[0]
    file = Path(first.file).name
    yield f"{first.kernel} ({first.language}), {file}: {format_count(len(launches), 'launch', 'es')}"
    columns = shutil.get_terminal_size((WIDTH, 24)).columns
    yield f"{'':5} {'warp':>13} {'lanes/':>6} {'sectors/':>8} {'bank':>9}"
    yield f"{'line':>5} {'instructions':>13} {'instr.':>6} {'request':>8} {'conflicts':>9}  source"
    for line, counters in _sum_by_line(launches).items():
        sectors = f"{counters.sectors_per_request:.1f}" if counters.sectors_per_request else ""
        conflicts = f"{counters.bank_conflicts:,}" if counters.bank_conflicts else ""
        lanes = f"{counters.lanes_per_instruction:.1f}"
        row = f"{line:>5} {counters.warp_instructions:>13,} {lanes:>6} {sectors:>8} {conflicts:>9}"
        yield f"{row}  {_cut(first.source_line(line), columns - len(row) - 2)}".rstrip()


def _cut(text: str, width: int) -> str:
    """Return a text, with its end left out if it is longer than `width`."""
    return text if len(text) <= width else f"{text[: width - 4]} ..."


def _json_document(
    monitor: LaunchMonitor, findings: Sequence[KernelFinding], counts: dict[str, Any], status: int
) -> dict[str, Any]:
    """Return what `--json` writes: counters that are zero are left out."""
    return {
        "version": __version__,
        "arch": monitor.settings.arch,
        "schedules": [schedule.name.lower() for schedule in monitor.settings.schedules],
        "status": status,
        **counts,
        "findings": [finding.to_json() for finding in findings],
        "counters": [
            {
                "language": launches[0].language,
                "kernel": launches[0].kernel,
                "file": launches[0].file,
                "launches": len(launches),
                "lines": [
                    {"line": line, "source": launches[0].source_line(line), **_counters_json(counters)}
                    for line, counters in _sum_by_line(launches).items()
                ],
            }
            for launches in _by_kernel(monitor.report.launches)
        ],
    }


def _counters_json(counters: LineCounters) -> dict[str, Any]:
    values = {name: value for name, value in vars(counters).items() if value}
    derived = ("sectors_per_request", "bank_conflicts", "lanes_per_instruction")
    return {**values, **{name: value for name in derived if (value := getattr(counters, name))}}


# warpcheck ptx


def _describe_ptx(options: argparse.Namespace) -> int:
    from warpcheck import machine
    from warpcheck.target import TARGETS

    if options.arch and options.arch not in TARGETS:
        _print_error(f"there is no architecture {options.arch!r}: choose from {', '.join(TARGETS)}")
        return USAGE
    try:
        text = options.file.read_text()
        module = machine.load(text, None, TARGETS[options.arch] if options.arch else None)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        _print_error(f"{options.file}: {error}")
        return USAGE
    head = f"{options.file}: PTX for {module.parsed.target}, {format_count(len(module.kernels), 'kernel')}"
    print(head + f", on {module.target.name}" * (module.target.name != module.parsed.target))
    status = OK
    for name in module.kernels:
        problems = _ptx_problems(module, name)
        status = NOT_CHECKED if problems else status
        print()
        for line in _kernel_lines(module, name, problems):
            print(line)
    return status


def _ptx_problems(module: machine.Module, name: str) -> list[str]:
    """Return what keeps a kernel from running, with the lines of the PTX and of the source."""
    from warpcheck.errors import Rejected, Unsupported
    from warpcheck.isa import is_known

    try:
        module.compile(name)
    except (Unsupported, Rejected) as error:
        # Compilation ends at the first instruction. The functions may have more that no kernel can run.
        instructions = [i for function in module.parsed.functions.values() for i in function.body if not is_known(i)]
        listed = [
            f"line {i.ptx_line}: {i.name}" + f" (line {i.line} of the source)" * bool(i.line) for i in instructions
        ]
        return listed if listed and isinstance(error, Unsupported) else [str(error)]
    return []


def _kernel_lines(module: machine.Module, name: str, problems: Sequence[str]) -> Iterator[str]:
    from warpcheck.assembler import assembled
    from warpcheck.runtime.symbols import source_name

    function = module.parsed.functions[name]
    yield source_name(name) + f" ({name})" * (source_name(name) != name and len(name) < 60)
    yield f"  parameters     {format_count(sum(parameter.size for parameter in function.params), 'byte')}"
    code = assembled(module.text, name, module.target.name)
    if code is None:
        yield "  registers      unknown: there is no ptxas that assembles the kernel"
    else:
        spills = code.spill_stores + code.spill_loads
        yield f"  registers      {code.registers}" + (
            f", {format_count(spills, 'byte')} of spills" if spills else ", no spills"
        )
    if not problems:
        yield f"  shared memory  {format_count(module.programs[name].lowered.shared_bytes, 'byte')}"
    yield "  unsupported    " + ("nothing" if not problems else format_count(len(problems), "instruction"))
    for problem in problems:
        yield from textwrap.wrap(problem, WIDTH, initial_indent="    ", subsequent_indent="      ")


# warpcheck selftest


def _run_selftest(options: argparse.Namespace) -> int:
    from warpcheck.selftest import languages, run_selftest

    if not languages():
        _print_error("no compiler is installed: install warpcheck[cuda,torch] or warpcheck[triton,torch]")
        return NOT_CHECKED
    print(f"warpcheck {__version__} on {platform.machine()}, Python {platform.python_version()}\n")
    print(f"{'fault':18} {'language':9} {'planted':44} {'found':>7}")
    outcomes = []
    for outcome in run_selftest():
        outcomes.append(outcome)
        location = "no" if outcome.problem else f"line {outcome.line}"
        mistake = _cut(outcome.mistake, 44)
        print(f"{outcome.fault:18} {outcome.language:9} {mistake:44} {location:>7}", flush=True)
        if outcome.problem:
            print(textwrap.fill(outcome.problem, WIDTH, initial_indent="    ", subsequent_indent="    "))
    failures = sum(bool(outcome.problem) for outcome in outcomes)
    seconds = sum(outcome.seconds for outcome in outcomes)
    faults = f"{len(outcomes) - failures} of {len(outcomes)} planted faults found"
    print(f"\n{faults}, and none in the corrected kernels ({seconds:.0f} s)" if not failures else f"\n{faults}")
    return FAULTS if failures else OK


if __name__ == "__main__":
    sys.exit(main())
