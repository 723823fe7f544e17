"""Grades a class of 100 learners, ten of them hostile, and prints what it took and whether anybody was mixed up.

python benchmarks/classroom.py [--device cpu|cuda] [--learners N] [--jobs N]

Every learner hands in vector_add: the reference kernel under a line with the learner's own name, a planted wrong
kernel, or one of ten attacks from tests/rejects. What each must get is known.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from kernelpath.course import registry, rejects
from kernelpath.school import classroom
from kernelpath.school.gradebook import Grade
from kernelpath.show import overview

EVERY_WRONG = 5
HOSTILE = (
    "CRASHED_exit_hook",
    "CRASHED_forged_report",
    "CRASHED_hoards_memory",
    "TAMPERED_background_thread",
    "TAMPERED_forged_answer",
    "TAMPERED_patched_clock",
    "TAMPERED_patched_comparison",
    "NOT_YOUR_KERNEL_hunts_through_gc",
    "TIMED_OUT_endless_kernel",
    "TIMED_OUT_endless_loop_on_the_host",
)
WRONG = ("OUT_OF_BOUNDS_no_guard", "NOT_WRITTEN_last_block_missing", "COMPILE_ERROR_missing_semicolon")


def main() -> None:
    parser = argparse.ArgumentParser(description="Grade a class of 100 with ten hostile learners.")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--learners", type=int, default=100)
    parser.add_argument("--jobs", type=int, help="how many at a time; default: one for each processor or GPU")
    options = parser.parse_args()
    item = registry.find("w01b_vector_add")
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} at the start")
    with tempfile.TemporaryDirectory() as name, overview.bar(Console(stderr=True)) as tell:
        folder = Path(name)
        wanted = dict(hand_in(item, folder / "class", options.learners))
        for run in ("first", "second"):
            begun = time.perf_counter()
            grades = classroom.grade_class(
                folder / "class", folder / "out", [item], device=options.device, jobs=options.jobs, tell=tell
            )
            print(f"{run} run: {time.perf_counter() - begun:.1f} s")
    endings = Counter(verdict(one) for one in grades)
    print(", ".join(f"{count} {ending}" for ending, count in endings.most_common()))
    lost = wanted.keys() - {one.learner for one in grades}
    mixed_up = [one for one in grades if verdict(one) != wanted[one.learner]]
    print(f"{len(grades)} graded, {len(lost)} lost, {len(mixed_up)} other than expected")
    for one in mixed_up:
        print(f"  {one.learner}: {verdict(one)}, expected {wanted[one.learner]}: {one.report and one.report.cause}")
    raise SystemExit(1 if lost or mixed_up else 0)


def hand_in(item: registry.Item, folder: Path, learners: int) -> Iterator[tuple[str, str]]:
    """Write every learner's files; yields the learners with the verdict that each must get."""
    planted = {
        reject.path.stem: reject for reject in rejects.find(item.root, "any") if reject.exercise == item.solution.stem
    }
    for number in range(learners):
        learner = f"learner{number:03d}"
        chosen = HOSTILE[number // 10] if number % 10 == 7 else ""
        if not chosen and number % EVERY_WRONG == 0:
            chosen = WRONG[number // EVERY_WRONG % len(WRONG)]
        source = planted[chosen].submission(folder.with_name("planted")) if chosen else item.solution
        place = folder / learner
        place.mkdir(parents=True)
        for path in (source, source.with_suffix(".cu")):
            if path.is_file():
                text = path.read_text().replace(path.with_suffix(".cu").name, item.solution.with_suffix(".cu").name)
                mark = "//" if path.suffix == ".cu" else "#"
                (place / f"{item.solution.stem}{path.suffix}").write_text(f"{mark} {learner}\n{text}")
        yield learner, planted[chosen].verdict.value if chosen else "PASSED"


def verdict(one: Grade) -> str:
    return one.report.verdict.value if one.report else "NOT_HANDED_IN"


if __name__ == "__main__":
    main()
