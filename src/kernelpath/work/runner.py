"""Run a submission in its own process, and turn its errors, crashes and hangs into findings."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from kernelpath.device import messages as machine
from kernelpath.verdict import Finding, Verdict
from kernelpath.work import messages, quota
from kernelpath.work.host import SharedMachine, UnexpectedResponse, Worker, WorkerExited, WorkerTimeout

# The time limit for importing torch and the lane, which does not depend on the submission.
START_SECONDS = 180.0

CASE_SECONDS = 10.0

# Factor of the time limits on a GPU: other processes share it, and the driver loads modules at their first launch.
GPU_PATIENCE = 3.0

# The time that compilers may take in addition. nvcc needs 40 s for a program with CUTLASS, on an idle machine.
COMPILE_SECONDS = 300.0

# The number of processes that may die before nothing more is tried.
MOST_DEATHS = 2

UNEXPECTED_RESPONSE = Finding(Verdict.TAMPERED, "the submission answered instead of the worker")

_REPEAT = "{check} --seed {seed}"

_Response = TypeVar("_Response", bound=messages.WorkerResponse)
_MachineResponse = TypeVar("_MachineResponse", bound=machine.Message)


class Usage(Exception):
    """The command was used wrongly. The message says what to do instead."""


class SubmissionFailed(Exception):
    """The submission cannot go on with a request."""

    def __init__(self, finding: Finding) -> None:
        self.finding = finding


class Runner:
    """A submission that is loaded in a worker at the first request, and again after a death of the worker.

    Args:
        start: Returns a worker that has been started.
        file: The file that the worker loads.
        hidden: Folders whose files the submission must not use.
        machine: The process that runs the kernels, if they run on the PTX machine.
        ready_made: Files and folders that solve the exercise.
        patience: Factor of the time limits.
    """

    def __init__(
        self,
        start: Callable[[], Worker],
        file: Path,
        hidden: Sequence[Path],
        machine: SharedMachine | None = None,
        ready_made: Sequence[Path] = (),
        patience: float = 1.0,
    ) -> None:
        self._start = start
        self._patience = patience
        self._machine = machine
        # The numbers for the storages of inputs that the worker is given, one case after another.
        self.storage_numbers = itertools.count(1)

        self._load = messages.LoadSubmission(
            file=str(file), hidden=[str(folder) for folder in hidden], ready_made=[str(path) for path in ready_made]
        )
        self._file = str(file)
        self._worker: Worker | None = None
        self._is_loading = False
        self._deaths = 0
        self._has_hung = False
        self._is_loadable = True
        self._printed = ""
        # The time that compilers have taken so far.
        self.compile_seconds = 0.0

    @property
    def cannot_recover(self) -> bool:
        """True where another request would end in the same way."""
        return self._has_hung or not self._is_loadable or self._deaths == MOST_DEATHS

    @property
    def printed(self) -> str:
        """The submission's stdout and stderr, from all its processes."""
        return self._printed + (self._worker.printed if self._worker else "")

    @property
    def pids(self) -> Sequence[int]:
        """The processes of the submission."""
        return [self._worker.pid] if self._worker else []

    def prepare(self) -> None:
        """Begin to start a worker and to load the submission in it, without waiting for either."""
        self._get_worker()

    def ready(self) -> None:
        """Wait until the submission is loaded.

        Raises:
            SubmissionFailed: The submission cannot be loaded.
            Usage: The process does not start.
        """
        self._get_worker()
        self._wait_until_loaded()

    @property
    def client(self) -> int:
        """The worker's number on the PTX machine."""
        return self._get_worker().client

    def request(
        self,
        message: messages.WorkerRequest,
        expected: type[_Response],
        seconds: float | None = None,
        *,
        spare: bool = False,
    ) -> _Response:
        """Send a request and return its response. See `receive`."""
        self.send(message)
        return self.receive(expected, seconds, spare=spare)

    def send(self, message: messages.WorkerRequest) -> None:
        """Send a request whose response is received later."""
        self._get_worker().send(message)

    def send_descriptor(self, descriptor: int) -> None:
        """Send the worker a file descriptor, which belongs to the request that was sent last."""
        self._get_worker().send_descriptor(descriptor)

    def receive(self, expected: type[_Response], seconds: float | None = None, *, spare: bool = False) -> _Response:
        """Return the worker's response to the oldest request without one, within `seconds` or the limit for a case.

        After a death, a hang or an unexpected response the process is gone. After a hang the machine is ended too,
        unless `spare` is set because no kernel keeps it busy.

        Raises:
            SubmissionFailed: The request ended in a finding.
        """
        self._wait_until_loaded()
        limit = self._case_seconds if seconds is None else seconds
        return self._receive(self._get_worker(), expected, limit, spare)

    def request_machine(self, message: machine.Message, expected: type[_MachineResponse]) -> _MachineResponse | None:
        """Return the PTX machine's response about the submission.

        Raises:
            SubmissionFailed: The machine has died or hangs.
        """
        assert self._machine is not None
        try:
            return self._machine.get().request(message, expected, CASE_SECONDS)
        except WorkerTimeout:
            finding = Finding(Verdict.TIMED_OUT, _describe_slowness("the PTX machine", CASE_SECONDS), then=_REPEAT)
        except WorkerExited as error:
            finding = Finding(Verdict.CRASHED, f"the PTX machine crashed on this kernel: {error}")
        self._deaths += 1
        self._end_processes()
        raise SubmissionFailed(finding)

    @property
    def _case_seconds(self) -> float:
        return CASE_SECONDS * self._patience

    def close(self) -> None:
        """End the process and keep what it printed."""
        worker = self._worker
        if worker is not None:
            self._printed = self.printed
            self._worker = None
            worker.close()

    def _end_processes(self) -> None:
        """End the worker, and the machine, which may still be busy with the worker's kernel."""
        self.close()
        if self._machine is not None:
            # The PTX machine serves one request at a time. An endless kernel would keep it from answering anybody else.
            self._machine.discard()

    def _get_worker(self) -> Worker:
        if self._worker is None:
            self._worker = self._start()
            self._is_loading = True
            # A new worker is a new client of the machine, which has no storages yet.
            self.storage_numbers = itertools.count(1)
            # The request waits in the socket until the worker has started: the grader goes on to other work meanwhile.
            self._worker.send(self._load)
        return self._worker

    def _wait_until_loaded(self) -> None:
        if not self._is_loading:
            return
        worker = self._get_worker()
        try:
            started = worker.receive(START_SECONDS)
        except WorkerTimeout:
            self.close()
            raise Usage(_describe_slowness("the process that runs submissions", START_SECONDS)) from None
        except (WorkerExited, UnexpectedResponse) as error:
            if isinstance(error, WorkerExited) and error.status in set(quota.Excess):
                # The previous worker's files are still in the folder, so this worker was over its quota as it started.
                self._is_loadable = False
                self.close()
                raise SubmissionFailed(Finding(Verdict.CRASHED, _describe_death(error.status))) from None
            reason = worker.last_error
            self.close()
            raise Usage(f"the process that runs submissions did not start ({reason}); kp doctor says why") from None
        self._is_loading = False
        if isinstance(started, messages.ReportedFinding):
            self._is_loadable = False
            self.close()
            raise SubmissionFailed(started.finding)
        try:
            self._receive(worker, messages.Done, self._case_seconds)
        except SubmissionFailed:
            self._is_loadable = False
            self.close()
            raise

    def _receive(self, worker: Worker, expected: type[_Response], seconds: float, spare: bool = False) -> _Response:
        response: messages.WorkerResponse | None = None
        try:
            response = worker.receive(seconds, COMPILE_SECONDS)
        except WorkerTimeout as timeout:
            if spare:
                self.close()
            else:
                self._end_processes()
            # A hanging submission would hang again, and each attempt costs the whole time limit.
            self._has_hung = True
            raise SubmissionFailed(_timeout_finding(timeout, seconds, self._file)) from None
        except WorkerExited as error:
            self.close()
            self._deaths += 1
            raise SubmissionFailed(Finding(Verdict.CRASHED, _describe_death(error.status))) from None
        except UnexpectedResponse:
            pass  # reported as tampering below
        finally:
            self.compile_seconds += worker.compile_seconds
        # A finding that passes cannot come from the worker's code.
        if isinstance(response, messages.ReportedFinding) and not response.finding.verdict.passed:
            raise SubmissionFailed(response.finding)
        if not isinstance(response, expected):
            self.close()
            raise SubmissionFailed(UNEXPECTED_RESPONSE)
        return response


def _timeout_finding(timeout: WorkerTimeout, seconds: float, file: str) -> Finding:
    """Return the finding about a submission that gave no response in time."""
    if timeout.compiling:
        cause = (
            f"the kernel was not compiled within {COMPILE_SECONDS:.0f} s: is a block of values, or a loop, too large?"
        )
        return Finding(Verdict.TIMED_OUT, cause)
    lines = sorted(line for line in timeout.lines if line > 0)
    if not lines:
        return Finding(Verdict.TIMED_OUT, f"no answer within {seconds:.0f} s: {_ENDLESS}")
    first = lines[0]
    last = lines[-1]
    running = f"line {first} was" if first == last else f"lines {first} to {last} were"
    return Finding(Verdict.TIMED_OUT, f"no answer within {seconds:.0f} s, {running} running: {_ENDLESS}", file, first)


_ENDLESS = "an endless loop, a grid of very many blocks, or gigabytes of tensors?"


def _describe_slowness(process: str, seconds: float) -> str:
    """Describe a process that did not respond though it was not waiting for the submission."""
    advice = "is this computer busy, or short of memory? try again when it is idle"
    return f"{process} gave no answer within {seconds:g} s: {advice}"


def _describe_death(status: int) -> str:
    """Describe an exit status, which is negative for a signal, or a quota.Excess."""
    if status in set(quota.Excess):
        return f"the submission {quota.Excess(status).description}"
    if status >= 0:
        return f"the process exited with status {status} before it answered: by os._exit(), or exit() in C"
    is_named = -status in {number.value for number in signal.Signals}
    name = signal.Signals(-status).name if is_named else f"signal {-status}"
    return f"the process was killed by {name}" + (" (out of memory?)" if -status == signal.SIGKILL else "")
