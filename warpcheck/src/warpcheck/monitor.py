"""Watch the kernels of a whole program, or of the tests of a suite, inside one scope.

`warpcheck.gpu` lasts as long as its with block. A test suite needs one scope for collection and for all tests, because
tensors and modules outlive a test. `LaunchMonitor` still keeps the launches, times and errors of each test apart.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from warpcheck import backend, frontends, patching, scope, simulated_gpu
from warpcheck.backend import Bounds, check_bounds
from warpcheck.errors import Fault, TimedOut, Unsupported
from warpcheck.findings import KernelFinding
from warpcheck.report import Report
from warpcheck.runtime.symbols import source_name
from warpcheck.schedule import Schedule, additional_schedules, parse_schedules
from warpcheck.target import TARGETS

__all__ = ["LaunchMonitor", "RecordedError", "ScopeSettings", "WorkCounts"]

# The exceptions that a program must not swallow. A program may try whether a kernel compiles.
_MACHINE_ERRORS = (Fault, TimedOut, Unsupported)


@dataclass(frozen=True)
class ScopeSettings:
    """The parameters of a scope; see `warpcheck.gpu`."""

    arch: str
    schedules: tuple[Schedule, ...]
    uninitialized: bool = True
    bounds: Bounds = "tensor"

    @classmethod
    def parse(
        cls,
        arch: str,
        schedules: str | Schedule | Iterable[str | Schedule] = "forward",
        uninitialized: bool = True,
        bounds: Bounds = "tensor",
    ) -> ScopeSettings:
        """Return checked settings. Raises ValueError for an architecture, a schedule, or bounds that do not exist."""
        check_bounds(bounds)
        if arch not in TARGETS:
            raise ValueError(f"there is no architecture {arch!r}: choose from {', '.join(TARGETS)}")
        return cls(arch, parse_schedules(schedules), uninitialized, bounds)

    def __str__(self) -> str:
        return f"{self.arch}, {' and '.join(schedule.name.lower() for schedule in self.schedules)}"


@dataclass
class RecordedError:
    """An exception that the machine raised, and the launch that raised it.

    Attributes:
        expected: The program has declared that it expects the exception.
        was_swallowed: The program has caught the exception without having declared that.
    """

    error: BaseException
    kernel: str
    arch: str
    launch: str
    expected: bool = False
    was_swallowed: bool = False

    def finding(self) -> KernelFinding:
        """Describe the exception."""
        return KernelFinding.of(self.error, kernel=self.kernel, arch=self.arch, launch=self.launch)


@dataclass
class WorkCounts:
    """The work of the machine.

    Attributes:
        launches: The launches, with those that ended in a fault.
        kernels: Their kernels, each as "file kernel".
        running: The seconds in which the machine executed kernels.
        compiling: The seconds in which the compilers and the machine compiled kernels.
    """

    launches: int = 0
    kernels: set[str] = field(default_factory=set)
    running: float = 0.0
    compiling: float = 0.0

    def add(self, increment: WorkCounts) -> None:
        """Add the work that another part of the run has done."""
        self.launches += increment.launches
        self.kernels |= increment.kernels
        self.running += increment.running
        self.compiling += increment.compiling

    def to_json(self) -> dict[str, Any]:
        """Return the attributes as a JSON object."""
        return {
            "launches": self.launches,
            "kernels": sorted(self.kernels),
            "running": self.running,
            "compiling": self.compiling,
        }

    @classmethod
    def from_json(cls, attributes: Mapping[str, Any]) -> WorkCounts:
        """Return the object that `to_json` described."""
        return cls(**{**attributes, "kernels": set(attributes["kernels"])})


class LaunchMonitor:
    """A scope that can be interrupted and changed, and that collects launches, times and errors.

    Attributes:
        report: The launches since `clear`.
        errors: The exceptions of the machine since `clear`, also those that the program caught.
    """

    def __init__(self, settings: ScopeSettings) -> None:
        self.settings = settings
        self.report = Report(settings.arch)
        self.errors: list[RecordedError] = []
        self._counts = WorkCounts()
        self._base = settings  # of the scope outside of `using`
        self._scope = contextlib.ExitStack()
        self._scope_report = self.report  # of the scope, which appends to the same list of launches as `report`

    def open(self) -> None:
        """Enter the scope."""
        self._open(self._base)

    def _open(self, settings: ScopeSettings | None) -> None:
        """Enter a scope. None: only watch the launches of the scopes that the program enters itself."""
        with contextlib.ExitStack() as stack:
            if settings is None:
                stack.enter_context(frontends.observe(self._record_launch))
            else:
                self.settings = settings
                self.report.arch = settings.arch
                self._scope_report = stack.enter_context(
                    scope.gpu(
                        settings.arch,
                        schedules=settings.schedules,
                        uninitialized=settings.uninitialized,
                        bounds=settings.bounds,
                    )
                )
                self._scope_report.launches = self.report.launches
            stack.callback(backend.use, backend.device())
            backend.use(_MonitoredDevice(backend.device(), self))
            stack.enter_context(_measure_compilation(self))
            self._scope = stack.pop_all()

    def _record_launch(self, launched: frontends.Launched) -> None:
        self.report.add(launched)  # `report` is another one after each `clear`

    def close(self) -> None:
        """Leave the scope."""
        self._scope.close()

    @contextlib.contextmanager
    def using(self, settings: ScopeSettings | None) -> Iterator[None]:
        """Change the settings for the with block. None: the program enters scopes itself in the block."""
        if settings == self.settings:
            yield
        elif settings is not None and settings.arch == self.settings.arch:
            with self._using_checks(settings):
                yield
        else:
            self.close()
            try:
                self._open(settings)
                try:
                    yield
                finally:
                    self.close()
            finally:
                # The scope is entered again even if the block or the inner scope has failed: the tests that follow need
                # it.
                self.open()

    @contextlib.contextmanager
    def _using_checks(self, settings: ScopeSettings) -> Iterator[None]:
        """Change only the checks, so that tensors of the scope stay what they are."""
        outer = self.settings
        with patching.scope():
            scope.replace_checks(additional_schedules(settings.schedules), settings.uninitialized, settings.bounds)
            self.settings = settings
            try:
                yield
            finally:
                self.settings = outer

    def clear(self) -> Report:
        """Forget the launches and the errors, and return the report of the launches that follow."""
        self.report = Report(self.settings.arch)
        self._scope_report.launches = self.report.launches
        self._scope_report.faults.clear()  # an exception keeps the tensors of its frames alive
        self.errors = []
        return self.report

    def take_counts(self) -> WorkCounts:
        """Return the work since the last call."""
        counts = self._counts
        self._counts = WorkCounts()
        return counts

    def record_launch(self, kernel: str, seconds: float) -> None:
        """Count a launch that has ended."""
        self._counts.launches += 1
        self._counts.kernels.add(kernel)
        self._counts.running += seconds

    def record_compilation(self, seconds: float) -> None:
        """Add the time of a compiler."""
        self._counts.compiling += seconds

    def record_error(self, error: BaseException, kernel: str, launch: str = "") -> None:
        """Add an exception of the machine, unless it is known already."""
        if self.find_error(error) is None:
            # A program in a scope of its own may have chosen another architecture than the settings.
            arch = simulated_gpu.target().name
            self.errors.append(RecordedError(error, source_name(kernel), arch, launch))
            if isinstance(error, (Fault, TimedOut)):
                self.report.faults.append(error)

    def take_errors(self) -> list[RecordedError]:
        """Return the errors since the last call."""
        errors = self.errors
        self.errors = []
        return errors

    def find_error(self, error: BaseException | None) -> RecordedError | None:
        """Return the record of an exception, if there is one: that of this object, and not of an equal one."""
        return next((recorded for recorded in self.errors if recorded.error is error), None)


@contextlib.contextmanager
def _measure_compilation(monitor: LaunchMonitor) -> Iterator[None]:
    """Add the time of compilers to the counts. A compiler that another one calls counts once."""
    depth = 0
    started = 0.0

    def observe(starts: bool) -> None:
        nonlocal depth, started
        if starts and depth == 0:
            started = time.perf_counter()
        depth += 1 if starts else -1
        if not starts and depth == 0:
            monitor.record_compilation(time.perf_counter() - started)

    with frontends.observe_compiling(observe):
        yield


class _MonitoredDevice:
    """A device that reports the launches of another one to a monitor."""

    def __init__(self, device: backend.Device, monitor: LaunchMonitor) -> None:
        self._device = device
        self._monitor = monitor

    def load(self, text: str, source: str | None = None) -> backend.Module:
        return _MonitoredModule(self._device.load(text, source), source or "", self._monitor)


class _MonitoredModule:
    """A module whose launches a monitor measures. Triton keeps modules for the life of the process."""

    def __init__(self, module: backend.Module, file: str, monitor: LaunchMonitor) -> None:
        self._module = module
        self._file = file
        self._monitor = monitor

    @property
    def kernels(self) -> Mapping[str, Any]:
        return self._module.kernels

    def compile(self, name: str) -> None:
        with self._record_errors(name):
            self._module.compile(name)

    def launch(self, name: str, **arguments: Any) -> backend.LaunchResult:
        description = f"grid {arguments['grid']}, block {arguments['block']}"
        if arguments.get("cluster"):
            description += f", cluster {arguments['cluster']}"
        if arguments["shared"]:
            description += f", {arguments['shared']:,} bytes of dynamic shared memory"
        started = time.perf_counter()
        try:
            with self._record_errors(name, description):
                return self._module.launch(name, **arguments)
        finally:
            # A launch that ended in a fault ran, too, and counts.
            self._monitor.record_launch(f"{self._file} {source_name(name)}", time.perf_counter() - started)

    @contextlib.contextmanager
    def _record_errors(self, name: str, launch: str = "") -> Iterator[None]:
        try:
            yield
        except _MACHINE_ERRORS as error:
            self._monitor.record_error(error, name, launch)
            raise
