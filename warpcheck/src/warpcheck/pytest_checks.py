"""The hooks of a pytest run with --warpcheck; `pytest_plugin` registers them."""

from __future__ import annotations

import contextlib
import json
import os
import textwrap
import time
import types
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from warpcheck import __version__, findings
from warpcheck.findings import KernelFinding
from warpcheck.monitor import LaunchMonitor, RecordedError, ScopeSettings, WorkCounts

__all__ = ["CheckedRun"]

_OPTIONS_OF_MARKER = {"arch", "schedules", "uninitialized", "bounds", "raises", "scope", "skip"}


class CheckedRun:
    """The scope of a run, and what its tests did in it.

    A test's numbers travel in its reports, so that they reach the process that writes the summary, whether that process
    runs the tests itself or pytest-xdist's workers do.

    Attributes:
        monitor: The scope of this process.
    """

    def __init__(self, config: pytest.Config, monitor: LaunchMonitor) -> None:
        self.config = config
        self.monitor = monitor
        self._started = time.perf_counter()
        # The whole run, with what the workers of pytest-xdist report:
        self._counts = WorkCounts()
        self._findings: list[KernelFinding] = []
        self._findings_outside_of_tests: list[KernelFinding] = []
        self._tests: set[str] = set()
        self._tests_with_launches: set[str] = set()
        self._not_checked: dict[str, str] = {}
        # The part of this process that is in no report of a test:
        self._outside_counts = WorkCounts()

    @classmethod
    def start(cls, config: pytest.Config, options: Any) -> None:
        """Enter the scope until the end of the run, and register the hooks."""
        try:
            settings = ScopeSettings.parse(options.warpcheck, options.warpcheck_schedules)
        except ValueError as error:
            raise pytest.UsageError(f"--warpcheck: {error}") from None
        monitor = LaunchMonitor(settings)
        # Before collection: test modules may make CUDA tensors, or ask for the GPU's name, when they are imported.
        monitor.open()
        config.add_cleanup(monitor.close)
        patches = contextlib.ExitStack()
        patches.enter_context(_noticing_expected_errors(monitor))
        config.add_cleanup(patches.close)
        config.pluginmanager.register(cls(config, monitor), "warpcheck checks")

    # Collection

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            marker = self._marker(item)
            if reason := marker.get("skip"):
                item.add_marker(pytest.mark.skip(reason=reason if isinstance(reason, str) else "not with --warpcheck"))
            self._settings(item)  # a mistake in a marker ends the run before the first test

    def _marker(self, item: pytest.Item) -> dict[str, Any]:
        """Return the arguments of the markers of a test; those of a function count more than those of its class."""
        options: dict[str, Any] = {}
        for mark in item.iter_markers("warpcheck"):
            if mark.args or not mark.kwargs.keys() <= _OPTIONS_OF_MARKER:
                names = ", ".join(sorted(_OPTIONS_OF_MARKER))
                raise pytest.UsageError(f"{item.nodeid}: the marker warpcheck takes the keywords {names}")
            options = {**mark.kwargs, **options}
        _check_expected_types(item, options.get("raises", ()))
        return options

    def _settings(self, item: pytest.Item) -> ScopeSettings | None:
        """Return the settings of a test; None if it enters a scope itself."""
        marker = self._marker(item)
        if not marker.get("scope", True):
            return None
        base = self.monitor.settings
        try:
            return ScopeSettings.parse(
                marker.get("arch", base.arch),
                marker.get("schedules", base.schedules),
                marker.get("uninitialized", True),
                marker.get("bounds", "tensor"),
            )
        except ValueError as error:
            raise pytest.UsageError(f"{item.nodeid}: {error}") from None

    # A test

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self._take_work_outside_of_tests()
        with self.monitor.using(self._settings(item)):
            # Only now, in the scope of the test: `using` may have entered a new one.
            self.monitor.clear()
            return (yield)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        with self._failing_for_swallowed_errors(item):
            return (yield)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        with self._failing_for_swallowed_errors(item):
            return (yield)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, Any]:
        with self._failing_for_swallowed_errors(item):
            return (yield)

    @contextlib.contextmanager
    def _failing_for_swallowed_errors(self, item: pytest.Item) -> Iterator[None]:
        """Raise an error of the machine that the with block has caught without asking for its class."""
        previous = len(self.monitor.errors)
        skipped: BaseException | None = None
        try:
            yield
        except pytest.skip.Exception as error:  # "except Exception: pytest.skip(...)" hides a fault as well
            skipped = error
        finally:
            errors = self.monitor.errors[previous:]
            self._mark_expected(item, errors)
        reported = [excinfo.value for excinfo in _exceptions_of_unittest(item)]
        for recorded in errors:
            if not recorded.expected and recorded.error not in reported:
                recorded.was_swallowed = True
                # The cause stays. The context may be the skip, which says nothing about the error.
                raise recorded.error from recorded.error.__cause__
        if skipped is not None:
            raise skipped

    def _mark_expected(self, item: pytest.Item, errors: Iterable[RecordedError]) -> None:
        """Mark the errors that the test's marker expects."""
        expected_types = self._marker(item).get("raises", ())
        for recorded in errors:
            recorded.expected |= isinstance(recorded.error, expected_types)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        for excinfo in (call.excinfo, *_exceptions_of_unittest(item)):
            if excinfo is not None and isinstance(excinfo.value, findings.KERNEL_ERRORS):
                if self.monitor.find_error(excinfo.value) is None:  # raised by a front end, not by the machine
                    self.monitor.record_error(excinfo.value, "")
                if not self.config.getoption("fulltrace"):
                    excinfo.traceback = _without_machine(excinfo.traceback)
        report = yield
        self._describe(item, call, report)
        return report

    def _describe(self, item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
        """Attach to a report what the machine did in this phase of the test."""
        raised = call.excinfo.value if call.excinfo is not None else None
        is_xfail = hasattr(report, "wasxfail")
        described = []
        errors = self.monitor.take_errors()
        self._mark_expected(item, errors)  # a subtest has its report before its test has ended
        for recorded in errors:
            finding = recorded.finding().for_test(item.nodeid, expected=recorded.expected or is_xfail)
            if not (finding.expected or report.failed):
                # Nothing has failed the test: the error was caught where no hook of this class sees it, such as in a
                # hook of conftest.py or in a subtest. Let it fail the run.
                self._findings_outside_of_tests.append(finding)
                continue
            described.append(finding.to_json())
            if report.failed and not recorded.expected:
                was_swallowed = recorded.was_swallowed or recorded.error is not raised
                _add_section(report, finding, was_swallowed=was_swallowed)
        # pytest-xdist sends the attributes of a report to the main process as JSON, so only plain data fits.
        report.warpcheck = {  # type: ignore[attr-defined]
            "counts": self.monitor.take_counts().to_json(),
            "findings": described,
            "not_checked": str(raised) if report.failed and type(raised).__name__ in findings.NOT_CHECKED else "",
        }

    def _take_work_outside_of_tests(self) -> None:
        """Record what ran since the last test: modules may launch kernels when they are imported."""
        counts = self.monitor.take_counts()
        self._counts.add(counts)
        self._outside_counts.add(counts)
        self._findings_outside_of_tests += [recorded.finding() for recorded in self.monitor.take_errors()]

    # The whole run

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        attached = getattr(report, "warpcheck", None)
        if attached is None:  # pytest-xdist reports the test of a worker that crashed
            return
        counts = WorkCounts.from_json(attached["counts"])
        self._counts.add(counts)
        self._findings += [KernelFinding(**attributes) for attributes in attached["findings"]]
        # A test has a report for each of its phases. It counts once, also if its setup has failed.
        if report.when == "call" or (report.when == "setup" and report.failed):
            self._tests.add(report.nodeid)
        if counts.launches or attached["findings"]:
            self._tests_with_launches.add(report.nodeid)
        if attached["not_checked"]:
            self._not_checked[report.nodeid] = attached["not_checked"]

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.CollectReport | pytest.TestReport) -> Any:
        """Give tests whose kernels could not be checked an outcome of their own. It fails the run as well."""
        attached = getattr(report, "warpcheck", None)
        if attached and attached["not_checked"]:
            return "unsupported", "U", ("UNSUPPORTED", {"yellow": True})
        return None

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._take_work_outside_of_tests()
        output = getattr(self.config, "workeroutput", None)
        if output is not None:  # this is a worker of pytest-xdist
            outside = [finding.to_json() for finding in self._findings_outside_of_tests]
            output["warpcheck"] = {"counts": self._outside_counts.to_json(), "findings": outside}
            return
        is_green = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        is_unchecked = self.config.getoption("warpcheck_require") and not self._counts.launches
        if is_green and (is_unchecked or self._findings_outside_of_tests):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if path := self.config.getoption("warpcheck_report"):
            self._write_report(Path(path))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add the work outside of tests of a worker of pytest-xdist that has ended."""
        output = getattr(node, "workeroutput", {}).get("warpcheck")
        if output is not None:
            self._counts.add(WorkCounts.from_json(output["counts"]))
            self._findings_outside_of_tests += [KernelFinding(**attributes) for attributes in output["findings"]]

    @property
    def _all_findings(self) -> list[KernelFinding]:
        return [*self._findings_outside_of_tests, *self._findings]

    def _write_report(self, path: Path) -> None:
        """Write the findings as JSON Lines if the file's name ends with .jsonl, and as SARIF otherwise."""
        root = self.config.rootpath
        properties = {
            "arch": self.monitor.settings.arch,
            "tests": len(self._tests),
            "testsWithLaunches": len(self._tests_with_launches),
            "launches": self._counts.launches,
            "kernels": len(self._counts.kernels),
            "notChecked": len(self._not_checked),
        }
        if path.suffix == ".jsonl":
            text = findings.format_json_lines(self._all_findings, root, version=__version__, properties=properties)
        else:
            log = findings.sarif_log(
                self._all_findings,
                root,
                version=__version__,
                successful=not self._not_checked,
                properties=properties,
            )
            text = json.dumps(log, indent=2) + "\n"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.config.getoption("collectonly"):
            return
        terminalreporter.section("warpcheck", sep="-")
        for line, markup in self._summary():
            terminalreporter.write_line(line, **markup)
        is_github = os.environ.get("GITHUB_ACTIONS") == "true"
        if self.config.getoption("warpcheck_annotations") or is_github:
            unexpected = (finding for finding in self._all_findings if not finding.expected)
            # One test is enough to find a fault of a line: GitHub shows ten annotations of a step.
            by_line = {(finding.kind, finding.file, finding.line): finding for finding in unexpected}
            for finding in by_line.values():
                terminalreporter.write_line(findings.format_annotation(finding, self.config.rootpath))

    def _summary(self) -> Iterator[tuple[str, dict[str, bool]]]:
        counts = self._counts
        if counts.launches or self._all_findings:
            tests = f"{len(self._tests_with_launches)} of {findings.format_count(len(self._tests), 'test')}"
            launches = findings.format_count(counts.launches, "launch", "es")
            kernels = findings.format_count(len(counts.kernels), "kernel")
            yield f"checked      {launches} of {kernels} in {tests} ({self.monitor.settings})", {}
        else:
            yield "checked      nothing: no kernel was launched", {"yellow": True, "bold": True}
        total = time.perf_counter() - self._started
        compilers = f"{counts.compiling:.1f} s in compilers"
        yield f"time         {counts.running:.1f} s in kernels, {compilers}, {total:.1f} s in all", {}
        faults = [finding for finding in self._all_findings if finding.is_fault]
        unexpected = [finding for finding in faults if not finding.expected]
        if faults:
            kinds = ", ".join(f"{count} {kind}" for kind, count in findings.count_by_kind(faults).items())
            expected = f"; {len(faults) - len(unexpected)} expected by tests" * (len(unexpected) < len(faults))
            yield f"faults       {len(faults):,}: {kinds}{expected}", {"red": bool(unexpected)}
        elif counts.launches:
            yield "faults       none", {"green": True}
        for test, reason in self._not_checked.items():
            yield f"unsupported  {test}", {"yellow": True}
            for line in textwrap.wrap(reason, findings.WIDTH - 13, break_long_words=False):
                yield f"             {line}", {"yellow": True}
        for finding in self._findings_outside_of_tests:
            yield f"caught in {finding.test}:" if finding.test else "outside of the tests:", {"red": True}
            for line in findings.format_finding(finding).splitlines():
                yield f"  {line}", {"red": True}


def _check_expected_types(item: pytest.Item, expected: Any) -> None:
    """Raise UsageError unless `isinstance` takes the marker's `raises`, which a test needs only once a fault occurs."""
    for kind in expected if isinstance(expected, tuple) else (expected,):
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise pytest.UsageError(f"{item.nodeid}: raises takes an exception class or a tuple of them, not {kind!r}")


def _exceptions_of_unittest(item: pytest.Item) -> list[pytest.ExceptionInfo[BaseException]]:
    """Return the exceptions of a unittest.TestCase, which pytest keeps with the test until it makes the report."""
    return getattr(item, "_excinfo", None) or []


def _without_machine(traceback: Any) -> Any:
    """Return a traceback without the frames of the machine and the compilers, unless nothing is left.

    `traceback` is that of an ExceptionInfo. pytest cuts it further, and makes its entries again from Python's traceback
    for that: the links of Python's traceback have to skip the frames.
    """
    entries = [entry._rawentry for entry in traceback]
    remaining = [entry for entry in entries if _package(entry.tb_frame.f_globals) not in findings.MACHINE_PACKAGES]
    linked: types.TracebackType | None = None
    for entry in reversed(remaining):
        linked = types.TracebackType(linked, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return type(traceback)(linked) if linked is not None else traceback


def _package(module_globals: dict[str, Any]) -> str:
    name: str = module_globals.get("__name__", "")
    return name.partition(".")[0]


def _add_section(report: pytest.TestReport, finding: KernelFinding, *, was_swallowed: bool) -> None:
    """Show a finding below the traceback of a test."""
    text = findings.format_finding(finding)
    if finding.schedule not in ("", "forward"):
        options = f"--warpcheck={finding.arch} --warpcheck-schedules={finding.schedule}"
        text += f"\n  replay: pytest {options} '{finding.test}'"
    if was_swallowed:
        text += (
            "\n  The code caught this exception. A test that expects it names the class in"
            "\n  pytest.raises or in the marker warpcheck(raises=...)."
        )
    add = getattr(report.longrepr, "addsection", None)
    if add is None:
        report.sections.append((f"warpcheck: {finding.kind}", text))
    else:
        add(f"warpcheck: {finding.kind}", text, "-")


@contextlib.contextmanager
def _noticing_expected_errors(monitor: LaunchMonitor) -> Iterator[None]:
    """Let pytest.raises(warpcheck.Race) mark a race as expected, and pytest.raises(Exception) not."""
    # A with statement looks __exit__ up in the class, so the class of what pytest.raises returns is changed. It is
    # internal to pytest, and has had another name before pytest 8.4.
    context = type(pytest.raises(LookupError))
    leave = context.__exit__

    def leave_and_mark(self: Any, *exception: Any) -> Any:
        is_caught = leave(self, *exception)
        recorded = monitor.find_error(exception[1]) if is_caught else None
        if recorded is not None:
            # pytest 8.4 has several expected exceptions, earlier versions have one, or a tuple.
            expected = getattr(self, "expected_exceptions", None) or getattr(self, "expected_exception", ())
            expected_types = expected if isinstance(expected, tuple) else (expected,)
            named_types = tuple(kind for kind in expected_types if issubclass(kind, findings.KERNEL_ERRORS))
            recorded.expected |= isinstance(recorded.error, named_types)
        return is_caught

    context.__exit__ = leave_and_mark  # type: ignore[method-assign]
    try:
        yield
    finally:
        context.__exit__ = leave  # type: ignore[method-assign]
