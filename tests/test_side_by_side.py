"""Test the concurrent grading of several exercises: its output, its exit status, and its interruption by Ctrl-C."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from kernelpath import cli
from kernelpath.course import registry
from kernelpath.course.registry import ExerciseRef
from kernelpath.grading import grade, pool
from kernelpath.host_info import JOB_BYTES, HostInfo
from kernelpath.show import overview
from kernelpath.verdict import Interval, Measurement, Report, Verdict
from kernelpath.work import forkserver
from kernelpath.work.workspace import Workspace
from tests.conftest import DECLARATION, LESSON
from tests.test_cli import find_descendants, start_command
from tests.waiting import happens

RIGHT = "def double(x):\n    return 2 * x\n"
WRONG = "def double(x):\n    return 3 * x\n"
# This sleep is longer than any test waits: compilers have two minutes.
HANGS = """
from warpcheck import frontends

def double(x):
    open("running", "w").close()
    with frontends.compiling():
        while True:
            pass
"""


@pytest.fixture
def course(doubling: ExerciseRef, monkeypatch: pytest.MonkeyPatch) -> ExerciseRef:
    """Return the exercise `double` of a checkout, the current folder, that also has second and third, one per week."""
    for stem in ("w02a_second", "w03a_third"):
        item = ExerciseRef(doubling.root, f"1_architecture/{stem}")
        item.declaration.write_text(DECLARATION)
        item.lesson.write_text(LESSON)
        item.solution.write_text(RIGHT)
    monkeypatch.chdir(doubling.root)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("KERNELPATH_CACHE", str(doubling.root / "cache"))
    return doubling


def solution(course: ExerciseRef, stem: str) -> Path:
    return ExerciseRef(course.root, f"1_architecture/{stem}").solution


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Return the exit status of a command and its output."""
    with pytest.raises(SystemExit) as exit_:
        cli.main((*arguments, "--tree", "solutions", "--device", "cpu"))
    printed = capsys.readouterr()
    assert printed.err == ""
    return int(exit_.value.code or 0), printed.out


def test_a_row_is_printed_as_soon_as_its_grading_ends(course: ExerciseRef) -> None:
    solution(course, "w02a_second").write_text(HANGS)
    with start_command(course, "check", "--all", "--tree", "solutions", "--device", "cpu", "--jobs", "1") as checking:
        assert checking.stdout is not None
        assert checking.stdout.readline().split()[-2:] == ["PASSED", "double"]
        checking.send_signal(signal.SIGINT)  # the second one still runs
        assert checking.wait(60) == 130


def test_ctrl_c_terminates_all_gradings_and_leaves_no_process(course: ExerciseRef) -> None:
    hanging = [solution(course, stem) for stem in ("w01a_double", "w02a_second", "w03a_third")]
    for path in hanging:
        path.write_text(HANGS)
    running = [Workspace(path).own / "tmp" / "running" for path in hanging]
    with start_command(course, "check", "--all", "--tree", "solutions", "--device", "cpu", "--jobs", "3") as checking:
        assert happens(lambda: all(path.is_file() for path in running))
        checking.send_signal(signal.SIGINT)
        assert checking.wait(60) == 130
    assert happens(lambda: not find_descendants(course))
    assert not any(path.parent.exists() for path in running)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_only_a_failing_exercise_is_reported_in_full(
    course: ExerciseRef, jobs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    solution(course, "w02a_second").write_text(WRONG)
    target = course.root / "reports.json"
    status, text = run(capsys, "check", "--all", "--jobs", jobs, "--seed", "3", "--json", str(target))
    assert status == 1
    rows = [line.split() for line in text.splitlines() if line.strip().startswith(("1/3", "2/3", "3/3"))]
    assert [row[0] for row in rows] == ["1/3", "2/3", "3/3"]
    assert {(row[-1], row[-2]) for row in rows} == {
        ("double", "PASSED"),
        ("second", "WRONG_VALUES"),
        ("third", "PASSED"),
    }
    report = re.split(r"(?m)^\d/3|^week", text[text.index("second  week 2") :])[0]
    assert re.search(r"n=1000 +WRONG_VALUES", report)
    assert "\nWRONG_VALUES  " in report
    assert "all are 1.5 times what is expected" in report
    assert "third" not in report
    table = text[text.index("week  exercise") :].splitlines()
    assert [line.split()[1] for line in table[1:4]] == ["double", "second", "third"]
    assert "2 PASSED, 1 WRONG_VALUES on" in text
    assert text.splitlines()[-1] == "next: kp check second --tree solutions"
    verdicts = [(report["exercise"][-6:], report["verdict"]) for report in json.loads(target.read_text())]
    assert verdicts == [("double", "PASSED"), ("second", "WRONG_VALUES"), ("_third", "PASSED")]


def test_named_exercises_are_reported_in_full_and_in_order(
    course: ExerciseRef, capsys: pytest.CaptureFixture[str]
) -> None:
    status, text = run(capsys, "check", "third", "double", "--jobs", "2", "--json", "-")
    assert status == 0
    assert [Path(report["exercise"]).name for report in json.loads(text)] == ["w03a_third", "w01a_double"]
    status, text = run(capsys, "check", "third", "double", "--jobs", "2")
    assert status == 0
    assert text.count("right on every case") == 2
    assert [line.split()[1] for line in text[text.index("week  exercise") :].splitlines()[1:3]] == ["third", "double"]


def test_a_file_that_is_missing_ends_the_command_as_before(
    course: ExerciseRef, capsys: pytest.CaptureFixture[str]
) -> None:
    solution(course, "w02a_second").unlink()
    with pytest.raises(SystemExit) as exit_:
        cli.main(("check", "double", "second", "--tree", "solutions", "--device", "cpu", "--jobs", "2"))
    assert exit_.value.code == 2
    assert "there is no file" in capsys.readouterr().err


def test_an_aborted_pool_starts_no_grading(course: ExerciseRef) -> None:
    threads = pool.Pool("cpu", 1)
    assert threads.submit(grade.grade, course, course.solution, device="cpu").result().verdict is Verdict.PASSED
    server = threads.submit(forkserver.get_server).result()
    threads._servers.end()
    assert happens(lambda: not server.alive)
    with pytest.raises(forkserver.ServersEnded):
        threads.submit(grade.grade, course, course.solution, device="cpu").result()
    threads.shutdown()


# The number of jobs


def test_the_default_is_as_many_jobs_as_this_process_may_use_cores() -> None:
    code = (
        "import os; from kernelpath.host_info import HostInfo;"
        "os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); print(HostInfo().default_jobs)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


PLENTY = {"proc/meminfo": f"MemTotal: 1 kB\nMemAvailable: {1 << 40} kB\n"}
GROUP = "sys/fs/cgroup/"


@pytest.mark.parametrize(
    ("files", "jobs"),
    [
        (PLENTY, 16),
        ({"proc/meminfo": f"MemAvailable: {5 * JOB_BYTES // 2048} kB\n"}, 2),
        ({"proc/meminfo": "MemAvailable: 1 kB\n"}, 1),
        ({**PLENTY, "proc/self/cgroup": "0::/\n", GROUP + "cpu.max": "max 100000\n"}, 16),
        ({**PLENTY, "proc/self/cgroup": "0::/\n", GROUP + "cpu.max": "250000 100000\n"}, 2),
        ({**PLENTY, "proc/self/cgroup": "0::/\n", GROUP + "cpu.max": "50000 100000\n"}, 1),
        ({**PLENTY, "proc/self/cgroup": "0::/a/b\n", GROUP + "a/cpu.max": "300000 100000\n"}, 3),
        ({**PLENTY, "proc/self/cgroup": "0::/gone\n", GROUP + "cpu.max": "300000 100000\n"}, 3),
        (
            {
                **PLENTY,
                "proc/self/cgroup": "4:cpu,cpuacct:/docker/x\n",
                GROUP + "cpu/cpu.cfs_quota_us": "400000\n",
                GROUP + "cpu/cpu.cfs_period_us": "100000\n",
            },
            4,
        ),
        (
            {
                **PLENTY,
                "proc/self/cgroup": "4:cpu,cpuacct:/\n",
                GROUP + "cpu/cpu.cfs_quota_us": "-1\n",
                GROUP + "cpu/cpu.cfs_period_us": "100000\n",
            },
            16,
        ),
        (
            {
                **PLENTY,
                "proc/self/cgroup": "0::/\n",
                GROUP + "memory.max": f"{5 * JOB_BYTES}\n",
                GROUP + "memory.current": f"{3 * JOB_BYTES}\n",
                GROUP + "memory.stat": f"anon 1\ninactive_file {JOB_BYTES}\n",
            },
            3,
        ),
        (
            {
                **PLENTY,
                "proc/self/cgroup": "7:memory:/\n",
                GROUP + "memory/memory.limit_in_bytes": f"{4 * JOB_BYTES}\n",
                GROUP + "memory/memory.usage_in_bytes": f"{2 * JOB_BYTES}\n",
                GROUP + "memory/memory.stat": "total_inactive_file 0\n",
            },
            2,
        ),
    ],
)
def test_jobs_fit_into_cores_memory_and_the_limits_of_a_container(
    files: dict[str, str], jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert HostInfo(tmp_path).default_jobs == jobs


@pytest.mark.parametrize(("free", "advice"), [(JOB_BYTES, ""), (JOB_BYTES - 1024, "choose a container with 2 GB")])
def test_a_memory_shortage_for_a_single_grading_is_reported(free: int, advice: str, tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "meminfo").write_text(f"MemAvailable: {free // 1024} kB\n")
    shortage = HostInfo(tmp_path).memory_shortage
    assert shortage.endswith(advice)
    assert bool(shortage) == bool(advice)


def test_the_pool_has_as_many_threads_as_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostInfo, "default_jobs", 3)
    with pool.Pool("cpu") as by_default, pool.Pool("cpu", 2) as by_choice:
        assert (by_default._max_workers, by_choice._max_workers) == (3, 2)


# The table of results

MEASURED = Measurement(
    case={"n": 1},
    seconds=123.4e-6,
    baseline_seconds=1e-3,
    reference_seconds=None,
    speedup=Interval(10.25, 10.0, 10.5),
    of_reference=None,
    compulsory_bytes=1,
    flops=0,
    light_seconds=1e-6,
    ceilings={},
    rounds=24,
    method="",
    telemetry={},
)


@pytest.mark.parametrize("measurement", [None, MEASURED])
@pytest.mark.parametrize("width", [80, 120])
def test_no_cell_of_the_table_is_truncated(measurement: Measurement | None, width: int) -> None:
    graded = Report("", "", "", "a GPU", 1, Verdict.PASSED, seconds=1234.5, stars=3, measurement=measurement)
    graded = replace(graded, verdict=max(Verdict, key=lambda verdict: len(verdict.value)))
    console = Console(file=io.StringIO(), width=width)
    items = registry.exercises()
    overview.table(console, [(item, graded) for item in items])
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()[: len(items) + 1]
    assert "…" not in "".join(lines)
    assert max(map(len, lines)) <= width
    for item, line in zip(items, lines[1:], strict=True):
        assert line.split()[:2] == [str(item.week), item.name]
        assert graded.verdict.value in line
        if measurement is not None:
            assert "10.2" in line
            assert "123 µs" in line
    if width == 120:
        assert {"lane", "took"} <= set(lines[0].split())
