"""Source code with what each line asked of memory, computed once and shown in terminals, pictures and pages."""

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
ACTIVE = "active lanes\n(32 is full)"
IDLE = 0.02
"""The share of all lanes that are idle in one line, of a branch that is elsewhere, to be worth showing."""

_SOURCE = 20  # the least characters of the source in a terminal
_RIGHT = 1.0  # where the columns of a picture end, as a share of its width
_COLUMN, _CHARACTER = 0.085, 0.0064  # widths


@dataclass(frozen=True)
class Cost:
    """What one access costs for each request of a warp: found, and the least that its bytes need.

    A request moves at least one sector, or takes one wavefront, however few bytes it asks for.
    """

    found: float
    least: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "least", max(self.least, 1.0))

    @property
    def wasteful(self) -> bool:
        return self.found > WASTE * self.least

    def __str__(self) -> str:
        return f"{self.found:.3g}/{self.least:.3g}" if self.wasteful else f"{self.found:.3g}"


@dataclass(frozen=True)
class Line:
    """A line of source. costs: of its accesses, by column. share: of all sectors and wavefronts, 0 to 1.

    active: lanes of the average instruction, where the line diverges or many are idle. ran: whether it did anything.
    """

    number: int
    text: str
    costs: Mapping[str, Sequence[Cost]] = field(default_factory=dict)
    share: float = 0.0
    active: float | None = None
    ran: bool = False

    @property
    def wasteful(self) -> bool:
        return any(cost.wasteful for costs in self.costs.values() for cost in costs)

    def cell(self, column: str) -> tuple[str, bool]:
        """What stands in a column, "4 + 32/4" for two accesses, and whether it is a waste."""
        if column == ACTIVE:
            return ("", False) if self.active is None else (f"{self.active:.3g}", True)
        costs = self.costs.get(column, ())
        return " + ".join(map(str, costs)), any(cost.wasteful for cost in costs)


def columns(lines: Iterable[Line]) -> list[str]:
    """The columns in which anything stands."""
    lines = list(lines)
    return [column for column in (*COLUMNS, SAME_ADDRESS, ACTIVE) if any(line.cell(column)[0] for line in lines)]


def of_report(
    traffic: Sequence[LineTraffic], instructions: Sequence[LineInstructions], sources: Mapping[str, str]
) -> dict[str, list[Line]]:
    """Every source, by file name, of which a line asked for memory, from a report's counters."""
    total = sum(access.sectors + access.wavefronts for access in traffic)
    executed = sum(one.instructions for one in instructions)
    active = {(one.file, one.line): _active(one.active_lanes, one.instructions, executed) for one in instructions}
    found = {}
    for name, text in sources.items():
        asked = [access for access in traffic if access.file == name]
        if asked:
            lines = (
                _of_accesses(n, line, [one for one in asked if one.line == n], total)
                for n, line in enumerate(text.splitlines(), start=1)
            )
            found[name] = [replace(line, active=active.get((name, line.number))) for line in lines]
    return found


def _of_accesses(number: int, text: str, accesses: Sequence[LineTraffic], total: int) -> Line:
    costs: dict[str, list[Cost]] = {}
    for one in accesses:
        costs.setdefault(_column(bool(one.wavefronts), one.access == "load from"), []).append(_cost(one))
        if one.same_address:
            costs.setdefault(SAME_ADDRESS, []).append(Cost(one.same_address_per_request, 1))
    share = sum(one.sectors + one.wavefronts for one in accesses) / total if accesses else 0.0
    return Line(number, text, costs, share, ran=bool(accesses))


def _column(shared: bool, load: bool) -> str:
    return COLUMNS[2 * shared + (not load)]


def _cost(one: LineTraffic) -> Cost:
    found, least = (one.wavefronts, one.ideal_wavefronts) if one.wavefronts else (one.sectors, one.ideal_sectors)
    return Cost(found / one.requests, least / one.requests)


def of_launch(launch: Counted, source: str) -> list[Line]:
    """Every line of the source that a launch ran, from the counters of that launch."""
    from warpcheck.counters import by_access
    from warpcheck.layout import Access

    costs: dict[int, dict[str, list[Cost]]] = {}
    for one in by_access(launch.accesses):
        found, least = (one.wavefronts, one.least_wavefronts) if one.shared else (one.sectors, one.least_sectors)
        column = _column(one.shared, one.access == Access.LOAD)
        costs.setdefault(one.line, {}).setdefault(column, []).append(Cost(found / one.requests, least / one.requests))
        if one.same_address:
            costs[one.line].setdefault(SAME_ADDRESS, []).append(Cost(one.same_address / one.requests, 1))
    executed = sum(counters.warp_instructions for counters in launch.lines.values())
    lines = []
    for number, text in enumerate(source.splitlines(), start=1):
        counters = launch.lines.get(number)
        active = None
        if counters is not None:
            diverges = counters.divergent_branches > 0
            active = _active(counters.active_lanes, counters.warp_instructions, executed, diverges)
        lines.append(Line(number, text, costs.get(number, {}), active=active, ran=counters is not None))
    return lines


def _active(lanes: int, instructions: int, executed: int, diverges: bool = False) -> float | None:
    """Active lanes of a line's average instruction, if it diverges or enough are idle there. executed: by all lines."""
    if not (diverges or LANES * instructions - lanes > IDLE * LANES * executed):
        return None
    average = lanes / instructions
    return None if round(average, 1) == LANES else average


def executed(lines: Sequence[Line]) -> list[Line]:
    """From the first line that did anything to the last."""
    ran = [place for place, line in enumerate(lines) if line.ran]
    return list(lines[ran[0] : ran[-1] + 1]) if ran else []


def colored(lines: Sequence[Line], language: str = "cuda") -> list[Markup]:
    """The text of each line as HTML, its tokens in spans with the classes of Pygments, which names the languages."""
    from markupsafe import Markup
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name

    lexer = get_lexer_by_name(language, stripnl=False)
    html = highlight("\n".join(line.text for line in lines), lexer, HtmlFormatter(nowrap=True))
    return [Markup(line) for line in html.split("\n")[: len(lines)]]


def table(lines: Sequence[Line]) -> Table:
    """For a terminal of 80 columns or more: the number of the line, the columns, the line."""
    from rich.table import Table
    from rich.text import Text

    shown = columns(lines)
    rows = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    for heading in ("line", *shown):
        words = heading.replace("wavefronts", "wave- fronts").split()
        rows.add_column("\n".join(words), justify="right", vertical="bottom", min_width=max(map(len, words)))
    rows.add_column("source", min_width=_SOURCE)  # where there is no room, it is cut
    for line in lines:
        cells = (Text(text, "red" if bad else "") for text, bad in map(line.cell, shown))
        rows.add_row(f"{line.number}", *cells, Text(line.text, no_wrap=True, overflow="ellipsis"))
    return rows


def legend(lines: Sequence[Line]) -> str:
    """What the first pair of numbers means, such as "32/4: 32 per request, its bytes fit in 4"; empty without any."""
    costs = (cost for line in lines for found in line.costs.values() for cost in found if cost.wasteful)
    first = next(costs, None)
    return f"{first}: {first.found:.3g} per request, its bytes fit in {first.least:.3g}" if first else ""


def draw(axes: Axes, lines: Sequence[Line]) -> None:
    """For a picture: the line, then the columns, red where less would do."""
    from kernelpath.show.palette import INK, QUIET, WASTED

    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(len(lines) + 0.5, -1.5)
    shown = columns(lines)
    places = [_RIGHT - _COLUMN * (len(shown) - 1 - index) for index in range(len(shown))]
    room = int((_RIGHT - _COLUMN * len(shown)) / _CHARACTER) - len("1234  ")
    for heading, place in zip(shown, places, strict=True):
        axes.text(place, -0.7, heading, ha="right", va="bottom", fontsize=8, color=QUIET)
    for row, line in enumerate(lines):
        text = line.text if len(line.text) <= room else line.text[: room - 1] + "…"
        axes.text(0, row, f"{line.number:4}  {text}", family="monospace", fontsize=8, va="center", color=INK)
        for place, (told, bad) in zip(places, map(line.cell, shown), strict=True):
            if told:
                axes.text(place, row, told, ha="right", va="center", fontsize=8, color=WASTED if bad else INK)
    if told := legend(lines):
        axes.text(_RIGHT, len(lines) + 0.3, told, ha="right", va="center", fontsize=7, color=QUIET)
