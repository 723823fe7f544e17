"""Test that planted wrong submissions get the verdict in their name, and that planted honest submissions pass.

Each exercise has a file in rejects/ and one in accepts/; planted.py describes their format. The text of a wrong
submission starts with the row of ROWS that it belongs to, or with "An accident". Most wrong submissions are patches of
programs that pass, so only the patch can cause the verdict.

The tests of this file run the whole grader. If a section has the option `case`, a single call in this case shows its
fault without a grading (test_direct.py); only the first such submission of each lane and verdict, and of each lane and
row, is graded here. Honest kernels, and wrong ones with the option `graded`, are graded in few cases (few_cases.py).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from kernelpath.course import registry
from kernelpath.grading import grade
from kernelpath.verdict import Report, Verdict
from kernelpath.work import runner
from tests import direct, planted
from tests.direct import row
from tests.few_cases import FEW, OPTION, grade_in_few_cases, has_few_cases, with_addresses
from tests.planted import Planted

ROOT = Path(__file__).parents[1]

# Tricks and accidents that have fooled graders of kernels. Other files test the faults that no submission can cause:
# ignored tolerances (test_compare), and times that are launch overhead or noise (test_measure, test_timing).
ROWS = {
    "C1": "an output that is never written contains an earlier right answer",
    "C2": "the inputs are changed, and with them the reference",
    "C3": "NaN passes, because every comparison with NaN is false",
    "C4": "zeros pass, because they are within the tolerance",
    "C5": "wrong indices pass on symmetric or square inputs",
    "C6": "only part of the work is done, and its result is rescaled",
    "C7": "the kernel computes in a lower precision",
    "C8": "sizes are known in advance",
    "C9": "only the first calls are right",
    "C10": "races and out-of-bounds accesses that happen to pass",
    "C11": "the expected output is found in the process",
    "T1": "the work runs on another stream, which the events do not time",
    "T2": "a thread finishes the work later",
    "T3": "a lazy tensor computes during the comparison",
    "T4": "clocks, events, or the grader's functions are replaced",
    "T5": "the reply to the grader is forged",
    "T6": "the clock is slowed down, so that fewer repetitions are timed",
    "T7": "results are cached",
    "T8": "an earlier call has done the work",
    "T9": "cache lines persist in L2",
    "T11": "the measured time is impossibly short",
    "S1": "a library does the work",
    "S2": "the solution is used",
    "S3": "the behavior changes during grading",
    "H1": "the submission ends its process",
    "H2": "compile errors, hangs, exhausted memory, illegal accesses",
}

GRADED = direct.graded(ROOT)
IN_FEW_CASES = [reject for reject in planted.rejects(ROOT, "cpu") if reject.options.get(OPTION) == FEW]


class Grader:
    """Grade each wrong submission once per device."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._reports: dict[tuple[Planted, grade.Device], Report] = {}

    def reject(self, reject: Planted, device: grade.Device = "cpu") -> Report:
        if (reject, device) not in self._reports:
            submission = reject.submission(self.folder)
            if device == "cpu" and reject in IN_FEW_CASES:
                report = grade_in_few_cases(registry.find(reject.exercise), submission, seed=1, addresses=False)
            else:
                report = self.submission(reject.exercise, submission, device)
            self._reports[reject, device] = report
        return self._reports[reject, device]

    def honest(self, honest: Planted) -> Report:
        """Return the report on an honest submission, of few cases where these suffice."""
        item = registry.find(honest.exercise)
        submission = honest.submission(self.folder)
        if has_few_cases(registry.load(item)):
            return grade_in_few_cases(item, submission, seed=1, addresses=honest in with_addresses(ROOT))
        return self.submission(honest.exercise, submission)

    def line_of(self, reject: Planted) -> str:
        """Return the source line that the report names. The file is written again, because later patches replace it."""
        report = self.reject(reject)
        reject.submission(self.folder)
        return Path(report.file).read_text().splitlines()[report.line - 1]

    def submission(self, name: str, submission: Path, device: grade.Device = "cpu") -> Report:
        return grade.grade(registry.find(name), submission, device=device, seed=1, brief=True)


@pytest.fixture(scope="module")
def grader(tmp_path_factory: pytest.TempPathFactory) -> Grader:
    return Grader(tmp_path_factory.mktemp("rejects"))


def find_reject(name: str) -> Planted:
    return planted.named(ROOT, name)


@direct.parametrize("reject", (reject for reject in planted.rejects(ROOT, "cpu") if reject in GRADED), ROOT)
def test_without_a_gpu(reject: Planted, grader: Grader, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_rejected(reject, "cpu", grader, monkeypatch)


@pytest.mark.weekly
@pytest.mark.parametrize("reject", IN_FEW_CASES, ids=lambda reject: reject.name)
def test_the_verdict_is_the_same_in_all_cases(reject: Planted, grader: Grader) -> None:
    report = grader.submission(reject.exercise, reject.submission(grader.folder))
    assert report.verdict is reject.verdict, f"{report.cause}\n{report.printed}"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("reject", planted.rejects(ROOT, "gpu"), ids=lambda reject: reject.name)
def test_on_a_gpu(reject: Planted, grader: Grader, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_rejected(reject, "cuda", grader, monkeypatch)


def assert_rejected(reject: Planted, device: grade.Device, grader: Grader, monkeypatch: pytest.MonkeyPatch) -> None:
    if reject.verdict is Verdict.TIMED_OUT:
        monkeypatch.setattr(runner, "CASE_SECONDS", 4.0)
    report = grader.reject(reject, device)
    assert report.verdict is reject.verdict, f"{report.cause}\n{report.printed}"
    assert report.cause
    several = registry.find(reject.exercise).stars > 1
    assert report.stars == (1 if reject.verdict is Verdict.TOO_SLOW and several else 0)


@direct.parametrize("honest", (honest for honest in planted.accepts(ROOT) if honest in GRADED), ROOT)
def test_honest_submissions_pass(honest: Planted, grader: Grader) -> None:
    report = grader.honest(honest)
    assert report.verdict is Verdict.PASSED, report.cause


def test_an_autotuned_first_call_is_repeated_after_equal_calls(grader: Grader, tmp_path: Path) -> None:
    """The second process has made more calls by then, which a grading in few cases does not show."""
    (honest,) = (honest for honest in planted.accepts(ROOT, "w33c_grpo_loss") if honest.title == "autotuned_warps")
    report = grader.submission(honest.exercise, honest.submission(tmp_path))
    assert report.verdict is Verdict.PASSED, report.cause


def test_every_trick_has_a_submission() -> None:
    assert all(re.match(r"(An accident|[A-Z]\d+)\b", reject.why) for reject in planted.rejects(ROOT))
    assert {row(reject) for reject in planted.rejects(ROOT)} == {*ROWS, "An accident"}


def test_every_trick_goes_through_the_whole_grader() -> None:
    """This covers the submissions for the CPU. Faults that show only on a GPU have their submissions there."""
    cpu_rejects = planted.rejects(ROOT, "cpu")
    graded_rejects = [reject for reject in cpu_rejects if reject in GRADED]
    assert {row(reject) for reject in graded_rejects} == {row(reject) for reject in cpu_rejects}
    assert {reject.verdict for reject in graded_rejects} == {reject.verdict for reject in cpu_rejects}
    assert [reject.name for reject in cpu_rejects if reject not in GRADED and row(reject) not in direct.ROWS] == []


@pytest.mark.parametrize(
    ("name", "source", "access"),
    [
        (
            "w03c_transpose/TOO_MUCH_TRAFFIC_naive",
            "out[column * rows + row] = in[row * columns + column];",
            "store to out: 32 sectors per request, its bytes fit in 4",
        ),
        (
            "w03c_transpose/TOO_MUCH_TRAFFIC_unpadded_tile",
            "out[row * rows + column] = tile[threadIdx.x][threadIdx.y];",
            "load from tile: 32 wavefronts per request, its bytes fit in 1: a 32-way bank conflict",
        ),
        (
            "w04b_matmul_tiled/TOO_MUCH_TRAFFIC_tile_of_b_by_columns",
            "of_b[x][y] = ",
            "store to of_b: 32 wavefronts per request, its bytes fit in 1: a 32-way bank conflict",
        ),
        (
            "w04a_matmul_naive/TOO_MUCH_TRAFFIC_lanes_down_a_column",
            "sum += a[",
            "load from a: 32 sectors per request, its bytes fit in 4",
        ),
    ],
)
def test_the_worst_access_of_a_line_is_distinguished_from_the_others(
    name: str, source: str, access: str, grader: Grader
) -> None:
    report = grader.reject(find_reject(name))
    assert report.cause.startswith("at ")  # the case
    assert report.cause.endswith(f": line {report.line}, {access}")
    assert source in grader.line_of(find_reject(name))


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("w03b_coalescing/NOT_WRITTEN_one_step_a_row", "fix {}/plain.cu, or its launch in the .py, then"),
        ("w04a_matmul_naive/NOT_STARTED_kernel_of_the_stub", "edit {}/w04a_matmul_naive.cu, then"),
        ("w04a_matmul_naive/WRONG_VALUES_square_matrices_alone", "fix {}/w04a_matmul_naive.cu, then"),
    ],
)
def test_the_next_step_names_the_kernel_where_it_is_to_blame(name: str, step: str, grader: Grader) -> None:
    report = grader.reject(find_reject(name))
    assert report.next_step.startswith(step.format(Path(report.submission).parent))


@pytest.mark.parametrize(
    ("name", "element", "writer", "source"),
    [
        (
            "w04a_matmul_naive/WRONG_VALUES_square_matrices_alone",
            "out[1, 0]",
            "thread (0, 1) of block 0",
            "out[(long long)row * n + column] = sum;",
        ),
        (
            "w02b_matrix_add_triton/WRONG_VALUES_stride_of_a_matrix_without_gaps",
            "out[1, 0]",
            "program 0",
            "tl.store(out",
        ),
    ],
)
def test_the_finding_names_the_thread_that_wrote_a_wrong_value(
    name: str, element: str, writer: str, source: str, grader: Grader
) -> None:
    report = grader.reject(find_reject(name))
    assert f"first: {element} = " in report.cause
    assert f"; {writer} wrote the first of them" in report.cause
    assert source in grader.line_of(find_reject(name))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "w09a_gelu_triton/OUT_OF_BOUNDS_load_without_mask",
            r"program \d+ reads memory past the end of x_ptr \(\d+ \w+\).*; this tl\.load has no mask",
        ),
        (
            "w09a_gelu_triton/OUT_OF_BOUNDS_store_without_mask",
            r"program \d+ writes memory past the end of out_ptr \(\d+ \w+\).*; this tl\.store has no mask",
        ),
        (
            "w09a_gelu_triton/NOT_WRITTEN_grid_rounded_down",
            r".* never written, .*; gelu_kernel ran in [\d,]+ program.*",
        ),
        (
            "w10c_layernorm_backward/RACE_one_row_of_partial_sums",
            r"program \d+ writes \w+\[\d+\], which program \d+ writes too in .*: programs run in any order, so each .*",
        ),
        (
            "w10c_layernorm_backward/UNINITIALIZED_sums_from_empty",
            r"program \d+ (reads|updates) \w+( \w+)*\[\d+\], which nothing has written; .*",
        ),
        (
            "w30b_wgmma_gluon/RACE_loads_before_the_wait",
            r"program \d+ copies to .*, which the wgmma in line \d+ may still read: in Gluon, its warpgroup_mma.*",
        ),
    ],
)
def test_findings_on_triton_kernels_speak_of_programs_and_not_of_threads(
    name: str, message: str, grader: Grader
) -> None:
    """Triton has programs instead of threads, and a block of Triton contains values and not threads."""
    cause = grader.reject(find_reject(name)).cause
    assert re.fullmatch(message, cause), cause
    assert "thread" not in cause


@pytest.mark.parametrize(
    ("name", "is_said"),
    [
        ("w06a_reduction/NOT_WRITTEN_counter_not_reset", True),
        ("w06a_reduction/RACE_counter_goes_on", True),
        ("w06a_reduction/WRONG_VALUES_tail_lost", False),
    ],
)
def test_state_kept_between_calls_is_reported(name: str, is_said: bool, grader: Grader) -> None:
    assert grader.reject(find_reject(name)).cause.startswith("something is kept between calls") == is_said


@pytest.mark.parametrize("title", ["lengths_read_by_the_host", "longest_read_by_the_host"])
def test_host_code_that_reads_lengths_gets_the_reason_of_the_statement(title: str, grader: Grader) -> None:
    cause = grader.reject(find_reject(f"w15a_long_context/NOT_YOUR_KERNEL_{title}")).cause
    assert "does the host read cu_seqlens? A host that reads a tensor on the device waits" in cause
    assert cause.endswith("the launch may depend on shapes alone")
