"""What a report looks like in a terminal."""

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


def shown(graded: Report, item: ExerciseRef, width: int = 80, explain: str = "") -> str:
    console = Console(file=io.StringIO(), width=width)
    view.report(console, item, graded, explain=explain)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_place_and_its_line_are_not_broken_in_two(doubling: ExerciseRef) -> None:
    line = "    if (row < rows && column < columns) out[column * rows + row] = in[row * columns + column];"
    (doubling.root / "phases/1_architecture/w01a_double.cu").write_text(f"\n{line}\n")
    text = shown(replace(GRADED, file="phases/1_architecture/w01a_double.cu", line=2), doubling, width=40)
    assert "  --> phases/1_architecture/w01a_double.cu:2\n" in text
    assert f"\n    2 | {line}\n" in text


def test_a_seed_is_not_parted_from_its_number(doubling: ExerciseRef) -> None:
    machine = "PTX machine for sm_80 on x86_64, no GPU"
    told = shown(replace(GRADED, device=machine, seed=3637241106), doubling, width=60)
    assert told.splitlines()[0].endswith("seed 3637241106")


def test_the_first_lines_of_every_report_fit_in_80_columns() -> None:
    machine = "PTX machine for sm_90a on aarch64, no GPU"
    for item in registry.exercises():
        report = replace(GRADED, title=item.title, device=machine, seed=(1 << 32) - 1)
        first, *others = shown(report, item, width=200).splitlines()
        assert first.startswith(f"{item.name}  week {item.week}, ")
        assert len(first) <= 80
        launches = registry.load(item).is_kernel
        assert item.launches is launches
        assert (machine in others) is launches


def test_the_cause_of_a_second_failure_is_not_cut(doubling: ExerciseRef) -> None:
    cause = "1 of 257 elements of the output were not written, at " + "x" * 100
    cases = (
        CaseResult({"n": 5}, Verdict.TOO_MUCH_TRAFFIC, "why"),
        CaseResult({"n": 7}, Verdict.NOT_WRITTEN, cause),
    )
    text = shown(replace(GRADED, cases=cases), doubling)
    assert f"NOT_WRITTEN at n=7: {cause}".replace(" ", "") in text.replace("\n", "").replace(" ", "")
    assert "…" not in text


def test_titles_are_whole_in_a_narrow_list(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_stars_are_of_those_that_the_passed_exercises_give(stars: tuple[int, int], seconds: bool, ends: str) -> None:
    items = registry.exercises()
    timed = [item for item in items if item.stars == 3]
    best = {"NVIDIA H200": 1e-3} if seconds else {}
    of = {
        item: replace(progress.EMPTY_RECORD, passed="2026-01-01", stars=count, best_seconds=best)
        for item, count in zip(timed, stars, strict=False)
        if count
    }
    console = Console(file=io.StringIO(), width=100)
    overview.progress(console, [(item, of.get(item, progress.EMPTY_RECORD)) for item in items])
    assert isinstance(console.file, io.StringIO)
    core = sum(not item.is_elective for item in items)
    assert console.file.getvalue().splitlines()[-1] == ends.format(core=core)


def test_what_compiling_took_is_told_below_the_cases(doubling: ExerciseRef) -> None:
    cases = (CaseResult({"n": 5}, Verdict.PASSED, seconds=2.0),)
    assert "n=5  PASSED  2 s\ncompiling took 1.5 s of these times\n" in shown(
        replace(GRADED, cases=cases, compile_seconds=1.5), doubling
    )
    assert "compiling" not in shown(replace(GRADED, cases=cases), doubling)


def test_wasteful_accesses_are_listed_with_the_worst_first(doubling: ExerciseRef) -> None:
    traffic = (
        LineTraffic("k.cu", 3, "load from", "in", 10, sectors=40, ideal_sectors=40),
        LineTraffic("k.cu", 3, "store to", "out", 10, sectors=80, ideal_sectors=40),
        LineTraffic("k.cu", 5, "load from", "shared memory", 10, wavefronts=320, ideal_wavefronts=10),
    )
    lines = shown(replace(GRADED, traffic=traffic), doubling, width=100).splitlines()
    first = lines.index("memory, counted on the PTX machine:")
    assert lines[first + 1 : first + 4] == [
        "  line 5 of k.cu, load from shared memory: 32 wavefronts per request, its bytes fit in 1",
        "  line 3 of k.cu, store to out: 8 sectors per request, its bytes fit in 4",
        "",
    ]


def test_what_was_printed_is_shown_once_from_both_ends(doubling: ExerciseRef) -> None:
    printed = "warning\n" * 40 + "".join(f"line {number}\n" for number in range(20)) + "warning\n" * 40
    lines = shown(replace(GRADED, printed=printed), doubling).splitlines()
    first = lines.index("it printed 100 lines; --json - gives all:")
    assert lines[first + 1 : first + 15] == [
        "warning",
        *(f"line {number}" for number in range(5)),
        "[…]",
        *(f"line {number}" for number in range(14, 20)),
        "",
    ]


@pytest.mark.parametrize("printed", ["one\ntwo\n", "one\n\ntwo\n"])
def test_what_fits_is_shown_as_it_is(doubling: ExerciseRef, printed: str) -> None:
    assert f"it printed:\n{printed}" in shown(replace(GRADED, printed=printed), doubling)


def test_an_explanation_follows_a_warning_and_only_a_pass(doubling: ExerciseRef) -> None:
    passed = shown(replace(GRADED, verdict=Verdict.PASSED), doubling, width=120, explain="It took 42 us.")
    assert passed.index("it answers some predictions that follow in the notebook") < passed.index("It took 42 us.")
    assert "expert" not in shown(GRADED, doubling, explain="It took 42 us.")


def test_a_command_that_does_not_fit_has_a_line_of_its_own() -> None:
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
