"""The PTX machine beside a GPU: it counts, and finds what holds on any GPU, while that is busy."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from kernelpath.course.problem import Case
from kernelpath.course.spec import Exercise
from kernelpath.grading import conduct
from kernelpath.grading.conduct import Evidence
from kernelpath.grading.kinds import kind_of
from kernelpath.grading.truth import derive
from kernelpath.verdict import Complaint, LineTraffic, Verdict
from kernelpath.work.runner import Runner, Stopped

FAULTS = (Verdict.OUT_OF_BOUNDS, Verdict.UNINITIALIZED, Verdict.RACE, Verdict.BARRIER)
"""Complaints of the PTX machine that hold on any GPU, also where the result came out right."""


class Beside:
    """The largest case on the PTX machine, while the GPU is busy with the others."""

    def __init__(self, exercise: Exercise, start: Callable[[], Runner], seed: int) -> None:
        self._exercise, self._seed = exercise, seed
        self._runners = start(), start()
        self._found: Future[tuple[tuple[LineTraffic, ...], Complaint | None]] | None = None

    @property
    def runner(self) -> Runner:
        """The submission on the PTX machine."""
        return self._runners[0]

    def begin(self, case: Case) -> None:
        for runner in self._runners:
            runner.prepare()
        pool = ThreadPoolExecutor(1)
        self._found = pool.submit(self._both, case)
        pool.shutdown(wait=False)

    def counted(self) -> tuple[tuple[LineTraffic, ...], Complaint | None]:
        """Counters, or a complaint that holds on any GPU; waits for it."""
        assert self._found is not None
        return self._found.result()

    def close(self) -> None:
        for runner in self._runners:
            runner.close()

    def _both(self, case: Case) -> tuple[tuple[LineTraffic, ...], Complaint | None]:
        kind = kind_of(self._exercise, "cpu")
        first: Evidence | None = None
        for runner, what in zip(self._runners, ("counting", "comparing"), strict=True):
            try:
                evidence = kind.call(runner, case, derive(self._seed, what), reverse=first is not None)
            except Stopped as stopped:
                return (), stopped.complaint if stopped.complaint.verdict in FAULTS else None
            if evidence.complaint is not None:
                return (), evidence.complaint
            if first is not None and (complaint := conduct.difference(first, evidence, self._exercise.entry)):
                return (), complaint
            first = evidence
        return first.traffic if first else (), None
