"""What can end a launch early."""

from __future__ import annotations

import enum
from typing import Any

__all__ = ["FAULT_KINDS", "Deadlock", "Fault", "FaultKind", "Rejected", "TimedOut", "Unsupported"]


class FaultKind(enum.Enum):
    """What a kernel did wrong."""

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
    """A thread did what it must not. ``message`` says what in one sentence, of a thread and its block, or of a program.

    ``block`` and ``thread`` are (x, y, z); ``address`` is the first byte of the access; None without an access.
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
    """An instruction that the machine does not know. ``line`` is the source line, 0 where the PTX names none."""

    def __init__(self, instruction: str, file: str, line: int) -> None:
        super().__init__(f"line {line}: the PTX machine has no {instruction}")
        self.instruction = instruction
        self.file = file
        self.line = line


class Rejected(Exception):
    """What ptxas does not assemble, in its words: an instruction, say, that the PTX's target does not have."""

    def __init__(self, message: str, file: str, line: int) -> None:
        super().__init__(f"line {line}: {message}")
        self.message = message
        self.file = file
        self.line = line


class TimedOut(Exception):
    """The launch used up its instructions, or its threads wait for each other. ``line`` is where one was running.

    ``launch``, here and of a Fault, is what the launch did up to there, a Launch, where its events are recorded.
    """

    def __init__(self, message: str, kernel: str, file: str, line: int) -> None:
        super().__init__(f"{kernel}, line {line}: {message}")
        self.message = message
        self.kernel = kernel
        self.file = file
        self.line = line
        self.launch: Any = None


class Deadlock(TimedOut):
    """Every thread that remains waits for another one, so the launch would never end."""
