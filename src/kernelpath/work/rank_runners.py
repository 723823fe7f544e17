"""A submission in as many processes as a group has ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kernelpath.work.host import Worker
from kernelpath.work.runner import Runner


class RankRunners(Runner):
    """The runner of rank 0, which holds those of the others; they are started when a case needs them.

    start: gives a worker for a rank, with a folder that no other rank has.
    """

    def __init__(self, start: Callable[[int], Worker], *of_a_runner: Any) -> None:
        super().__init__(partial(start, 0), *of_a_runner)
        self._start_rank, self._of_a_runner = start, of_a_runner
        self._others: list[Runner] = []

    def members(self, size: int) -> list[Runner]:
        """The runners of so many ranks, with the submission loaded in each. Raises SubmissionFailed, and Usage."""
        while len(self._others) < size - 1:
            start = partial(self._start_rank, len(self._others) + 1)
            self._others.append(Runner(start, *self._of_a_runner))
        found = [self, *self._others[: size - 1]]
        for one in found:
            one.prepare()
        for one in found:
            one.ready()
        return found

    @property
    def hopeless(self) -> bool:
        return super().hopeless or any(one.hopeless for one in self._others)

    @property
    def printed(self) -> str:
        return super().printed + "".join(one.printed for one in self._others)

    @property
    def pids(self) -> Sequence[int]:
        return [*super().pids, *(pid for one in self._others for pid in one.pids)]

    def close(self) -> None:
        super().close()
        for one in self._others:
            one.close()
