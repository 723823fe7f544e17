"""Test every verdict that plain Python can cause, on an exercise without a kernel."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kernelpath.course import registry
from kernelpath.course.registry import ExerciseRef
from kernelpath.grading import by_kind, grade
from kernelpath.grading.context import GradingContext
from kernelpath.grading.devices import OneDevice
from kernelpath.grading.job import Job
from kernelpath.verdict import Finding, Report, Verdict
from kernelpath.work import runner
from kernelpath.work.workspace import Workspace
from tests.conftest import is_gone
from tests.waiting import happens

# The time limit of a case in tests of endless loops.
CASE_SECONDS = 2.0

GradeText = Callable[[str], Report]


def test_a_correct_submission_passes_with_one_star(grade_text: GradeText) -> None:
    report = grade_text("def double(x):\n    return x + x\n")
    assert (report.verdict, report.stars) == (Verdict.PASSED, 1)
    assert len(report.cases) == 3, "two declared cases and a generated case"
    assert 500 <= report.cases[2].case["n"] <= 1000
    assert Report.from_json(report.to_json()) == report


@pytest.mark.parametrize(
    ("source", "verdict", "expected_cause"),
    [
        ("def double(x):\n    raise NotImplementedError('TODO')\n", "NOT_STARTED", "TODO"),
        ("def double(x:\n", "COMPILE_ERROR", "SyntaxError"),
        ("import no_such_module\n", "COMPILE_ERROR", "No module named 'no_such_module'"),
        ("def doubled(x):\n    return x\n", "COMPILE_ERROR", "no function double; it defines doubled"),
        ("def double(x, y):\n    return x\n", "COMPILE_ERROR", "missing a required argument: 'y'"),
        ("def double(x):\n    return 1 / 0\n", "CRASHED", "ZeroDivisionError: division by zero"),
        ("import os\ndef double(x):\n    os._exit(0)\n", "CRASHED", "exited with status 0"),
        ("import sys\ndef double(x):\n    sys.exit(0)\n", "CRASHED", "SystemExit"),
        ("import ctypes\ndef double(x):\n    ctypes.string_at(0)\n", "CRASHED", "SIGSEGV"),
        ("def double(x):\n    return torch.empty(1 << 45)\n", "CRASHED", "out of memory"),
        ("def double(x):\n    raise RuntimeError('Failed to find C compiler.')\n", "UNAVAILABLE", "needs a C compiler"),
        (
            "def double(x):\n    return None\n",
            "WRONG_TYPE",
            "double returned None; end it, or the function",
        ),
        ("def double(x):\n    return [2 * x]\n", "WRONG_TYPE", "a list"),
        ("def double(x):\n    return (2 * x, 3 * x)\n", "WRONG_TYPE", "double returned 2 tensors, expected 1"),
        ("def double(x):\n    return torch.nn.Parameter(2 * x)\n", "WRONG_TYPE", "a Parameter"),
        ("def double(x):\n    return (2 * x).to('meta')\n", "WRONG_TYPE", "meta"),
        ("def double(x):\n    return torch.stack((2 * x, x), 1)[:, 0]\n", "WRONG_TYPE", "not contiguous"),
        ("def double(x):\n    return x.mul_(2)\n", "WRONG_TYPE", "memory of an input"),
        ("def double(x):\n    return (2 * x)[:-1]\n", "WRONG_SHAPE", "shape (0,), expected (1,)"),
        ("def double(x):\n    return 2 * x.half()\n", "WRONG_DTYPE", "float16, expected float32"),
        ("def double(x):\n    return 2 * x.half().float()\n", "WRONG_VALUES", "elements of the output are wrong"),
        ("def double(x):\n    return torch.zeros_like(x)\n", "WRONG_VALUES", "double(…)[0] = 0, expected"),
        ("def double(x):\n    return x * float('nan')\n", "WRONG_VALUES", "nan, expected"),
        ("def double(x):\n    return torch.empty_like(x)\n", "NOT_WRITTEN", "1,000 of 1,000 elements of the output"),
        ("def double(x):\n    y = 2 * x\n    x.zero_()\n    return y\n", "MUTATED_INPUT", "an input was written to"),
        ("import time\ntime.perf_counter = time.time\ndef double(x):\n    return 2 * x\n", "TAMPERED", "perf_counter"),
        ("import gc\ndef double(x):\n    gc.get_objects()\n    return 2 * x\n", "ACCESS_DENIED", "get_objects"),
    ],
)
def test_a_wrong_submission_gets_the_expected_verdict_and_cause(
    grade_text: GradeText, source: str, verdict: str, expected_cause: str
) -> None:
    report = grade_text(source)
    assert report.verdict == verdict, report.cause
    assert expected_cause in report.cause
    assert "\n" not in report.cause
    assert report.next_step


def test_the_line_of_the_learners_file_is_named(grade_text: GradeText) -> None:
    report = grade_text("def helper(x):\n    return x.no_such_method()\n\n\ndef double(x):\n    return helper(x)\n")
    assert (report.file, report.line) == ("submission.py", 5)


def test_wrong_values_name_their_bounding_box(grade_text: GradeText) -> None:
    report = grade_text("def double(x):\n    y = 2 * x\n    y[900:910] = 0\n    return y\n")
    assert [case.verdict for case in report.cases][:2] == [Verdict.PASSED, Verdict.WRONG_VALUES]
    assert "elements 900..909 of 1000" in report.cause


@pytest.mark.parametrize(
    ("source", "verdict", "expected_cause"),
    [
        ("def double(x):\n    return 2 * x\n", "PASSED", ""),
        ("def double(x):\n    return 3 * x\n", "WRONG_VALUES", "tripled"),
        ("def double(x):\n    return 4 * x\n", "WRONG_VALUES", "1,000 of 1,000 elements of the output are wrong"),
        ("def double(x):\n    return torch.empty_like(x)\n", "NOT_WRITTEN", "never written"),
        ("def double(x):\n    return 3 * x[:0]\n", "WRONG_SHAPE", "shape (0,), expected (1,)"),
    ],
)
def test_a_declaration_may_explain_wrong_values_itself(
    doubling: ExerciseRef, grade_text: GradeText, source: str, verdict: str, expected_cause: str
) -> None:
    check = "    check=lambda inputs, outputs: 'tripled' if torch.allclose(outputs[0], 3 * inputs[0]) else None,\n"
    doubling.declaration.write_text(doubling.declaration.read_text().replace("    kind=", check + "    kind="))
    report = grade_text(source)
    assert report.verdict == verdict
    assert expected_cause in report.cause


def test_each_case_starts_from_fresh_memory(grade_text: GradeText) -> None:
    report = grade_text("calls = []\ndef double(x):\n    calls.append(x)\n    return 2 * calls[0]\n")
    assert [case.verdict for case in report.cases[:2]] == [Verdict.PASSED, Verdict.WRONG_SHAPE]


def test_a_crash_in_one_case_leaves_the_others_graded(grade_text: GradeText) -> None:
    report = grade_text("import os\ndef double(x):\n    if len(x) == 1:\n        os._exit(3)\n    return 2 * x\n")
    assert [case.verdict for case in report.cases] == [Verdict.CRASHED, Verdict.PASSED, Verdict.PASSED]


def test_output_of_the_submission_is_kept_separate(grade_text: GradeText) -> None:
    report = grade_text('print("{\\"verdict\\": \\"PASSED\\"}")\ndef double(x):\n    return x\n')
    assert report.verdict is not Verdict.PASSED
    assert '{"verdict": "PASSED"}' in report.printed


def test_an_endless_loop_is_stopped_with_its_children(grade_text: GradeText, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "CASE_SECONDS", CASE_SECONDS)
    report = grade_text(
        "import ctypes\n"
        "ctypes.CDLL(None).system(b'sleep 600 & echo $!')\n"
        "def double(x):\n    while True:\n        pass\n"
    )
    assert report.verdict is Verdict.TIMED_OUT
    pid = int(report.printed)
    assert happens(lambda: is_gone(pid))


GRADER = """
from kernelpath.grading import by_kind
from kernelpath.grading.graders.python_call import PythonCall
from kernelpath.verdict import Finding, Verdict


def plan_grading(job):
    return by_kind.GradingPlan(PythonCall(job), (by_kind.check_capability, by_kind.run_cases, check_comment))


def check_comment(context):
    if "# twice" in context.job.submission.read_text():
        return None
    return Finding(Verdict.WRONG_TYPE, f"no comment after {len(context.graded)} right cases", "submission.py", 4)
"""


def test_an_exercise_may_define_its_own_grader(grade_text: GradeText, doubling: ExerciseRef) -> None:
    doubling.grader.parent.mkdir()
    doubling.grader.write_text(GRADER)
    report = grade_text("def double(x):\n    return 2 * x\n")
    assert (report.verdict, report.line) == (Verdict.WRONG_TYPE, 4)
    assert report.cause == f"no comment after {len(report.cases)} right cases"
    assert len(report.cases) > 1
    assert grade_text("def double(x):\n    return 3 * x\n").verdict is Verdict.WRONG_VALUES, (
        "the cases must be checked before the comment"
    )
    assert grade_text("def double(x):\n    return 2 * x  # twice\n").verdict is Verdict.PASSED


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_an_exercises_own_check_runs_after_the_limits_and_before_the_speed(device: OneDevice) -> None:
    def find_nothing(context: GradingContext) -> Finding | None:
        return None

    item = registry.find("vector_add_triton")
    job = replace(Job.create(item, item.solution, device="cpu"), device=device)
    names = [step.__name__ for step in by_kind.plan_kernel_with(job, find_nothing).steps]
    assert names[-3:] == ["check_large_offsets", "find_nothing", "measure_speed"]
    assert names[:-2] + names[-1:] == [step.__name__ for step in by_kind.plan_kernel(job).steps]


def test_the_worker_does_not_import_modules_next_to_the_submission(grade_text: GradeText, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit('shadowed')\n")
    assert grade_text("def double(x):\n    return 2 * x\n").verdict is Verdict.PASSED


def test_the_solution_cannot_be_opened(grade_text: GradeText, doubling: ExerciseRef) -> None:
    report = grade_text(f"exec(open({str(doubling.solution)!r}).read())\n")
    assert report.verdict is Verdict.ACCESS_DENIED
    assert "solutions/1_architecture/w01a_double.py" in report.cause


def test_a_solution_may_open_itself(doubling: ExerciseRef) -> None:
    doubling.solution.write_text("text = open(__file__).read()\n\n\ndef double(x):\n    return 2 * x\n")
    assert grade.grade(doubling, doubling.solution, device="cpu").verdict is Verdict.PASSED


@pytest.mark.parametrize(
    "start",
    [
        "import subprocess\nsubprocess.run(['true'])\n",
        "import os\nos.system('true')\n",
        "import os\nos.posix_spawn('/bin/true', ['true'], {})\n",
    ],
    ids=["subprocess", "system", "posix_spawn"],
)
def test_a_submission_starts_no_program(grade_text: GradeText, start: str) -> None:
    report = grade_text(start + "def double(x):\n    return x + x\n")
    assert "starts a program" in report.cause + report.printed


def test_a_background_thread_is_noticed(grade_text: GradeText) -> None:
    report = grade_text(
        "import threading, time\n"
        "def double(x):\n    y = torch.empty_like(x)\n"
        "    threading.Thread(target=lambda: (time.sleep(1), y.copy_(2 * x))).start()\n    return y\n"
    )
    assert report.verdict in (Verdict.TAMPERED, Verdict.NOT_WRITTEN)


def test_the_seed_replays_the_sizes_and_the_inputs(doubling: ExerciseRef, tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text("def double(x):\n    return 3 * x\n")
    causes = [grade.grade(doubling, tmp_path / "s.py", device="cpu", seed=seed).cause for seed in (5, 5, 6)]
    assert causes[0] == causes[1] != causes[2]


def test_a_missing_file_is_a_usage_error(doubling: ExerciseRef, tmp_path: Path) -> None:
    with pytest.raises(grade.Usage, match="there is no file"):
        grade.grade(doubling, tmp_path / "absent.py", device="cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")
def test_requesting_a_missing_gpu_is_a_usage_error(doubling: ExerciseRef) -> None:
    with pytest.raises(grade.Usage, match="no GPU"):
        grade.grade(doubling, doubling.solution, device="cuda")


def test_the_worker_dies_with_the_grader(
    doubling: ExerciseRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELPATH_CACHE", str(tmp_path / "cache"))
    doubling.solution.write_text("import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)\n")
    source = (
        "from pathlib import Path; from kernelpath.grading import grade\n"
        "from kernelpath.course.registry import ExerciseRef\n"
        f"item = ExerciseRef(Path({str(doubling.root)!r}), {doubling.path_id!r})\n"
        "grade.grade(item, item.solution, device='cpu')"
    )
    parent = subprocess.Popen([sys.executable, "-c", source])
    pid_file = Workspace(doubling.solution).own / "tmp" / "pid"
    assert happens(lambda: pid_file.exists() and pid_file.read_text() != "")
    parent.kill()
    parent.wait()
    assert happens(lambda: is_gone(int(pid_file.read_text())))


def test_json_of_a_report_has_no_nan(grade_text: GradeText) -> None:
    data = json.loads(grade_text("def double(x):\n    return 2 * x\n").to_json())
    assert data["verdict"] == "PASSED"
    assert data["versions"]["torch"] == torch.__version__.split("+")[0] or data["versions"]["torch"]


@pytest.mark.parametrize(("context", "verdict"), [("frontends.compiling()", "PASSED"), ("nullcontext()", "TIMED_OUT")])
def test_compiling_has_a_time_budget_of_its_own(
    context: str, verdict: str, grade_text: GradeText, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "CASE_SECONDS", CASE_SECONDS)
    report = grade_text(
        "import time\nfrom contextlib import nullcontext\nfrom warpcheck import frontends\n"
        "def double(x):\n"
        f"    if len(x) == 1:\n        with {context}:\n            time.sleep({1.5 * CASE_SECONDS})\n"
        "    return 2 * x\n"
    )
    assert report.verdict == verdict


AUTOTUNED = """
import torch, triton
import triton.language as tl

@triton.autotune([triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 1024})], key=["n"])
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)

def vector_add(x, y):
    out = torch.empty_like(x)
    add[lambda chosen: (triton.cdiv(x.numel(), chosen["BLOCK"]),)](x, y, out, x.numel())
    return out
"""


def test_launches_of_autotuning_are_not_traffic(tmp_path: Path) -> None:
    submission = tmp_path / "submission.py"
    submission.write_text(AUTOTUNED)
    report = grade.grade(registry.find("vector_add_triton"), submission, device="cpu", seed=1)
    assert report.verdict is Verdict.PASSED, report.cause


HOST_FILLED = """
import torch
from warpcheck.frontends import cuda

def vector_add(x, y):
    print(x.cpu().numpy()[:2])
    zero, out = torch.empty(1, device=x.device), torch.empty_like(x)
    zero.numpy()[:] = 0
    n = x.numel()
    cuda.kernel("submission.cu", "add")[(n + 255) // 256, 256](x, y, zero, out, n)
    return out
"""

ADD = """
__global__ void add(const float* x, const float* y, const float* zero, float* out, long long n) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + y[i] + *zero;
}
"""


def test_a_constant_from_the_host_is_correct(tmp_path: Path) -> None:
    (tmp_path / "submission.cu").write_text(ADD)
    (tmp_path / "submission.py").write_text(HOST_FILLED)
    report = grade.grade(registry.find("vector_add"), tmp_path / "submission.py", device="cpu", seed=1)
    assert report.verdict is Verdict.PASSED, report.cause


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("while True:\n        torch.tanh(x)", ("    while True:", "        torch.tanh(x)")),
        ("import time\n    time.sleep(60)", ("    time.sleep(60)",)),
    ],
    ids=["loop", "call"],
)
def test_an_endless_loop_names_its_line(
    grade_text: GradeText, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, lines: tuple[str, ...]
) -> None:
    monkeypatch.setattr(runner, "CASE_SECONDS", CASE_SECONDS)
    report = grade_text(f"import torch\ndef double(x):\n    {body}\n    return 2 * x\n")
    assert report.verdict is Verdict.TIMED_OUT
    assert re.match(r"no answer within 2 s, lines? \d+( to \d+)? w(as|ere) running: an endless loop", report.cause)
    assert line_of(report, tmp_path) in lines


def line_of(report: Report, folder: Path) -> str:
    """Return the text of the line that a report names."""
    return (folder / report.file).read_text().splitlines()[report.line - 1] if report.line else ""


@pytest.mark.parametrize(
    ("body", "verdict", "cause", "line"),
    [
        ("out = x.new_empty(2)\n    return out", "WRONG_SHAPE", "has shape (2,), expected (1,)", "    return out"),
        ("if len(x):\n        return x.double()", "WRONG_DTYPE", "has dtype float64", "        return x.double()"),
        ("def inner():\n        return 1", "WRONG_TYPE", "returned None", "def double(x):"),
        ("return [x]", "WRONG_TYPE", "returned a list", "    return [x]"),
    ],
)
def test_a_wrong_output_names_the_line_that_returns_it(
    grade_text: GradeText, tmp_path: Path, body: str, verdict: str, cause: str, line: str
) -> None:
    report = grade_text(f"import torch\ndef double(x):\n    {body}\n")
    assert report.verdict is Verdict[verdict]
    assert cause in report.cause
    assert line_of(report, tmp_path) == line


def test_a_launch_of_a_submission_has_one_thread(grade_text: GradeText) -> None:
    report = grade_text(
        "from warpcheck import threads\n\ndef double(x):\n    assert threads.default_threads() == 1\n    return 2 * x\n"
    )
    assert report.verdict is Verdict.PASSED, report.cause
