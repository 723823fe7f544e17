"""The processes for grading one file: workers, some of them waiting, and the PTX machine that they share."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from kernelpath import packages
from kernelpath.course.registry import Item
from kernelpath.course.spec import Exercise
from kernelpath.device import gpu
from kernelpath.grading.kinds import kind_of
from kernelpath.work.host import SharedMachine, Worker
from kernelpath.work.rank_runners import RankRunners
from kernelpath.work.runner import Runner
from kernelpath.work.workspace import SubmissionCopy, Workspace
from warpcheck import simulated_gpu
from warpcheck.frontends import cutlass

_INSPECTS = {"operator": "kernelpath.work.operators", "library": "kernelpath.work.package"}
_FUSES = "kernelpath.work.fusion"

READY = {
    "cuda": "warpcheck.frontends.cuda",
    "triton": "warpcheck.frontends.triton_ready",
    "cute": "warpcheck.frontends.cute",
}
"""What takes long to import, by lane."""

OneDevice = Literal["cpu", "cuda"]


def withheld(exercise: Exercise) -> list[Path]:
    """Return the files and folders of the modules that solve an exercise by themselves, as it declares."""
    return [path for module in exercise.without for path in packages.sources(module)]


class Workers:
    """Of one submission. device: where it is graded. target: what the PTX machine stands for. hidden: folders that it
    must not use, besides solutions/ and what is ready-made.

    keep: leave what compilers made for the next grading of the same file.
    """

    def __init__(
        self,
        item: Item,
        exercise: Exercise,
        submission: Path,
        device: OneDevice,
        target: str,
        hidden: Sequence[Path],
        keep: bool,
    ) -> None:
        self._item, self._exercise, self._submission = item, exercise, submission
        self._device, self._target, self._keep = device, target, keep
        self._hidden, self._withheld = list(hidden), withheld(exercise)
        self._ready_made = [*self._withheld, *(cutlass.ready_made() if item.lane == "cuda" else ())]
        self._workspace = Workspace.reserve(submission)
        self._machine = SharedMachine()
        self._waiting: list[Worker] = []

    def runner(self, device: OneDevice) -> Runner:
        """The submission, to be loaded on that device."""
        if self._exercise.kind == "distributed":
            return RankRunners(lambda rank: self._take("cpu", rank), self._copied.file, self._hidden)
        machine = self._machine if kind_of(self._exercise, device).on_machine else None
        return Runner(lambda: self._take(device), self._copied.file, self._hidden, machine, self._ready_made)

    def across(self, size: int) -> list[Runner]:
        """The submission on so many GPUs, a rank each, connected by NCCL before it is loaded."""
        store = self._workspace.own / f"ranks-{secrets.token_hex(8)}"

        def start(rank: int) -> Worker:
            worker = Worker(self._workspace)
            worker.start(
                str(self._item.root),
                self._item.stem,
                f"cuda:{rank}",
                None,
                entry=self._exercise.entry,
                rank=rank,
                size=size,
                store=str(store),
            )
            return worker

        return [Runner(partial(start, rank), self._copied.file, self._hidden) for rank in range(size)]

    def copy(self) -> SubmissionCopy:
        """The submission as it is graded from now on. Of the reference kernels each is alone."""
        self._copied = self._workspace.copy(alone=self._submission.is_relative_to(self._item.course / "solutions"))
        return self._copied

    def prepare(self) -> None:
        """Start as many workers as a grading takes, so that it finds them ready."""
        wanted = 2 if kind_of(self._exercise, self._device).twin else 1
        while len(self._waiting) < wanted:
            self._waiting.append(self._started(self._device))

    def close(self) -> None:
        """End the processes that no runner has, and remove what the submission wrote."""
        for worker in self._waiting:
            worker.close()
        self._machine.discard()
        self._workspace.clean(self._keep)

    def _needs(self) -> str:
        if self._exercise.fusion is not None:  # Inductor asks a GPU for its properties as it is imported
            return _FUSES if self._device == "cpu" else ""
        return _INSPECTS.get(self._exercise.kind) or READY.get(self._item.lane, "")

    def _take(self, device: OneDevice, rank: int = 0) -> Worker:
        """A worker without a submission: one that waits, where it was started for this device and for rank 0."""
        if device == self._device and rank == 0 and self._waiting:
            return self._waiting.pop(0)
        return self._started(device, rank)

    def _started(self, device: OneDevice, rank: int = 0) -> Worker:
        worker = Worker(self._workspace.of_rank(rank), self._needs(), clean=bool(self._exercise.without))
        machine = self._machine.get() if kind_of(self._exercise, device).on_machine else None
        entry = "" if self._exercise.is_kernel else self._exercise.entry
        worker.start(
            str(self._item.root),
            self._item.stem,
            device,
            machine,
            self._seen(device),
            entry,
            self._target,
            withheld=self._withheld,
        )
        return worker

    def _seen(self, device: OneDevice) -> simulated_gpu.Properties:
        """What host code sees of a GPU where the machine runs kernels: of that beside it, else what is declared."""
        if (device, self._device) == ("cpu", "cuda"):
            return gpu.properties()
        count = self._exercise.multiprocessors
        return {"multi_processor_count": count} if count else {}
