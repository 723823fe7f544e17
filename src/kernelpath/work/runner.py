"""A submission in its process, as the grader holds it: errors, crashes and hangs there become findings here."""

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

START_SECONDS = 180.0
"""For importing torch and the lane, which has nothing to do with the submission."""

CASE_SECONDS = 10.0

COMPILE_SECONDS = 120.0
"""What compilers may take on top of that."""

MOST_DEATHS = 2
"""After so many processes that died, nothing more is tried."""

_AGAIN = "kp check {name} --seed {seed}"

_Answer = TypeVar("_Answer", bound=messages.WorkerResponse)
_Told = TypeVar("_Told", bound=machine.Message)


class Usage(Exception):
    """The command was used wrongly; the message says what to do instead."""


class SubmissionFailed(Exception):
    """The submission cannot go on with what was asked."""

    def __init__(self, finding: Finding) -> None:
        self.finding = finding


class Runner:
    """One submission, loaded in a worker when something is asked of it, and again after a death.

    start: gives a worker that has been started. file: what it loads.
    machines: where its kernels run, if they run on the PTX machine.
    hidden: folders whose files the submission must not use. ready_made: files and folders that solve the exercise.
    """

    def __init__(
        self,
        start: Callable[[], Worker],
        file: Path,
        hidden: Sequence[Path],
        machines: SharedMachine | None = None,
        ready_made: Sequence[Path] = (),
    ) -> None:
        self._start, self._machines = start, machines
        self.numbers = itertools.count(1)
        """For the storages of inputs that the worker is given, one case after another."""

        self._load = messages.Load(
            file=str(file), hidden=[str(folder) for folder in hidden], ready_made=[str(path) for path in ready_made]
        )
        self._file = str(file)
        self._worker: Worker | None = None
        self._loading = False
        self._deaths = 0
        self._hung = False
        self._loadable = True
        self._printed = ""
        self.compile_seconds = 0.0
        """What compiling took so far."""

    @property
    def hopeless(self) -> bool:
        """Whether asking once more would end in the same way."""
        return self._hung or not self._loadable or self._deaths == MOST_DEATHS

    @property
    def printed(self) -> str:
        """What the submission wrote to stdout and stderr so far."""
        return self._printed + (self._worker.printed if self._worker else "")

    @property
    def pids(self) -> Sequence[int]:
        return [self._worker.pid] if self._worker else []

    def prepare(self) -> None:
        """Begin to start a worker and to load the submission in it, without waiting for either."""
        self._running()

    def ready(self) -> None:
        """Have the submission loaded. Raises SubmissionFailed, and Usage where its process does not start."""
        self._running()
        self._loaded()

    @property
    def client(self) -> int:
        """The worker's number on the PTX machine."""
        return self._running().client

    def ask(
        self,
        message: messages.WorkerRequest,
        expected: type[_Answer],
        seconds: float | None = None,
        *,
        spare: bool = False,
    ) -> _Answer:
        """Post and answer in one."""
        self.post(message)
        return self.answer(expected, seconds, spare=spare)

    def post(self, message: messages.WorkerRequest) -> None:
        """Ask for something whose answer is fetched later."""
        self._running().post(message)

    def hand(self, descriptor: int) -> None:
        """Give the worker a descriptor, which follows the request that was posted last."""
        self._running().hand(descriptor)

    def answer(self, expected: type[_Answer], seconds: float | None = None, *, spare: bool = False) -> _Answer:
        """Return the worker's answer to the oldest unanswered request, within `seconds` or CASE_SECONDS.

        After a death, a hang or an unexpected response the process is gone. After a hang the machine is ended too,
        unless `spare` is set because no kernel keeps it busy.

        Raises:
            SubmissionFailed: The request ended in a finding.
        """
        self._loaded()
        return self._told(self._running(), expected, CASE_SECONDS if seconds is None else seconds, spare)

    def ask_machine(self, message: machine.Message, expected: type[_Told]) -> _Told | None:
        """What the PTX machine tells of the submission. Raises SubmissionFailed where the machine is gone."""
        assert self._machines is not None
        try:
            return self._machines.take().ask(message, expected, CASE_SECONDS)
        except WorkerTimeout:
            finding = Finding(Verdict.TIMED_OUT, _slow("the PTX machine", CASE_SECONDS), then=_AGAIN)
        except WorkerExited as gone:
            finding = Finding(Verdict.CRASHED, f"the PTX machine crashed on this kernel: {gone}")
        self._deaths += 1
        self._give_up()
        raise SubmissionFailed(finding)

    def close(self) -> None:
        """End the process and keep what it printed."""
        worker = self._worker
        if worker is not None:
            self._printed = self.printed
            self._worker = None
            worker.close()

    def _give_up(self) -> None:
        """End the worker, and the machine, which may still be busy with its kernel."""
        self.close()
        if self._machines is not None:
            self._machines.drop()

    def _running(self) -> Worker:
        if self._worker is None:
            self._worker, self._loading = self._start(), True
            self.numbers = itertools.count(1)
            self._worker.post(self._load)
        return self._worker

    def _loaded(self) -> None:
        if not self._loading:
            return
        worker = self._running()
        try:
            started = worker.answer(START_SECONDS)
        except WorkerTimeout:
            self.close()
            raise Usage(_slow("the process that runs submissions", START_SECONDS)) from None
        except (WorkerExited, UnexpectedResponse) as ended:
            if isinstance(ended, WorkerExited) and ended.status in set(quota.Excess):
                # The files of the worker before are still in the folder, and this one started too late to get further.
                self._loadable = False
                self.close()
                raise SubmissionFailed(Finding(Verdict.CRASHED, _death(ended.status))) from None
            reason = worker.reason
            self.close()
            raise Usage(f"the process that runs submissions did not start ({reason}); kp doctor says why") from None
        self._loading = False
        if isinstance(started, messages.ReportedFinding):
            self._loadable = False
            self.close()
            raise SubmissionFailed(started.finding)
        try:
            self._told(worker, messages.Done, CASE_SECONDS)
        except SubmissionFailed:
            self._loadable = False
            self.close()
            raise

    def _told(self, worker: Worker, expected: type[_Answer], seconds: float, spare: bool = False) -> _Answer:
        try:
            answer = worker.answer(seconds, COMPILE_SECONDS)
        except WorkerTimeout as silent:
            self.close() if spare else self._give_up()
            self._hung = True
            raise SubmissionFailed(_silence(silent, seconds, self._file)) from None
        except WorkerExited as gone:
            self.close()
            self._deaths += 1
            raise SubmissionFailed(Finding(Verdict.CRASHED, _death(gone.status))) from None
        except UnexpectedResponse:
            answer = None
        finally:
            self.compile_seconds += worker.compile_seconds
        if isinstance(answer, messages.ReportedFinding) and not answer.finding.verdict.passed:
            raise SubmissionFailed(answer.finding)
        if not isinstance(answer, expected):
            self.close()
            raise SubmissionFailed(Finding(Verdict.TAMPERED, "the submission answered in place of the worker"))
        return answer


def _silence(silent: WorkerTimeout, seconds: float, file: str) -> Finding:
    """What to say of a submission that gave no answer."""
    if silent.compiling:
        cause = (
            f"the kernel was not compiled within {COMPILE_SECONDS:.0f} s: is a block of values, or a loop, too large?"
        )
        return Finding(Verdict.TIMED_OUT, cause)
    lines = sorted(line for line in silent.lines if line > 0)
    if not lines:
        return Finding(Verdict.TIMED_OUT, f"no answer within {seconds:.0f} s: {_ENDLESS}")
    first, last = lines[0], lines[-1]
    which = f"line {first} was" if first == last else f"lines {first} to {last} were"
    return Finding(Verdict.TIMED_OUT, f"no answer within {seconds:.0f} s, {which} running: {_ENDLESS}", file, first)


_ENDLESS = "an endless loop, a grid of very many blocks, or gigabytes of tensors?"


def _slow(who: str, seconds: float) -> str:
    """Of a process that is not waiting for the submission."""
    why = "is this computer busy, or short of memory? try again when it is idle"
    return f"{who} gave no answer within {seconds:g} s: {why}"


def _death(status: int) -> str:
    if status in set(quota.Excess):
        return f"the submission {quota.Excess(status).told}"
    if status >= 0:
        return f"the process exited with status {status} before it answered: by os._exit(), or exit() in C"
    known = -status in {number.value for number in signal.Signals}
    name = signal.Signals(-status).name if known else f"signal {-status}"
    return f"the process was killed by {name}" + (" (out of memory?)" if -status == signal.SIGKILL else "")
