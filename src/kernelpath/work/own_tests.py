"""The tests of a package of operators: run in this process, as the project has them and with faults planted."""

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
    passed, failed = _ran(project)
    if failed:
        raise WrongOperator(f"your test {failed[0].what}", failed[0].file, failed[0].line)
    files = sorted((project / "tests").glob("*.py"))
    file = files[0].name if files else ""
    if not passed:
        raise WrongOperator("pytest finds no test in tests/", file)
    for what, fault in library.faults.items():
        with _planted(package, fault.function, fault.plant(getattr(package, fault.function))):
            _, failed = _ran(project)
        if not failed:
            told = f"all {len(passed)} tests pass with a {package.__name__}.{fault.function} in which {what}"
            raise WrongOperator(f"{told}; a test has to fail there", file)
    functions = dict.fromkeys(fault.function for fault in library.faults.values())
    with contextlib.ExitStack() as planted:
        for name in functions:
            planted.enter_context(_planted(package, name, functools.partial(getattr(package, name))))
        _, failed = _ran(project)
    if failed:
        where = f"where a function that calls {' or '.join(functions)} stands in its place"
        cause = f"your test {failed[0].what}, {where}; test what it does"
        raise WrongOperator(cause, failed[0].file, failed[0].line)


@contextlib.contextmanager
def _planted(package: ModuleType, name: str, other: Any) -> Iterator[None]:
    """Another function in its place, wherever the package has it under that name, and what it looks like."""
    real = getattr(package, name)

    @functools.wraps(real, updated=())
    def planted(*given: Any, **named: Any) -> Any:
        return other(*given, **named)

    modules = [one for key, one in sys.modules.items() if key.partition(".")[0] == package.__name__]
    places = [one for one in modules if getattr(one, name, None) is real]
    for place in places:
        setattr(place, name, planted)
    try:
        yield
    finally:
        for place in places:
            setattr(place, name, real)


class _Failed(NamedTuple):
    """A test, or a file of them. line: of the test, 0 of a file."""

    what: str
    file: str
    line: int


class _Outcomes:
    """A plugin of pytest that keeps how each test ended."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self.failed: list[_Failed] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid.rpartition("::")[2]
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            said = crash.message.splitlines()[0] if crash else report.when
            _, line, _ = report.location
            self.failed.append(_Failed(f"{name} fails: {said}", Path(report.location[0]).name, (line or 0) + 1))
        elif report.when == "call" and report.passed:
            self.passed.append(name)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            said = f"file {report.nodeid} cannot be imported: {_last_line(str(report.longrepr))}"
            self.failed.append(_Failed(said, Path(report.nodeid).name, 0))


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


_OPTIONS: Sequence[str] = (
    *("-q", "--capture=sys", "--import-mode=importlib", "-x", "-o", "addopts=", "-W", "ignore"),
    *("-p", "no:cacheprovider", "-p", "no:faulthandler", "-p", "no:xdist", "-p", "no:timeout"),
    *("-p", "no:hypothesispytest"),
)


def _ran(project: Path) -> tuple[list[str], list[_Failed]]:
    """The tests of a project that passed, and the first that did not."""
    outcomes, said = _Outcomes(), io.StringIO()
    known = set(sys.modules)
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        pytest.main([*_OPTIONS, "--rootdir", str(project), str(project / "tests")], plugins=[outcomes])
    for name in set(sys.modules) - known:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if file.startswith(str(project)) or name.startswith("tests"):
            del sys.modules[name]
    return outcomes.passed, outcomes.failed
