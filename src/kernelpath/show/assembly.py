"""Source code line by line, with the PTX and the SASS that the compilers made of each, in terminals and notebooks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Protocol

from warpcheck.assembler import Assembled, Instruction, assembled, ptx_of, sass_of

if TYPE_CHECKING:
    from rich.console import RenderableType

MOST = 40
"""Instructions that are shown of a line; an unrolled loop has hundreds."""

NO_LINE = "no line of the source: what the compilers added, such as the subroutine of a 64-bit division"


class Launched(Protocol):
    """A launch with its module."""

    @property
    def kernel(self) -> str: ...

    @property
    def file(self) -> str: ...

    @property
    def ptx(self) -> str: ...


@dataclass(frozen=True)
class Line:
    """A line of source that became instructions; number 0 stands for all that is of no line."""

    number: int
    text: str
    ptx: Sequence[str]
    sass: Sequence[str]

    @property
    def heading(self) -> str:
        return f"{self.number}  {self.text}" if self.number else self.text

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Instructions beside each other, PTX and SASS, in their order; the last row says what is left out."""
        return list(zip_longest(_cut(self.ptx), _cut(self.sass), fillvalue=""))


@dataclass(frozen=True)
class Map:
    """A kernel, line by line. code: None where there is no ptxas, and so no SASS."""

    lines: Sequence[Line]
    code: Assembled | None

    @property
    def ptx(self) -> list[str]:
        """Every instruction, line by line."""
        return [text for line in self.lines for text in line.ptx]

    @property
    def sass(self) -> list[str]:
        """Every instruction, line by line."""
        return [text for line in self.lines for text in line.sass]

    @property
    def summary(self) -> str:
        ptx, sass = len(self.ptx), len(self.sass)
        if self.code is None:
            return f"{ptx} PTX instructions; no SASS: ptxas, which comes with Triton, is not here, or refuses this PTX"
        return (
            f"{ptx} PTX instructions, {sass} of SASS; {self.code.registers} registers,"
            f" {self.code.stack} bytes stack frame, {self.code.spill_stores} bytes spill stores,"
            f" {self.code.spill_loads} bytes spill loads"
        )


def of_launch(launch: Launched, source: str) -> Map:
    """What became of each line of the source in the kernel that was launched."""
    code = assembled(launch.ptx, launch.kernel)
    ptx = _by_line(ptx_of(launch.ptx, launch.kernel, launch.file))
    sass = _by_line(sass_of(code.cubin, launch.kernel, launch.file) if code is not None else ())
    texts = dict(enumerate(source.splitlines(), start=1))
    numbers = sorted(ptx.keys() | sass.keys(), key=lambda number: (number == 0, number))
    lines = [
        Line(number, texts.get(number, "") if number else NO_LINE, ptx.get(number, []), sass.get(number, []))
        for number in numbers
    ]
    return Map(lines, code)


def table(found: Map) -> RenderableType:
    """For a terminal: each line of source above its PTX and its SASS, which are cut where there is no room."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    def parts() -> Iterator[RenderableType]:
        yield Text(found.summary)
        for line in found.lines:
            heading = line.heading if line.number else f"0  {line.heading}"
            yield Text(f"\n{heading}", "bold", no_wrap=bool(line.number), overflow="ellipsis")
            rows = Table(box=None, pad_edge=False, show_header=False, expand=True)
            for _ in range(2):
                rows.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
            for ptx, sass in line.rows:
                rows.add_row(Text(f"  {ptx}"), Text(sass, "dim"))
            yield rows

    return Group(*parts())


def demangled(kernel: str) -> str:
    """The name of a kernel as its source has it, with template arguments: "softmax<float, 8>(...)"."""
    import torch

    return str(torch._C._demangle(kernel))


def _by_line(instructions: Sequence[Instruction]) -> Mapping[int, list[str]]:
    found: dict[int, list[str]] = {}
    for one in instructions:
        found.setdefault(one.line, []).append(_short(one.text))
    return found


def _short(text: str) -> str:
    """Parameters by their numbers instead of the kernel's mangled name."""
    return re.sub(r"\b\w+_param_(\d+)", r"param_\1", text)


def _cut(texts: Sequence[str]) -> list[str]:
    return list(texts) if len(texts) <= MOST else [*texts[: MOST - 1], f"… and {len(texts) - MOST + 1} more"]
