"""Threads that grade side by side: each has a fork server and its share of the cores, or a GPU, for itself."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

from kernelpath.device import gpu
from kernelpath.grading.workers import OneDevice
from kernelpath.host_info import HostInfo
from kernelpath.work import forkserver


class Pool(ThreadPoolExecutor):
    """Runs gradings, each in a thread. jobs: how many side by side; where it is None, as many as there is room for.

    On GPUs there is one on each, which is the only one that its workers see: two would disturb each other's time.
    """

    def __init__(self, device: OneDevice, jobs: int | None = None) -> None:
        self._servers = forkserver.ServerGroup()
        count, initializer = self._one_a_gpu(jobs) if device == "cuda" else self._on_cores(jobs)
        super().__init__(count, initializer=initializer)

    def abort(self) -> None:
        """End all processes, let the gradings that run fail for that, and wait until they have cleaned up."""
        self._servers.end()
        self.shutdown(cancel_futures=True)

    def _on_cores(self, jobs: int | None) -> tuple[int, Callable[[], None]]:
        """Each thread has its share of the cores: more threads of torch's would wait for each other, and spin."""
        jobs = jobs or HostInfo().default_jobs
        share = max(1, HostInfo().usable_cores // jobs)

        def begin() -> None:
            torch.set_num_threads(share)
            forkserver.set_environment(self._servers, OMP_NUM_THREADS=str(share))

        return jobs, begin

    def _one_a_gpu(self, jobs: int | None) -> tuple[int, Callable[[], None]]:
        indices = list(range(torch.cuda.device_count()))[:jobs]
        count = len(indices)

        def begin() -> None:
            index = indices.pop()
            torch.cuda.set_device(index)
            forkserver.set_environment(self._servers, CUDA_VISIBLE_DEVICES=gpu.gpu_id(index))

        return count, begin
