"""Combine source code with the memory traffic of each line, for terminals, pictures and pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kernelpath.line_counters import LANES, WASTE, LineInstructions, LineTraffic

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes
    from rich.table import Table

    from warpcheck.counters import Counted

COLUMNS = ("sectors\nper load", "sectors\nper store", "wavefronts\nper load", "wavefronts\nper store")
SAME_ADDRESS = "same address\nper atomic"
ACTIVE_LANES = "active lanes\n(32 is full)"

# The share of all lanes that must be idle in a line without a divergent branch for its active lanes to be shown.
MIN_IDLE_SHARE = 0.02

_MIN_SOURCE_WIDTH = 20  # characters of the source in a terminal, at least
_COLUMNS_END = 1.0  # right end of the columns of a picture, as a share of its width
_COLUMN_WIDTH = 0.085  # share of the width of a picture
_CHARACTER_WIDTH = 0.0064


@dataclass(frozen=True)
class Cost:
    """The cost of one access per request of a warp.

    Attributes:
        actual: The sectors or wavefronts of a request.
        minimum: The sectors or wavefronts that its bytes need, at least 1.
    """

    actual: float
    minimum: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "minimum", max(self.minimum, 1.0))

    @property
    def wasteful(self) -> bool:
        return self.actual > WASTE * self.minimum

    def __str__(self) -> str:
        return f"{self.actual:.3g}/{self.minimum:.3g}" if self.wasteful else f"{self.actual:.3g}"


@dataclass(frozen=True)
class Line:
    """A line of source.

    Attributes:
        costs: The costs of the line's accesses, by column.
        share: The line's share of all sectors and wavefronts, 0 to 1.
        active_lanes: The lanes of the average instruction, if the line diverges or many lanes are idle.
        ran: Whether an instruction of the line was executed.
    """

    number: int
    text: str
    costs: Mapping[str, Sequence[Cost]] = field(default_factory=dict)
    share: float = 0.0
    active_lanes: float | None = None
    ran: bool = False

    @property
    def wasteful(self) -> bool:
        return any(cost.wasteful for costs in self.costs.values() for cost in costs)

    def cell(self, column: str) -> tuple[str, bool]:
        """Return the text in a column, such as "4 + 32/4" for two accesses, and whether it shows waste."""
        if column == ACTIVE_LANES:
            return ("", False) if self.active_lanes is None else (f"{self.active_lanes:.3g}", True)
        costs = self.costs.get(column, ())
        return " + ".join(map(str, costs)), any(cost.wasteful for cost in costs)


def columns(lines: Iterable[Line]) -> list[str]:
    """Return the columns that are not empty."""
    lines = list(lines)
    return [column for column in (*COLUMNS, SAME_ADDRESS, ACTIVE_LANES) if any(line.cell(column)[0] for line in lines)]


def of_report(
    traffic: Sequence[LineTraffic], instructions: Sequence[LineInstructions], sources: Mapping[str, str]
) -> dict[str, list[Line]]:
    """Return every source of which a line accessed memory, by file name, from a report's counters."""
    total = sum(access.sectors + access.wavefronts for access in traffic)
    executed = sum(counters.instructions for counters in instructions)
    active_lanes = {
        (counters.file, counters.line): _notable_active_lanes(counters.active_lanes, counters.instructions, executed)
        for counters in instructions
    }
    lines_by_file = {}
    for name, text in sources.items():
        accesses = [access for access in traffic if access.file == name]
        if accesses:
            lines = (
                _line_of_accesses(n, line, [counters for counters in accesses if counters.line == n], total)
                for n, line in enumerate(text.splitlines(), start=1)
            )
            lines_by_file[name] = [replace(line, active_lanes=active_lanes.get((name, line.number))) for line in lines]
    return lines_by_file


def _line_of_accesses(number: int, text: str, accesses: Sequence[LineTraffic], total: int) -> Line:
    costs: dict[str, list[Cost]] = {}
    for access in accesses:
        costs.setdefault(_column(bool(access.wavefronts), access.access == "load from"), []).append(
            _request_cost(access)
        )
        if access.same_address:
            costs.setdefault(SAME_ADDRESS, []).append(Cost(access.same_address_per_request, 1))
    share = sum(access.sectors + access.wavefronts for access in accesses) / total if accesses else 0.0
    return Line(number, text, costs, share, ran=bool(accesses))


def _column(shared: bool, load: bool) -> str:
    return COLUMNS[2 * shared + (not load)]


def _request_cost(access: LineTraffic) -> Cost:
    actual, minimum = (
        (access.wavefronts, access.ideal_wavefronts) if access.wavefronts else (access.sectors, access.ideal_sectors)
    )
    return Cost(actual / access.requests, minimum / access.requests)


def of_launch(launch: Counted, source: str) -> list[Line]:
    """Return every line of the source, with the counters of one launch."""
    from warpcheck.counters import by_access
    from warpcheck.layout import Access

    costs: dict[int, dict[str, list[Cost]]] = {}
    for access in by_access(launch.accesses):
        actual, minimum = (
            (access.wavefronts, access.least_wavefronts) if access.shared else (access.sectors, access.least_sectors)
        )
        column = _column(access.shared, access.access == Access.LOAD)
        costs.setdefault(access.line, {}).setdefault(column, []).append(
            Cost(actual / access.requests, minimum / access.requests)
        )
        if access.same_address:
            costs[access.line].setdefault(SAME_ADDRESS, []).append(Cost(access.same_address / access.requests, 1))
    executed_instructions = sum(counters.warp_instructions for counters in launch.lines.values())
    lines = []
    for number, text in enumerate(source.splitlines(), start=1):
        counters = launch.lines.get(number)
        active_lanes = None
        if counters is not None:
            diverges = counters.divergent_branches > 0
            active_lanes = _notable_active_lanes(
                counters.active_lanes, counters.warp_instructions, executed_instructions, diverges
            )
        lines.append(Line(number, text, costs.get(number, {}), active_lanes=active_lanes, ran=counters is not None))
    return lines


def _notable_active_lanes(lanes: int, instructions: int, executed: int, diverges: bool = False) -> float | None:
    """Return the active lanes of a line's average instruction, if it diverges or many lanes are idle.

    Args:
        executed: The instructions that all lines executed.
    """
    if not (diverges or LANES * instructions - lanes > MIN_IDLE_SHARE * LANES * executed):
        return None
    average = lanes / instructions
    return None if round(average, 1) == LANES else average


def trim_to_executed(lines: Sequence[Line]) -> list[Line]:
    """Return the lines from the first to the last that was executed."""
    indices = [index for index, line in enumerate(lines) if line.ran]
    return list(lines[indices[0] : indices[-1] + 1]) if indices else []


def highlight_lines(lines: Sequence[Line], language: str = "cuda") -> list[Markup]:
    """Return each line as HTML with the classes of Pygments, whose names for languages `language` uses."""
    from markupsafe import Markup
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name

    lexer = get_lexer_by_name(language, stripnl=False)
    html = highlight("\n".join(line.text for line in lines), lexer, HtmlFormatter(nowrap=True))
    return [Markup(line) for line in html.split("\n")[: len(lines)]]


def table(lines: Sequence[Line]) -> Table:
    """Return a table for a terminal of 80 or more columns: the line's number, the columns, the line."""
    from rich.table import Table
    from rich.text import Text

    shown_columns = columns(lines)
    rows = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    for heading in ("line", *shown_columns):
        words = heading.replace("wavefronts", "wave- fronts").split()
        rows.add_column("\n".join(words), justify="right", vertical="bottom", min_width=max(map(len, words)))
    rows.add_column("source", min_width=_MIN_SOURCE_WIDTH)  # rich cuts the source where it does not fit
    for line in lines:
        cells = (Text(text, "red" if bad else "") for text, bad in map(line.cell, shown_columns))
        rows.add_row(f"{line.number}", *cells, Text(line.text, no_wrap=True, overflow="ellipsis"))
    return rows


def legend(lines: Sequence[Line]) -> str:
    """Explain the first pair of numbers, such as "32/4: 32 per request, its bytes fit in 4"; empty without one."""
    costs = (cost for line in lines for line_costs in line.costs.values() for cost in line_costs if cost.wasteful)
    first = next(costs, None)
    return f"{first}: {first.actual:.3g} per request, its bytes fit in {first.minimum:.3g}" if first else ""


def draw(axes: Axes, lines: Sequence[Line]) -> None:
    """Draw the lines with their columns, in red where a lower cost is possible."""
    from kernelpath.show.palette import INK, QUIET, WASTED

    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(len(lines) + 0.5, -1.5)
    shown_columns = columns(lines)
    column_ends = [
        _COLUMNS_END - _COLUMN_WIDTH * (len(shown_columns) - 1 - index) for index in range(len(shown_columns))
    ]
    room = int((_COLUMNS_END - _COLUMN_WIDTH * len(shown_columns)) / _CHARACTER_WIDTH) - len("1234  ")
    for heading, column_end in zip(shown_columns, column_ends, strict=True):
        axes.text(column_end, -0.7, heading, ha="right", va="bottom", fontsize=8, color=QUIET)
    for row, line in enumerate(lines):
        text = line.text if len(line.text) <= room else line.text[: room - 1] + "…"
        axes.text(0, row, f"{line.number:4}  {text}", family="monospace", fontsize=8, va="center", color=INK)
        for column_end, (cell_text, bad) in zip(column_ends, map(line.cell, shown_columns), strict=True):
            if cell_text:
                axes.text(column_end, row, cell_text, ha="right", va="center", fontsize=8, color=WASTED if bad else INK)
    if cell_text := legend(lines):
        axes.text(_COLUMNS_END, len(lines) + 0.3, cell_text, ha="right", va="center", fontsize=7, color=QUIET)
