"""Test the command line: its output, its exit statuses, and the files that it leaves behind."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from kernelpath import cli
from kernelpath.cli.grading import interruptible
from kernelpath.course import registry
from kernelpath.course.progress import Progress
from kernelpath.course.registry import ExerciseRef
from kernelpath.dev import invariants
from kernelpath.grading import grade
from kernelpath.host_info import HostInfo
from kernelpath.school.exams import ExamOutcome
from kernelpath.school.gradebook import Grade
from kernelpath.show import overview
from kernelpath.verdict import Report, Verdict
from kernelpath.work.workspace import Workspace
from tests.waiting import happens

Run = Callable[..., tuple[int, str, str]]

STUB = """def double(x):
    # TODO: twice x
    raise NotImplementedError("write double")
"""
RIGHT = "def double(x):\n    return 2 * x\n"
WRONG = "def double(x):\n    return 3 * x\n"


@pytest.fixture
def item(doubling: ExerciseRef, monkeypatch: pytest.MonkeyPatch) -> ExerciseRef:
    """Return the exercise `double` with its stub, in a git checkout that is the current folder."""
    doubling.stub.write_text(STUB)
    monkeypatch.chdir(doubling.root)
    monkeypatch.setenv("COLUMNS", "80")
    git(doubling, "init", "-q")
    commit(doubling)
    return doubling


@pytest.fixture
def kp(item: ExerciseRef, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command and returns its exit status, its output, and its errors."""

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exit_:
            cli.main(arguments)
        captured = capsys.readouterr()
        return int(exit_.value.code or 0), captured.out, captured.err

    return run


def git(item: ExerciseRef, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *arguments], cwd=item.root, check=True, capture_output=True)


def commit(item: ExerciseRef) -> None:
    git(item, "add", ".")
    git(item, "commit", "-q", "-m", "state")


def next_steps(text: str) -> list[str]:
    return [line.removeprefix("next: ") for line in text.splitlines() if line.startswith("next: ")]


def test_the_bare_command_shows_the_next_exercise_and_one_step(kp: Run) -> None:
    status, out, _ = kp()
    assert status == 0
    assert "phases/1_architecture/w01a_double.py" in out
    assert next_steps(out) == ["kp watch double"]


def test_next_lists_the_notebooks_up_to_the_next_exercise(kp: Run, item: ExerciseRef) -> None:
    folder = item.root / "notebooks" / "1_architecture"
    folder.mkdir(parents=True)
    for name in ("week01_b", "week00_a", "week02_c"):
        (folder / f"{name}.ipynb").write_text("{}")
    read = [line for line in kp("next")[1].splitlines() if line.endswith(".ipynb")]
    assert read == [
        "read  notebooks/1_architecture/week00_a.ipynb",
        "      notebooks/1_architecture/week01_b.ipynb",
    ]
    item.declaration.with_name("w02a_later.py").write_text(item.declaration.read_text())
    item.stub.write_text(RIGHT)
    assert kp("check", "double", "--device", "cpu")[0] == 0
    assert "read  notebooks/1_architecture/week02_c.ipynb\n" in kp("next")[1]


def test_list_marks_passed_exercises(kp: Run, item: ExerciseRef) -> None:
    assert "✓" not in kp("list")[1]
    item.stub.write_text(RIGHT)
    assert kp("check", "double", "--device", "cpu")[0] == 0
    output = kp("list")[1]
    assert [line.split()[:3] for line in output.splitlines() if "✓" in line] == [["✓", "1", "double"]]


def test_a_stub_is_not_started(kp: Run, item: ExerciseRef) -> None:
    status, out, _ = kp("check", "double", "--device", "cpu")
    assert status == 1
    assert "NOT_STARTED" in out
    assert len(next_steps(out)) == 1


def test_a_failure_names_its_case_and_its_seed(kp: Run, item: ExerciseRef) -> None:
    item.stub.write_text(WRONG)
    status, out, _ = kp("check", "double", "--device", "cpu", "--seed", "7")
    assert status == 1
    assert "n=1000" in out
    assert "seed 7" in out
    assert "WRONG_VALUES" in out
    assert len(next_steps(out)) == 1


def test_the_source_line_is_shown_with_its_number(kp: Run, item: ExerciseRef) -> None:
    item.stub.write_text("def double(x):\n    return x.doubled()\n")
    _, out, _ = kp("check", "double", "--device", "cpu")
    assert "--> phases/1_architecture/w01a_double.py:2" in out
    assert "    2 |     return x.doubled()" in out


def test_a_pass_shows_the_explanation_and_is_recorded(kp: Run, item: ExerciseRef) -> None:
    item.stub.write_text(RIGHT)
    status, out, _ = kp("check", "--device", "cpu")
    assert status == 0
    assert "\ndone\n" in out
    assert "1 of 1 passed" in kp("progress")[1]
    assert "All 1 exercises are passed" in kp("next")[1]
    assert kp("check", "--device", "cpu")[0] == 2
    assert "\ndone\n" not in kp("check", "double", "--device", "cpu")[1]
    assert "\ndone\n" in kp("solution", "double")[1]


def test_grading_solutions_or_another_file_records_no_progress(kp: Run, item: ExerciseRef) -> None:
    assert kp("check", "double", "--tree", "solutions", "--device", "cpu")[0] == 0
    own_file = item.root / "mine.py"
    own_file.write_text(RIGHT)
    assert kp("check", "double", "--file", str(own_file), "--device", "cpu")[0] == 0
    assert "0 of 1 passed" in kp("progress")[1]
    assert not (item.root / ".kernelpath" / "reports").exists()


def test_the_last_report_is_saved_for_every_verdict(kp: Run, item: ExerciseRef) -> None:
    for source, verdict in ((RIGHT, "PASSED"), (WRONG, "WRONG_VALUES")):
        item.stub.write_text(source)
        kp("check", "double", "--device", "cpu")
        saved = json.loads((item.root / ".kernelpath" / "reports" / "w01a_double.last.json").read_text())
        assert (saved["report"]["verdict"], saved["sources"]) == (verdict, {"w01a_double.py": source})


def test_the_next_step_grades_the_same_file_again(kp: Run, item: ExerciseRef) -> None:
    (item.root / "mine.py").write_text(WRONG)
    _, out, _ = kp("check", "double", "--file", "mine.py", "--device", "cpu", "--seed", "5")
    assert next_steps(out) == ["fix mine.py, then kp check double --file mine.py --seed 5"]


def test_a_next_step_names_a_file_by_the_shortest_path(kp: Run, item: ExerciseRef) -> None:
    (item.root / "mine.py").write_text(WRONG)
    _, out, _ = kp("check", "double", "--file", str(item.root / "mine.py"), "--device", "cpu", "--seed", "5")
    assert next_steps(out) == ["fix mine.py, then kp check double --file mine.py --seed 5"]


def test_json_on_stdout_is_the_complete_report(kp: Run, item: ExerciseRef) -> None:
    status, out, _ = kp("check", "double", "--device", "cpu", "--seed", "3", "--json", "-")
    report = Report.from_json(out)
    assert status == 1
    assert (report.exercise, report.seed, report.verdict.value) == (item.path_id, 3, "NOT_STARTED")


def test_json_of_all_is_a_list_in_a_file(kp: Run, item: ExerciseRef) -> None:
    target = item.root / "all.json"
    status, out, _ = kp("check", "--all", "--tree", "solutions", "--device", "cpu", "--json", str(target))
    assert status == 0
    assert "1 PASSED on " in out
    assert [report["verdict"] for report in json.loads(target.read_text())] == ["PASSED"]


def test_check_all_ends_with_the_next_step_of_the_first_failure(kp: Run) -> None:
    status, out, _ = kp("check", "--all", "--device", "cpu")
    assert status == 1
    assert next_steps(out) == ["kp check double"]


@pytest.mark.parametrize(
    ("arguments", "expected_error"),
    [
        (("check", "doubel"), "did you mean double"),
        (("hint", "zzz"), "kp list"),
        (("check", "double", "--file", "absent.py"), "there is no file absent.py; give --file one that exists"),
        (("check", "--file", "absent.py"), "exactly one NAME"),
        (("check", "--all", "double"), "neither NAME nor --file"),
        (("check", "double", "--device", "tpu"), "'tpu' is not one of"),
        (("check", "double", "--tree", "solutions", "--device", "cpu", "--json", "no/such/x.json"), "cannot write"),
        (("hint", "double", "4"), "4 is not in the range 1<=x<=3"),
        (("frobnicate",), "No such command"),
    ],
)
def test_a_usage_error_exits_with_2_and_says_what_to_do(
    kp: Run, arguments: tuple[str, ...], expected_error: str
) -> None:
    status, _, err = kp(*arguments)
    assert status == 2
    assert expected_error in " ".join(err.split())
    assert "Traceback" not in err


def test_an_ambiguous_name_lists_its_matches(kp: Run, item: ExerciseRef) -> None:
    declaration = item.declaration.read_text()
    item.declaration.with_name("w01b_double_again.py").write_text(declaration)
    status, _, err = kp("check", "doub")
    assert status == 2
    assert "double, double_again" in err


def test_a_broken_declaration_is_reported(kp: Run, item: ExerciseRef) -> None:
    item.declaration.write_text('"""Doubling."""\nimport nothing_of_this_name\n')
    status, _, err = kp("check", "double")
    assert status == 2
    assert "w01a_double.py" in err
    assert "nothing_of_this_name" in err


def test_commands_fail_outside_a_checkout(kp: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_root() -> Path:
        raise registry.LookupFailed("this is not a kernelpath checkout")

    monkeypatch.setattr(registry, "root", no_root)
    assert kp("list")[0] == 2


def test_an_internal_error_is_one_line_and_a_crash_file(kp: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> Report:
        raise ZeroDivisionError("deep inside")

    monkeypatch.setattr(grade, "grade", fail)
    status, _, err = kp("check", "double")
    assert status == 2
    assert "Traceback" not in err
    crash = Path(next(word for word in err.split() if word.endswith(".txt")))
    assert "ZeroDivisionError: deep inside" in crash.read_text()
    crash.unlink()


def test_a_command_without_its_extra_says_what_to_install(kp: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grade, "grade", lambda *_, **__: importlib.import_module("matplotlib.figure"))
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, "matplotlib.figure", raising=False)
    status, _, err = kp("check", "double")
    message = " ".join(err.split())
    assert status == 2
    assert "matplotlib is not installed: " in message
    assert "'nbconvert>=7'" in message, "the whole extra must be named, not just the missing package"
    assert "report" not in message


def test_hints_are_shown_one_by_one_and_counted(kp: Run) -> None:
    assert [kp("hint", *name)[1].splitlines()[:-2] for name in (["double"], [], ["double"], ["double"])] == [
        ["hint 1 of 3: a"],
        ["hint 2 of 3: b"],
        ["hint 3 of 3: c"],
        ["There are only 3 hints; this is the last one again.", "hint 3 of 3: c"],
    ]
    assert next_steps(kp("hint")[1]) == ["kp check double"]
    assert kp("hint", "double", "1")[1].startswith("hint 1 of 3: a")
    assert [line.split()[2] for line in kp("progress")[1].splitlines() if line.split()[1:2] == ["double"]] == ["3"]


def test_hints_after_a_pass_are_shown_and_not_counted(kp: Run, item: ExerciseRef) -> None:
    kp("hint", "double")
    item.stub.write_text(RIGHT)
    assert kp("check", "double", "--device", "cpu")[0] == 0
    outputs = [kp("hint", "double", *level)[1] for level in ((), ("3",))]
    assert [re.findall("hint . of 3: .", text) for text in outputs] == [
        ["hint 1 of 3: a", "hint 2 of 3: b", "hint 3 of 3: c"],
        ["hint 3 of 3: c"],
    ]
    assert [next_steps(text) for text in outputs] == [["kp solution double"]] * 2
    assert Progress(item.root).records()[item.path_id].hints == 1


def test_hints_are_shown_even_if_they_cannot_be_recorded(kp: Run, item: ExerciseRef) -> None:
    (item.root / ".kernelpath").write_text("in the way")
    status, out, err = kp("hint", "double")
    assert status == 0
    assert out.startswith("hint 1 of 3: a")
    assert "progress was not saved" in err


def test_a_broken_progress_file_is_a_warning(kp: Run, item: ExerciseRef) -> None:
    (item.root / ".kernelpath").mkdir()
    (item.root / ".kernelpath" / "progress.json").write_text("{")
    status, _, err = kp("list")
    assert status == 0
    assert "progress.broken-1.json" in err


def test_the_solution_is_shown_after_a_pass_or_on_request(kp: Run, item: ExerciseRef) -> None:
    status, out, _ = kp("solution", "double")
    assert (status, next_steps(out)) == (1, ["kp hint double"])
    assert "return 2 * x" not in out
    long_line = f"# {'because ' * 15}"
    item.solution.write_text(f"{RIGHT}{long_line}\n")
    status, out, _ = kp("solution", "double", "--peek")
    assert status == 0
    assert "return 2 * x" in out
    assert long_line in out
    assert "TODO: twice x" in out


def test_the_solution_names_the_folder_of_its_ladder(kp: Run, item: ExerciseRef) -> None:
    assert "The steps" not in kp("solution", "double", "--peek")[1]
    item.ladder.mkdir(parents=True)
    (item.ladder / "1_naive.py").write_text('"""Naive: a step."""\n')
    text = " ".join(kp("solution", "double", "--peek")[1].split())
    assert f"are in solutions/{item.phase}/steps/{item.solution.stem}." in text


def test_the_answer_is_shown_and_the_expert_kernel_on_request(kp: Run, item: ExerciseRef) -> None:
    write_expert(item, "def double(x):\n    return x + x\n")
    status, out, _ = kp("solution", "double", "--peek")
    assert (status, next_steps(out)) == (0, ["kp solution double --expert"])
    assert "return 2 * x" in out
    assert "return x + x" not in out
    status, out, _ = kp("solution", "double", "--peek", "--expert")
    assert (status, next_steps(out)) == (0, [])
    assert "return x + x" in out
    assert "return 2 * x" not in out
    assert "TODO: twice x" in out, "the stub is compared with the expert kernel"


def test_all_expert_kernels_are_graded_and_nothing_else(kp: Run, item: ExerciseRef) -> None:
    status, _, err = kp("check", "--all", "--tree", "expert", "--device", "cpu")
    assert (status, "no exercise has an expert kernel" in err) == (2, True)
    write_expert(item, WRONG)
    status, out, _ = kp("check", "--all", "--tree", "expert", "--device", "cpu")
    assert (status, next_steps(out)[-1]) == (1, "kp check double --tree expert")
    assert kp("check", "--all", "--tree", "solutions", "--device", "cpu")[0] == 0


def write_expert(item: ExerciseRef, source: str) -> None:
    expert = item.solution.parent / "expert" / item.solution.name
    expert.parent.mkdir()
    expert.write_text(source)


def test_a_withheld_solution_is_reported(kp: Run, item: ExerciseRef) -> None:
    item.solution.unlink()
    status, _, err = kp("solution", "double", "--peek")
    assert status == 2
    assert "the solution of double is withheld" in err


def test_reset_restores_the_stub_and_backs_up_the_submission(kp: Run, item: ExerciseRef) -> None:
    item.stub.write_text(WRONG)
    commit(item)
    item.stub.write_text(RIGHT)
    status, out, _ = kp("reset", "double")
    assert status == 0
    assert item.stub.read_text() == STUB
    backup = next(line for line in out.splitlines() if "kept in" in line).split()[-1]
    assert (item.root / backup / item.stub.name).read_text() == RIGHT


def test_reset_of_an_unchanged_stub_makes_no_backup(kp: Run, item: ExerciseRef) -> None:
    assert "double is the stub already" in kp("reset", "double")[1]
    assert not (item.root / ".kernelpath").exists()


def test_reset_restores_a_deleted_file(kp: Run, item: ExerciseRef) -> None:
    item.stub.unlink()
    assert kp("reset", "double")[0] == 0
    assert item.stub.read_text() == STUB


def test_reset_works_without_the_solution(kp: Run, item: ExerciseRef) -> None:
    item.solution.unlink()
    item.stub.write_text(RIGHT)
    commit(item)
    assert kp("reset", "double")[0] == 0
    assert item.stub.read_text() == STUB


def test_reset_without_a_git_history_changes_nothing(kp: Run, item: ExerciseRef) -> None:
    (item.root / ".git").rename(item.root / "gone")
    item.stub.write_text(WRONG)
    status, _, err = kp("reset", "double")
    assert status == 2
    assert "git" in err
    assert item.stub.read_text() == WRONG


def test_watch_grades_each_save_and_ctrl_c_ends_all_processes(item: ExerciseRef) -> None:
    item.stub.write_text(WRONG)
    with start_command(item, "watch", "double", "--device", "cpu") as watching:
        wait_for("WRONG_VALUES", watching)
        item.stub.write_text(RIGHT)
        wait_for("PASSED", watching)
        watching.send_signal(signal.SIGINT)
        assert watching.wait(20) == 130
    assert happens(lambda: not find_descendants(item))


def test_ctrl_c_during_a_check_ends_its_worker(item: ExerciseRef) -> None:
    item.stub.write_text("def double(x):\n    open('running', 'w').close()\n    while True:\n        pass\n")
    running = Workspace(item.stub).own / "tmp" / "running"
    with start_command(item, "check", "double", "--device", "cpu") as checking:
        assert happens(running.is_file)
        assert len(find_descendants(item)) == 3  # kp, the fork server, the worker
        checking.send_signal(signal.SIGINT)
        assert checking.wait(20) == 130
    assert happens(lambda: not find_descendants(item))


def test_a_background_job_ignores_ctrl_c_and_ends_on_sigterm(item: ExerciseRef) -> None:
    """Shells start background jobs, and nohup starts its command, with SIGINT ignored."""
    item.stub.write_text(WRONG)
    with start_command(item, "watch", "double", "--device", "cpu", on_sigint=signal.SIG_IGN) as watching:
        time.sleep(0.5)
        watching.send_signal(signal.SIGINT)  # while torch is imported
        wait_for("WRONG_VALUES", watching)
        watching.send_signal(signal.SIGINT)
        item.stub.write_text(RIGHT)
        wait_for("PASSED", watching)
        watching.terminate()
        assert watching.wait(20) == -signal.SIGTERM
    assert happens(lambda: not find_descendants(item))


@pytest.fixture
def handler(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Install the handler of SIGINT that a test requests, because the process of the tests may ignore SIGINT."""
    before = signal.signal(signal.SIGINT, request.param)
    yield request.param
    signal.signal(signal.SIGINT, before)


def swallow(becomes: ImportError | None) -> None:
    """Catch a KeyboardInterrupt during an import, as numpy does, and raise `becomes` instead if it is not None."""
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        if becomes is not None:
            raise becomes from None


@pytest.mark.parametrize("handler", [signal.default_int_handler], indirect=True)
@pytest.mark.parametrize("becomes", [None, ImportError("numpy's own")])
def test_ctrl_c_swallowed_by_an_import_still_interrupts(handler: Any, becomes: ImportError | None) -> None:
    with pytest.raises(KeyboardInterrupt), interruptible():
        swallow(becomes)
    assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.parametrize("handler", [signal.SIG_IGN], indirect=True)
def test_an_ignored_ctrl_c_stays_ignored(handler: Any) -> None:
    with interruptible():
        swallow(ImportError("is not raised"))
        assert signal.getsignal(signal.SIGINT) is handler
    assert signal.getsignal(signal.SIGINT) is handler


def start_command(item: ExerciseRef, *arguments: str, on_sigint: Any = signal.SIG_DFL) -> subprocess.Popen[str]:
    """Start a command as a process that has MARK in its environment, which its descendants inherit.

    Args:
        on_sigint: The disposition of SIGINT in the command. The process of the tests may ignore SIGINT, as many CI
            runners do, and the command would inherit that.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "kernelpath.cli", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "MARK": str(item.root)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, on_sigint),
    )


def find_descendants(item: ExerciseRef) -> list[Path]:
    processes = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"MARK={item.root}" in environment.read_text(errors="replace").split("\0"):
                processes.append(environment.parent)
    return processes


def wait_for(word: str, watching: subprocess.Popen[str]) -> None:
    assert watching.stdout is not None
    for line in watching.stdout:
        if line.startswith(word):
            return
    raise AssertionError(f"the process ended without {word}")


QUICK = (["list"], ["hint", "double"], ["progress"], ["next"], ["--help"], ["reset", "double"])


@pytest.mark.parametrize("command", QUICK, ids=lambda command: command[0])
def test_quick_commands_import_no_slow_modules(item: ExerciseRef, command: list[str]) -> None:
    code = "import sys; from kernelpath import cli\ntry: cli.main()\nfinally: print(); print(*sys.modules)"
    process = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, env=os.environ)
    assert (process.returncode, process.stderr) == (0, "")
    imported = set(process.stdout.splitlines()[-1].split())
    assert not imported & {"torch", "numpy", "matplotlib", "jinja2", "triton", "cutlass"}
    assert len(imported) < 400, "importing a module costs about half a millisecond"


def test_the_entry_point_imports_only_kernelpath_cli() -> None:
    code = "import sys; before = set(sys.modules); import kernelpath.cli; print(*sorted(set(sys.modules) - before))"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ours = [name for name in process.stdout.split() if name.startswith(("kernelpath", "click", "rich"))]
    assert ours == ["kernelpath", "kernelpath.cli"]


def test_dev_check_keeps_the_threads_of_torch_from_spinning(kp: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spinning took most of three minutes of CPU time. libgomp reads the variable when torch is imported."""
    monkeypatch.setenv("OMP_WAIT_POLICY", "")
    monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.setattr(invariants, "QUICK", ())
    assert kp("dev", "check", "--quick")[0] == 0
    assert os.environ["OMP_WAIT_POLICY"] == "passive"


def test_grade_writes_the_grades_of_a_class_and_a_summary(kp: Run, item: ExerciseRef) -> None:
    for learner, source in (("ada", RIGHT), ("bob", WRONG)):
        (item.root / "class" / learner).mkdir(parents=True)
        (item.root / "class" / learner / item.stub.name).write_text(source)
    status, out, _ = kp("grade", "class", "--device", "cpu", "--jobs", "1")
    assert status == 0
    assert ["w01a_double", "2", "1", "1", "WRONG_VALUES"] in [line.split() for line in out.splitlines()]
    assert "\n2 learners\n" in out
    rows = (item.root / "class-grades" / "grades.csv").read_text().splitlines()
    assert [row.split(",")[:3] for row in rows[1:]] == [
        ["ada", item.path_id, "PASSED"],
        ["bob", item.path_id, "WRONG_VALUES"],
    ]
    assert kp("progress")[1].count("0 of 1 passed") == 1


POLICY = """
times = "submitted.csv"
timezone = "UTC"
points = 10
deadline = 2026-10-05
[late]
percent_per_day = 25
[extensions]
ghost = 1
"""


def test_grade_with_a_policy_writes_a_row_and_a_page_for_the_learners(kp: Run, item: ExerciseRef) -> None:
    folder = item.root / "class"
    grades = item.root / "class-grades"
    for learner, source in (("ada", RIGHT), ("bob", WRONG), ("cyd", RIGHT), ("nobody", "")):
        (folder / learner).mkdir(parents=True)
        if source:
            (folder / learner / item.stub.name).write_text(source)
    (folder / ".tools").mkdir()
    (folder / "policy.toml").write_text(POLICY)
    (folder / "submitted.csv").write_text("learner,submitted\nada,2026-10-06 12:00\nbob,2026-10-05 12:00\n")
    status, out, err = kp("grade", "class", "--device", "cpu", "--jobs", "1", "--policy", "class/policy.toml")
    assert status == 0
    assert next_steps(" ".join(out.split()).replace(" next: ", "\nnext: ")) == [f"open {grades / 'class.html'}"]
    rows = [row.split(",") for row in (grades / "learners.csv").read_text().splitlines()]
    assert rows[0][-1] == "double (of 10)"
    assert {row[0]: row[1] for row in rows[1:]} == {"ada": "7.5", "bob": "0", "cyd": "10", "nobody": "0"}
    errors = " ".join(err.split())
    for warning in (
        "not graded: .tools begins with a dot",
        "not graded: nobody is empty",
        "not graded: submitted.csv is a file",
        "no submission time, counted as on time: cyd",
        "names learners without a folder: ghost",
    ):
        assert warning in errors
    assert "policy.toml is a file" not in errors
    page = (grades / "class.html").read_text()
    assert "WRONG_VALUES" in page
    assert "nobody is empty" in page


@pytest.mark.parametrize(
    ("policy", "extra_arguments", "expected_error"),
    [
        ("pionts = 3", [], "policy.toml: unknown key pionts; did you mean points?"),
        ("", ["--checkpoint", "1"], "leave the NAMEs and --policy out"),
    ],
)
def test_an_invalid_policy_is_refused_before_grading(
    kp: Run, item: ExerciseRef, policy: str, extra_arguments: list[str], expected_error: str
) -> None:
    (item.root / "class" / "ada").mkdir(parents=True)
    (item.root / "class" / "ada" / item.stub.name).write_text(RIGHT)
    (item.root / "policy.toml").write_text(policy)
    status, _, err = kp("grade", "class", "--device", "cpu", "--policy", "policy.toml", *extra_arguments)
    assert status == 2
    assert expected_error in " ".join(err.split())
    assert not (item.root / "class-grades").exists()


def test_an_exercise_of_the_policy_counts_without_any_submission(kp: Run, item: ExerciseRef) -> None:
    (item.root / "class" / "ada").mkdir(parents=True)
    (item.root / "policy.toml").write_text("[exercises.double]\npoints = 4\n")
    assert kp("grade", "class", "--device", "cpu", "--policy", "policy.toml")[0] == 0
    assert "ada,0,4,0.0," in (item.root / "class-grades" / "learners.csv").read_text()


def test_too_little_memory_for_a_class_is_a_warning(
    kp: Run, item: ExerciseRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    (item.root / "class" / "ada").mkdir(parents=True)
    monkeypatch.setattr(HostInfo, "free_memory", 700_000_000)
    _, _, err = kp("grade", "class", "double", "--device", "cpu")
    assert "0.7 GB of memory are free" in err
    assert "choose a container with 2 GB" in " ".join(err.split())
    monkeypatch.setattr(HostInfo, "free_memory", 2_000_000_000)
    assert "container" not in kp("grade", "class", "double", "--device", "cpu")[2]


@pytest.mark.parametrize("longest", ["w12b_flash_attention_backward"])
def test_the_table_of_a_class_fits_80_columns(longest: str) -> None:
    stem = f"3_triton/{longest}"
    grades = [
        Grade(f"learner{number}", stem, "k", Report(stem, "", "", "", 0, verdict))
        for number, verdict in enumerate([*Verdict] * 40)
    ]
    text = io.StringIO()
    overview.school(Console(file=text, width=80), grades)
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert all(verdict.value in text.getvalue() for verdict in Verdict if not verdict.passed), (
        "no verdict may be truncated"
    )


def test_the_table_of_exams_fits_80_columns_without_truncation() -> None:
    name = "Wolfgang Amadeus Mozart, 1234567 (handed in late)" + "x" * 60
    text = io.StringIO()
    overview.exams(Console(file=text, width=80), [ExamOutcome(name, None, "there is no sheet")])
    table = text.getvalue().partition("\n\n")[0]
    assert max(map(len, table.splitlines())) <= 80
    assert table.split("\n")[0].split() == ["learner", *overview._POINT_COLUMNS, "written"]
    assert "…" not in table
    assert table.count("x") == 60 + 1, "the name has 60, and the heading 'exercises' one more"


def test_grades_that_cannot_be_written_are_shown(kp: Run, item: ExerciseRef) -> None:
    (item.root / "class" / "ada").mkdir(parents=True)
    (item.root / "class" / "ada" / item.stub.name).write_text(RIGHT)
    (item.root / "class-grades" / "grades.csv").mkdir(parents=True)
    status, out, err = kp("grade", "class", "--device", "cpu", "--jobs", "1")
    assert status == 2
    assert ["w01a_double", "1", "1"] in [line.split() for line in out.splitlines()]
    assert "cannot write" in err
    assert "grades.csv" in err


@pytest.mark.parametrize("learner", [None, "ada"])
def test_grade_of_a_folder_without_submissions_is_a_usage_error(
    kp: Run, item: ExerciseRef, learner: str | None
) -> None:
    (item.root / "class" / (learner or "")).mkdir(parents=True)
    status, _, err = kp("grade", "class")
    assert status == 2
    assert "w01a_double.py" in " ".join(err.split())
