"""The exceptions that end a launch."""

from __future__ import annotations

import enum
from typing import Any

__all__ = ["FAULT_KINDS", "Deadlock", "Fault", "FaultKind", "Rejected", "TimedOut", "Unsupported"]


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


FAULT_KINDS = list(FaultKind)


class Fault(Exception):
    """A thread broke a rule. ``message`` is one sentence about a thread and its block, or about a Triton program.

    ``block`` and ``thread`` are (x, y, z); ``address`` is the first byte of the access, None without an access.
    """

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
        self.launch: Any = None


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
        self.launch: Any = None


class Deadlock(TimedOut):
    """All remaining threads wait for each other, so the launch would never end."""
