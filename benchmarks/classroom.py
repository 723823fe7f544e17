"""Grades a class of 40 learners, ten of them hostile, and prints what it took and whether anybody was mixed up.

python benchmarks/classroom.py [--device cpu|cuda] [--learners N] [--jobs N] [--ray ADDRESS]

Every learner hands in vector_add: the reference kernel under a line with the learner's own name, a planted wrong
kernel, or one of ten attacks from tests/rejects. What each must get is known.

--ray grades on a cluster, such as the one that `ray start --head` begins on this machine, and tells what its workers
hold here. The last lines scale the first run up to a large class; they are no measurement.

Seconds of a processor are those of all processes on this machine that have ended. Unlike seconds of the clock, they
mean something on a machine that others use as well.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from rich.console import Console

from kernelpath.course import registry
from kernelpath.school import classroom, cluster
from kernelpath.school.gradebook import Grade
from kernelpath.show import overview

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests import planted

EVERY_WRONG = 5
# Learners and exercises of the class that is extrapolated to.
LARGE = (1000, 13)

HOSTILE = (
    "CRASHED_exit_hook",
    "CRASHED_forged_report",
    "CRASHED_hoards_memory",
    "TAMPERED_background_thread",
    "TAMPERED_forged_answer",
    "TAMPERED_patched_clock",
    "TAMPERED_patched_comparison",
    "ACCESS_DENIED_hunts_through_gc",
    "TIMED_OUT_endless_kernel",
    "TIMED_OUT_endless_loop_on_the_host",
)
WRONG = ("OUT_OF_BOUNDS_no_guard", "NOT_WRITTEN_last_block_missing", "COMPILE_ERROR_missing_semicolon")


@dataclass(frozen=True)
class Workers:
    """held_bytes: by the largest, where a page that it shares with others counts in part. processor_seconds: of all."""

    held_bytes: int
    processor_seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description="Grade a class with ten hostile learners.")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--learners", type=int, default=40)
    parser.add_argument("--jobs", type=int, help="how many at a time; default: one for each processor or GPU")
    parser.add_argument("--ray", metavar="ADDRESS", help='grade on this Ray cluster; "auto" is that of this machine')
    options = parser.parse_args()
    engine = cluster.engine_at(options.ray) if options.ray else classroom.this_machine
    item = registry.find("w01b_vector_add")
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} at the start")
    with tempfile.TemporaryDirectory() as name, overview.bar(Console(stderr=True)) as tell:
        folder = Path(name)
        wanted = dict(hand_in(item, folder / "class", options.learners))
        seen: list[Workers] = []

        def look(one: Grade, done: int, of: int) -> None:
            seen.append(workers())
            tell(one, done, of)

        took = []
        for run in ("first", "second"):
            begun, spent = time.perf_counter(), processor_seconds()
            grades = classroom.grade_class(
                folder / "class",
                folder / "out",
                [item],
                device=options.device,
                jobs=options.jobs,
                engine=engine,
                on_graded=look,
            )
            took.append(time.perf_counter() - begun)
            print(f"{run} run: {took[-1]:.1f} s, {processor_seconds() - spent:.1f} s of a processor")
        saved = (folder / "out" / "grades.json").stat().st_size
    scale(took[0], len(grades), saved, seen)
    endings = Counter(verdict(one) for one in grades)
    print(", ".join(f"{count} {ending}" for ending, count in endings.most_common()))
    lost = wanted.keys() - {one.learner for one in grades}
    mixed_up = [one for one in grades if verdict(one) != wanted[one.learner]]
    print(f"{len(grades)} graded, {len(lost)} lost, {len(mixed_up)} other than expected")
    for one in mixed_up:
        print(f"  {one.learner}: {verdict(one)}, expected {wanted[one.learner]}: {one.report and one.report.cause}")
    raise SystemExit(1 if lost or mixed_up else 0)


def hand_in(item: registry.ExerciseRef, folder: Path, learners: int) -> Iterator[tuple[str, str]]:
    """Write every learner's files; yields the learners with the verdict that each must get."""
    wrong = {reject.title: reject for reject in planted.rejects(item.root) if reject.exercise == item.solution.stem}
    places = {learners * (2 * attack + 1) // (2 * len(HOSTILE)): title for attack, title in enumerate(HOSTILE)}
    for number in range(learners):
        learner = f"learner{number:03d}"
        chosen = places.get(number, "")
        if not chosen and number % EVERY_WRONG == 0:
            chosen = WRONG[number // EVERY_WRONG % len(WRONG)]
        source = wrong[chosen].submission(folder.with_name("planted")) if chosen else item.solution
        place = folder / learner
        place.mkdir(parents=True)
        for path in (source, source.with_suffix(".cu")):
            if path.is_file():
                text = path.read_text().replace(path.with_suffix(".cu").name, item.solution.with_suffix(".cu").name)
                mark = "//" if path.suffix == ".cu" else "#"
                (place / f"{item.solution.stem}{path.suffix}").write_text(f"{mark} {learner}\n{text}")
        yield learner, wrong[chosen].verdict.value if chosen else "PASSED"


def processor_seconds() -> float:
    """Of this process, and of all its descendants that have ended."""
    gc.collect()  # a fork server is waited for when nobody refers to it any more
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def workers() -> Workers:
    """Of Ray on this machine, with all that they started."""
    running = [one for one in psutil.process_iter(["cmdline"]) if (one.info["cmdline"] or [""])[0].startswith("ray::")]
    held, spent = [0] * len(running), 0.0
    for index, one in enumerate(running):
        with contextlib.suppress(psutil.Error):  # a process that ends meanwhile
            for part in (one, *one.children(recursive=True)):
                held[index] += part.memory_full_info().pss
                spent += sum(part.cpu_times()[:4])
    return Workers(max(held, default=0), spent)


def scale(seconds: float, count: int, saved: int, seen: Sequence[Workers]) -> None:
    """Print the throughput and what workers took, and what that comes to for a large class."""
    learners, exercises = LARGE
    total = learners * exercises
    print(f"{60 * count / seconds:.1f} gradings a minute, {saved / count / 1e3:.1f} kB saved for each")
    large = f"{total * seconds / count / 3600:.1f} h here, {total * saved / count / 1e6:.0f} MB saved"
    if any(one.held_bytes for one in seen):
        spent = max(one.processor_seconds for one in seen) / count
        most = max(one.held_bytes for one in seen)
        print(f"{spent:.1f} s of a processor for each, at most {most / 1e9:.2f} GB held by a worker")
        large += f", {total * spent / 3600:.1f} h of one processor, {exercises * spent / 60:.1f} min of it a learner"
    print(f"extrapolated to {learners:,} learners and {exercises} exercises like this one: {large}")


def verdict(one: Grade) -> str:
    return one.report.verdict.value if one.report else "NOT_HANDED_IN"


if __name__ == "__main__":
    main()
