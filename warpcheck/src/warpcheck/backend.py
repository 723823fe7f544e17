"""The one seam that lanes launch through where there is no GPU.

    module = api.device().load(ptx, file)
    module.launch("softmax", grid=(8, 1, 1), block=(128, 1, 1), shared=0, arguments=[x, 1000], tensors=[("x", x)])

`use` puts another device in place of the PTX machine of this process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from warpcheck import pointers, reordered, simt, simulated_gpu, unwritten
from warpcheck.schedule import Schedule

if TYPE_CHECKING:
    import torch

    from warpcheck.pointers import Argument as Argument

Dim3 = tuple[int, int, int]


@dataclass(frozen=True)
class Ran:
    """A launch that has come to its end.

    cost: roughly how an SM's time goes, in warp instructions. launch: all that was counted, where this process may see
    it.
    """

    cost: int
    launch: simt.Launch | None = None


class Module(Protocol):
    """PTX that a device has loaded."""

    @property
    def kernels(self) -> Mapping[str, simt.Kernel]: ...

    def compile(self, name: str) -> None:
        """Make a kernel ready; `launch` does it otherwise. Raises simt.Unsupported."""

    def launch(
        self,
        name: str,
        *,
        grid: Dim3,
        block: Dim3,
        shared: int,
        arguments: Sequence[Argument],
        tensors: Sequence[tuple[str, torch.Tensor]],
        cooperative: bool = False,
        cluster: Dim3 | None = None,
    ) -> Ran:
        """Run a kernel to its end.

        tensors: the memory that it may touch, by name; what addresses in it and in the arguments lead to comes to it.
        cooperative: its blocks are resident together and may wait for each other. cluster: the blocks of a cluster;
        those that the kernel is compiled for, if any, where none are given.

        Raises simt.Fault, simt.TimedOut, simt.Unsupported, and ValueError for a launch that is not possible.
        """


class Device(Protocol):
    """Something that runs PTX."""

    def load(self, text: str, source: str | None = None) -> Module:
        """PTX, and the file that its lines refer to, the first that it names if none is given.

        Raises ValueError for PTX that the device does not load.
        """


@dataclass
class Checks:
    """The checks of launches in this process beside those of a single run.

    extra_schedules: run every launch in these schedules as well, before the run whose results count; see `reordered`.
    """

    extra_schedules: tuple[Schedule, ...] = ()


checks = Checks()

_fault_observers: list[Callable[[simt.Fault | simt.TimedOut], None]] = []


@contextlib.contextmanager
def observe_faults(observer: Callable[[simt.Fault | simt.TimedOut], None]) -> Iterator[None]:
    """Call `observer` with every fault of a launch in this process, before the fault is raised."""
    _fault_observers.append(observer)
    try:
        yield
    finally:
        _fault_observers.remove(observer)


class Local:
    """The PTX machine in this process."""

    def load(self, text: str, source: str | None = None) -> Module:
        return _LocalModule(simt.load(text, source, simulated_gpu.target()))


class _LocalModule:
    def __init__(self, module: simt.Module) -> None:
        self._module = module

    @property
    def kernels(self) -> Mapping[str, simt.Kernel]:
        return self._module.kernels

    def compile(self, name: str) -> None:
        try:
            self._module.compile(name)
        except simt.Rejected as error:
            advice = simulated_gpu.describe_choice(error.message)
            raise simt.Rejected(f"{error.message}{advice}", error.file, error.line) from error

    def launch(
        self,
        name: str,
        *,
        grid: Dim3,
        block: Dim3,
        shared: int,
        arguments: Sequence[Argument],
        tensors: Sequence[tuple[str, torch.Tensor]],
        cooperative: bool = False,
        cluster: Dim3 | None = None,
    ) -> Ran:
        self.compile(name)
        given = [(key, pointers.Span.of(tensor)) for key, tensor in tensors]
        found = pointers.reachable(arguments, given, pointers.alive)
        named = [*tensors, *((key, span.owner) for key, span in found)]
        args = [value if isinstance(value, (int, float, bytes)) else value.data_ptr() for value in arguments]
        buffers = [simt.Buffer.of(key, tensor) for key, tensor in named]

        def run(schedule: Schedule) -> simt.Launch:
            return self._module.launch(
                name,
                grid=grid,
                block=block,
                shared=shared,
                args=args,
                buffers=buffers,
                memory=unwritten.memory_of((tensor for _, tensor in named), for_trial=schedule != Schedule.FORWARD),
                reverse=schedule,
                cooperative=cooperative,
                cluster=cluster or (),
            )

        try:
            launch = reordered.run_in_schedules(
                run, name, buffers, self._module.statics.values(), checks.extra_schedules
            )
        except (simt.Fault, simt.TimedOut) as error:
            for observer in _fault_observers:
                observer(error)
            raise
        return Ran(cost(launch), launch)


def cost(launch: simt.Launch) -> int:
    """Instructions of warps, and eight for each sector or wavefront."""
    totals = launch.totals
    sectors = totals.global_load_sectors + totals.global_store_sectors
    sectors += totals.bulk_load_sectors + totals.bulk_store_sectors
    wavefronts = totals.shared_load_wavefronts + totals.shared_store_wavefronts
    return totals.warp_instructions + 8 * (sectors + wavefronts)


_allocation_observers: list[Callable[[torch.Tensor], None]] = []


def on_allocation(observer: Callable[[torch.Tensor], None]) -> None:
    """Call `observer` with memory that a front end allocates itself for a launch, from now on."""
    _allocation_observers.append(observer)


def allocated(tensor: torch.Tensor) -> None:
    """Tell the observers of memory that a front end allocated."""
    for observer in _allocation_observers:
        observer(tensor)


_device: Device = Local()


def device() -> Device:
    """What runs PTX for this process."""
    return _device


def use(other: Device) -> None:
    """Let `other` run all that is loaded from now on."""
    global _device
    _device = other
