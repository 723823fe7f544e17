"""What the GPU ran compared with what the PTX machine ran: the same kernels, in the same order, on the same grids.

The GPU's side is the profiler's trace, which the driver's records fill (CUPTI); the other is the machine's transcript.
Code is not compared: it is compiled for another architecture.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import torch
from msgspec import Struct, field

from kernelpath.course.registry import Lane
from kernelpath.device.messages import Note
from kernelpath.verdict import Finding, Verdict

MOST_STATIC = 48 * 1024
"""Bytes of static shared memory that a kernel may have. The profiler adds them to the dynamic ones."""

_SHOWN = 120


class Launched(Struct, frozen=True):
    """A launch on the GPU. shared: static and dynamic, in bytes."""

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int


class _Arguments(Struct, frozen=True):
    grid: tuple[int, int, int] = (0, 0, 0)
    block: tuple[int, int, int] = (0, 0, 0)
    shared: int = field(default=0, name="shared memory")
    correlation: int = 0


class _Event(Struct, frozen=True):
    name: str = ""
    cat: str = ""
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _Trace(Struct, frozen=True):
    events: Sequence[_Event] = field(name="traceEvents")


class NoTrace(Exception):
    """What was told is not a profiler's trace."""


def of_trace(text: bytes) -> list[Launched]:
    """The kernels of a trace in Chrome's format, as torch.profiler writes it, in the order of their launches.

    Raises NoTrace.
    """
    try:
        events = msgspec.json.decode(text, type=_Trace).events
        kernels = [(one.name, msgspec.json.decode(one.args, type=_Arguments)) for one in events if one.cat == "kernel"]
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise NoTrace(str(error)) from error
    kernels.sort(key=lambda kernel: kernel[1].correlation)
    return [Launched(readable(name), args.grid, args.block, args.shared) for name, args in kernels]


def readable(kernel: str) -> str:
    """A kernel's name as C++ spells it; the profiler gives it so, PTX does not."""
    return str(torch._C._demangle(kernel))


def difference(gpu: Sequence[Launched], machine: Sequence[Note], lane: Lane) -> Finding | None:
    """The first launch that is not the same in both.

    What torch launches itself, to fill memory, is left out: library_share limits it. Shared memory is compared where
    the submission chooses it, in the lane "cuda"; elsewhere it is the compiler's.
    """
    own = [readable(one.kernel) for one in machine]
    gpu = [one for one in gpu if not _is_torchs(one.name) or one.name in own]
    for number, (here, there) in enumerate(zip(gpu, machine, strict=False), 1):
        if not _alike(here, there, lane):
            advice = _GRIDS if _same_name(here, there, lane) and here.grid != tuple(there.grid) else ""
            return _finding(f"launch {number}: {_told(here)}", _told(there), advice)
    if len(gpu) == len(machine):
        return None
    number = min(len(gpu), len(machine)) + 1
    if len(gpu) > len(machine):
        return _finding(f"launch {number}: {_told(gpu[number - 1])}", "nothing more")
    return _finding(f"launch {number}: nothing more", _told(machine[number - 1]))


def _alike(here: Launched, there: Note, lane: Lane) -> bool:
    same = (here.grid, here.block) == (tuple(there.grid), tuple(there.block)) and _same_name(here, there, lane)
    return same and (lane != "cuda" or 0 <= here.shared - there.shared <= MOST_STATIC)


def _same_name(here: Launched, there: Note, lane: Lane) -> bool:
    """The CUDA C++ name, or what the profiler and a Python compiler's lane make of a function's name."""
    one, other = here.name.casefold(), readable(there.kernel).casefold()
    return one == other or (lane != "cuda" and other in one)


def _is_torchs(name: str) -> bool:
    return "at::" in name


def _told(one: Launched | Note) -> str:
    name = readable(one.kernel) if isinstance(one, Note) else one.name
    name = name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…"
    return f"{name} with grid {tuple(one.grid)}, block {tuple(one.block)} and {one.shared} bytes of shared memory"


_GRIDS = "; torch.cuda.get_device_properties gives this GPU's numbers on the machine, too"


def _finding(here: str, there: str, advice: str = "") -> Finding:
    cause = f"the GPU ran other kernels than the PTX machine; on the GPU {here}; on the machine {there}"
    return Finding(Verdict.NOT_YOUR_KERNEL, f"{cause}; what is graded there must be what runs here{advice}")
