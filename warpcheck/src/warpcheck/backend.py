"""The interface between the front ends and the device that runs PTX without a GPU.

    module = backend.device().load(ptx, file)
    module.launch("softmax", grid=(8, 1, 1), block=(128, 1, 1), shared=0, arguments=[x, 1000], tensors=[("x", x)])

`use` replaces the PTX machine of this process by another device.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, get_args

from warpcheck import initcheck, pointers, schedule_comparison, simt, simulated_gpu
from warpcheck.schedule import Schedule

if TYPE_CHECKING:
    import torch

    from warpcheck.pointers import Argument as Argument

Dim3 = tuple[int, int, int]


@dataclass(frozen=True)
class LaunchResult:
    """The result of a completed launch.

    Attributes:
        known_cost: The cost of a launch in another process.
        launch: The counters and events of the launch, if this process may see them.
    """

    known_cost: int = 0
    launch: simt.Launch | None = None

    @property
    def cost(self) -> int:
        """An estimate of an SM's time, in warp instructions."""
        return self.known_cost if self.launch is None else self.launch.cost


class Module(Protocol):
    """PTX that a device has loaded."""

    @property
    def kernels(self) -> Mapping[str, simt.Kernel]: ...

    def compile(self, name: str) -> None:
        """Compile a kernel ahead of `launch`, which compiles it otherwise. Raises simt.Unsupported."""

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
        programmatic_stream_serialization: bool = False,
    ) -> LaunchResult:
        """Run a kernel to completion.

        Args:
            name: The kernel.
            grid: The blocks along each axis.
            block: The threads of a block along each axis.
            shared: The bytes of dynamic shared memory.
            arguments: The values of the kernel's parameters.
            tensors: The tensors that the kernel may access, by name. Memory that addresses in these tensors and in the
                arguments point to is added.
            cooperative: All blocks are resident at the same time and may wait for each other.
            cluster: The extent of a cluster in blocks; by default the extent that the kernel is compiled for, if any.
            programmatic_stream_serialization: The launch may begin before the previous one has ended.

        Raises:
            simt.Fault: The kernel did something undefined.
            simt.TimedOut: The kernel exceeded its limit of instructions.
            simt.Unsupported: The kernel uses an unsupported instruction.
            ValueError: The launch is not possible.
        """


class Device(Protocol):
    """A device that runs PTX."""

    def load(self, text: str, source: str | None = None) -> Module:
        """Load PTX. Raises ValueError for PTX that the device rejects.

        source: The file that line numbers refer to; by default the first file that the PTX names.
        """


Bounds = Literal["tensor", "allocation"]


def check_bounds(bounds: str) -> None:
    """Raise ValueError unless these are bounds that a scope can have."""
    if bounds not in get_args(Bounds):
        raise ValueError(f"there are no bounds {bounds!r}: choose from {', '.join(get_args(Bounds))}")


@dataclass
class Checks:
    """The checks of launches in this process that need additional runs.

    extra_schedules: run every launch in these schedules as well, before the run whose results count; see
    `schedule_comparison`.
    uninitialized: report reads of bytes that nothing has written, in the memory that `initcheck` watches.
    bounds: what a kernel may access of a tensor: the memory from its first element to its last, or all of its storage.
    permits_unused_reads: do not report reads of unwritten shared memory if nothing depends on the content; see
        `schedule_comparison`.
    threads: how many threads may run the blocks of a launch; None: as `threads.default_threads` says.
    """

    extra_schedules: tuple[Schedule, ...] = ()
    uninitialized: bool = True
    bounds: Bounds = "tensor"
    permits_unused_reads: bool = False
    threads: int | None = None


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


# The most bytes of history that are kept of a launch, for a launch that may overlap it.
MAX_KEPT_BYTES = 1 << 28


class _Stream:
    """The history of the last launch in this process."""

    def __init__(self) -> None:
        self._memory: simt.Memory | None = None

    def put(self, memory: simt.Memory) -> None:
        """Set the memory of the launch that has just ended."""
        self._memory = memory if memory.release_owners() <= MAX_KEPT_BYTES else None

    def take(self, is_needed: bool) -> simt.Memory | None:
        """Return the memory of the last launch if the next launch may overlap it; forget it otherwise."""
        memory = self._memory if is_needed else None
        self._memory = None
        return memory


_stream = _Stream()


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
        programmatic_stream_serialization: bool = False,
    ) -> LaunchResult:
        self.compile(name)
        for key, tensor in tensors:
            if not simulated_gpu.is_host_memory(tensor.device):
                raise ValueError(
                    f"{key} is on {tensor.device}: on a machine with a GPU, warpcheck runs kernels on CPU tensors"
                )
        buffers = [simt.Buffer.of(key, tensor) for key, tensor in tensors]
        spans = [(buffer.name, pointers.Span.of_buffer(buffer)) for buffer in buffers]
        reachable = pointers.reachable(arguments, spans, pointers.alive, pointers.keep_mapped)
        buffers += [simt.Buffer.of(key, span.owner) for key, span in reachable]
        if checks.bounds == "allocation":
            buffers = [buffer.of_storage() for buffer in buffers]
        args = [value if isinstance(value, (int, float, bytes)) else value.data_ptr() for value in arguments]

        earlier = _stream.take(programmatic_stream_serialization)

        def run(schedule: Schedule, shared_fill: int | None) -> simt.Launch:
            storages = [buffer.owner for buffer in buffers] if checks.uninitialized else []
            memory = initcheck.memory_of(storages, for_trial=schedule != Schedule.FORWARD)
            if earlier is not None:
                memory.follow(earlier)
            launch = self._module.launch(
                name,
                grid=grid,
                block=block,
                shared=shared,
                args=args,
                buffers=buffers,
                memory=memory,
                is_limit_per_block=True,
                reverse=schedule,
                cooperative=cooperative,
                cluster=cluster or (),
                shared_fill=shared_fill,
                programmatic_stream_serialization=programmatic_stream_serialization,
                threads=checks.threads,
            )
            _stream.put(memory)
            return launch

        uses_shared_memory = shared > 0 or self._module.uses_shared_memory(name)
        try:
            launch = schedule_comparison.run_in_schedules(
                run,
                name,
                buffers,
                self._module.statics.values(),
                checks.extra_schedules,
                permits_unused_reads=checks.permits_unused_reads and uses_shared_memory,
            )
        except (simt.Fault, simt.TimedOut) as error:
            for observer in _fault_observers:
                observer(error)
            raise
        return LaunchResult(launch=launch)


_allocation_observers: list[Callable[[torch.Tensor], None]] = []


def on_allocation(observer: Callable[[torch.Tensor], None]) -> None:
    """Call `observer` with memory that a front end allocates itself for a launch, from now on."""
    _allocation_observers.append(observer)


def report_allocation(tensor: torch.Tensor) -> None:
    """Report memory that a front end allocated to the observers."""
    for observer in _allocation_observers:
        observer(tensor)


_device: Device = Local()


def device() -> Device:
    """Return the device that runs PTX for this process."""
    return _device


def use(replacement: Device) -> None:
    """Load all further modules on another device."""
    global _device
    _device = replacement
