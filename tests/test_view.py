"""Test the rendering of reports in a terminal."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from kernelpath.course import progress, registry
from kernelpath.course.registry import ExerciseRef
from kernelpath.line_counters import LineTraffic
from kernelpath.show import overview, view
from kernelpath.verdict import CaseResult, Report, Verdict

GRADED = Report("1_architecture/w01a_double", "Doubling", "submission.py", "no GPU", 1, Verdict.TOO_MUCH_TRAFFIC, "why")


def render_report(graded_report: Report, item: ExerciseRef, width: int = 80, explain: str = "") -> str:
    console = Console(file=io.StringIO(), width=width)
    view.report(console, item, graded_report, explain=explain)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_location_and_the_source_line_are_not_wrapped(doubling: ExerciseRef) -> None:
    line = "    if (row < rows && column < columns) out[column * rows + row] = in[row * columns + column];"
    (doubling.root / "phases/1_architecture/w01a_double.cu").write_text(f"\n{line}\n")
    text = render_report(replace(GRADED, file="phases/1_architecture/w01a_double.cu", line=2), doubling, width=40)
    assert "  --> phases/1_architecture/w01a_double.cu:2\n" in text
    assert f"\n    2 | {line}\n" in text


def test_the_seed_is_not_wrapped(doubling: ExerciseRef) -> None:
    machine = "PTX machine for sm_80 on x86_64, no GPU"
    text = render_report(replace(GRADED, device=machine, seed=3637241106), doubling, width=60)
    assert text.splitlines()[0].endswith("seed 3637241106")


def test_the_first_lines_of_every_report_fit_in_80_columns() -> None:
    machine = "PTX machine for sm_90a on aarch64, no GPU"
    for item in registry.exercises():
        report = replace(GRADED, title=item.title, device=machine, seed=(1 << 32) - 1)
        first, *other_lines = render_report(report, item, width=200).splitlines()
        assert first.startswith(f"{item.name}  week {item.week}, ")
        assert len(first) <= 80
        launches = registry.load(item).is_kernel
        assert item.launches is launches
        assert (machine in other_lines) is launches


def test_the_cause_of_a_second_failure_is_not_truncated(doubling: ExerciseRef) -> None:
    cause = "1 of 257 elements of the output were not written, at " + "x" * 100
    cases = (
        CaseResult({"n": 5}, Verdict.TOO_MUCH_TRAFFIC, "why"),
        CaseResult({"n": 7}, Verdict.NOT_WRITTEN, cause),
    )
    text = render_report(replace(GRADED, cases=cases), doubling)
    assert f"NOT_WRITTEN at n=7: {cause}".replace(" ", "") in text.replace("\n", "").replace(" ", "")
    assert "…" not in text


def test_titles_are_not_truncated_in_a_narrow_list(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    items = registry.exercises()
    overview.syllabus(console, [(item, progress.EMPTY_RECORD) for item in items])
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    letters = "".join(text.split())
    longest = max(items, key=lambda item: len(item.title))
    assert longest.title.split()[-1] in letters


@pytest.mark.parametrize(
    ("stars", "seconds", "ends"),
    [
        ((0, 0), False, "0 of {core} passed"),
        ((1, 1), False, "2 of {core} passed, with 2 of 2 stars without a GPU; on a GPU these exercises give up to 6"),
        ((1, 1), True, "2 of {core} passed, with 2 of 6 stars"),
        ((3, 2), True, "2 of {core} passed, with 5 of 6 stars"),
    ],
)
def test_stars_are_counted_out_of_those_of_the_passed_exercises(
    stars: tuple[int, int], seconds: bool, ends: str
) -> None:
    items = registry.exercises()
    timed = [item for item in items if item.stars == 3]
    best = {"NVIDIA H200": 1e-3} if seconds else {}
    records = {
        item: replace(progress.EMPTY_RECORD, passed="2026-01-01", stars=count, best_seconds=best)
        for item, count in zip(timed, stars, strict=False)
        if count
    }
    console = Console(file=io.StringIO(), width=100)
    overview.progress(console, [(item, records.get(item, progress.EMPTY_RECORD)) for item in items])
    assert isinstance(console.file, io.StringIO)
    core = sum(not item.is_elective for item in items)
    assert console.file.getvalue().splitlines()[-1] == ends.format(core=core)


def test_the_compile_time_is_shown_below_the_cases(doubling: ExerciseRef) -> None:
    cases = (CaseResult({"n": 5}, Verdict.PASSED, seconds=2.0),)
    assert "n=5  PASSED  2 s\ncompiling took 1.5 s of these times\n" in render_report(
        replace(GRADED, cases=cases, compile_seconds=1.5), doubling
    )
    assert "compiling" not in render_report(replace(GRADED, cases=cases), doubling)


def test_wasteful_accesses_are_listed_with_the_worst_first(doubling: ExerciseRef) -> None:
    traffic = (
        LineTraffic("k.cu", 3, "load from", "in", 10, sectors=40, ideal_sectors=40),
        LineTraffic("k.cu", 3, "store to", "out", 10, sectors=80, ideal_sectors=40),
        LineTraffic("k.cu", 5, "load from", "shared memory", 10, wavefronts=320, ideal_wavefronts=10),
    )
    lines = render_report(replace(GRADED, traffic=traffic), doubling, width=100).splitlines()
    first = lines.index("memory, counted on the PTX machine:")
    assert lines[first + 1 : first + 4] == [
        "  line 5 of k.cu, load from shared memory: 32 wavefronts per request, its bytes fit in 1",
        "  line 3 of k.cu, store to out: 8 sectors per request, its bytes fit in 4",
        "",
    ]


def test_long_output_is_deduplicated_and_shortened_in_the_middle(doubling: ExerciseRef) -> None:
    printed = "warning\n" * 40 + "".join(f"line {number}\n" for number in range(20)) + "warning\n" * 40
    lines = render_report(replace(GRADED, printed=printed), doubling).splitlines()
    first = lines.index("it printed 100 lines; --json - gives all:")
    assert lines[first + 1 : first + 15] == [
        "warning",
        *(f"line {number}" for number in range(5)),
        "[…]",
        *(f"line {number}" for number in range(14, 20)),
        "",
    ]


@pytest.mark.parametrize("printed", ["one\ntwo\n", "one\n\ntwo\n"])
def test_short_output_is_shown_unchanged(doubling: ExerciseRef, printed: str) -> None:
    assert f"it printed:\n{printed}" in render_report(replace(GRADED, printed=printed), doubling)


def test_only_a_pass_shows_the_explanation_after_a_warning(doubling: ExerciseRef) -> None:
    passed = render_report(replace(GRADED, verdict=Verdict.PASSED), doubling, width=120, explain="It took 42 us.")
    assert passed.index("it answers some predictions that follow in the notebook") < passed.index("It took 42 us.")
    assert "expert" not in render_report(GRADED, doubling, explain="It took 42 us.")


def test_a_command_that_does_not_fit_is_on_its_own_line() -> None:
    console = Console(file=io.StringIO(), width=40)
    view.step(console, "fix phases/1_architecture/w01a_double.py, then kp check double --seed 7")
    view.step(console, "fix mine.py, then kp check double")
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines() == [
        "",
        "next: fix phases/1_architecture/w01a_double.py, then",
        "      kp check double --seed 7",
        "",
        "next: fix mine.py, then kp check double",
    ]
