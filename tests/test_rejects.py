"""Planted bad submissions: every file in rejects/ gets exactly the verdict that its name begins with.

rejects/cpu/ is graded on the PTX machine, rejects/gpu/ on a GPU, rejects/any/ on both. The folder below is an
exercise. A docstring begins with the row of ROWS that the file stands for, or with "An accident".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from kernelpath.course import registry
from kernelpath.grading import grade
from kernelpath.verdict import Report, Verdict
from kernelpath.work import runner

HERE = Path(__file__).parent / "rejects"

ROWS = {
    "C1": "an output that is never written holds an older right answer",
    "C2": "the inputs are changed, and the reference with them",
    "C3": "NaN passes, because it is not greater than the tolerance",
    "C4": "zeros pass, because they are near enough",
    "C5": "wrong indices pass on symmetric or square inputs",
    "C6": "part of the work is done and rescaled",
    "C7": "lower precision inside",
    "C8": "sizes are known in advance",
    "C9": "right for the first calls",
    "C10": "races and accesses out of bounds that happen to pass",
    "C11": "the expected output is found in the process",
    "T1": "another stream, which events do not see",
    "T2": "a thread finishes the work later",
    "T3": "a lazy tensor computes in the comparison",
    "T4": "clocks, events or the grader's functions are replaced",
    "T5": "the grader's answer is forged",
    "T6": "the clock is dragged, so that less is repeated",
    "T7": "results are cached",
    "T8": "another call has done the work",
    "T9": "lines persist in L2",
    "T11": "no time at all",
    "S1": "a library does the work",
    "S2": "the solution is used",
    "S3": "behaviour changes when graded",
    "H1": "the process is ended",
    "H2": "compile errors, hangs, exhausted memory, illegal accesses",
}
"""Tricks and accidents that have fooled graders of kernels. What no submission can do has tests of its own: tolerances
that are ignored (test_compare), and times that are launch overhead or noise (test_measure, test_timing)."""


def submissions(*folders: str) -> list[Path]:
    found = [path for folder in folders for path in (HERE / folder).glob("w*/*.py")]
    return sorted(found, key=lambda path: path.parts[-2:])


def verdict_of(submission: Path) -> Verdict:
    return next(verdict for verdict in Verdict if submission.name.startswith(f"{verdict.value}_"))


def name_of(submission: Path) -> str:
    return f"{submission.parent.name}/{submission.stem}"


class Grader:
    """Grades file after file. While one is graded, a worker for the next one of the same exercise starts."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._session: grade.Session | None = None

    def __call__(self, submission: Path, device: grade.Device) -> Report:
        item = registry.find(submission.parent.name)
        if self._session is None or (self._session.item, self._session.device) != (item, device):
            self.close()
            self._session = self._stack.enter_context(grade.Session(item, submission, device=device, warm=True))
        self._session.submission = submission
        return self._session(seed=1)

    def close(self) -> None:
        self._stack.close()
        self._session = None


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    grader = Grader()
    yield grader
    grader.close()


@pytest.mark.parametrize("submission", submissions("any", "cpu"), ids=name_of)
def test_without_a_gpu(submission: Path, grader: Grader, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_rejected(submission, "cpu", grader, monkeypatch)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("submission", submissions("any", "gpu"), ids=name_of)
def test_on_a_gpu(submission: Path, grader: Grader, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_rejected(submission, "cuda", grader, monkeypatch)


def assert_rejected(submission: Path, device: grade.Device, grader: Grader, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = verdict_of(submission)
    if verdict is Verdict.TIMED_OUT:
        monkeypatch.setattr(runner, "CASE_SECONDS", 4.0)
    report = grader(submission, device)
    assert report.verdict is verdict, f"{report.cause}\n{report.printed}"
    assert report.cause
    assert report.stars == (1 if verdict is Verdict.TOO_SLOW else 0)


def test_every_trick_has_a_submission() -> None:
    files = submissions("any", "cpu", "gpu")
    texts = [ast.get_docstring(ast.parse(file.read_text())) or "" for file in files]
    assert all(re.match(r"(An accident|[A-Z]\d+)\b", text) for text in texts)
    assert set(ROWS) == {text.partition(":")[0].partition(",")[0] for text in texts if text[1].isdigit()}


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("w03c_transpose/TOO_MUCH_TRAFFIC_naive", "line 7, store to out: 32 sectors per request, 4 would do"),
        (
            "w03c_transpose/TOO_MUCH_TRAFFIC_unpadded_tile",
            "line 12, load from tile: 32 wavefronts per request, 1 would do",
        ),
        (
            "w04b_matmul_tiled/TOO_MUCH_TRAFFIC_tile_of_b_by_columns",
            "line 9, store to of_b: 32 wavefronts per request, 1 would do",
        ),
        (
            "w04a_matmul_naive/TOO_MUCH_TRAFFIC_lanes_down_a_column",
            "line 5, load from a: 32 sectors per request, 4 would do",
        ),
    ],
)
def test_the_worst_access_is_told_from_the_others_of_its_line(name: str, cause: str, grader: Grader) -> None:
    submission = HERE / "any" / f"{name}.py"
    report = grader(submission, "cpu")
    assert report.cause == cause
    assert report.file == str(submission.with_suffix(".cu").relative_to(registry.root()))


@pytest.mark.parametrize(
    ("name", "mend"),
    [
        ("w03b_coalescing/NOT_WRITTEN_one_step_a_row", "fix {}.cu, or its launch in the .py, then"),
        ("w04a_matmul_naive/NOT_STARTED_kernel_of_the_stub", "edit {}.cu, then"),
        ("w04a_matmul_naive/WRONG_VALUES_square_matrices_alone", "fix {}.cu, then"),
    ],
)
def test_the_next_step_names_the_kernel_where_it_is_to_blame(name: str, mend: str, grader: Grader) -> None:
    submission = HERE / "any" / f"{name}.py"
    shown = submission.with_suffix("").relative_to(registry.root())
    assert grader(submission, "cpu").next_step.startswith(mend.format(shown))


@pytest.mark.parametrize(
    ("name", "element", "writer", "line"),
    [
        ("w04a_matmul_naive/WRONG_VALUES_square_matrices_alone", "out[1, 0]", "thread (0, 1) of block 0", 8),
        ("w02b_matrix_add_triton/WRONG_VALUES_stride_of_a_matrix_without_gaps", "out[1, 0]", "program 0", 14),
    ],
)
def test_a_wrong_value_names_who_wrote_it(name: str, element: str, writer: str, line: int, grader: Grader) -> None:
    report = grader(HERE / "any" / f"{name}.py", "cpu")
    assert f"first: {element} = " in report.cause
    assert report.cause.endswith(f"; {writer} wrote the first of them")
    assert report.line == line
