"""Test the grading of large offsets: cases beyond 2^31 elements, which run without memory for their tensors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernelpath.course import registry
from kernelpath.course.errors import DeclarationError
from kernelpath.course.problem import Problem, Tolerance
from kernelpath.course.problems import softmax, vector_add
from kernelpath.device import large_offsets as device_offsets
from kernelpath.device.large_offsets import reserve_readonly
from kernelpath.grading import grade, large_offsets
from kernelpath.verdict import Verdict
from kernelpath.work import runner
from tests.waiting import PATIENCE

KERNELS = """
extern "C" __global__ void right(const float* x, const float* y, float* out, long long n) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + y[i];
}
extern "C" __global__ void wrong(const float* x, const float* y, float* out, long long n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + y[i];
}
extern "C" __global__ void striding(const float* x, const float* y, float* out, long long n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = x[i] + y[i];
}
extern "C" __global__ void unsigned_striding(const float* x, const float* y, float* out, unsigned long long n) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = x[i] + y[i];
}
extern "C" __global__ void striding_far(const float* x, const float* y, float* out, long long n) {
    for (long long i = blockIdx.x * 256LL + threadIdx.x; i < n; i += gridDim.x * 256LL) out[i] = x[i] + y[i];
}
extern "C" __global__ void striding_part(const float* x, const float* y, float* out, long long n) {
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n && i < 1 << 30; i += gridDim.x * 256) out[i] = x[i] + y[i];
    if (n < 1 << 30)
        for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) out[i] = x[i] + y[i];
}
extern "C" __global__ void walking(const float* x, const float* y, float* out, long long n) {
    for (long long i = threadIdx.x; i < n; i += blockDim.x) out[i] = x[i] + y[i];
}
extern "C" __global__ void positions(long long* where, long long n) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) where[i] = 1024 * i;
}
extern "C" __global__ void at(const float* x, const float* y, float* out, const long long* where, long long n) {
    for (long long i = where[blockIdx.x] + threadIdx.x; i < n && i < where[blockIdx.x] + 1024; i += blockDim.x)
        out[i] = x[i] + y[i];
}
__device__ unsigned int next_tile;
extern "C" __global__ void tickets(const float* x, const float* y, float* out, long long n) {
    __shared__ unsigned int tile;
    if (threadIdx.x == 0) tile = atomicAdd(&next_tile, 1);
    __syncthreads();
    const long long i = (long long)tile * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + y[i];
}
extern "C" __global__ void winding(const float* x, const float* y, float* out, long long n) {
    const long long tile = blockIdx.x / 64 % 2 ? blockIdx.x / 64 * 64LL + 63 - blockIdx.x % 64 : blockIdx.x;
    const long long i = tile * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + y[i];
}
"""

SUBMISSION = """
import time

import torch

from warpcheck.frontends import cuda

kernel = lambda name: cuda.kernel("submission.cu", name)


def vector_add(x, y):
    out, n = torch.empty_like(x), x.numel()
    launch = lambda name: kernel(name)[(n + 255) // 256, 256](x, y, out, n)
    {body}
    return out
"""

RIGHT = 'launch("right")'
WRONG = 'launch("wrong")'


def grade_large_offsets(folder: Path, body: str) -> tuple[list[tuple[Verdict, str, int]], tuple[str, ...]]:
    """Return the verdict, cause, and line of each large-offset case that fails, and the limitations of the check."""
    (folder / "submission.cu").write_text(KERNELS)
    (folder / "submission.py").write_text(SUBMISSION.format(body=body))
    job = grade.Job.create(registry.find("vector_add"), folder / "submission.py", device="cpu")
    with grade.Session(job) as session:
        session.workers.copy_submission()
        worker = session.workers.runner(session.plan.grader.setup)
        try:
            case_results, limitations = large_offsets.grade_large_offsets(job, worker, 1)
        finally:
            worker.close()
    failed = [case_result.result for case_result in case_results if not case_result.result.verdict.passed]
    assert (
        failed or limitations or [case_result.result.case for case_result in case_results] == list(job.exercise.far)
    ), "a case that passes must be reported, too"
    return [(result.verdict, result.cause, result.line) for result in failed], limitations


@pytest.mark.parametrize(
    "body",
    [
        RIGHT,
        f"out = torch.zeros_like(x); {RIGHT}",
        f"out.fill_(1.0); {RIGHT}",
        f"assert float(x[-1]) == 0.0; assert torch.arange(5).sum() == 10; {RIGHT}",
        """tiles = (n + 1023) // 1024
    where = torch.empty(tiles, dtype=torch.int64, device=x.device)
    kernel("positions")[(tiles + 255) // 256, 256](where, tiles)
    kernel("at")[tiles, 256](x, y, out, where, n)""",
        'launch("tickets")',
        'kernel("winding")[(n + 16383) // 16384 * 64, 256](x, y, out, n)',
    ],
    ids=[
        "plain",
        "zeros",
        "filled",
        "other operators",
        "positions from another kernel",
        "tiles by tickets",
        "tiles in a winding order",
    ],
)
def test_64_bit_offsets_pass(tmp_path: Path, body: str) -> None:
    assert grade_large_offsets(tmp_path, body) == ([], ())


@pytest.mark.parametrize(
    ("source", "advice"),
    [
        ("long long i = blockIdx.x * blockDim.x + threadIdx.x;", "write (long long)blockIdx.x * blockDim.x"),
        ("i += gridDim.x*blockDim.x", "gridDim.x * blockDim.x is multiplied in 32 bits"),
        ("= blockIdx.x * 256 + threadIdx.x;", "write (long long)blockIdx.x * 256"),
        ("= (long long)blockIdx.x * blockDim.x; blockIdx.x * 256LL;", ""),
        ("program = tl.program_id(0)", "write tl.program_id(0).to(tl.int64)"),
        ("program = tl.program_id(0).to(tl.int64)", ""),
    ],
)
def test_the_advice_names_the_32_bit_multiplication(source: str, advice: str, tmp_path: Path) -> None:
    file = tmp_path / "k.cu"
    file.write_text(source)
    assert advice in large_offsets._advise(file)
    assert bool(advice) == bool(large_offsets._advise(file))


@pytest.mark.parametrize(
    "body",
    [
        WRONG,
        f"try: {WRONG}\n    except Exception: {RIGHT}",
        f"try: {WRONG}\n    except Exception: time.sleep(600)",
        f"try: {WRONG}\n    except Exception: import os; os._exit(0)",
        f"try: {WRONG}\n    except Exception: [{RIGHT} for _ in range(100)]",
        f"try: {WRONG}\n    except Exception: torch.empty(1 << 50)",
    ],
    ids=["plain", "tried again", "hangs", "dies", "goes on launching", "hoards"],
)
def test_host_code_cannot_hide_an_out_of_bounds_access(
    tmp_path: Path, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "CASE_SECONDS", 3.0)
    (failure,), limitations = grade_large_offsets(tmp_path, body)
    assert failure[0] is Verdict.OUT_OF_BOUNDS
    assert "before the beginning of" in failure[1]
    assert "; is an offset past 2^31 computed in 32 bits? blockIdx.x * blockDim.x is multiplied" in failure[1]
    assert failure[2] == KERNELS[: KERNELS.index("const int i")].count("\n") + 2
    assert limitations == ()


def test_a_grid_stride_loop_is_checked_up_to_the_overflow_of_its_index(tmp_path: Path) -> None:
    (failure,), _ = grade_large_offsets(tmp_path, 'kernel("striding")[8192, 1024](x, y, out, n)')
    assert failure[0] is Verdict.OUT_OF_BOUNDS
    assert failure[2] == KERNELS[: KERNELS.index("for (int i")].count("\n") + 1


@pytest.mark.parametrize(("name", "bits"), [("striding", 31), ("unsigned_striding", 32)])
def test_a_32_bit_loop_index_is_found_without_running_all_iterations(tmp_path: Path, name: str, bits: int) -> None:
    """With 32 blocks, each thread runs half a million iterations before its index overflows."""
    (failure,), limitations = grade_large_offsets(tmp_path, f'kernel("{name}")[32, 256](x, y, out, n)')
    assert failure[0] is Verdict.OUT_OF_BOUNDS
    assert failure[1].startswith("the index of this loop has 32 bits, and its end is 4,")
    assert "write (long long)" in failure[1]
    assert KERNELS.splitlines()[failure[2] - 1].lstrip().startswith("for (int" if bits == 31 else "for (unsigned")
    assert limitations == ()


def test_long_loops_without_overflow_pass(tmp_path: Path) -> None:
    for name in ("striding_far", "striding_part"):
        assert grade_large_offsets(tmp_path, f'kernel("{name}")[32, 256](x, y, out, n)')[0] == []


@pytest.mark.parametrize(
    ("body", "verdict", "message"),
    [
        ("pass", Verdict.NOT_YOUR_KERNEL, "vector_add launched no kernel"),
        ("assert n < 2**31", Verdict.CRASHED, "AssertionError"),
        ('kernel("right")[1, 256](x, y, out, None)', Verdict.CRASHED, "takes an integer"),
    ],
)
def test_host_code_that_launches_nothing_valid_fails(tmp_path: Path, body: str, verdict: Verdict, message: str) -> None:
    (failure,), limitations = grade_large_offsets(tmp_path, body)
    assert failure[0] is verdict
    assert message in failure[1]
    assert limitations == ()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("time.sleep(600)", "no answer within 2 s"),
        ("x + y", "out of memory"),
        ("for _ in range(1000): launch('right')", "more than 16 launches"),
        ("x[0] = 1.0", "SIGSEGV"),
    ],
)
def test_an_inconclusive_check_is_reported_as_a_limitation(
    tmp_path: Path, body: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "CASE_SECONDS", 2.0 if "no answer" in message else PATIENCE)
    failures, (limitation,) = grade_large_offsets(tmp_path, body)
    assert failures == []
    assert limitation.startswith("offsets past 2^31: ")
    assert message in limitation


@pytest.mark.parametrize(
    ("grid", "blocks"),
    [
        ((1, 1, 1), [0]),
        ((3, 1, 1), [2, 0, 1]),
        ((1000, 1, 1), [750, 0, 1, 998, 999]),
        ((10, 8, 1), [67, 0, 1, 8, 9, 10, 11, 18, 19, 60, 61, 68, 69, 70, 71, 78, 79]),
    ],
)
def test_the_sampled_blocks_start_at_three_quarters_of_the_grid_and_include_its_corners(
    grid: tuple[int, int, int], blocks: list[int]
) -> None:
    assert device_offsets.sample(grid) == blocks


def test_kernels_without_a_size_limit_have_a_large_offset_case() -> None:
    exercises = {item.name: registry.load(item) for item in registry.exercises()}
    without = {
        name for name, exercise in exercises.items() if exercise.is_kernel and exercise.vary and not exercise.far
    }
    assert without == {
        "custom_operator",  # fewer than 2**31 elements, and the statement says so
        "divergence",  # n has 32 bits, and the statement says so
        "hello_grid",  # its output counts threads in int32
        "host_program",  # n has 32 bits, and the statement says so
        "histogram",  # its counts are int32, and no bin may count that many
        "vector_add_triton",  # int32 program_id as in Triton's tutorials, and the statement says so
        "matrix_add_triton",
        "matmul_persistent",  # fewer than 2**31 elements, and the statement says so
        "swiglu",
        "transformer_block",
        "kernel_library",
        "sgemm_cute",  # fewer than 2**31 elements, and the statement says so
        "stream_k",
        "tma_copy",
        "wgmma_gemm",
        "wgmma_gluon",  # as wgmma_gemm
        "scan",  # at most 2**30 elements, and the statement says so
        "compact",
        "radix_pass",
        "moe_route",
        "linear_cross_entropy",
        "grpo_loss",
        "top_p",
        "persistent_gemm",
        "gemm_epilogue_cute",
        "fp8_gemm",
        "flash_attention_cute",
        "flash_attention_backward_cute",  # fewer than 2**31 elements, and the statement says so
        "tcgen05_gemm",
        "nvfp4_gemm",
        "attention_blackwell",
        "cute_cpp",
        "cutlass_epilogue",  # fewer than 2**31 elements, and the statement says so
        "megakernel",
    }, "give the problem far cases, or state the largest size and add the exercise here, with the reason"


def test_each_matrix_of_a_problem_exceeds_32_bit_offsets_in_some_case() -> None:
    """An index is multiplied by the row length of its matrix, so the product can overflow for each of the matrices.

    Block scales are exempt: they are much smaller than their matrix and never exceed 32-bit offsets.
    """
    exercises = [registry.load(item) for item in registry.exercises()]
    variants = [variant.exercise for variant in registry.load_checkpoint("1_architecture").variants]
    for exercise in (exercise for exercise in (*exercises, *variants) if exercise.far):
        tensors_of_cases = [
            [tensor for tensor in exercise.inputs(torch.Generator(), **case) if isinstance(tensor, torch.Tensor)]
            for case in exercise.far
        ]
        max_elements = max(tensor.numel() for tensors in tensors_of_cases for tensor in tensors)
        for number, versions in enumerate(zip(*tensors_of_cases, strict=True)):
            if versions[0].ndim > 1 and 64 * max(tensor.numel() for tensor in versions) > max_elements:
                assert max(tensor.numel() for tensor in versions) > 1 << 32, (exercise.entry, number)


def test_a_reserved_span_reads_as_zeros() -> None:
    span = reserve_readonly(1 << 40)
    assert span.shape == (1 << 40,)
    assert [int(span[at]) for at in (0, 1 << 39, -1)] == [0, 0, 0]


def test_a_large_offset_case_has_the_arguments_of_the_cases() -> None:
    with pytest.raises(DeclarationError, match="far: n=5 does not have the arguments rows, columns, dtype"):
        Problem(
            inputs=softmax.inputs,
            cases=({"rows": 3, "columns": 5, "dtype": "float32"},),
            reference=softmax.reference,
            tolerance={"float32": Tolerance(1e-6, 0.0)},
            compulsory_bytes=lambda **_: 1,
            far=({"n": 5},),
        )


def test_inputs_of_a_large_offset_case_are_meta_tensors() -> None:
    (far_case,) = vector_add.PROBLEM.far
    x, y = vector_add.PROBLEM.inputs(torch.Generator(), **far_case)
    assert x.is_meta
    assert y.is_meta
    assert x.numel() == y.numel() > 1 << 32


def test_generating_large_offset_inputs_does_not_import_torch_dynamo() -> None:
    """Importing torch._dynamo takes a second and imports Triton, which reports leaked objects when the grader exits."""
    code = (
        "import sys, torch; from kernelpath.course import registry;"
        "found = [registry.load(item) for item in registry.exercises()];"
        "[one.inputs(torch.Generator(), **case) for one in found for case in one.far];"
        "print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("launch", ['kernel("walking")[1, 256]', 'kernel("striding_far")[32, 256]'])
def test_a_launch_that_reaches_no_large_offset_is_reported_as_a_limitation(tmp_path: Path, launch: str) -> None:
    failures, (limitation,) = grade_large_offsets(tmp_path, f"{launch}(x, y, out, n)")
    assert failures == []
    assert limitation.startswith("offsets past 2^31: no block got past element 2^31 of out, x, y with the instructions")


@pytest.mark.parametrize("blocks", ["4096", "min(65535, (n + 255) // 256)"])
def test_a_grid_of_constant_size_fails(tmp_path: Path, blocks: str) -> None:
    (failure,), limitations = grade_large_offsets(tmp_path, f'kernel("right")[{blocks}, 256](x, y, out, n)')
    assert failure[0] is Verdict.NOT_WRITTEN
    assert failure[1].startswith("of 4,294,967,363 elements of out no block gets past number 1")
    assert failure[1].endswith("Does the grid grow with the size?")
    assert limitations == ()
