"""Start and end the processes for grading one file: workers, some in advance, and the PTX machine they share."""

from __future__ import annotations

import secrets
from functools import partial
from pathlib import Path

from kernelpath import packages
from kernelpath.course.spec import Exercise
from kernelpath.device import gpu
from kernelpath.grading.devices import OneDevice
from kernelpath.grading.job import Job
from kernelpath.grading.kinds import kind_of
from kernelpath.work.host import SharedMachine, Worker
from kernelpath.work.rank_runners import RankRunners
from kernelpath.work.runner import Runner
from kernelpath.work.workspace import SubmissionCopy, Workspace
from warpcheck import simulated_gpu
from warpcheck.frontends import cutlass

_INSPECTION_IMPORTS = {"operator": "kernelpath.work.operators", "library": "kernelpath.work.package"}
_FUSION_IMPORT = "kernelpath.work.fusion"

SLOW_IMPORTS = {
    "cuda": "warpcheck.frontends.cuda",
    "triton": "warpcheck.frontends.triton_ready",
    "cute": "warpcheck.frontends.cute",
}
"""The module of each lane that takes long to import."""


def solving_modules(exercise: Exercise) -> list[Path]:
    """Return the files and folders of the modules that solve an exercise by themselves, as it declares."""
    return [path for module in exercise.without for path in packages.sources(module)]


class Workers:
    """Starts and ends the processes of a job."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._withheld = solving_modules(job.exercise)
        self._ready_made = [*self._withheld, *(cutlass.ready_made() if job.item.lane == "cuda" else ())]
        self._workspace = Workspace.reserve(job.submission)
        self._machine = SharedMachine()
        self._waiting: list[Worker] = []

    def runner(self, device: OneDevice) -> Runner:
        """Return a runner that loads the submission on that device."""
        if self._job.exercise.kind == "distributed":
            return RankRunners(lambda rank: self._take_worker("cpu", rank), self._copy.file, self._job.hidden)
        machine = self._machine if kind_of(self._job.exercise, device).on_machine else None
        return Runner(lambda: self._take_worker(device), self._copy.file, self._job.hidden, machine, self._ready_made)

    def gpu_ranks(self, size: int) -> list[Runner]:
        """Return runners of the submission on `size` GPUs, connected by NCCL before the submission is loaded."""
        store = self._workspace.own / f"ranks-{secrets.token_hex(8)}"

        def start(rank: int) -> Worker:
            # All ranks have one folder: they find each other through the file of the store in it.
            worker = Worker(self._workspace)
            worker.start(
                str(self._job.item.root),
                self._job.item.stem,
                f"cuda:{rank}",
                None,
                entry=self._job.exercise.entry,
                rank=rank,
                size=size,
                store=str(store),
            )
            return worker

        return [Runner(partial(start, rank), self._copy.file, self._job.hidden) for rank in range(size)]

    def copy(self) -> SubmissionCopy:
        """Copy the submission. The copy is graded from now on.

        A reference kernel is copied without the other kernels beside it.
        """
        solutions = self._job.item.course / "solutions"
        self._copy = self._workspace.copy(alone=self._job.submission.is_relative_to(solutions))
        return self._copy

    def prepare(self) -> None:
        """Start the workers that a grading needs in advance."""
        needed = 2 if kind_of(self._job.exercise, self._job.device).needs_shadow_run else 1
        while len(self._waiting) < needed:
            self._waiting.append(self._start_worker(self._job.device))

    def close(self) -> None:
        """End the processes that no runner owns, and remove what the submission wrote."""
        for worker in self._waiting:
            worker.close()
        self._machine.discard()
        self._workspace.clean(self._job.keep)

    def _slow_import(self) -> str:
        """Return the module that the fork server imports for the workers."""
        if self._job.exercise.fusion is not None:
            # Importing Inductor queries a GPU for its properties, and the fork server must not touch a GPU.
            return _FUSION_IMPORT if self._job.device == "cpu" else ""
        return _INSPECTION_IMPORTS.get(self._job.exercise.kind) or SLOW_IMPORTS.get(self._job.item.lane, "")

    def _take_worker(self, device: OneDevice, rank: int = 0) -> Worker:
        """Return a worker without a submission: one started in advance if it fits, else a new one."""
        if device == self._job.device and rank == 0 and self._waiting:
            return self._waiting.pop(0)
        return self._start_worker(device, rank)

    def _start_worker(self, device: OneDevice, rank: int = 0) -> Worker:
        worker = Worker(self._workspace.of_rank(rank), self._slow_import(), clean=bool(self._job.exercise.without))
        machine = self._machine.get() if kind_of(self._job.exercise, device).on_machine else None
        entry = "" if self._job.exercise.is_kernel else self._job.exercise.entry
        worker.start(
            str(self._job.item.root),
            self._job.item.stem,
            device,
            machine,
            self._visible_properties(device),
            entry,
            self._job.target.name,
            withheld=self._withheld,
        )
        return worker

    def _visible_properties(self, device: OneDevice) -> simulated_gpu.Properties:
        """Return the properties of a GPU that host code sees where the PTX machine runs its kernels.

        They are the GPU's where there is a GPU, else the exercise's.
        """
        if (device, self._job.device) == ("cpu", "cuda"):
            return gpu.properties()
        count = self._job.exercise.multiprocessors
        return {"multi_processor_count": count} if count else {}
