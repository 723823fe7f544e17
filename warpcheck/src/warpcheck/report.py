"""The launches of a scope, and what they did line by line."""

from __future__ import annotations

import linecache
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from warpcheck.counters import LaunchCounters, LineCounters
from warpcheck.errors import Fault, TimedOut
from warpcheck.events import Event
from warpcheck.machine import Launch as MachineLaunch

if TYPE_CHECKING:
    from warpcheck.frontends import Launched

__all__ = ["Launch", "Report"]


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel, with its counters by source line.

    Attributes:
        language: "cuda", "triton" or "cute".
        kernel: the name of the kernel, without template arguments.
        file: the source file that line numbers refer to.
        printed: the text that device code printed.
        timeline: the events of the first block (or cluster): copies, arrivals, waits, matrix products. Empty unless
            the scope records them.
        ptx: the text of the module.
    """

    language: str
    kernel: str
    file: str
    printed: str = field(repr=False)
    timeline: Sequence[Event] = field(repr=False)
    ptx: str = field(repr=False)
    _counters: LaunchCounters = field(repr=False)
    _source: Sequence[str] = field(repr=False)  # pieces of the source file

    @classmethod
    def of(cls, language: str, kernel: str, launch: MachineLaunch, source: str = "") -> Launch:
        """Describe a launch of the PTX machine.

        Args:
            language: The front end.
            kernel: The name of the kernel.
            launch: The counters and events.
            source: The text of the source file, which is read if this is empty.
        """
        pieces = [source]
        # linecache reads a file once and returns the list that it keeps: a launch does not pay for its text.
        if not source and launch.file:
            pieces = linecache.getlines(os.path.abspath(launch.file))
        return cls(
            language,
            kernel,
            launch.file,
            launch.printed,
            launch.events,
            launch.ptx,
            launch.counters,
            pieces,
        )

    @property
    def lines(self) -> Mapping[int, LineCounters]:
        """The counters of every line that executed an instruction, by line number."""
        return self._counters.lines

    @property
    def totals(self) -> LineCounters:
        """The sum over all lines."""
        return self._counters.totals

    @cached_property
    def source(self) -> str:
        """Return the text of the source file, or "" if it could not be read at the launch."""
        return "".join(self._source)

    def source_line(self, number: int) -> str:
        """Return the text of a line of the source file, or "" if there is no such line."""
        lines = self.source.splitlines()
        return lines[number - 1].strip() if 0 < number <= len(lines) else ""

    def line(self, where: int | str) -> LineCounters:
        """Return the counters of one source line, by its number or by a part of its text.

        Raises:
            LookupError: no line, or more than one line, that executed an instruction contains the text; or the line
                of that number executed none.
        """
        if isinstance(where, int):
            if where not in self.lines:
                raise LookupError(f"line {where} of {self.file or self.kernel} executed no instruction")
            return self.lines[where]
        numbers = [number for number in sorted(self.lines) if where in self.source_line(number)]
        if len(numbers) != 1:
            which = "none" if not numbers else "lines " + ", ".join(map(str, numbers))
            raise LookupError(f"{where!r} has to be in one line of {self.file or self.kernel}; it is in {which}")
        return self.lines[numbers[0]]

    def __str__(self) -> str:
        header = f"{self.kernel} ({self.language}), {self.file}"
        return "\n".join([header, *self._rows()])

    def _rows(self) -> Iterator[str]:
        yield f"{'line':>6} {'warp instructions':>18} {'sectors/request':>16} {'bank conflicts':>15}  source"
        for number in sorted(self.lines):
            counters = self.lines[number]
            sectors = f"{counters.sectors_per_request:.1f}" if counters.sectors_per_request else ""
            conflicts = f"{counters.bank_conflicts:,}" if counters.bank_conflicts else ""
            code = self.source_line(number)
            yield f"{number:>6} {counters.warp_instructions:>18,} {sectors:>16} {conflicts:>15}  {code}".rstrip()


@dataclass
class Report:
    """All launches that were checked, in their order, and every fault that one of them raised.

    Attributes:
        arch: the architecture that kernels were compiled for, such as "sm_90a".
        launches: the launches that ended without a fault.
        faults: the faults that launches raised, also those that the program caught itself.
        result: what the function returned, for `warpcheck.run`.
    """

    arch: str
    launches: list[Launch] = field(default_factory=list)
    faults: list[Fault | TimedOut] = field(default_factory=list)
    result: Any = None

    def add(self, launched: Launched) -> None:
        """Add a launch that has ended, unless it ran on a GPU."""
        if launched.counted is not None:
            self.launches.append(Launch.of(launched.lane, launched.name, launched.counted, launched.source))

    def __str__(self) -> str:
        kernels = {launch.kernel for launch in self.launches}
        totals = (
            (len(self.launches), "launch", "es"),
            (len(kernels), "kernel", "s"),
            (len(self.faults), "fault", "s"),
        )
        launches, names, faults = (f"{count} {noun}{plural * (count != 1)}" for count, noun, plural in totals)
        head = f"{launches} of {names} on {self.arch}, {faults}"
        return "\n\n".join([head, *map(str, self.launches), *map(str, self.faults)])
