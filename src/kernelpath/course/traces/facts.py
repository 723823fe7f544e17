"""Report ten facts about the longest launch of a recording, as each of four tools knows them, else None."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from kernelpath.course.traces import Facts, TraceFile, chrome, ncu, nsys, rocprof

NAMES = (
    *("kernel", "nanoseconds", "blocks", "threads", "registers"),
    *("dram_bytes", "sectors_per_request", "occupancy", "stall", "tensor"),
)

_NCU = {
    "nanoseconds": ncu.DURATION,
    "registers": "launch__registers_per_thread",
    "blocks": "launch__grid_size",
    "threads": "launch__block_size",
    "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "tensor": ncu.TENSOR,
}
_READ = "dram__bytes_read.sum"
_WRITTEN = "dram__bytes_write.sum"
_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"


@dataclass(frozen=True)
class Longest:
    """The longest launch.

    Attributes:
        occupancy: Percent.
        tensor: Percent.
    """

    kernel: str
    nanoseconds: float
    blocks: int
    threads: int
    registers: int
    dram_bytes: float | None = None
    sectors_per_request: float | None = None
    occupancy: float | None = None
    stall: str | None = None
    tensor: float | None = None


def of(file: TraceFile, tool: str) -> Facts:
    """Return the facts, by the tool that wrote the file. Raises traces.Malformed, and KeyError for another tool."""
    return asdict(READERS[tool](file.content))


def _ncu(content: bytes) -> Longest:
    launch = max(
        ncu.read(content, [*_NCU.values(), _READ, _WRITTEN]), key=lambda candidate: candidate.metrics[ncu.DURATION]
    )
    metrics = launch.metrics
    stalls = {match[1]: metrics[name] for name in metrics if (match := ncu.STALL.fullmatch(name))}
    stalls.pop("selected", None)  # selected warps issue; they do not stall
    # A kernel that loads nothing has no sectors per request.
    requests = metrics.get(_REQUESTS, 0)
    return Longest(
        kernel=launch.name,
        nanoseconds=metrics[ncu.DURATION],
        blocks=int(metrics[_NCU["blocks"]]),
        threads=int(metrics[_NCU["threads"]]),
        registers=int(metrics[_NCU["registers"]]),
        dram_bytes=metrics[_READ] + metrics[_WRITTEN],
        sectors_per_request=metrics[_SECTORS] / requests if requests else None,
        occupancy=metrics[_NCU["occupancy"]],
        stall=max(stalls, key=lambda name: stalls[name], default=None),
        tensor=metrics[ncu.TENSOR],
    )


def _nsys(content: bytes) -> Longest:
    kernel = max(nsys.read(content), key=lambda candidate: candidate.nanoseconds)
    return Longest(kernel.name, kernel.nanoseconds, kernel.blocks, kernel.threads, kernel.registers)


def _perfetto(content: bytes) -> Longest:
    kernel = max(chrome.read(content).kernels, key=lambda candidate: candidate.duration)
    arguments = kernel.arguments
    return Longest(
        kernel=kernel.name,
        nanoseconds=1e3 * kernel.duration,
        # PyTorch writes grid and block as lists of three extents.
        blocks=math.prod(arguments["grid"]),
        threads=math.prod(arguments["block"]),
        registers=int(arguments["registers per thread"]),
    )


def _rocprof(content: bytes) -> Longest:
    dispatch = max(rocprof.read(content), key=lambda candidate: candidate.nanoseconds)
    counters = dispatch.counters
    # Both are needed for a sum, and rocprof writes them in KiB.
    sizes = [counters[name] for name in ("FETCH_SIZE", "WRITE_SIZE") if name in counters]
    return Longest(
        kernel=dispatch.name,
        nanoseconds=dispatch.nanoseconds,
        blocks=dispatch.blocks,
        threads=dispatch.threads,
        registers=dispatch.registers,
        dram_bytes=1024 * sum(sizes) if len(sizes) == 2 else None,
        occupancy=counters.get("OccupancyPercent"),
        tensor=counters.get("MfmaUtil"),
    )


READERS: Mapping[str, Callable[[bytes], Longest]] = {
    "ncu": _ncu,
    "nsys": _nsys,
    "perfetto": _perfetto,
    "rocprof": _rocprof,
}
