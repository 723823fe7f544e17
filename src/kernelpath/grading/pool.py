"""Grade in several threads at once: each has a fork server, and a share of the cores or a GPU, of its own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

from kernelpath.device import gpu
from kernelpath.grading.devices import OneDevice
from kernelpath.host_info import HostInfo
from kernelpath.work import forkserver


class Pool(ThreadPoolExecutor):
    """Runs gradings in threads.

    On GPUs there is one thread for each GPU, which is the only GPU that its workers see: two gradings on one GPU would
    disturb each other's times.

    Args:
        device: Where submissions are graded.
        jobs: The number of threads. None stands for as many as cores and memory allow.
    """

    def __init__(self, device: OneDevice, jobs: int | None = None) -> None:
        self._servers = forkserver.ServerGroup()
        count, initializer = self._plan_gpus(jobs) if device == "cuda" else self._plan_cores(jobs)
        super().__init__(count, initializer=initializer)

    def abort(self) -> None:
        """End all processes, so that running gradings fail, and wait until the gradings have cleaned up."""
        self._servers.end()
        self.shutdown(cancel_futures=True)

    def _plan_cores(self, jobs: int | None) -> tuple[int, Callable[[], None]]:
        """Return the number of threads, and the initializer of a thread, which gives it a share of the cores.

        With more threads of torch than cores, they would wait for each other, and spin.
        """
        jobs = jobs or HostInfo().default_jobs
        share = max(1, HostInfo().usable_cores // jobs)

        def begin() -> None:
            torch.set_num_threads(share)
            forkserver.set_environment(self._servers, OMP_NUM_THREADS=str(share))

        return jobs, begin

    def _plan_gpus(self, jobs: int | None) -> tuple[int, Callable[[], None]]:
        """Return the number of threads, and the initializer of a thread, which gives it a GPU."""
        indices = list(range(torch.cuda.device_count()))[:jobs]
        count = len(indices)

        def begin() -> None:
            index = indices.pop()
            # The current device belongs to the thread: the grader computes expected values on the GPU of its workers.
            # The workers get the UUID, because an index counts only the GPUs that this process may see.
            torch.cuda.set_device(index)
            forkserver.set_environment(self._servers, CUDA_VISIBLE_DEVICES=gpu.gpu_id(index))

        return count, begin
