"""Benchmark: a timer that a sceptic believes.

Week 3. The timer is tried on devices that lie to naive ones: launches return at once, the first calls are slow, calls
differ, some are interrupted. Without a GPU the devices are simulated. On a GPU a kernel spins for the times wanted. A
device can be called only so often that, without warm-up, cold calls are more than a quarter of all.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from kernelpath.course.spec import Exercise, Question, Tolerance
from kernelpath.grading import compare
from kernelpath.lanes import cuda

LAUNCH_SECONDS, SYNCHRONIZE_SECONDS, CLOCK_SECONDS = 5e-6, 5e-6, 1e-7
COMPILE_SECONDS, CALIBRATION_SECONDS = 0.3, 1e-3
COLD, INTERRUPTED = 3, 10
"""How many times as long a call takes while the device is cold, and when it is interrupted."""
CALLS_AT_MOST, COLD_CALLS = 500, 150
TOLERANCE = Tolerance(rtol=0.04, atol=0.0)

SPIN = cuda.Kernel(
    "spin.cu",
    r"""
    __device__ long long nanoseconds() {
        long long now;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        return now;
    }
    __global__ void spin(const int* anywhere, long long duration) {
        const long long end = nanoseconds() + duration;
        while (nanoseconds() < end) {}
    }
    """,
    "spin",
)


@dataclass(frozen=True)
class Workload:
    """How long each call takes on the device.

    seconds: a usual call. jitter: calls spread evenly between 1 - jitter and 1 + jitter times that. cold: so many calls
    at the start are slow. period: one call in so many is interrupted; 0 for none.
    """

    seconds: float
    jitter: float
    cold: int
    period: int

    def duration(self, index: int) -> float:
        place = index * 0.6180339887 % 1  # multiples of the golden ratio fall evenly
        slow = COLD if index < self.cold else INTERRUPTED if self.period and index % self.period == 7 else 1
        return self.seconds * (1 + self.jitter * (2 * place - 1)) * slow

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """Of calls that are neither cold nor interrupted."""
        return tuple(self.seconds * (1 + self.jitter * side / 2) for side in (-1, 0, 1))


class Device:
    """Counts its calls."""

    def __init__(self, work: Workload) -> None:
        self.work, self._calls = work, 0

    def _next_duration(self) -> float:
        """Seconds. Raises RuntimeError after CALLS_AT_MOST calls."""
        if self._calls == CALLS_AT_MOST:
            raise RuntimeError(f"call() was called more than {CALLS_AT_MOST} times; time with fewer calls")
        self._calls += 1
        return self.work.duration(self._calls - 1)


class Simulated(Device):
    """A device that works off a queue while the host goes on, and the host's clock, in seconds."""

    def __init__(self, work: Workload) -> None:
        Device.__init__(self, work)
        self._now, self._free = 0.0, 0.0

    def __call__(self) -> None:
        self._now += LAUNCH_SECONDS if self._calls or not self.work.cold else COMPILE_SECONDS
        duration = self._next_duration()
        self._free = max(self._now, self._free) + duration

    def synchronize(self) -> None:
        self._now = max(self._now, self._free) + SYNCHRONIZE_SECONDS

    def clock(self) -> float:
        self._now += CLOCK_SECONDS
        return self._now


class Gpu(Device):
    """The GPU of this machine and the host's own clock. A call's time includes launching it and waiting for it."""

    def __init__(self, work: Workload) -> None:
        Device.__init__(self, work)
        self._anywhere = torch.empty(1, dtype=torch.int32, device="cuda")

    def __call__(self) -> None:
        self._spin(self._next_duration() - self._overhead)

    def _spin(self, seconds: float) -> None:
        SPIN[1, 1](self._anywhere, round(1e9 * seconds))

    @cached_property
    def _overhead(self) -> float:
        """Seconds that launching and waiting add to a call on this machine: up to 100 microseconds were seen."""
        times = []
        for _ in range(21):
            begin = self.clock()
            self._spin(CALIBRATION_SECONDS)
            self.synchronize()
            times.append(self.clock() - begin)
        return statistics.median(times) - CALIBRATION_SECONDS

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def clock(self) -> float:
        return time.perf_counter()


Call = Callable[[], None]


def inputs(
    rng: torch.Generator, milliseconds: int, jitter_percent: int, cold_calls: int, interrupted_one_in: int
) -> tuple[Call, Call, Callable[[], float], str]:
    """What the timer gets: the call, how to wait for the device, the clock; and the device of the answer."""
    spread = 0.8 + 0.4 * float(torch.rand((), generator=rng, device=rng.device))
    work = Workload(1e-3 * milliseconds * spread, jitter_percent / 100, cold_calls, interrupted_one_in)
    device = Gpu(work) if rng.device.type == "cuda" else Simulated(work)
    return device, device.synchronize, device.clock, rng.device.type


def reference(call: Device, synchronize: Call, clock: Callable[[], float], device: str) -> torch.Tensor:
    return torch.tensor(call.work.quartiles, dtype=torch.float64, device=device)


def complaint(inputs: Sequence[Any], outputs: Sequence[torch.Tensor]) -> str | None:
    """The first quartile that is wrong, of which device, and what that is a sign of."""
    work: Workload = inputs[0].work
    wrong = compare.mismatches(outputs[0], reference(*inputs), TOLERANCE).tolist()
    if not any(wrong):
        return None
    place = wrong.index(True)
    found, expected = outputs[0].tolist(), work.quartiles
    name = ("lower quartile", "median", "upper quartile")[place]
    said = f"{name} {1e6 * found[place]:,.1f} µs, expected {1e6 * expected[place]:,.1f} µs within 4 %"
    return f"{said}, on the device {described(work)}: {sign(work, found, place)}"


def described(work: Workload) -> str:
    troubles = {
        f"whose calls differ by {100 * work.jitter:.0f} % either way": work.jitter,
        f"whose first {work.cold} calls are cold": work.cold,
        f"where one call in {work.period} is interrupted": work.period,
    }
    return ", ".join(trouble for trouble, there in troubles.items() if there) or "without any trouble"


def sign(work: Workload, found: Sequence[float], place: int) -> str:
    """What such quartiles come from."""
    spread, right = found[2] - found[0], work.quartiles[2] - work.quartiles[0]
    direction = "too long" if found[place] > work.quartiles[place] else "too short"
    if found[2] < work.seconds / 2:
        return "far too short: the clock was read before the device was done"
    if spread < right / 2:
        return "spread too small: time many calls, each by itself"
    if spread > 2 * right and work.cold:
        return f"{direction}: cold calls count; warm up before the first look at the clock"
    if spread > 2 * right and work.period:
        return f"{direction}: an interrupted call moves a mean far, and a quartile hardly"
    return f"{direction}: {'a few calls say little' if work.jitter else 'is it the time of one call, in seconds?'}"


def case(jitter: int = 0, cold: int = 0, interrupted: int = 0) -> dict[str, int]:
    return {"milliseconds": 3, "jitter_percent": jitter, "cold_calls": cold, "interrupted_one_in": interrupted}


EXERCISE = Exercise(
    entry="quartiles",
    inputs=inputs,
    cases=(
        case(),
        case(jitter=20),
        case(cold=COLD_CALLS),
        case(jitter=20, interrupted=25),
        case(jitter=20, cold=COLD_CALLS, interrupted=25),
    ),
    reference=reference,
    # 100 calls to launch and to wait for are 0.5 % of 3 ms, the interrupted ones shift the upper quartile by 1 %, and
    # quartiles of 50 calls lie within 1 %. One call cannot do it: at 20 % jitter the quartiles are 10 % apart.
    tolerance={"float64": TOLERANCE},
    bytes_moved=lambda **case: 24,
    kind="python",
    check=complaint,
    hints=(
        "Which case fails first? Without jitter, cold or interrupted calls only one thing can go wrong: the clock is"
        " read before the device has done its work. What does the host have to do before each look at the clock?",
        "Time many calls one by one: look at the clock, call, synchronize, look again. Calls at the start do not count:"
        " make as many as are cold and a few more, and synchronize, before the first look. Do not average: one call"
        " that takes ten times as long moves a mean a lot and a quartile hardly at all.",
        "`for _ in range(200): call()`, then `synchronize()`. Then 100 times: `begin = clock(); call(); synchronize();"
        " times.append(clock() - begin)`. `statistics.quantiles(times, n=4)` gives the three quartiles.",
    ),
    questions=(
        Question(
            ask="A call takes 3000 microseconds on the device, its launch 5 on the host. You read the clock, launch ten"
            " calls and read it again. How many microseconds a call do you see?",
            answer=5.0,
            tolerance=0.05,
            why="The host has only filled a queue. The device is still busy with the first of them.",
            predict=True,
        ),
        Question(
            ask="99 calls take 100 microseconds each and one takes 1000. What is their mean, in microseconds?",
            answer=109.0,
            tolerance=0.002,
            why="(99 * 100 + 1000) / 100 = 109. A median says 100. A kernel that is 5 % faster drowns in such a mean.",
        ),
        Question(
            ask="100 calls are timed without warm-up, the first 30 of them run at a third of the speed. All other"
            " calls take the same time. Which of the three quartiles is wrong?",
            choices=("the upper one", "the median", "the lower one", "all three"),
            answer="the upper one",
            why="30 % of the times are three times too long. The median stands against up to half of bad values, but"
            " the upper quartile only against a quarter. A spread that looks too wide is the first sign of a cold"
            " start.",
        ),
        Question(
            ask="Why look at the clock around each call, and not once around 100 of them?",
            choices=(
                "a total gives a mean alone, with every interruption in it",
                "100 calls at a time do not fit into the queue of the device",
                "the clock of the host is too coarse for 100 calls at once",
            ),
            answer="a total gives a mean alone, with every interruption in it",
            why="A total has no median and no spread. It is right for very short kernels, where launching takes longer"
            " than the kernel. But then repeat the totals, and take their median.",
        ),
    ),
    explain="Your times still hold the launch and the waiting, some 10 µs. For a kernel of 3 ms that is nothing, for"
    " one of 10 µs it is everything. So experts let the device stamp the times (CUDA events), keep it busy while"
    " they launch, or launch many times from one CUDA graph. They also decide what is in the caches before each call,"
    " give new data each time, and compare two kernels in turns, A B A B, because clocks drift with temperature and"
    " power. kernelpath does all of this, in about 200 lines. triton.testing.do_bench warms up for a time"
    " instead of a number of calls, clears the L2 cache and offers quantiles. Whatever you use: say which.",
)
