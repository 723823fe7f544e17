"""The exceptions that end a launch."""

from __future__ import annotations

import enum
from typing import Any

__all__ = [
    "FAULT_KINDS",
    "BarrierDivergence",
    "Deadlock",
    "DeviceAssertion",
    "Fault",
    "FaultKind",
    "InvalidCopy",
    "InvalidDescriptor",
    "InvalidTensorMemory",
    "InvalidWarpMask",
    "MisalignedAccess",
    "MissingFence",
    "OutOfBounds",
    "Race",
    "Rejected",
    "TimedOut",
    "Trap",
    "Uninitialized",
    "Unsupported",
]


class FaultKind(enum.Enum):
    """The kind of a fault."""

    OUT_OF_BOUNDS = "out of bounds"
    MISALIGNED = "misaligned"
    UNINITIALIZED = "uninitialized"
    RACE = "race"
    BARRIER = "barrier"
    BAD_MASK = "bad mask"
    ASSERTION = "assertion"
    TRAP = "trap"
    DESCRIPTOR = "descriptor"
    BAD_COPY = "bad copy"
    UNFENCED = "unfenced"
    TENSOR_MEMORY = "tensor memory"


FAULT_KINDS = list(FaultKind)


class Fault(Exception):
    """A thread did something that CUDA leaves undefined.

    ``Fault(kind, ...)`` makes an instance of the subclass for that kind, so that `except Race` catches races alone.

    Attributes:
        kind: the kind of fault.
        message: one sentence that names the thread and its block (of a Triton kernel, the program) and the memory.
        kernel, file, line: where the access is in the source; line is 0 if the PTX names none.
        block, thread: (x, y, z).
        address: the first byte of the access, or None if there was no access.
        conflict_line: the source line of the conflicting access of a race; 0 if there is none.
        schedule: the order of blocks and warps in which the launch ran (`warpcheck.Schedule`).
        source: the text of the file, if the kernel was compiled from a text and not from a file.
        is_in_shared_memory: whether it is a read of shared memory that nothing has written.
        launch: what the launch had done until then, if its events were recorded.
    """

    def __new__(cls, kind: FaultKind | None = None, *_: object, **__: object) -> Fault:
        return super().__new__(_SUBCLASSES[kind] if cls is Fault and isinstance(kind, FaultKind) else cls)

    def __init__(
        self,
        kind: FaultKind,
        message: str,
        kernel: str,
        file: str,
        line: int,
        block: tuple[int, int, int],
        thread: tuple[int, int, int],
        address: int | None = None,
    ) -> None:
        super().__init__(f"{kernel}, line {line}: {message}")
        self.kind = kind
        self.message = message
        self.kernel = kernel
        self.file = file
        self.line = line
        self.block = block
        self.thread = thread
        self.address = address
        self.conflict_line = 0
        self.schedule = 0
        self.source = ""
        self.is_in_shared_memory = False
        self.launch: Any = None


class Race(Fault):
    """Two threads access the same bytes, at least one writes, and nothing orders the two accesses."""


class OutOfBounds(Fault):
    """An access outside of every tensor, variable and argument of the launch."""


class Uninitialized(Fault):
    """A read of memory that neither the host nor a kernel has written."""


class BarrierDivergence(Fault):
    """A barrier that not all the threads it waits for can reach, or that is used against its rules."""


class MisalignedAccess(Fault):
    """An access at an address that is not a multiple of its size."""


class InvalidWarpMask(Fault):
    """A warp-level operation whose mask names lanes that do not take part, or leaves out lanes that do."""


class DeviceAssertion(Fault):
    """A failed assert in device code."""


class Trap(Fault):
    """A trap instruction."""


class InvalidDescriptor(Fault):
    """A descriptor of wgmma or tcgen05, or a tensor map, that the hardware does not accept."""


class InvalidCopy(Fault):
    """An asynchronous copy with a size, address or box that the hardware does not accept."""


class MissingFence(Fault):
    """A bulk copy, a wgmma or a tcgen05 that reads what a thread wrote with no fence of its kind in between."""


class InvalidTensorMemory(Fault):
    """Tensor memory that is allocated, freed or addressed against its rules."""


_SUBCLASSES: dict[FaultKind, type[Fault]] = {
    FaultKind.OUT_OF_BOUNDS: OutOfBounds,
    FaultKind.MISALIGNED: MisalignedAccess,
    FaultKind.UNINITIALIZED: Uninitialized,
    FaultKind.RACE: Race,
    FaultKind.BARRIER: BarrierDivergence,
    FaultKind.BAD_MASK: InvalidWarpMask,
    FaultKind.ASSERTION: DeviceAssertion,
    FaultKind.TRAP: Trap,
    FaultKind.DESCRIPTOR: InvalidDescriptor,
    FaultKind.BAD_COPY: InvalidCopy,
    FaultKind.UNFENCED: MissingFence,
    FaultKind.TENSOR_MEMORY: InvalidTensorMemory,
}


class Unsupported(Exception):
    """An instruction that the machine does not have. ``line`` is the source line, 0 if the PTX names none."""

    def __init__(self, instruction: str, file: str, line: int) -> None:
        super().__init__(f"line {line}: the PTX machine has no {instruction}")
        self.instruction = instruction
        self.file = file
        self.line = line


class Rejected(Exception):
    """ptxas does not assemble this, in its words: an instruction, for example, that the PTX's target does not have."""

    def __init__(self, message: str, file: str, line: int) -> None:
        super().__init__(f"line {line}: {message}")
        self.message = message
        self.file = file
        self.line = line


class TimedOut(Exception):
    """The launch used up its instructions, or its threads wait for each other. ``line`` is where a thread was
    running.

    ``launch``, here and of a Fault, is the Launch up to that point, if its events are recorded.
    """

    def __init__(self, message: str, kernel: str, file: str, line: int) -> None:
        super().__init__(f"{kernel}, line {line}: {message}")
        self.message = message
        self.kernel = kernel
        self.file = file
        self.line = line
        self.schedule = 0
        self.source = ""
        self.launch: Any = None


class Deadlock(TimedOut):
    """All remaining threads wait for each other, so the launch would never end."""
