"""Paired, interleaved timing with a cold L2, and the statistics that turn rounds into a decision.

The worker holds a `Stopwatch`, made before the submission is imported. The parent holds everything else: it asks for
`LOOKS[0]` rounds, then doubles them until the interval of the ratio is `settled`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from functools import lru_cache
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

from kernelpath.verdict import Interval

if TYPE_CHECKING:
    import torch

LOOKS = (24, 48, 96, 192)
"""Rounds after which the parent may stop. Fixed in advance, so that neither luck nor a slow clock shortens a run."""

CONFIDENCE = 0.99
"""Probability that the intervals at all of LOOKS cover the true median together."""

Side = Literal["above", "below", "straddles"]


def order(index: int, contestants: int) -> tuple[int, ...]:
    """Who runs when in round `index`: rotated every round and reversed every cycle.

    Each contestant takes each place, and follows each other one, equally often.
    """
    cycle, shift = divmod(index, contestants)
    rotated = tuple((place + shift) % contestants for place in range(contestants))
    return rotated[::-1] if cycle % 2 else rotated


def ratio(baseline: Sequence[float], submission: Sequence[float], confidence: float | None = None) -> Interval:
    """Median of the paired ratios baseline over submission, with a distribution-free confidence interval.

    The interval lies between two order statistics, as the sign test gives it (Thompson 1936; Conover, Practical
    Nonparametric Statistics, section 3.2): it assumes no shape of the noise. Without `confidence` each look gets
    its share of CONFIDENCE (Bonferroni), so that stopping at any of LOOKS is legitimate.
    Raises ValueError for lists of different lengths, for times that are not positive, and for too few of them.
    """
    if len(baseline) != len(submission):
        raise ValueError(f"{len(baseline)} baseline times are paired with {len(submission)} submission times")
    if not all(0 < seconds < math.inf for seconds in (*baseline, *submission)):
        raise ValueError("a time is not a positive finite number")
    confidence = 1 - (1 - CONFIDENCE) / len(LOOKS) if confidence is None else confidence
    ratios = sorted(slow / fast for slow, fast in zip(baseline, submission, strict=True))
    rank = _rank(len(ratios), confidence)
    middle = (ratios[(len(ratios) - 1) // 2] + ratios[len(ratios) // 2]) / 2
    return Interval(middle, ratios[rank], ratios[-1 - rank])


@lru_cache
def _rank(count: int, confidence: float) -> int:
    """Largest r for which the r-th least and the r-th greatest of `count` values (from 0) bracket the median."""
    tail, rank = 0.0, -1
    for successes in range(count // 2):
        tail += math.comb(count, successes) / 2**count
        if 2 * tail > 1 - confidence:
            break
        rank = successes
    if rank < 0:
        raise ValueError(f"{count} rounds are too few for an interval of {confidence:.2%}")
    return rank


def judge(interval: Interval, gate: float) -> Side:
    """Where the ratio lies: "above" means at or above the gate, "straddles" that the noise is wider than the margin."""
    if interval.low >= gate:
        return "above"
    return "below" if interval.high < gate else "straddles"


def settled(interval: Interval, gates: Sequence[float], width: float = 0.02) -> bool:
    """Whether more rounds would tell nothing new: every gate is decided and the interval's relative width is small."""
    decided = all(judge(interval, gate) != "straddles" for gate in gates)
    return decided and interval.high <= interval.low * (1 + width)


class Stopwatch:
    """Times calls on one GPU. Make it before the submission is imported: it keeps its own references to what it uses.

    Work on every stream of the device counts: all streams wait for the start event, and the end event waits for all
    streams. A device spin before the start event hides launch overhead, as it would be hidden in a running model.
    Raises RuntimeError where there is no GPU.
    """

    SPIN_SECONDS = 300e-6
    """Longer than it takes to launch a kernel from Python, or a compiled function with its guards."""

    SLACK_SECONDS = 200e-6
    """How long an idle device may take to say so; later than this, work outlived the end event."""

    def __init__(self, device: torch.device | str = "cuda") -> None:
        import torch
        from cuda.bindings import driver

        self.device = torch.empty(0, device=device).device  # with its index
        torch.cuda.set_device(self.device)
        properties = torch.cuda.get_device_properties(self.device)
        self._scrub = torch.empty(2 * properties.L2_cache_size // 4, dtype=torch.int32, device=self.device)
        self._driver = {name: getattr(driver, name) for name in _DRIVER_CALLS}
        self._synchronize, self._sleep, self._clock = torch.cuda.synchronize, torch._C._cuda_sleep, perf_counter
        self._spin_cycles = int(self.SPIN_SECONDS * properties.clock_rate * 1e3)
        self._nvml = _nvml(self.device)
        self._replay = torch.cuda.CUDAGraph.replay
        self._context = self._call("cuCtxGetCurrent")
        self._persisting = driver.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE
        self._start, self._joined, self._end = (self._call("cuEventCreate", 0) for _ in range(3))

    def round(self, calls: Sequence[Callable[[], object]]) -> tuple[list[float], list[object]]:
        """Run each call once, in the order given, each from a cold L2. Returns seconds and outputs, call by call."""
        timed = [self._once(call) for call in calls]
        return [seconds for seconds, _ in timed], [output for _, output in timed]

    def graph(self, call: Callable[[int], object], launches: int) -> Callable[[], list[object]]:
        """For kernels under 20 µs: `call(0)` to `call(launches - 1)` captured as a CUDA graph, and what replays it.

        Give the replay to `round` like any call and divide its seconds by `launches`. Let `call(i)` work on input set
        i modulo the sets, which together exceed twice the L2, and copy new values into the sets between rounds: a
        replay reads and writes the same tensors each time. Raises what the capture raises, such as RuntimeError for a
        call that synchronizes.
        """
        import torch

        call(0)
        self._synchronize()
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recorded):
            outputs = [call(index) for index in range(launches)]

        def replay() -> list[object]:
            self._replay(recorded)
            return outputs

        return replay

    def ceilings(self, dtype: str | None = None, rounds: int = 15) -> dict[str, float]:
        """What this machine reaches at best, as medians over `rounds`: bytes per second for "copy" (bytes read plus
        written), "read" and "fill", and for a `dtype` operations per second of the library's matrix product in it,
        under "matmul_" and the dtype's name. Random data. float32 products are strict, not TF32.
        """
        found = _bandwidths(self, rounds)
        if dtype is not None:
            found[f"matmul_{dtype}"] = max(_product(self, dtype, size, rounds) for size in (4096, 8192))
        return found

    def median(self, call: Callable[[], object], rounds: int = 15) -> float:
        """Seconds of one call: the median over `rounds`, after three that do not count."""
        return statistics.median([self._once(call)[0] for _ in range(rounds + 3)][3:])

    def telemetry(self) -> dict[str, float]:
        """Clocks in MHz, power in W and temperature in degrees Celsius, as NVML tells them; empty without NVML."""
        if self._nvml is None:
            return {}
        nvml, gpu = self._nvml
        return {
            "sm_mhz": float(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)),
            "memory_mhz": float(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM)),
            "watts": nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3,
            "celsius": float(nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)),
        }

    def _once(self, call: Callable[[], object]) -> tuple[float, object]:
        self._synchronize()
        self._flush()
        self._sleep(self._spin_cycles)
        self._call("cuEventRecord", self._start, 0)
        self._call("cuCtxWaitEvent", self._context, self._start)
        output = call()
        self._call("cuCtxRecordEvent", self._context, self._joined)
        self._call("cuStreamWaitEvent", 0, self._joined, 0)
        self._call("cuEventRecord", self._end, 0)
        self._call("cuEventSynchronize", self._end)
        ended = self._clock()
        self._synchronize()
        late = self._clock() - ended
        seconds: float = self._call("cuEventElapsedTime", self._start, self._end) * 1e-3
        return seconds + (late if late > self.SLACK_SECONDS else 0.0), output

    def _flush(self) -> None:
        """Leave nothing of earlier calls in L2: lines set to persist lose that status, then twice L2 is written."""
        self._call("cuCtxSetLimit", self._persisting, 0)
        self._call("cuCtxResetPersistingL2Cache")
        self._call("cuMemsetD32Async", self._scrub.data_ptr(), 0, self._scrub.numel(), 0)

    def _call(self, name: str, *arguments: object) -> Any:
        status, *results = self._driver[name](*arguments)
        if status != 0:
            raise RuntimeError(f"{name} failed: {status.name}")
        return results[0] if results else None


_DRIVER_CALLS = (
    "cuCtxGetCurrent",
    "cuCtxRecordEvent",
    "cuCtxResetPersistingL2Cache",
    "cuCtxSetLimit",
    "cuCtxWaitEvent",
    "cuEventCreate",
    "cuEventElapsedTime",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuMemsetD32Async",
    "cuStreamWaitEvent",
)


_SWEEP = """
extern "C" __global__ void sweep(const uint4 *x, unsigned *sink) {
    long i = 4L * blockIdx.x * blockDim.x + threadIdx.x;
    unsigned seen = 0;
    #pragma unroll
    for (int k = 0; k < 4; ++k) {  // four loads of 16 bytes in flight
        uint4 v = x[i + k * blockDim.x];
        seen |= v.x ^ v.y ^ v.z ^ v.w;
    }
    if (seen == 1) *sink = seen;  // hardly ever, but the compiler cannot know
}
"""
"""Reads everything and computes next to nothing. torch.sum reaches only 95 % of this on an H200."""


def _bandwidths(stopwatch: Stopwatch, rounds: int) -> dict[str, float]:
    """Bytes per second of a copy, a read-only sweep and a fill, of 2 GiB each where the memory allows it."""
    import torch

    from kernelpath.lanes import cuda

    free, _ = torch.cuda.mem_get_info(stopwatch.device)
    count = min(2 << 30, free // 8) >> 14 << 12  # elements; whole blocks of the sweep
    source = torch.randn(count, device=stopwatch.device)
    target = torch.empty_like(source)
    sweep = cuda.Kernel("sweep.cu", _SWEEP, "sweep")[count // 4096, 256]
    return {
        "copy": 8 * count / stopwatch.median(lambda: target.copy_(source), rounds),
        "read": 4 * count / stopwatch.median(lambda: sweep(source, target), rounds),
        "fill": 4 * count / stopwatch.median(lambda: target.fill_(1.5), rounds),
    }


def _product(stopwatch: Stopwatch, dtype: str, size: int, rounds: int) -> float:
    """Operations per second of the library's product of two square matrices, each laid out as the library likes it."""
    import torch

    kind: torch.dtype = getattr(torch, dtype)
    rows, columns = (50 * torch.randn(2, size, size, device=stopwatch.device)).to(kind)
    one = torch.ones((), device=stopwatch.device)
    products: dict[torch.dtype, Callable[[], object]] = {
        torch.int8: lambda: torch._int_mm(rows, columns.t()),
        torch.float8_e4m3fn: lambda: torch._scaled_mm(rows, columns.t(), one, one, out_dtype=torch.bfloat16),
    }
    return 2 * size**3 / stopwatch.median(products.get(kind, lambda: rows @ columns), rounds)


def _nvml(device: torch.device) -> tuple[Any, Any] | None:
    """The NVML module and its handle of the GPU, where there are any."""
    import torch

    try:
        import pynvml

        pynvml.nvmlInit()
        return pynvml, pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
    except Exception:  # NVML is absent, forbidden or of another driver: times are still good without it
        return None
