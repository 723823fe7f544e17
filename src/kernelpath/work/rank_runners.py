"""Run a submission in one process for each rank of a group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kernelpath.work.host import Worker
from kernelpath.work.runner import Runner


class RankRunners(Runner):
    """The runner of rank 0, which owns the runners of the other ranks and starts them when a case needs them.

    Args:
        start: Returns a worker for a rank, with a folder that no other rank has.
        runner_arguments: The other arguments of `Runner`, which are the same for every rank.
    """

    def __init__(self, start: Callable[[int], Worker], *runner_arguments: Any) -> None:
        super().__init__(partial(start, 0), *runner_arguments)
        self._start_rank = start
        self._runner_arguments = runner_arguments
        self._other_ranks: list[Runner] = []

    def members(self, size: int) -> list[Runner]:
        """Return the runners of `size` ranks, with the submission loaded in each.

        Raises:
            SubmissionFailed: The submission cannot be loaded.
            Usage: A process does not start.
        """
        while len(self._other_ranks) < size - 1:
            start = partial(self._start_rank, len(self._other_ranks) + 1)
            self._other_ranks.append(Runner(start, *self._runner_arguments))
        runners = [self, *self._other_ranks[: size - 1]]
        for runner in runners:  # all processes start in parallel
            runner.prepare()
        for runner in runners:
            runner.ready()
        return runners

    @property
    def cannot_recover(self) -> bool:
        return super().cannot_recover or any(runner.cannot_recover for runner in self._other_ranks)

    @property
    def printed(self) -> str:
        return super().printed + "".join(runner.printed for runner in self._other_ranks)

    @property
    def pids(self) -> Sequence[int]:
        return [*super().pids, *(pid for runner in self._other_ranks for pid in runner.pids)]

    def close(self) -> None:
        super().close()
        for runner in self._other_ranks:
            runner.close()
