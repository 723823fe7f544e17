"""Run the tests of a package of operators in this process, as the project has them and with planted faults."""

from __future__ import annotations

import contextlib
import functools
import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from kernelpath.course.library import Library
from kernelpath.work.exception_findings import WrongOperator


def check_own_tests(package: ModuleType, library: Library, project: Path) -> None:
    """Raise WrongOperator unless the project's tests pass, fail with each fault, and pass with equivalent functions."""
    passed, failed = _run_tests(project)
    if failed:
        raise WrongOperator(f"your test {failed[0].description}", failed[0].file, failed[0].line)
    files = sorted((project / "tests").glob("*.py"))
    file = files[0].name if files else ""
    if not passed:
        raise WrongOperator("pytest finds no test in tests/", file)
    for description, fault in library.faults.items():
        with _patched(package, fault.function, fault.plant(getattr(package, fault.function))):
            _, failed = _run_tests(project)
        if not failed:
            symptom = f"all {len(passed)} tests pass with a {package.__name__}.{fault.function} in which {description}"
            raise WrongOperator(f"{symptom}; a test has to fail there", file)
    functions = dict.fromkeys(fault.function for fault in library.faults.values())
    # A test that knows a planted fault by the function's identity, not by its results, also fails with an equivalent
    # function.
    with contextlib.ExitStack() as patches:
        for name in functions:
            patches.enter_context(_patched(package, name, functools.partial(getattr(package, name))))
        _, failed = _run_tests(project)
    if failed:
        where = f"where a function that calls {' or '.join(functions)} replaces it"
        cause = f"your test {failed[0].description}, {where}; test what it does"
        raise WrongOperator(cause, failed[0].file, failed[0].line)


@contextlib.contextmanager
def _patched(package: ModuleType, name: str, replacement: Any) -> Iterator[None]:
    """Replace a function wherever the package has it under that name, including its name and docstring, inside the
    block.
    """
    original = getattr(package, name)

    @functools.wraps(original, updated=())
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return replacement(*args, **kwargs)

    modules = [module for key, module in sys.modules.items() if key.partition(".")[0] == package.__name__]
    owners = [module for module in modules if getattr(module, name, None) is original]
    for owner in owners:
        setattr(owner, name, wrapper)
    try:
        yield
    finally:
        for owner in owners:
            setattr(owner, name, original)


class _FailedTest(NamedTuple):
    """A test, or a file of tests that cannot be imported.

    Attributes:
        description: What failed, as the rest of a sentence about the test.
        line: The line of the test; 0 for a file.
    """

    description: str
    file: str
    line: int


class _Outcomes:
    """A plugin of pytest that records how each test ended."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self.failed: list[_FailedTest] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid.rpartition("::")[2]
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            message = crash.message.splitlines()[0] if crash else report.when
            _, line, _ = report.location
            self.failed.append(_FailedTest(f"{name} fails: {message}", Path(report.location[0]).name, (line or 0) + 1))
        elif report.when == "call" and report.passed:
            self.passed.append(name)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            description = f"file {report.nodeid} cannot be imported: {_last_line(str(report.longrepr))}"
            self.failed.append(_FailedTest(description, Path(report.nodeid).name, 0))


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


_OPTIONS: Sequence[str] = (
    *("-q", "--capture=sys", "--import-mode=importlib", "-x", "-o", "addopts=", "-W", "ignore"),
    *("-p", "no:cacheprovider", "-p", "no:faulthandler", "-p", "no:xdist", "-p", "no:timeout"),
    *("-p", "no:hypothesispytest", "-p", "no:warpcheck"),
)


# The files in which pytest looks for its options, in its order.
_CONFIGURATIONS = ("pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")


def _locations(project: Path) -> list[str]:
    """Return pytest's arguments that name the project's configuration and its tests.

    Without the name of a file, pytest looks for one in all folders above the project, which a submission must not read.
    """
    configurations = [project / name for name in _CONFIGURATIONS if (project / name).is_file()]
    named = ["-c", str(configurations[0])] if configurations else []
    return [*named, "--rootdir", str(project), str(project / "tests")]


def _run_tests(project: Path) -> tuple[list[str], list[_FailedTest]]:
    """Return the names of a project's tests that passed, and the first that did not."""
    outcomes = _Outcomes()
    output = io.StringIO()
    modules_before = set(sys.modules)
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        pytest.main([*_OPTIONS, *_locations(project)], plugins=[outcomes])
    # The next run imports the tests again: a module that has imported a function by name would keep the version from
    # before a patch.
    for name in set(sys.modules) - modules_before:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if file.startswith(str(project)) or name.startswith("tests"):
            del sys.modules[name]
    return outcomes.passed, outcomes.failed
