"""Time calls on a GPU with a cold L2 cache. `grading.timing` has the statistics that turn rounds into a decision."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import torch
from cuda.bindings import driver


class Stopwatch:
    """Times calls on one GPU.

    Create it before the submission is imported: it keeps its own references to the functions that it uses. Work on
    every stream of the device is timed: all streams wait for the start event, and the end event waits for all streams.
    The device spins before the start event, so that launches are queued by then. Overhead on the host therefore does
    not count, as it would not in a model that runs ahead of its GPU.

    Raises:
        RuntimeError: There is no GPU.
    """

    # The shortest and the longest spin. The spin lasts twice as long as the slowest of the latest launches took on the
    # host. A dozen operators with their gradients take up to 3 ms there, since the submission's operators are
    # monitored.
    SPIN_SECONDS = (200e-6, 6e-3)

    # The time in which an idle device reports that it is idle. After that, work has outlived the end event.
    SLACK_SECONDS = 200e-6

    def __init__(self, device: torch.device | str = "cuda") -> None:
        self.device = torch.empty(0, device=device).device  # with its index
        torch.cuda.set_device(self.device)
        properties = torch.cuda.get_device_properties(self.device)
        self._scrub = torch.empty(2 * properties.L2_cache_size // 4, dtype=torch.int32, device=self.device)
        self._driver = {name: getattr(driver, name) for name in _DRIVER_CALLS}
        self._synchronize = torch.cuda.synchronize
        self._sleep = torch._C._cuda_sleep
        self._clock = perf_counter
        clock = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_CLOCK_RATE
        # The attribute is in kilohertz, and torch's _cuda_sleep counts the cycles of clock64.
        self._cycles_per_second = 1e3 * self._call("cuDeviceGetAttribute", clock, self._call("cuCtxGetDevice"))
        self._spin = self.SPIN_SECONDS[0]
        self._caches_persist = properties.major >= 8
        self._nvml = _nvml(self.device)
        self._replay = torch.cuda.CUDAGraph.replay
        self._context = self._call("cuCtxGetCurrent")
        self._persisting = driver.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE
        self._start, self._joined, self._end = (self._call("cuEventCreate", 0) for _ in range(3))

    def round(self, calls: Sequence[Callable[[], object]]) -> tuple[list[float], list[object]]:
        """Run each call once, in the order given, each with a cold L2. Return the seconds and the outputs, call by
        call.
        """
        # One call after another in one round: whatever changes the clock rates in between changes them for all.
        timed = [self._once(call) for call in calls]
        return [seconds for seconds, _ in timed], [output for _, output in timed]

    def graph(self, call: Callable[[int], object], launches: int) -> Callable[[], list[object]]:
        """Capture `call(0)` to `call(launches - 1)` as a CUDA graph, and return a function that replays it.

        This is for kernels under 20 µs. Pass the replay to `round` like any call, and divide its seconds by `launches`.
        Let `call(i)` work on input set i modulo the number of sets, which together exceed twice the L2, and copy new
        values into the sets between rounds: a replay reads and writes the same tensors each time.

        Raises:
            RuntimeError: The call cannot be captured, for example because it synchronizes.
        """
        # The first call may compile, tune and load a module. That synchronizes, which a capture does not allow.
        call(0)
        self._synchronize()
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recorded):
            outputs = [call(index) for index in range(launches)]

        def replay() -> list[object]:
            self._replay(recorded)
            return outputs

        return replay

    def median(self, call: Callable[[], object], rounds: int = 15) -> float:
        """Return the seconds of one call: the median over `rounds`, after three that do not count."""
        return statistics.median([self._once(call)[0] for _ in range(rounds + 3)][3:])

    def wait(self) -> None:
        """Wait until the device is idle."""
        self._synchronize()

    def telemetry(self) -> dict[str, float]:
        """Return clocks in MHz, power in W and temperature in degrees Celsius, as NVML reports them; empty without
        NVML.
        """
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
        """Return the seconds and the output of one call.

        Work that the end event did not wait for shows as a device that is still busy after the event. That time is
        added.
        """
        self._synchronize()
        self._flush()
        # The device spins while the host launches, so that the launches are already queued when the clock starts.
        self._sleep(int(self._spin * self._cycles_per_second))
        self._call("cuEventRecord", self._start, 0)
        # All streams of the context wait for the start, including streams that the submission makes itself.
        self._call("cuCtxWaitEvent", self._context, self._start)
        host_start = self._clock()
        output = call()
        host_seconds = self._clock() - host_start
        # The end event comes after the work of all streams: it waits for an event that joins them.
        self._call("cuCtxRecordEvent", self._context, self._joined)
        self._call("cuStreamWaitEvent", 0, self._joined, 0)
        self._call("cuEventRecord", self._end, 0)
        self._call("cuEventSynchronize", self._end)
        event_time = self._clock()
        self._synchronize()
        # The end event waits for all streams that exist. Work on a stream that the call made later, or by another
        # process, ends after it.
        excess = self._clock() - event_time
        shortest, longest = self.SPIN_SECONDS
        # The spin grows at once after a slow launch, and shrinks slowly.
        self._spin = min(max(shortest, 2 * host_seconds, 0.9 * self._spin), longest)
        seconds: float = self._call("cuEventElapsedTime", self._start, self._end) * 1e-3
        return seconds + (excess if excess > self.SLACK_SECONDS else 0.0), output

    def _flush(self) -> None:
        """Evict all data of earlier calls from L2: reset lines that are set to persist, then write twice the size of
        L2.
        """
        if self._caches_persist:
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
    "cuCtxGetDevice",
    "cuCtxRecordEvent",
    "cuCtxResetPersistingL2Cache",
    "cuCtxSetLimit",
    "cuCtxWaitEvent",
    "cuDeviceGetAttribute",
    "cuEventCreate",
    "cuEventElapsedTime",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuMemsetD32Async",
    "cuStreamWaitEvent",
)


def _nvml(device: torch.device) -> tuple[Any, Any] | None:
    """Return the NVML module and its handle of the GPU, where there are any."""
    import torch

    try:
        import pynvml

        pynvml.nvmlInit()
        # NVML numbers all GPUs of the machine, whatever CUDA_VISIBLE_DEVICES says, so the UUID identifies the GPU.
        return pynvml, pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
    except Exception:  # NVML is absent, forbidden or of another driver: times are still good without it
        return None
