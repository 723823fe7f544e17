"""Measure two or more GPUs of one host: their links, NCCL, and all-reduce over symmetric memory.

    python benchmarks/all_reduce.py map all_reduce collectives overlap block

Prints one line of JSON with each requested part by its name. Week 16's notebook runs it, with one process per GPU.
NVLink multicast is off on both sides, as not every machine offers it. Times of a call are medians of the slowest rank
in µs. NCCL_MAX_CTAS in the environment limits the blocks of NCCL's kernels.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensor_parallel
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from kernelpath.course import registry
from kernelpath.course.problems import transformer_block as problem

SIZES = [1 << power for power in range(10, 31, 2)]
# Up to this size in bytes, a call is shorter than its launch from Python, so a graph of many calls is timed as well.
GRAPHED = 1 << 24

SECONDS = 240.0


def run_command(*command: str) -> str:
    """Return the output of a command."""
    return subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.strip()


def topology() -> dict[str, str]:
    """Return nvidia-smi's description of the links."""
    fields = "index,name,pci.bus_id,pcie.link.gen.current,pcie.link.width.current"
    return {
        "topo": run_command("nvidia-smi", "topo", "-m").replace("\x1b[4m", "").replace("\x1b[0m", ""),
        "pcie": run_command("nvidia-smi", f"--query-gpu={fields}", "--format=csv"),
        "nvlink": run_command("nvidia-smi", "nvlink", "-s"),
    }


class Rank:
    """One process with one GPU."""

    def __init__(self, rank: int, size: int, store: str) -> None:
        self.rank, self.size = rank, size
        self.device = torch.device("cuda", rank)
        torch.cuda.set_device(self.device)
        files = FileStore(store, size)
        dist.init_process_group("nccl", store=files, rank=rank, world_size=size, device_id=self.device)
        assert dist.group.WORLD is not None
        self.group = dist.group.WORLD

    def synchronize(self) -> None:
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()

    def slowest(self, us: float) -> float:
        worst = torch.tensor([us], device=self.device)
        dist.all_reduce(worst, op=dist.ReduceOp.MAX)
        return float(worst)

    def time(self, call: Callable[[], object], times: int, rounds: int = 5) -> float:
        """Return the µs of one call, out of `times` calls in a row."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        microseconds = []
        for _ in range(rounds):
            self.synchronize()
            call()
            begin.record()
            for _ in range(times):
                call()
            end.record()
            torch.cuda.synchronize()
            microseconds.append(1e3 * begin.elapsed_time(end) / times)
        return self.slowest(statistics.median(microseconds))

    def time_in_graph(self, call: Callable[[], object], times: int = 20) -> float:
        """Return the µs of one call without its launch from Python."""
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            call()
        torch.cuda.current_stream().wait_stream(stream)
        self.synchronize()
        with torch.cuda.graph(graph):
            for _ in range(times):
                call()
        self.synchronize()
        return self.time(graph.replay, 3) / times


def links(rank: Rank) -> dict[str, float]:
    """Return the GB/s of copies by the copy engine to and from a peer's memory, and between host and GPU."""
    import torch.distributed._symmetric_memory as symmetric

    n = 1 << 28
    times = 5
    shared = symmetric.empty(n, dtype=torch.uint8, device=rank.device)
    peer = symmetric.rendezvous(shared, rank.group).get_buffer((rank.rank + 1) % rank.size, (n,), torch.uint8)
    local = torch.empty_like(shared)
    host = torch.empty(n, dtype=torch.uint8, pin_memory=True)
    calls: dict[str, Callable[[], object]] = {
        "peer write": lambda: peer.copy_(local),
        "peer read": lambda: local.copy_(peer),
        "from the host": lambda: local.copy_(host, non_blocking=True),
        "to the host": lambda: host.copy_(local, non_blocking=True),
    }
    return {name: n / rank.time(call, times) / 1e3 for name, call in calls.items()}


class Symmetric:
    """The reference kernel of symmetric_memory on this rank's GPU, in place."""

    def __init__(self, rank: Rank, max_bytes: int) -> None:
        import torch.distributed._symmetric_memory as symmetric

        self.rank = rank
        self.solution = registry.import_file(registry.find("symmetric_memory").reference, "symmetric_memory")
        sizes = {
            "x": max_bytes,
            "staging": max_bytes + 16 * rank.size,
            "flags": 4 * rank.size * self.solution.MOST_BLOCKS,
        }
        self._buffers = {
            name: symmetric.empty(size, dtype=torch.uint8, device=rank.device).zero_() for name, size in sizes.items()
        }
        self._handles = {name: symmetric.rendezvous(handle, rank.group) for name, handle in self._buffers.items()}
        tables = {
            name: torch.tensor(handle.buffer_ptrs, dtype=torch.int64, device=rank.device)
            for name, handle in self._handles.items()
        }
        self._tables = [tables["x"], tables["x"], tables["staging"], tables["flags"]]
        rank.synchronize()

    def vector(self, n: int) -> torch.Tensor:
        """Return the first n elements of x as bfloat16."""
        return self._buffers["x"].view(torch.bfloat16)[:n]

    def __call__(self, n: int) -> None:
        self.solution.launch(self._tables, self.rank.rank, 1, n, torch.bfloat16)


def all_reduce(rank: Rank) -> dict[str, Any]:
    """Return µs by bytes of NCCL and of two shots over symmetric memory, in graphs if short, and called from Python."""
    ours = Symmetric(rank, SIZES[-1])
    eager: dict[str, dict[int, float]] = {"NCCL": {}, "two shots": {}}
    short: dict[str, dict[int, float]] = {"NCCL": {}, "two shots": {}}
    for size in SIZES:
        n = size // 2
        times = 50 if size <= 1 << 22 else 10 if size <= 1 << 26 else 3
        x = ours.vector(n)
        check(rank, ours, n)
        copy = torch.empty_like(x)
        for name, call in (("NCCL", lambda y=copy: dist.all_reduce(y)), ("two shots", lambda m=n: ours(m))):
            x.fill_(0.5)
            copy.fill_(0.5)
            eager[name][size] = rank.time(call, times)
            graphed = size <= GRAPHED
            short[name][size] = rank.time_in_graph(call) if graphed else eager[name][size]
    return {**short, "eager": eager}


def check(rank: Rank, ours: Symmetric, n: int) -> None:
    """Raise AssertionError unless the kernel's sum equals NCCL's, which is in float32 and rounded once."""
    torch.manual_seed(rank.rank)
    mine = torch.randn(n, device=rank.device, dtype=torch.bfloat16)
    total = mine.float()
    dist.all_reduce(total)
    ours.vector(n).copy_(mine)
    rank.synchronize()
    ours(n)
    torch.cuda.synchronize()
    torch.testing.assert_close(ours.vector(n), total.bfloat16(), rtol=0, atol=0)


def overlap(rank: Rank, layers: int = 32, elements: int = 1 << 23) -> dict[str, Any]:
    """Return ms of compute, of communication, and of both, and the hidden share, by layers per bucket."""
    weight = torch.randn(4096, 4096, device=rank.device, dtype=torch.bfloat16)
    batch = torch.randn(8192, 4096, device=rank.device, dtype=torch.bfloat16)
    out = torch.empty_like(batch)
    gradients = torch.full((layers, elements), 0.5, device=rank.device, dtype=torch.bfloat16)

    def compute() -> None:
        for _ in range(layers):
            torch.mm(batch, weight, out=out)

    def communicate(each: int) -> None:
        for first in range(0, layers, each):
            dist.all_reduce(gradients[first : first + each])

    def compute_and_communicate(each: int) -> None:
        requests = []
        for layer in range(layers):
            torch.mm(batch, weight, out=out)
            if (layer + 1) % each == 0:
                requests.append(dist.all_reduce(gradients[layer + 1 - each : layer + 1], async_op=True))
        for request in requests:
            request.wait()

    compute_us = rank.time(compute, 3)
    report: dict[str, Any] = {"compute": compute_us / 1e3, "communication": {}, "both": {}, "hidden": {}}
    for each in (1, 2, 4, 8, 16, 32):
        communication = rank.time(lambda each=each: communicate(each), 3)  # type: ignore[misc]
        step = rank.time(lambda each=each: compute_and_communicate(each), 3)  # type: ignore[misc]
        report["communication"][each] = communication / 1e3
        report["both"][each] = step / 1e3
        report["hidden"][each] = (compute_us + communication - step) / communication
    return report


def collectives(rank: Rank) -> dict[str, dict[int, float]]:
    """Return µs by bytes of the whole vector, for NCCL and for the reference of all_reduce, which uses NCCL, too."""
    solution = registry.import_file(registry.find("all_reduce").reference, "all_reduce")
    report: dict[str, dict[int, float]] = {}
    for size in SIZES:
        n = size // 2
        times = 20 if size <= 1 << 22 else 5
        x = torch.full((n,), 0.5, device=rank.device, dtype=torch.bfloat16)
        part = x.chunk(rank.size)[rank.rank].clone()
        calls: dict[str, Callable[[], object]] = {
            "all-gather": lambda x=x, part=part: dist.all_gather_into_tensor(x, part),  # type: ignore[misc]
            "reduce-scatter": lambda x=x, part=part: dist.reduce_scatter_tensor(part, x),  # type: ignore[misc]
            "ring, all-gather": lambda part=part, n=n: solution.all_gather(part, n),  # type: ignore[misc]
            "ring, reduce-scatter": lambda x=x: solution.reduce_scatter(x),  # type: ignore[misc]
            "ring": lambda x=x: solution.ring(x),  # type: ignore[misc]
            "two shots by messages": lambda x=x: solution.two_shot(x),  # type: ignore[misc]
        }
        for name, call in calls.items():
            report.setdefault(name, {})[size] = rank.time(call, times, rounds=3)
    return report


LLAMA = problem.case(2, 4096, 4096, 32, 8, 128, 14_336)


def block(rank: Rank) -> dict[str, float]:
    """Return ms of a training step of one layer of Llama 3 8B: on one GPU, and split over all of them."""
    module = registry.import_file(registry.find("transformer_block").reference, "transformer_block")
    inputs: Any = problem.inputs(torch.Generator(rank.device).manual_seed(1), **LLAMA)
    x, residual, norm1, wqkv, wo, norm2, wgu, wdown, *rotation_and_gradients, heads, kv_heads = inputs
    own = tensor_parallel.shares(wqkv, wo, wgu, wdown, heads, kv_heads, rank.rank, rank.size)
    ours = Symmetric(rank, 2 * x.numel())

    def by_nccl(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        total = torch.mm(a, b)
        dist.all_reduce(total)
        return total

    def by_two_shots(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        total = torch.mm(a, b, out=ours.vector(x.numel()).view(-1, x.shape[-1]))
        ours(x.numel())
        return total

    split = (x, residual, norm1, own[0], own[1], norm2, own[2], own[3], *rotation_and_gradients)

    def step(summed: tensor_parallel.Product) -> tuple[torch.Tensor, ...]:
        return tensor_parallel.step(module, heads // rank.size, kv_heads // rank.size, summed, *split)

    expected = module.transformer_block(*inputs)
    for summed in (by_nccl, by_two_shots):
        for got, want in zip(step(summed)[:4], expected[:4], strict=True):
            error = (got.float() - want.float()).norm() / want.float().norm()
            assert float(error) < 0.02, f"{summed.__name__} differs from one GPU by {float(error):.3f}"
    report = {"one GPU": rank.time(lambda: module.transformer_block(*inputs), 3) / 1e3}
    report |= {by.__name__: rank.time(lambda by=by: step(by), 3) / 1e3 for by in (by_nccl, by_two_shots)}  # type: ignore[misc]
    return report | {"efficiency": report["one GPU"] / (rank.size * min(report["by_nccl"], report["by_two_shots"]))}


MEASURED: dict[str, Callable[[Rank], dict[str, Any]]] = {
    "map": links,
    "all_reduce": all_reduce,
    "collectives": collectives,
    "overlap": overlap,
    "block": block,
}


def main(parts: str) -> None:
    """Start one process per GPU, and print the results of rank 0.

    Args:
        parts: The names of the parts, separated by commas.
    """
    size = torch.cuda.device_count()
    with tempfile.TemporaryDirectory() as folder:
        no_multicast = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}
        command = [sys.executable, __file__, parts, f"{size}", f"{Path(folder) / 'store'}"]
        ranks = [
            subprocess.Popen(
                [*command, f"{rank}"], env={**os.environ, **no_multicast}, stdout=subprocess.PIPE, text=True
            )
            for rank in range(size)
        ]
        try:
            outputs = [process.communicate(timeout=SECONDS)[0] for process in ranks]
            report = json.loads(outputs[0].splitlines()[-1])
        finally:
            for process in ranks:
                process.kill()
                process.wait()
    if "map" in report:
        report["map"] |= topology()
    print(json.dumps(report))


if __name__ == "__main__":
    if set(sys.argv[1:]) <= set(MEASURED):
        main(",".join(sys.argv[1:]))
    else:
        names, count, store, number = sys.argv[1:]
        me = Rank(int(number), int(count), store)
        result = {name: MEASURED[name](me) for name in names.split(",")}
        me.synchronize()
        if me.rank == 0:
            print(json.dumps(result), flush=True)
        os._exit(0)  # skip the destructors: the driver frees what NCCL and symmetric memory hold
