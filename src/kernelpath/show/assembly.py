"""Show source code line by line with the PTX and the SASS of each line, in terminals and notebooks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Protocol

from warpcheck.assembler import Assembled, Instruction, assembled, ptx_of, sass_of

if TYPE_CHECKING:
    from rich.console import RenderableType

# The number of instructions shown for a line. An unrolled loop has hundreds.
MAX_INSTRUCTIONS_PER_LINE = 40

NO_LINE = "no line of the source: what the compilers added, such as the subroutine of a 64-bit division"


class HasPtx(Protocol):
    """A launch with its module."""

    @property
    def kernel(self) -> str: ...

    @property
    def file(self) -> str: ...

    @property
    def ptx(self) -> str: ...


@dataclass(frozen=True)
class CompiledLine:
    """A line of source that became instructions. Number 0 stands for all instructions without a line."""

    number: int
    text: str
    ptx: Sequence[str]
    sass: Sequence[str]

    @property
    def heading(self) -> str:
        return f"{self.number}  {self.text}" if self.number else self.text

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Return pairs of PTX and SASS instructions in order. The last pair says what is left out."""
        return list(zip_longest(_truncate(self.ptx), _truncate(self.sass), fillvalue=""))


@dataclass(frozen=True)
class LineMap:
    """A kernel, line by line.

    Attributes:
        code: The assembled kernel; None if there is no ptxas, and then there is no SASS.
    """

    lines: Sequence[CompiledLine]
    code: Assembled | None

    @property
    def ptx(self) -> list[str]:
        """Return every PTX instruction, line by line."""
        return [text for line in self.lines for text in line.ptx]

    @property
    def sass(self) -> list[str]:
        """Return every SASS instruction, line by line."""
        return [text for line in self.lines for text in line.sass]

    @property
    def summary(self) -> str:
        ptx = len(self.ptx)
        sass = len(self.sass)
        if self.code is None:
            return f"{ptx} PTX instructions; no SASS: ptxas, which comes with Triton, is not here, or refuses this PTX"
        return (
            f"{ptx} PTX instructions, {sass} of SASS; {self.code.registers} registers,"
            f" {self.code.stack} bytes stack frame, {self.code.spill_stores} bytes spill stores,"
            f" {self.code.spill_loads} bytes spill loads"
        )


def of_launch(launch: HasPtx, source: str) -> LineMap:
    """Return the PTX and SASS of each line of the source, for the kernel that was launched."""
    code = assembled(launch.ptx, launch.kernel)
    ptx = _group_by_line(ptx_of(launch.ptx, launch.kernel, launch.file))
    sass = _group_by_line(sass_of(code.cubin, launch.kernel, launch.file) if code is not None else ())
    texts = dict(enumerate(source.splitlines(), start=1))
    # Number 0 means that there is no line, and comes last.
    numbers = sorted(ptx.keys() | sass.keys(), key=lambda number: (number == 0, number))
    lines = [
        CompiledLine(number, texts.get(number, "") if number else NO_LINE, ptx.get(number, []), sass.get(number, []))
        for number in numbers
    ]
    return LineMap(lines, code)


def table(line_map: LineMap) -> RenderableType:
    """Return each line of source above its PTX and SASS, truncated to the width of the terminal."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    def parts() -> Iterator[RenderableType]:
        yield Text(line_map.summary)
        for line in line_map.lines:
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
    """Return the name of a kernel as in its source, with template arguments: "softmax<float, 8>(...)"."""
    import torch

    return str(torch._C._demangle(kernel))


def _group_by_line(instructions: Sequence[Instruction]) -> Mapping[int, list[str]]:
    texts_by_line: dict[int, list[str]] = {}
    for instruction in instructions:
        texts_by_line.setdefault(instruction.line, []).append(_shorten_parameters(instruction.text))
    return texts_by_line


def _shorten_parameters(text: str) -> str:
    """Replace the parameters' mangled names by their numbers."""
    return re.sub(r"\b\w+_param_(\d+)", r"param_\1", text)


def _truncate(texts: Sequence[str]) -> list[str]:
    return (
        list(texts)
        if len(texts) <= MAX_INSTRUCTIONS_PER_LINE
        else [*texts[: MAX_INSTRUCTIONS_PER_LINE - 1], f"… and {len(texts) - MAX_INSTRUCTIONS_PER_LINE + 1} more"]
    )
