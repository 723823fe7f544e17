"""Grade a class of 40 learners, ten of them hostile. Print the cost, and whether any verdicts were mixed up.

python benchmarks/classroom.py [--device cpu|cuda] [--learners N] [--jobs N] [--ray ADDRESS]

Every learner hands in vector_add: the reference kernel under a line with the learner's own name, a planted wrong
kernel, or one of ten attacks from tests/rejects. The expected verdict of each learner is known.

--ray grades on a cluster, such as the one that `ray start --head` starts on this machine, and prints the resources of
its workers on this machine. The last lines extrapolate the first run to a large class. They are not a measurement.

Processor seconds are those of all processes on this machine that have ended. Unlike wall-clock seconds, they are
meaningful on a machine that others use as well.
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
# The learners and exercises of the class in the extrapolation.
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
    """The resources that workers used.

    Attributes:
        held_bytes: The memory of the largest worker. Of a page that it shares with others, a part counts.
        processor_seconds: The processor time of all workers.
    """

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
    with tempfile.TemporaryDirectory() as name, overview.bar(Console(stderr=True)) as update_bar:
        folder = Path(name)
        expected = dict(hand_in(item, folder / "class", options.learners))
        samples: list[Workers] = []

        def look(grade: Grade, done: int, of: int) -> None:
            samples.append(workers())
            update_bar(grade, done, of)

        durations = []
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
            durations.append(time.perf_counter() - begun)
            print(f"{run} run: {durations[-1]:.1f} s, {processor_seconds() - spent:.1f} s of a processor")
        saved = (folder / "out" / "grades.json").stat().st_size
    scale(durations[0], len(grades), saved, samples)
    endings = Counter(verdict(grade) for grade in grades)
    print(", ".join(f"{count} {ending}" for ending, count in endings.most_common()))
    lost = expected.keys() - {grade.learner for grade in grades}
    mixed_up = [grade for grade in grades if verdict(grade) != expected[grade.learner]]
    print(f"{len(grades)} graded, {len(lost)} lost, {len(mixed_up)} other than expected")
    for grade in mixed_up:
        cause = grade.report and grade.report.cause
        print(f"  {grade.learner}: {verdict(grade)}, expected {expected[grade.learner]}: {cause}")
    raise SystemExit(1 if lost or mixed_up else 0)


def hand_in(item: registry.ExerciseRef, folder: Path, learners: int) -> Iterator[tuple[str, str]]:
    """Write the files of every learner. Yield the learners, each with the expected verdict."""
    wrong = {reject.title: reject for reject in planted.rejects(item.root) if reject.exercise == item.solution.stem}
    places = {learners * (2 * attack + 1) // (2 * len(HOSTILE)): title for attack, title in enumerate(HOSTILE)}
    for number in range(learners):
        learner = f"learner{number:03d}"
        planted_title = places.get(number, "")
        if not planted_title and number % EVERY_WRONG == 0:
            planted_title = WRONG[number // EVERY_WRONG % len(WRONG)]
        source = wrong[planted_title].submission(folder.with_name("planted")) if planted_title else item.solution
        place = folder / learner
        place.mkdir(parents=True)
        for path in (source, source.with_suffix(".cu")):
            if path.is_file():
                text = path.read_text().replace(path.with_suffix(".cu").name, item.solution.with_suffix(".cu").name)
                mark = "//" if path.suffix == ".cu" else "#"
                (place / f"{item.solution.stem}{path.suffix}").write_text(f"{mark} {learner}\n{text}")
        yield learner, wrong[planted_title].verdict.value if planted_title else "PASSED"


def processor_seconds() -> float:
    """Return the processor time of this process and of all its descendants that have ended."""
    gc.collect()  # a fork server is only waited for once nothing refers to it
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def workers() -> Workers:
    """Return the resources of Ray's workers on this machine, with all processes that they started."""
    running = [
        process
        for process in psutil.process_iter(["cmdline"])
        if (process.info["cmdline"] or [""])[0].startswith("ray::")
    ]
    worker_bytes = [0] * len(running)
    cpu_seconds = 0.0
    for index, process in enumerate(running):
        with contextlib.suppress(psutil.Error):  # a process may end in between
            for descendant in (process, *process.children(recursive=True)):
                worker_bytes[index] += descendant.memory_full_info().pss
                cpu_seconds += sum(descendant.cpu_times()[:4])
    return Workers(max(worker_bytes, default=0), cpu_seconds)


def scale(seconds: float, count: int, saved: int, samples: Sequence[Workers]) -> None:
    """Print the throughput and the resources of workers, and extrapolate them to a large class."""
    learners, exercises = LARGE
    total = learners * exercises
    print(f"{60 * count / seconds:.1f} gradings a minute, {saved / count / 1e3:.1f} kB saved for each")
    large = f"{total * seconds / count / 3600:.1f} h here, {total * saved / count / 1e6:.0f} MB saved"
    if any(sample.held_bytes for sample in samples):
        each = max(sample.processor_seconds for sample in samples) / count
        max_bytes = max(sample.held_bytes for sample in samples)
        print(f"{each:.1f} s of a processor for each, at most {max_bytes / 1e9:.2f} GB held by a worker")
        large += f", {total * each / 3600:.1f} h of one processor, {exercises * each / 60:.1f} min of it a learner"
    print(f"extrapolated to {learners:,} learners and {exercises} exercises like this one: {large}")


def verdict(grade: Grade) -> str:
    return grade.report.verdict.value if grade.report else "NOT_HANDED_IN"


if __name__ == "__main__":
    main()
