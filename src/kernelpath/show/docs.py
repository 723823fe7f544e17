"""Generate the tables of README.md, docs/, warpcheck/docs/ and the glossary, each between two markers."""

from __future__ import annotations

import itertools
import json
import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from kernelpath import words
from kernelpath.course import registry
from kernelpath.files import source_text
from kernelpath.show import datasheet, provenance
from kernelpath.show import results as recorded
from kernelpath.show import sources as source_documents
from kernelpath.show.results import CounterPair, PeerComparison
from kernelpath.verdict import Verdict

# Patterns of the documents whose tables are generated.
PAGES = ("*.md", "docs/*.md", "notebooks/*.md", "warpcheck/*.md", "warpcheck/docs/*.md")

# The GPU models of each architecture.
CARDS = {
    "sm_75": "T4, RTX 20",
    "sm_80": "A100",
    "sm_86": "A40, RTX 30",
    "sm_89": "L4, RTX 40",
    "sm_90": "H100, H200",
    "sm_100": "B200",
    "sm_120": "RTX 50",
}

_TABLE = re.compile(r"(?P<begin><!-- table: (?P<name>\w+) -->\n)(?P<body>.*?)(?P<end><!-- end -->)", re.DOTALL)


def regenerate(text: str, root: Path) -> str:
    """Return the text with every marked table regenerated. Raises KeyError for a table without a generator."""
    speeds = (results, peer_summary, peers, absent_peers)
    measured = (*speeds, counters, corpus, kernels, agreement, functions, findings)
    of_course = (syllabus, electives, effort, verdicts, cards, sources, coverage)
    tables = {table.__name__: table for table in (*of_course, *measured)}

    def table(match: re.Match[str]) -> str:
        return match["begin"] + "\n".join(tables[match["name"]](root)) + "\n" + match["end"]

    return _TABLE.sub(table, text)


def stale(root: Path) -> Iterator[str]:
    """Yield the documents whose tables differ from their regeneration."""
    for path in sorted(itertools.chain.from_iterable(map(root.glob, PAGES))):
        text = path.read_text(encoding="utf-8")
        if regenerate(text, root) != text:
            yield str(path.relative_to(root))


def rewrite(root: Path) -> list[str]:
    """Update every document's tables, and return the names of the documents that changed."""
    changed = list(stale(root))
    for name in changed:
        path = root / name
        path.write_text(regenerate(path.read_text(encoding="utf-8"), root), encoding="utf-8")
    return changed


def syllabus(root: Path) -> Iterator[str]:
    """Yield a row for each exercise that exams count."""
    yield from _exercise_rows(root, [item for item in registry.exercises(root) if not item.is_elective])


def electives(root: Path) -> Iterator[str]:
    """Yield a row for each exercise of an elective week."""
    yield from _exercise_rows(root, [item for item in registry.exercises(root) if item.is_elective])


def _exercise_rows(root: Path, items: Iterable[registry.ExerciseRef]) -> Iterator[str]:
    yield from _header("week", "exercise", "language", "topic")
    for item in items:
        notebook = item.notebook
        week = f"[{item.week}]({notebook.relative_to(root)})" if notebook else str(item.week)
        yield _row(week, f"`{item.name}`", words.LANES[item.lane], item.title)


# A cell's predictions, before the learner replaces the dots.
_PREDICTIONS = re.compile(r"^(my_\w+(?:, my_\w+)*) = \.\.\.", re.MULTILINE)


def effort(root: Path) -> Iterator[str]:
    """Yield a row for each week: what its notebook asks to read and predict, and what its exercises ask to write."""
    yield from _header("week", "words", "predictions", "questions", "exercises", "lines")
    items = list(registry.exercises(root))
    for path in sorted((root / "notebooks").glob("*/*.ipynb"), key=lambda path: path.name):
        week = int(path.name[len("week") :].split("_")[0])
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        texts, code = (
            "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == kind)
            for kind in ("markdown", "code")
        )
        read = len(words.without_expressions(texts).split())
        predicted = sum(names.count("my_") for names in _PREDICTIONS.findall(code))
        exercises = [item for item in items if item.week == week]
        written = sum(_lines(item, "solutions") - _lines(item, "phases") for item in exercises)
        questions = code.count("notebook.ask(")
        yield _row(str(week), *(f"{count:,}" for count in (read, predicted, questions, len(exercises), written)))


def _lines(item: registry.ExerciseRef, tree: registry.Tree) -> int:
    """Return the lines of an exercise's files in a tree that are not blank."""
    return sum(bool(line.strip()) for file in item.files(tree) for line in source_text(file).splitlines())


def sources(root: Path) -> Iterator[str]:
    """Yield a heading and a table for each document that the course was written after, with a row for each item."""
    for title, rows in itertools.groupby(source_documents.items(root), key=lambda item: item.document):
        yield from ("", f"### {title}", "")
        yield from _header("part", "item", "place", "how it is graded", "missing")
        yield from (_row(item.part, item.subject, item.place, item.grading, item.missing) for item in rows)
    yield ""


def coverage(root: Path) -> Iterator[str]:
    """Yield a row for each document: its items, and how many of them are complete, in part, and not covered."""
    yield from _header("document", "items", "covered", "in part", "missing")
    for title, rows in itertools.groupby(source_documents.items(root), key=lambda item: item.document):
        items = list(rows)
        not_covered = sum(not item.place for item in items)
        in_part = sum(bool(item.place and item.missing) for item in items)
        counts = (len(items), len(items) - in_part - not_covered, in_part, not_covered)
        yield _row(f"[{title}](#{_anchor(title)})", *map(str, counts))


def _anchor(heading: str) -> str:
    """Return the anchor that GitHub gives a heading: lower case, hyphens for spaces, without punctuation."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def verdicts(root: Path) -> Iterator[str]:
    """Yield a row for each verdict."""
    yield from _header("verdict", "meaning")
    yield from (_row(f"`{verdict.value}`", verdict.meaning) for verdict in Verdict)


def results(root: Path) -> Iterator[str]:
    """Yield a row for each reference kernel on each GPU that was measured."""
    shares = ("of the measured ceiling", "of a copy", "of the theoretical peak")
    yield from _header("GPU", "exercise", "case", "time", "speedup", *shares, "date")
    datasheets = recorded.datasheets(root)
    for machine in recorded.machines(root):
        sheet = datasheets.get(machine.gpu)
        for report in machine.timed:
            measured = report.measurement
            assert measured is not None
            name = registry.ExerciseRef(root, report.exercise).name
            case = words.case(measured.case)
            share = words.share(measured.share_of_light, 1)
            time = words.seconds(measured.seconds)
            copy_share = datasheet.copy_share(measured)
            of_copy = "" if copy_share is None else words.share(copy_share, 1)
            peak = None if sheet is None else datasheet.peak(measured, sheet)
            of_peak = "" if peak is None else words.share(peak[0], 1)
            date = machine.report_dates.get(report.exercise, "")
            yield _row(machine.gpu, f"`{name}`", case, time, str(measured.speedup), share, of_copy, of_peak, date)
    for machine in recorded.machines(root):
        if machine.timed:
            yield from provenance.measured_lines(machine, [report.versions for report in machine.timed])


# The package of each peer that is not part of PyTorch.
PEERS = {"liger": "liger-kernel", "quack": "quack-kernels", "flash4": "flash-attn-4", "cub": "cuda-cccl"}


# The operations per byte from which a rate is given in operations: few GPUs can make more per byte in float32.
ARITHMETIC = 10


def peer_summary(root: Path) -> Iterator[str]:
    """Yield a row for each reference kernel, and for all: the best peer's time over ours, over all cases."""
    yield from _header("GPU", "kernel", "cases", "best peers", "geometric mean", "worst case")
    for machine in recorded.machines(root):
        by_exercise: dict[str, list[PeerComparison]] = {}
        for comparison in _in_order(machine.peers):
            if comparison.best_peer is not None:
                by_exercise.setdefault(comparison.exercise, []).append(comparison)
        for exercise, comparisons in by_exercise.items():
            yield _summary_row(machine.gpu, f"`{exercise}`", comparisons)
        # One exercise alone would have two equal rows.
        if len(by_exercise) > 1:
            yield _summary_row(machine.gpu, "all", [ratio for cases in by_exercise.values() for ratio in cases])
    yield from _measured_peers(root)


def _summary_row(gpu: str, kernel: str, comparisons: Sequence[PeerComparison]) -> str:
    best = [(comparison.ratio(comparison.best_peer or "").median, comparison) for comparison in comparisons]
    worst, where = min(best, key=lambda pair: pair[0])
    place = where.case if kernel != "all" else f"`{where.exercise}`, {where.case}"
    return _row(
        gpu,
        kernel,
        str(len(best)),
        ", ".join(sorted({comparison.best_peer or "" for comparison in comparisons})),
        _factor(statistics.geometric_mean(ratio for ratio, _ in best)),
        f"{_factor(worst)} ({place})",
    )


def peers(root: Path) -> Iterator[str]:
    """Yield a row for each reference kernel and size: a peer's time over ours, which is above 1 if ours is faster."""
    yield from _header(
        *("GPU", "kernel", "case", "time", "rate", "of the copy's bandwidth"),
        *("best peer", "others", "with host time", "host"),
    )
    for machine in recorded.machines(root):
        for comparison in _in_order(machine.peers):
            # A copy of the same bytes and the best peer have columns of their own; what remains are the others.
            ratios = {peer: f"{peer} {_factor(comparison.ratio(peer).median)}" for peer in comparison.ratios}
            of_copy = words.factor(comparison.ratio("copy").median) if ratios.pop("copy", "") else ""
            best = ratios.pop(comparison.best_peer, "") if comparison.best_peer else ""
            rate = words.bandwidth(comparison.bytes_per_second)
            # A kernel that memory limits is described by bytes per second, any other by operations per second.
            if comparison.flops >= ARITHMETIC * comparison.compulsory_bytes:
                rate = words.arithmetic(comparison.flops / comparison.seconds)
            yield _row(
                machine.gpu,
                f"`{comparison.exercise}`",
                comparison.case,
                words.seconds(comparison.seconds),
                rate,
                of_copy,
                best,
                ", ".join(ratios.values()),
                _with_host_time(comparison),
                words.seconds(comparison.host_seconds) if comparison.host_seconds else "",
            )
    yield from _measured_peers(root)


def _in_order(comparisons: Iterable[PeerComparison]) -> list[PeerComparison]:
    """Return the comparisons in the order of the syllabus."""
    # Exercises that no longer exist come last: their recordings stay until the next run on a GPU.
    places = {item.name: place for place, item in enumerate(registry.exercises())}
    return sorted(comparisons, key=lambda comparison: places.get(comparison.exercise, len(places)))


def _with_host_time(comparison: PeerComparison) -> str:
    """Format the factor of the peer that is the fastest if the work on the host counts, too."""
    peers = {peer: ratio for peer, ratio in comparison.elapsed_ratios.items() if peer != "copy"}
    if not peers:
        return ""
    best = min(peers, key=lambda peer: peers[peer])
    return f"{best} {_factor(peers[best])}"


def absent_peers(root: Path) -> Iterator[str]:
    """Yield a row for each contestant that could not be timed in some case, with the reason."""
    yield from _header("GPU", "contestant", "reason")
    for machine in recorded.machines(root):
        for label, reason in machine.absent.items():
            # The reason is the message of an exception, which may contain newlines and bars, and be long.
            yield _row(machine.gpu, label, " ".join(reason.replace("|", "/").split())[:160])
        if machine.absent:
            yield from provenance.measured_lines(machine)


def _measured_peers(root: Path) -> Iterator[str]:
    for machine in recorded.machines(root):
        if machine.peers:
            names = {peer for comparison in machine.peers for peer in comparison.ratios}
            needs = [PEERS[name] for name in PEERS if name in names]
            yield from provenance.measured_lines(machine, needs=needs, clock=True)


def _factor(ratio: float) -> str:
    """Format a peer's time over ours, in bold if ours is slower."""
    text = words.factor(ratio)
    return f"**{text}**" if float(text) < 1 else text


def counters(root: Path) -> Iterator[str]:
    """Yield a row for each access pattern: ncu's counters on the GPU, and where the PTX machine's counters differ."""
    yield from _compared_header("access pattern")
    for machine in recorded.machines(root):
        yield from _compared(machine.gpu, machine.counters)
    yield from _measured(machine for machine in recorded.machines(root) if machine.counters)


def corpus(root: Path) -> Iterator[str]:
    """Yield the same rows for each kernel of usual kinds."""
    yield from _compared_header("kernel")
    for machine in recorded.machines(root):
        yield from _compared(machine.gpu, machine.corpus)
    yield from _measured(machine for machine in recorded.machines(root) if machine.corpus)


def kernels(root: Path) -> Iterator[str]:
    """Yield the same rows for each reference kernel."""
    yield from _compared_header("reference kernel")
    for machine in recorded.machines(root):
        yield from _compared(machine.gpu, machine.kernels)
    yield from _measured(machine for machine in recorded.machines(root) if machine.kernels)


def _compared_header(subject: str) -> Iterable[str]:
    return _header("GPU", subject, "sectors per request, load and store", "wavefronts per request", "PTX machine")


def _compared(gpu: str, pairs: Mapping[str, CounterPair]) -> Iterator[str]:
    for name, pair in pairs.items():
        ncu = pair.ncu
        machine = pair.machine
        different = [
            f"{key.replace('_', ' ')} {words.number(machine[key])}, not {words.number(ncu[key])}"
            for key in ncu
            if machine[key] != ncu[key]
        ]
        loads, stores = (_each(ncu, f"global_{direction}", "sectors") for direction in ("load", "store"))
        wavefronts = " and ".join(_each(ncu, f"shared_{direction}", "wavefronts") for direction in ("load", "store"))
        yield _row(gpu, f"`{name}`", f"{loads} and {stores}", wavefronts, "; ".join(different) or "the same")


def _each(counters: Mapping[str, int], access: str, unit: str) -> str:
    requests = counters[f"{access}_requests"]
    return words.number(counters[f"{access}_{unit}"] / requests) if requests else "0"


def agreement(root: Path) -> Iterator[str]:
    """Yield a row for each reference kernel: how its outputs on the PTX machine differ from the GPU's."""
    yield from _header("GPU", "reference kernel", "cases", "bit for bit equal", "largest difference in the others")
    for machine in recorded.machines(root):
        cases: dict[str, list[int]] = {}
        for name, distance in machine.units_in_the_last_place.items():
            cases.setdefault(name.partition(" ")[0], []).append(distance)
        for name, units in cases.items():
            largest = f"{words.count(max(units), 'unit')} in the last place" if any(units) else "none"
            yield _row(machine.gpu, f"`{name}`", str(len(units)), str(units.count(0)), largest)
    yield from _measured(machine for machine in recorded.machines(root) if machine.units_in_the_last_place)


def functions(root: Path) -> Iterator[str]:
    """Yield a row for each approximate function of PTX: how the PTX machine's values differ from the GPU's."""
    yield from _header("GPU", "function", "bit for bit equal", "largest difference", "manual's bound")
    for machine in recorded.machines(root):
        for name, approximation in machine.functions.items():
            largest, allowed = (f"2^{math.log2(error):.1f}" for error in (approximation.largest, approximation.allowed))
            equal = words.share(approximation.equal, 1)
            yield _row(machine.gpu, f"`{name}.approx.f32`", equal, largest, f"{allowed}, {approximation.measure}")
    yield from _measured(machine for machine in recorded.machines(root) if machine.functions)


def findings(root: Path) -> Iterator[str]:
    """Yield a row for each planted bug that the PTX machine finds: whether compute-sanitizer finds it on the GPU."""
    yield from _header("GPU", "planted bug", "tool", "compute-sanitizer", "PTX machine")
    for machine in recorded.machines(root):
        for bug, result in machine.sanitizer.items():
            outcome = "found" if result.found else "not found"
            if result.line:
                outcome = "found, with the line"
            yield _row(machine.gpu, f"`{bug}`", result.tool, outcome, "found, with the line")
    yield from _measured(machine for machine in recorded.machines(root) if machine.sanitizer)


def cards(root: Path) -> Iterator[str]:
    """Yield a row for each architecture: how many reference kernels compile for it, and why the others do not."""
    yield from _header("architecture", "cards", "reference kernels that compile", "the others")
    obstacles_by_exercise = recorded.cards(root).obstacles
    for arch, names in CARDS.items():
        exercises_by_reason: dict[str, list[str]] = {}
        for exercise, obstacles in obstacles_by_exercise.items():
            if arch in obstacles:
                exercises_by_reason.setdefault(obstacles[arch], []).append(f"`{exercise}`")
        failed = sum(map(len, exercises_by_reason.values()))
        reasons = "; ".join(
            f"{reason}: {', '.join(exercises)}" for reason, exercises in sorted(exercises_by_reason.items())
        )
        yield _row(
            f"`{arch}`",
            names,
            f"{len(obstacles_by_exercise) - failed} of {len(obstacles_by_exercise)}",
            reasons or "none",
        )
    if obstacles_by_exercise:
        yield from provenance.compiled_lines(recorded.cards(root).versions)


def _measured(machines: Iterable[recorded.Machine]) -> Iterator[str]:
    """Yield the line on versions for each machine that has rows in a table."""
    for machine in machines:
        yield from provenance.measured_lines(machine)


def _header(*names: str) -> Iterable[str]:
    return (_row(*names), _row(*("---" for _ in names)))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
