"""A rank with a GPU of its own: NCCL between the ranks, and the entry timed beside the library's all-reduce."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from kernelpath.work import messages
from kernelpath.work.call import Call
from kernelpath.work.tensors import samples

CALLS = 5
"""In a row, between two events: ranks begin a few microseconds apart."""


class NcclRank:
    """Made before the submission is imported, and before the process gives up what opens a connection.

    NCCL connects ranks when they first need it: a pair for a message, alone or in a batch, all of them for each
    algorithm, which follows from the size. All of that happens here.
    """

    def __init__(self, asked: messages.Start) -> None:
        self.device = torch.device("cuda", asked.rank)
        torch.cuda.set_device(self.device)
        store = FileStore(asked.store, asked.size)
        dist.init_process_group("nccl", store=store, rank=asked.rank, world_size=asked.size, device_id=self.device)
        self._token = torch.ones(1, device=self.device)
        self._library, self._synchronize = dist.all_reduce, torch.cuda.synchronize
        self._connect(asked.rank, asked.size)
        self._begin, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def _connect(self, rank: int, size: int) -> None:
        for power in range(0, 27, 3):
            self._library(torch.ones(1 << power, device=self.device))
        there = torch.empty_like(self._token)
        for distance in range(1, size):
            ahead, behind = (rank + distance) % size, (rank - distance) % size
            both = [dist.P2POp(dist.isend, self._token, ahead), dist.P2POp(dist.irecv, there, behind)]
            for request in dist.batch_isend_irecv(both):
                request.wait()
        for low in range(size):
            for high in range(low + 1, size):
                if rank == low:
                    dist.send(self._token, high)
                    dist.recv(there, high)
                elif rank == high:
                    dist.recv(there, low)
                    dist.send(self._token, low)
        self._synchronize()

    def answer(
        self,
        asked: messages.TimeRound,
        prepared: Callable[[Sequence[Any]], Call],
        entry: Callable[..., Any],
        run: Callable[..., Any],
        tampered: Callable[[], str],
    ) -> messages.RoundTimes:
        """Seconds of a call of the entry and of the library, and a sample of the entry's last output.

        asked: its case has n, dtype and what else the entry takes, by name; its seed draws this rank's vector.
        prepared: a call that is watched, on these inputs. run: calls a function on the submission's thread.
        """
        n, dtype, *others = asked.case.values()
        rng = torch.Generator(self.device).manual_seed(asked.seed)
        x = torch.randn(n, generator=rng, device=self.device).to(getattr(torch, dtype))
        watched = prepared([x, *others])
        watched(entry)
        copies = [x.clone() for _ in range(CALLS)]
        calls: list[Callable[[int], Any]] = [lambda _: entry(x, *others), lambda index: self._library(copies[index])]
        seconds, output = [0.0, 0.0], x
        for contestant in asked.order:
            taken, result = run(self._timed, calls[contestant])
            seconds[contestant] = taken
            output = result if contestant == 0 else output
        outputs = watched.outputs(output)
        returned = watched.returned(outputs, asked.secret, tampered(), lambda told: samples(told, asked.sample))
        return messages.RoundTimes(
            secret=asked.secret, returned=returned, seconds=seconds, changed_after_return=False, telemetry={}
        )

    def _timed(self, call: Callable[[int], Any]) -> tuple[float, Any]:
        """One call, of CALLS in a row, after all ranks have met."""
        result = None
        with torch.cuda.device(self.device):
            self._library(self._token)
            self._synchronize()
            self._begin.record()
            for index in range(CALLS):
                result = call(index)
            self._end.record()
            self._synchronize()
        return 1e-3 * self._begin.elapsed_time(self._end) / CALLS, result
