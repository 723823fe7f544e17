"""A timer: the quartiles of the time of one call, on devices that mislead naive timers.

Cold calls are so many that, without warm-up, they are more than a quarter of all that a device may be called.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from kernelpath.course.labs.timer import Device, Workload
from kernelpath.course.problem import Case, Problem, Tolerance

COLD_CALLS = 150

Call = Callable[[], None]


def inputs(
    rng: torch.Generator, milliseconds: int, jitter_percent: int, cold_calls: int, interrupted_one_in: int
) -> tuple[Device, Call, Callable[[], float], str]:
    """Return what the timer gets: the call, a function that waits for the device, the clock; and a device."""
    spread = 0.8 + 0.4 * float(torch.rand((), generator=rng, device=rng.device))
    work = Workload(1e-3 * milliseconds * spread, jitter_percent / 100, cold_calls, interrupted_one_in)
    device = Device(work)
    return device, device.synchronize, device.clock, rng.device.type


def reference(call: Device, synchronize: Call, clock: Callable[[], float], device: str) -> torch.Tensor:
    return torch.tensor(call.work.quartiles, dtype=torch.float64, device=device)


def case(jitter: int = 0, cold: int = 0, interrupted: int = 0) -> Case:
    return {"milliseconds": 3, "jitter_percent": jitter, "cold_calls": cold, "interrupted_one_in": interrupted}


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        case(),
        case(jitter=20),
        case(cold=COLD_CALLS),
        case(jitter=20, interrupted=25),
        case(jitter=20, cold=COLD_CALLS, interrupted=25),
    ),
    reference=reference,
    # 100 calls to launch and to wait for are 0.5% of 3 ms, the interrupted ones shift the upper quartile by 1%, and
    # quartiles of 50 calls lie within 1%. One call cannot do it: at 20% jitter the quartiles are 10% apart.
    tolerance={"float64": Tolerance(rtol=0.04, atol=0.0)},
    compulsory_bytes=lambda **case: 24,
)
