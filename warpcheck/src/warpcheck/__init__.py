"""Run and check GPU kernels on a CPU: races, bounds, uninitialized memory, deadlocks, and counters by source line.

    import warpcheck

    report = warpcheck.run(softmax, x, arch="sm_90a")     # raises warpcheck.Race, warpcheck.OutOfBounds, ...
    report.launches[0].line("tl.load").sectors_per_request

The names below are the public interface. Everything else is internal and may change with any version.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from warpcheck.counters import LineCounters
    from warpcheck.errors import (
        BarrierDivergence,
        Deadlock,
        DeviceAssertion,
        Fault,
        InvalidCopy,
        InvalidDescriptor,
        InvalidTensorMemory,
        InvalidWarpMask,
        MisalignedAccess,
        MissingFence,
        OutOfBounds,
        Race,
        Rejected,
        TimedOut,
        Trap,
        Uninitialized,
        Unsupported,
    )
    from warpcheck.events import Event, EventKind
    from warpcheck.frontends import Unavailable, cuda, cute
    from warpcheck.report import Launch, Report
    from warpcheck.schedule import Schedule
    from warpcheck.scope import gpu, run

__all__ = [
    "BarrierDivergence",
    "Deadlock",
    "DeviceAssertion",
    "Event",
    "EventKind",
    "Fault",
    "InvalidCopy",
    "InvalidDescriptor",
    "InvalidTensorMemory",
    "InvalidWarpMask",
    "Launch",
    "LineCounters",
    "MisalignedAccess",
    "MissingFence",
    "OutOfBounds",
    "Race",
    "Rejected",
    "Report",
    "Schedule",
    "TimedOut",
    "Trap",
    "Unavailable",
    "Uninitialized",
    "Unsupported",
    "cuda",
    "cute",
    "gpu",
    "run",
]

# The module of each public name that is no fault and no front end.
_HOMES = {
    "LineCounters": "counters",
    "Event": "events",
    "EventKind": "events",
    "Unavailable": "frontends",
    "Launch": "report",
    "Report": "report",
    "Schedule": "schedule",
    "gpu": "scope",
    "run": "scope",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the interpreter, PyTorch and the compilers take seconds to import."""
    if name in ("cuda", "cute"):
        value: Any = import_module(f"warpcheck.frontends.{name}")
    elif name in __all__:
        value = getattr(import_module(f"warpcheck.{_HOMES.get(name, 'errors')}"), name)
    else:
        raise AttributeError(f"module 'warpcheck' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
