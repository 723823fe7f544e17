"""Start and end the processes for grading one file: workers, some in advance, and the PTX machine they share."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kernelpath import packages
from kernelpath.course.spec import Exercise
from kernelpath.device import gpu
from kernelpath.grading.devices import OneDevice
from kernelpath.grading.job import Job
from kernelpath.work.host import SharedMachine, Worker
from kernelpath.work.rank_runners import RankRunners
from kernelpath.work.runner import GPU_PATIENCE, Runner
from kernelpath.work.workspace import SubmissionCopy, Workspace
from warpcheck import simulated_gpu
from warpcheck.frontends import cutlass

# The module of each lane that takes long to import.
SLOW_IMPORTS = {
    "cuda": "warpcheck.frontends.cuda",
    "triton": "warpcheck.frontends.triton_ready",
    "cute": "warpcheck.frontends.cute",
    "pallas": "kernelpath.work.pallas",
}


def solving_modules(exercise: Exercise) -> list[Path]:
    """Return the files and folders of the modules that solve an exercise by themselves, as it declares."""
    return [path for module in exercise.without for path in packages.sources(module)]


@dataclass(frozen=True)
class ProcessSetup:
    """The processes that a grader needs to run a submission.

    Attributes:
        device: The device of the tensors that the entry gets.
        on_machine: Whether kernels, or a simulated device, run in the PTX machine's process.
        has_ranks: Whether there is a process for each rank of a group.
        preload: The module that the fork server imports before it forks workers.
        entry: The entry's name, where the worker must not load the exercise's declaration; see work.worker.
    """

    device: OneDevice
    on_machine: bool = False
    has_ranks: bool = False
    preload: str = ""
    entry: str = ""


class Workers:
    """Starts and ends the processes of a job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._withheld = solving_modules(job.exercise)
        # A submission in CUDA C++ may include CUTLASS's headers, but not its complete GEMMs and convolutions.
        withholds_gemms = job.item.lane == "cuda" and not job.exercise.cutlass_gemms
        self._ready_made = [*self._withheld, *(cutlass.ready_made() if withholds_gemms else ())]
        self.workspace = Workspace.reserve(job.submission)
        self._machine = SharedMachine()
        self._waiting: list[tuple[ProcessSetup, Worker]] = []

    def runner(self, setup: ProcessSetup) -> Runner:
        """Return a runner that loads the submission in such processes."""
        if setup.has_ranks:
            return RankRunners(partial(self._take_worker, setup), self.copy.file, self.job.hidden)
        machine = self._machine if setup.on_machine else None
        start = partial(self._take_worker, setup)
        patience = GPU_PATIENCE if setup.device == "cuda" else 1.0
        return Runner(start, self.copy.file, self.job.hidden, machine, self._ready_made, patience)

    def gpu_ranks(self, size: int) -> list[Runner]:
        """Return runners of the submission on `size` GPUs, connected by NCCL before the submission is loaded."""
        # A FileStore keeps its keys in the file. A group that found the file of an earlier group would read its keys.
        store = self.workspace.own / f"ranks-{secrets.token_hex(8)}"

        def start(rank: int) -> Worker:
            # All ranks have one folder: they find each other through the file of the store in it.
            worker = Worker(self.workspace)
            worker.start(
                str(self.job.item.root),
                self.job.item.path_id,
                f"cuda:{rank}",
                None,
                entry=self.job.exercise.entry,
                rank=rank,
                size=size,
                store=str(store),
            )
            return worker

        return [Runner(partial(start, rank), self.copy.file, self.job.hidden) for rank in range(size)]

    def copy_submission(self) -> SubmissionCopy:
        """Copy the submission. The copy is graded from now on.

        A reference kernel is copied without the other kernels beside it.
        """
        solutions = self.job.item.course / "solutions"
        self.copy = self.workspace.copy(alone=self.job.submission.is_relative_to(solutions))
        return self.copy

    def prepare(self, setup: ProcessSetup, count: int) -> None:
        """Start `count` workers in advance, for runners with this setup."""
        while len(self._waiting) < count:
            self._waiting.append((setup, self._start_worker(setup)))

    def close(self) -> None:
        """End the processes that no runner owns, and remove what the submission wrote."""
        for _, worker in self._waiting:
            worker.close()
        self._machine.discard()
        self.workspace.clean(self.job.keep)

    def _take_worker(self, setup: ProcessSetup, rank: int = 0) -> Worker:
        """Return a worker without a submission: one started in advance if it fits, else a new one."""
        if rank == 0 and self._waiting and self._waiting[0][0] == setup:
            return self._waiting.pop(0)[1]
        return self._start_worker(setup, rank)

    def _start_worker(self, setup: ProcessSetup, rank: int = 0) -> Worker:
        job = self.job
        # A module of `without` may already be in a server that has forked workers for other exercises; see
        # forkserver.get_server.
        worker = Worker(self.workspace.of_rank(rank), setup.preload, clean=bool(job.exercise.without))
        worker.start(
            str(job.item.root),
            job.item.path_id,
            setup.device,
            self._machine.get() if setup.on_machine else None,
            self._visible_properties(setup.device),
            setup.entry,
            job.target.name,
            withheld=self._withheld,
        )
        return worker

    def _visible_properties(self, device: OneDevice) -> simulated_gpu.Properties:
        """Return the properties of a GPU that host code sees where the PTX machine runs its kernels.

        They are the GPU's where there is a GPU, else the exercise's.
        """
        if (device, self.job.device) == ("cpu", "cuda"):
            return gpu.properties()
        count = self.job.exercise.multiprocessors
        return {"multi_processor_count": count} if count else {}
