"""The generated tables of README.md, PTX_MACHINE.md and the glossary, each between two markers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from kernelpath import words
from kernelpath.course import registry
from kernelpath.show import provenance
from kernelpath.show import results as recorded
from kernelpath.show.results import Counted
from kernelpath.verdict import Verdict

CARDS = {
    "sm_75": "T4, RTX 20",
    "sm_80": "A100",
    "sm_86": "A40, RTX 30",
    "sm_89": "L4, RTX 40",
    "sm_90": "H100, H200",
    "sm_100": "B200",
    "sm_120": "RTX 50",
}
"""Which have an architecture."""

_TABLE = re.compile(r"(?P<begin><!-- table: (?P<name>\w+) -->\n)(?P<body>.*?)(?P<end><!-- end -->)", re.DOTALL)


def regenerate(text: str, root: Path) -> str:
    """The text with every marked table generated again. Raises KeyError for a table that nothing generates."""
    generators = (syllabus, verdicts, results, peers, counters, corpus, kernels, agreement, functions, findings, cards)
    tables = {table.__name__: table for table in generators}

    def table(match: re.Match[str]) -> str:
        return match["begin"] + "\n".join(tables[match["name"]](root)) + "\n" + match["end"]

    return _TABLE.sub(table, text)


def stale(root: Path) -> Iterator[str]:
    """The documents whose tables differ from their regeneration."""
    for path in sorted((*root.glob("*.md"), *root.glob("notebooks/*.md"))):
        text = path.read_text(encoding="utf-8")
        if regenerate(text, root) != text:
            yield str(path.relative_to(root))


def rewrite(root: Path) -> list[str]:
    """Bring every document's tables up to date; returns the names of those that changed."""
    changed = list(stale(root))
    for name in changed:
        path = root / name
        path.write_text(regenerate(path.read_text(encoding="utf-8"), root), encoding="utf-8")
    return changed


def syllabus(root: Path) -> Iterator[str]:
    """A row for each exercise."""
    yield from _header("week", "exercise", "language", "topic")
    for item in registry.exercises(root):
        notebook = item.notebook
        week = f"[{item.week}]({notebook.relative_to(root)})" if notebook else str(item.week)
        yield _row(week, f"`{item.name}`", words.LANES[item.lane], item.title)


def verdicts(root: Path) -> Iterator[str]:
    """A row for each way in which grading can end."""
    yield from _header("verdict", "meaning")
    yield from (_row(f"`{verdict.value}`", verdict.meaning) for verdict in Verdict)


def results(root: Path) -> Iterator[str]:
    """A row for each reference kernel on each GPU that was measured."""
    yield from _header("GPU", "exercise", "case", "time", "speedup", "share of the measured ceiling")
    for machine in recorded.machines(root):
        for report in machine.timed:
            measured = report.measurement
            assert measured is not None
            name, case = registry.Item(root, report.exercise).name, words.case(measured.case)
            share = words.share(measured.share_of_light, 1)
            time = words.seconds(measured.seconds)
            yield _row(machine.gpu, f"`{name}`", case, time, str(measured.speedup), share)
    for machine in recorded.machines(root):
        if machine.timed:
            yield from provenance.measured(machine, [report.versions for report in machine.timed])


def peers(root: Path) -> Iterator[str]:
    """A row for each reference kernel and size that was raced: the peer's time over ours, above 1 we are faster."""
    yield from _header("GPU", "kernel", "case", "bandwidth", "of the copy's bandwidth", "others", "goal")
    for machine in recorded.machines(root):
        for race in machine.peers:
            against = (f"{peer} {words.factor(race.ratio(peer).median)}" for peer in race.ratios if peer != "copy")
            yield _row(
                machine.gpu,
                f"`{race.exercise}`",
                race.case,
                words.bandwidth(race.bytes_per_second),
                str(race.ratio("copy")),
                ", ".join(against),
                f"{race.goal}: {'reached' if race.reached else 'missed'}",
            )
    for machine in recorded.machines(root):
        if machine.peers:
            raced = {peer for race in machine.peers for peer in race.ratios}
            yield from provenance.measured(machine, needs=["liger-kernel"] if "liger" in raced else [])


def counters(root: Path) -> Iterator[str]:
    """A row for each access pattern: what ncu counts on the GPU, and where the PTX machine counts something else."""
    yield from _compared_header("access pattern")
    for machine in recorded.machines(root):
        yield from _compared(machine.gpu, machine.counters)
    yield from _measured(machine for machine in recorded.machines(root) if machine.counters)


def corpus(root: Path) -> Iterator[str]:
    """The same for each kernel of usual kinds."""
    yield from _compared_header("kernel")
    for machine in recorded.machines(root):
        yield from _compared(machine.gpu, machine.corpus)
    yield from _measured(machine for machine in recorded.machines(root) if machine.corpus)


def kernels(root: Path) -> Iterator[str]:
    """The same for each reference kernel."""
    yield from _compared_header("reference kernel")
    for machine in recorded.machines(root):
        yield from _compared(machine.gpu, machine.kernels)
    yield from _measured(machine for machine in recorded.machines(root) if machine.kernels)


def _compared_header(what: str) -> Iterable[str]:
    return _header("GPU", what, "sectors per request, load and store", "wavefronts per request", "PTX machine")


def _compared(gpu: str, found: Mapping[str, Counted]) -> Iterator[str]:
    for name, counted in found.items():
        ncu, ours = counted.ncu, counted.machine
        different = [
            f"{key.replace('_', ' ')} {words.number(ours[key])}, not {words.number(ncu[key])}"
            for key in ncu
            if ours[key] != ncu[key]
        ]
        loads, stores = (_each(ncu, f"global_{way}", "sectors") for way in ("load", "store"))
        wavefronts = " and ".join(_each(ncu, f"shared_{way}", "wavefronts") for way in ("load", "store"))
        yield _row(gpu, f"`{name}`", f"{loads} and {stores}", wavefronts, "; ".join(different) or "the same")


def _each(counted: Mapping[str, int], what: str, unit: str) -> str:
    requests = counted[f"{what}_requests"]
    return words.number(counted[f"{what}_{unit}"] / requests) if requests else "0"


def agreement(root: Path) -> Iterator[str]:
    """A row for each reference kernel: by how much its outputs on the PTX machine differ from the GPU's."""
    yield from _header("GPU", "reference kernel", "cases", "bit for bit equal", "largest difference in the others")
    for machine in recorded.machines(root):
        cases: dict[str, list[int]] = {}
        for name, units in machine.units_in_the_last_place.items():
            cases.setdefault(name.partition(" ")[0], []).append(units)
        for name, found in cases.items():
            furthest = f"{words.count(max(found), 'unit')} in the last place" if any(found) else "none"
            yield _row(machine.gpu, f"`{name}`", str(len(found)), str(found.count(0)), furthest)
    yield from _measured(machine for machine in recorded.machines(root) if machine.units_in_the_last_place)


def functions(root: Path) -> Iterator[str]:
    """A row for each approximate function of PTX: how far the PTX machine's values lie from the GPU's."""
    yield from _header("GPU", "function", "bit for bit equal", "largest difference", "manual's bound")
    for machine in recorded.machines(root):
        for name, found in machine.functions.items():
            furthest, allowed = (f"2^{math.log2(error):.1f}" for error in (found.largest, found.allowed))
            equal = words.share(found.equal, 1)
            yield _row(machine.gpu, f"`{name}.approx.f32`", equal, furthest, f"{allowed}, {found.measure}")
    yield from _measured(machine for machine in recorded.machines(root) if machine.functions)


def findings(root: Path) -> Iterator[str]:
    """A row for each planted bug that the PTX machine finds: whether compute-sanitizer finds it on the GPU."""
    yield from _header("GPU", "planted bug", "tool", "compute-sanitizer", "PTX machine")
    for machine in recorded.machines(root):
        for bug, planted in machine.sanitizer.items():
            said = "found, with the line" if planted.line else "found" if planted.found else "not found"
            yield _row(machine.gpu, f"`{bug}`", planted.tool, said, "found, with the line")
    yield from _measured(machine for machine in recorded.machines(root) if machine.sanitizer)


def cards(root: Path) -> Iterator[str]:
    """A row for each architecture: how many reference kernels compile for it, and what keeps the others from it."""
    yield from _header("architecture", "cards", "reference kernels that compile", "the others")
    found = recorded.cards(root).obstacles
    for arch, names in CARDS.items():
        others: dict[str, list[str]] = {}
        for exercise, obstacles in found.items():
            if arch in obstacles:
                others.setdefault(obstacles[arch], []).append(f"`{exercise}`")
        missed = sum(map(len, others.values()))
        why = "; ".join(f"{reason}: {', '.join(exercises)}" for reason, exercises in sorted(others.items()))
        yield _row(f"`{arch}`", names, f"{len(found) - missed} of {len(found)}", why or "none")
    if found:
        yield from provenance.compiled(recorded.cards(root).versions)


def _measured(machines: Iterable[recorded.Machine]) -> Iterator[str]:
    """The line on versions of each machine that has rows in a table."""
    for machine in machines:
        yield from provenance.measured(machine)


def _header(*names: str) -> Iterable[str]:
    return (_row(*names), _row(*("---" for _ in names)))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
