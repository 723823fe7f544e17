"""Compare the launches on a GPU with those on the PTX machine: the same kernels, in the same order, on the same grids.

The GPU's launches come from the profiler's trace, which the driver's records fill (CUPTI), and the machine's from its
transcript. Code is not compared, since it is compiled for another architecture.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import torch
from msgspec import Struct, field

from kernelpath.course.registry import Lane
from kernelpath.device.messages import LaunchEntry
from kernelpath.verdict import Finding, Verdict

# Bytes of static shared memory that a kernel may have. The profiler adds them to the dynamic bytes.
MOST_STATIC = 48 * 1024

_SHOWN_CHARACTERS = 120


class GpuLaunch(Struct, frozen=True):
    """A launch on the GPU.

    Attributes:
        shared: The static and the dynamic shared memory, in bytes.
    """

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


class InvalidTrace(Exception):
    """A text is not a profiler's trace."""


def parse_trace(text: bytes) -> list[GpuLaunch]:
    """Return the kernels of a trace of torch.profiler, in the order of their launches.

    The trace is in Chrome's format. Its events are in the order of execution; CUPTI's correlation ids count launches.

    Raises:
        InvalidTrace: The text is not such a trace.
    """
    try:
        events = msgspec.json.decode(text, type=_Trace).events
        kernels = [
            (event.name, msgspec.json.decode(event.args, type=_Arguments)) for event in events if event.cat == "kernel"
        ]
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidTrace(str(error)) from error
    kernels.sort(key=lambda kernel: kernel[1].correlation)
    return [GpuLaunch(demangle(name), args.grid, args.block, args.shared) for name, args in kernels]


def demangle(kernel: str) -> str:
    """Return a kernel's name as C++ spells it. The profiler reports such names, and PTX has mangled ones."""
    return str(torch._C._demangle(kernel))


def compare_with_machine(gpu: Sequence[GpuLaunch], machine: Sequence[LaunchEntry], lane: Lane) -> Finding | None:
    """Return a finding about the first launch that differs between the GPU and the PTX machine.

    Kernels that torch launches itself, to fill memory, are left out: check_library_share limits them. Shared memory is
    compared where the submission chooses it, in the lane "cuda"; elsewhere it is the compiler's.
    """
    own_names = [demangle(launch.kernel) for launch in machine]
    gpu = [launch for launch in gpu if not _is_torchs(launch.name) or launch.name in own_names]
    for number, (gpu_launch, machine_launch) in enumerate(zip(gpu, machine, strict=False), 1):
        if not _is_same_launch(gpu_launch, machine_launch, lane):
            has_same_name = _has_same_name(gpu_launch, machine_launch, lane)
            advice = _GRID_ADVICE if has_same_name and gpu_launch.grid != tuple(machine_launch.grid) else ""
            return _difference_finding(f"launch {number}: {_describe(gpu_launch)}", _describe(machine_launch), advice)
    if len(gpu) == len(machine):
        return None
    number = min(len(gpu), len(machine)) + 1
    if len(gpu) > len(machine):
        return _difference_finding(f"launch {number}: {_describe(gpu[number - 1])}", "nothing more")
    return _difference_finding(f"launch {number}: nothing more", _describe(machine[number - 1]))


def _is_same_launch(gpu_launch: GpuLaunch, machine_launch: LaunchEntry, lane: Lane) -> bool:
    has_same_shape = (gpu_launch.grid, gpu_launch.block) == (tuple(machine_launch.grid), tuple(machine_launch.block))
    is_same = has_same_shape and _has_same_name(gpu_launch, machine_launch, lane)
    # The machine records the dynamic shared memory alone. The difference is the kernel's static shared memory.
    return is_same and (lane != "cuda" or 0 <= gpu_launch.shared - machine_launch.shared <= MOST_STATIC)


def _has_same_name(gpu_launch: GpuLaunch, machine_launch: LaunchEntry, lane: Lane) -> bool:
    """Compare the names in CUDA C++. In other lanes, profiler and compiler add to the name of a function."""
    gpu_name = gpu_launch.name.casefold()
    machine_name = demangle(machine_launch.kernel).casefold()
    return gpu_name == machine_name or (lane != "cuda" and machine_name in gpu_name)


def _is_torchs(name: str) -> bool:
    # ATen's namespace, in which PyTorch has its own kernels.
    return "at::" in name


def _describe(launch: GpuLaunch | LaunchEntry) -> str:
    name = demangle(launch.kernel) if isinstance(launch, LaunchEntry) else launch.name
    name = name if len(name) <= _SHOWN_CHARACTERS else f"{name[:_SHOWN_CHARACTERS]}…"
    shape = f"grid {tuple(launch.grid)}, block {tuple(launch.block)}"
    return f"{name} with {shape} and {launch.shared} bytes of shared memory"


_GRID_ADVICE = "; torch.cuda.get_device_properties gives this GPU's numbers on the machine, too"


def _difference_finding(on_gpu: str, on_machine: str, advice: str = "") -> Finding:
    cause = f"the GPU ran other kernels than the PTX machine; on the GPU {on_gpu}; on the machine {on_machine}"
    return Finding(Verdict.NOT_YOUR_KERNEL, f"{cause}; what is graded there must be what runs here{advice}")
