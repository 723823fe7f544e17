"""A submission in its process, as the grader holds it: errors, crashes and hangs there become complaints here."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelpath.verdict import Complaint, Verdict
from kernelpath.work.process import Forged, Worker, WorkerGone, WorkerSilent

START_SECONDS = 180.0
"""For importing torch and the lane, which has nothing to do with the submission."""

CASE_SECONDS = 10.0

COMPILE_SECONDS = 120.0
"""What compilers may take on top of that."""

MOST_DEATHS = 2
"""After so many processes that died, nothing more is tried."""

Answer = tuple[dict[str, Any], list[bytes]]


class Usage(Exception):
    """The command was used wrongly; the message says what to do instead."""


class Stopped(Exception):
    """The submission cannot go on with what was asked."""

    def __init__(self, complaint: Complaint) -> None:
        self.complaint = complaint


class Runner:
    """One submission, loaded in a worker when something is asked of it, and anew after a death.

    start: gives a worker to which "start" has been posted. hidden: folders whose files the submission must not use.
    """

    def __init__(self, start: Callable[[], Worker], submission: Path, hidden: Sequence[Path]) -> None:
        self._start = start
        self._load = {"do": "load", "file": str(submission), "hidden": [str(folder) for folder in hidden]}
        self._worker: Worker | None = None
        self._loading = False
        self._deaths = 0
        self._hung = False
        self._loadable = True
        self._printed = ""

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

    def ask(self, message: Mapping[str, Any], seconds: float | None = None) -> Answer:
        """Post and answer in one."""
        self.post(message)
        return self.answer(seconds)

    def post(self, message: Mapping[str, Any]) -> None:
        """Ask for something whose answer is fetched later."""
        if self._worker is None:
            self._worker, self._loading = self._start(), True
            self._worker.post(self._load)
        self._worker.post(message)

    def answer(self, seconds: float | None = None) -> Answer:
        """What the worker tells of the oldest request without an answer, within so many seconds, or CASE_SECONDS.

        Raises Stopped with the complaint that it ends in; after a death, a hang or a forgery the process is gone.
        """
        assert self._worker is not None
        seconds = CASE_SECONDS if seconds is None else seconds
        try:
            if self._loading:
                self._await_start(self._worker)
                self._await_load(self._worker)
            return _told(self._worker.answer(seconds, COMPILE_SECONDS))
        except WorkerSilent as silent:
            self.close()
            self._hung = True
            raise Stopped(Complaint(Verdict.TIMED_OUT, _silence(silent, seconds))) from None
        except WorkerGone as gone:
            self.close()
            self._deaths += 1
            raise Stopped(Complaint(Verdict.CRASHED, _death(gone.status))) from None
        except Forged:
            self.close()
            raise Stopped(Complaint(Verdict.TAMPERED, "the submission answered in the worker's place")) from None

    def close(self) -> None:
        """End the process and keep what it printed."""
        if self._worker is not None:
            self._printed = self.printed
            self._worker.close()
            self._worker = None

    def _await_start(self, worker: Worker) -> None:
        try:
            worker.answer(START_SECONDS)
        except (WorkerGone, WorkerSilent):
            reason = worker.reason
            self.close()
            raise Usage(
                f"the process that runs submissions did not start ({reason}); kp doctor finds out why"
            ) from None

    def _await_load(self, worker: Worker) -> None:
        try:
            _told(worker.answer(CASE_SECONDS, COMPILE_SECONDS))
            self._loading = False
        except Stopped:
            self._loadable = False
            self.close()
            raise


def _told(answer: Answer) -> Answer:
    """The answer, unless it is a complaint, which is raised."""
    told = answer[0].get("complaint")
    if told is not None:
        raise Stopped(Complaint(**{**told, "verdict": Verdict(told["verdict"])}))
    return answer


def _silence(silent: WorkerSilent, seconds: float) -> str:
    if silent.compiling:
        return (
            f"the kernel was not compiled within {COMPILE_SECONDS:.0f} s: is a block of values, or a loop, too large?"
        )
    return f"no answer within {seconds:.0f} s: an endless loop?"


def _death(status: int) -> str:
    if status >= 0:
        return f"the process ended itself with status {status} before it had answered"
    name = signal.Signals(-status).name
    return f"the process died of {name}" + (" (out of memory?)" if -status == signal.SIGKILL else "")
