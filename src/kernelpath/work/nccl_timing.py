"""Time an entry against the library's all-reduce on a rank with a GPU of its own, with NCCL between the ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from kernelpath.work import messages
from kernelpath.work.call import GuardedCall
from kernelpath.work.tensors import samples

# Calls in a row between two events, since ranks begin a few microseconds apart.
CALLS = 5

_SUBMISSION = 0


class NcclRank:
    """A rank of an NCCL group, created before the submission is imported.

    It is created before the process gives up the system calls that open connections. NCCL connects two ranks when they
    first exchange a message, separately for single and for batched messages, and all ranks for each algorithm, which it
    chooses by the size. The constructor makes all these connections.
    """

    def __init__(self, request: messages.Start) -> None:
        self.device = torch.device("cuda", request.rank)
        torch.cuda.set_device(self.device)
        store = FileStore(request.store, request.size)
        dist.init_process_group("nccl", store=store, rank=request.rank, world_size=request.size, device_id=self.device)
        self._token = torch.ones(1, device=self.device)
        # References from before the submission is imported: it may replace the functions.
        self._all_reduce = dist.all_reduce
        self._synchronize = torch.cuda.synchronize
        self._connect(request.rank, request.size)
        self._begin, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def _connect(self, rank: int, size: int) -> None:
        # From 4 bytes to 64 MiB, so that each algorithm that NCCL chooses by size has its connections.
        for power in range(0, 27, 3):
            self._all_reduce(torch.ones(1 << power, device=self.device))
        received = torch.empty_like(self._token)
        for distance in range(1, size):
            ahead, behind = (rank + distance) % size, (rank - distance) % size
            operations = [dist.P2POp(dist.isend, self._token, ahead), dist.P2POp(dist.irecv, received, behind)]
            for request in dist.batch_isend_irecv(operations):
                request.wait()
        # One pair after another. The lower rank sends first, so no two ranks wait for each other.
        for low in range(size):
            for high in range(low + 1, size):
                if rank == low:
                    dist.send(self._token, high)
                    dist.recv(received, high)
                elif rank == high:
                    dist.recv(received, low)
                    dist.send(self._token, low)
        self._synchronize()

    def time_round(
        self,
        request: messages.TimeRound,
        prepare_call: Callable[[Sequence[Any]], GuardedCall],
        entry: Callable[..., Any],
        run: Callable[..., Any],
        describe_tampering: Callable[[], str],
    ) -> messages.RoundTimes:
        """Return the seconds of a call of the entry and of the library, and a sample of the entry's last output.

        Args:
            request: Its case has n, dtype and the entry's other arguments by name. Its seed generates this rank's
                vector.
            prepare_call: Returns a monitored call on these inputs.
            entry: The submission's function.
            run: Calls a function on the submission's thread.
            describe_tampering: Describes what the submission changed in this process.
        """
        n, dtype, *other_arguments = request.case.values()
        rng = torch.Generator(self.device).manual_seed(request.seed)
        x = torch.randn(n, generator=rng, device=self.device).to(getattr(torch, dtype))
        # One monitored call first, for the operators that the entry calls. The timed calls run without the monitor.
        monitored_call = prepare_call([x, *other_arguments])
        monitored_call(entry)
        copies = [x.clone() for _ in range(CALLS)]  # the library reduces in place
        implementations: list[Callable[[int], Any]] = [
            lambda _: entry(x, *other_arguments),
            lambda index: self._all_reduce(copies[index]),
        ]
        seconds = [0.0, 0.0]
        output = x
        for implementation in request.order:
            elapsed, result = run(self._time, implementations[implementation])
            seconds[implementation] = elapsed
            if implementation == _SUBMISSION:
                output = result
        outputs = monitored_call.outputs(output)
        call_result = monitored_call.to_result(
            outputs, request.secret, describe_tampering(), lambda tensors: samples(tensors, request.sample)
        )
        return messages.RoundTimes(
            secret=request.secret, result=call_result, seconds=seconds, changed_after_return=False, telemetry={}
        )

    def _time(self, call: Callable[[int], Any]) -> tuple[float, Any]:
        """Return the mean seconds of CALLS calls in a row, and the last result. A collective aligns the ranks first."""
        result = None
        with torch.cuda.device(self.device):
            self._all_reduce(self._token)
            self._synchronize()
            self._begin.record()
            for index in range(CALLS):
                result = call(index)
            self._end.record()
            self._synchronize()
        return 1e-3 * self._begin.elapsed_time(self._end) / CALLS, result
