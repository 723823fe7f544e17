"""The tables that the README shows: each stands between two markers and is generated from the code and results/."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kernelpath.course import registry
from kernelpath.show.view import LANES
from kernelpath.verdict import Interval, Report

_TABLE = re.compile(r"(?P<begin><!-- table: (?P<name>\w+) -->\n)(?P<body>.*?)(?P<end><!-- end -->)", re.DOTALL)


def regenerate(text: str, root: Path) -> str:
    """The text with every marked table generated anew. Raises KeyError for a table that nothing generates."""
    tables = {
        table.__name__: table for table in (syllabus, results, peers, counters, kernels, agreement, functions, findings)
    }

    def table(match: re.Match[str]) -> str:
        return match["begin"] + "\n".join(tables[match["name"]](root)) + "\n" + match["end"]

    return _TABLE.sub(table, text)


def stale(root: Path) -> Iterator[str]:
    """The documents whose tables differ from their regeneration."""
    for path in sorted(root.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        if regenerate(text, root) != text:
            yield path.name


def rewrite(root: Path) -> list[str]:
    """Bring every document's tables up to date; returns the names of those that changed."""
    changed = list(stale(root))
    for name in changed:
        path = root / name
        path.write_text(regenerate(path.read_text(encoding="utf-8"), root), encoding="utf-8")
    return changed


def syllabus(root: Path) -> Iterator[str]:
    """A row an exercise."""
    yield from _header("week", "exercise", "lane", "what it is")
    for item in registry.exercises(root):
        notebook = item.notebook
        week = f"[{item.week}]({notebook.relative_to(root)})" if notebook else str(item.week)
        yield _row(week, f"`{item.name}`", LANES[item.lane], item.title)


def results(root: Path) -> Iterator[str]:
    """A row for each reference kernel on each GPU that was measured."""
    yield from _header("GPU", "exercise", "case", "time", "against the baseline", "share of the speed of light")
    for recorded in _recorded(root):
        for graded in recorded.get("reports", ()):
            report = Report.from_json(json.dumps(graded))
            measured = report.measurement
            if measured is not None:
                yield _row(
                    recorded["gpu"],
                    f"`{registry.Item(root, report.exercise).name}`",
                    ", ".join(f"{key} {_number(value)}" for key, value in measured.case.items()),
                    f"{measured.seconds * 1e6:,.1f} µs",
                    _interval(measured.speedup),
                    f"{measured.share_of_light:.3f}",
                )


def peers(root: Path) -> Iterator[str]:
    """A row for each reference kernel and size that was raced: the peer's time over ours, above 1 we are faster."""
    yield from _header("GPU", "kernel", "case", "GB/s", "share of copy", "against", "goal")
    for recorded in _recorded(root):
        for race in recorded.get("peers", ()):
            against = [peer for peer in race["ratios"] if peer != "copy"]
            yield _row(
                recorded["gpu"],
                f"`{race['exercise']}`",
                race["case"],
                f"{race['bytes_per_second'] / 1e9:,.0f}",
                _interval(Interval(*race["ratios"]["copy"])),
                ", ".join(f"{peer} {race['ratios'][peer][0]:.2f}" for peer in against),
                f"{race['goal']}: {'reached' if race['reached'] else 'missed'}",
            )


def counters(root: Path) -> Iterator[str]:
    """A row for each access pattern: what ncu counts on the GPU, and where the PTX machine counts something else."""
    return _compared(root, "counters", "access pattern")


def kernels(root: Path) -> Iterator[str]:
    """The same for each reference kernel."""
    return _compared(root, "kernels", "reference kernel")


def _compared(root: Path, part: str, what: str) -> Iterator[str]:
    yield from _header("GPU", what, "sectors a request, load and store", "wavefronts a request", "PTX machine")
    for recorded in _recorded(root):
        for name, counted in recorded.get(part, {}).items():
            ncu, ours = counted["ncu"], counted["machine"]
            different = [
                f"{key.replace('_', ' ')} {ours[key]:,}, not {ncu[key]:,}" for key in ncu if ours[key] != ncu[key]
            ]
            loads, stores = (_each(ncu, f"global_{way}", "sectors") for way in ("load", "store"))
            wavefronts = " and ".join(_each(ncu, f"shared_{way}", "wavefronts") for way in ("load", "store"))
            same = "; ".join(different) or "the same"
            yield _row(recorded["gpu"], f"`{name}`", f"{loads} and {stores}", wavefronts, same)


def agreement(root: Path) -> Iterator[str]:
    """A row for each reference kernel: by how much its outputs on the PTX machine differ from the GPU's."""
    yield from _header("GPU", "reference kernel", "cases", "equal bit for bit", "the largest difference elsewhere")
    for recorded in _recorded(root):
        cases: dict[str, list[int]] = {}
        for name, units in recorded.get("units_in_the_last_place", {}).items():
            cases.setdefault(name.partition(" ")[0], []).append(units)
        for name, units in cases.items():
            furthest = f"{max(units)} units in the last place" if any(units) else "none"
            yield _row(recorded["gpu"], f"`{name}`", str(len(units)), str(units.count(0)), furthest)


def _each(counted: dict[str, int], what: str, unit: str) -> str:
    requests = counted[f"{what}_requests"]
    return f"{counted[f'{what}_{unit}'] / requests:.4g}" if requests else "0"


def functions(root: Path) -> Iterator[str]:
    """A row for each approximate function of PTX: how far the PTX machine's values lie from the GPU's."""
    yield from _header("GPU", "function", "equal bit for bit", "the largest difference", "the manual's bound")
    for recorded in _recorded(root):
        for name, found in recorded.get("functions", {}).items():
            furthest, allowed = (f"2^{math.log2(found[key]):.1f}" for key in ("largest", "allowed"))
            bound = f"{allowed}, {found['measure']}"
            yield _row(recorded["gpu"], f"`{name}.approx.f32`", f"{found['equal']:.1%}", furthest, bound)


def findings(root: Path) -> Iterator[str]:
    """A row for each planted bug that the PTX machine finds: whether compute-sanitizer finds it on the GPU."""
    yield from _header("GPU", "planted bug", "tool", "compute-sanitizer", "PTX machine")
    for recorded in _recorded(root):
        for bug, found in recorded.get("sanitizer", {}).items():
            said = "found, with the line" if found["line"] else "found" if found["found"] else "not found"
            yield _row(recorded["gpu"], f"`{bug}`", found["tool"], said, "found, with the line")


def _recorded(root: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted((root / "results").glob("*.json"))]


def _header(*names: str) -> Iterable[str]:
    return (_row(*names), _row(*("---" for _ in names)))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _interval(ratio: Interval) -> str:
    return f"{ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"
