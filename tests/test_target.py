"""Test that compilers, device properties, and the limits of the PTX machine all follow the target of a submission."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kernelpath.course import registry
from kernelpath.course.errors import DeclarationError
from kernelpath.course.inputs import generate_inputs
from kernelpath.course.registry import ExerciseRef
from kernelpath.course.spec import ARCHITECTURES
from kernelpath.dev import cards
from kernelpath.grading import devices, grade, steps
from kernelpath.grading.context import GradingContext
from kernelpath.grading.cpu_shadow import CpuShadow
from kernelpath.grading.grade import _describe_missing_counters
from kernelpath.grading.provenance import Observation
from kernelpath.grading.workers import Workers
from kernelpath.verdict import Verdict
from kernelpath.work.runner import SubmissionFailed, Usage
from warpcheck import simulated_gpu
from warpcheck.frontends import triton
from warpcheck.target import SM_80, SM_90A, TARGETS

KERNEL = """__global__ void add(const float* x, const float* y, float* out, int n) {
  extern __shared__ float kept[];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) kept[threadIdx.x] = x[i] + y[i];
  if (i < n) out[i] = kept[threadIdx.x] + 0 * __CUDA_ARCH__;
#ifdef LATER
  asm volatile("griddepcontrol.wait;");
#endif
}
"""
SUBMISSION = """
import torch

from warpcheck.frontends import cuda


def vector_add(x, y):
    out, n = torch.empty_like(x), x.numel()
    has = torch.cuda.get_device_properties(x.device)
    assert (has.major, has.shared_memory_per_block_optin) == {expected_properties}
    cuda.kernel("submission.cu", "add", ("-DLATER",) * {later})[(n + 255) // 256, 256, {shared}](x, y, out, n)
    return out
"""
NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU, the GPU determines the target")


def call_submission(folder: Path, arch: str | None, shared: int, *, later: bool = False) -> Observation:
    (folder / "submission.cu").write_text(KERNEL)
    expected_properties = (9, 227 << 10) if arch == "sm_90a" else (8, 163 << 10)
    (folder / "submission.py").write_text(
        SUBMISSION.format(expected_properties=expected_properties, shared=shared, later=int(later))
    )
    item = registry.find("vector_add")
    with grade.Session(grade.Job.create(item, folder / "submission.py", device="cpu", arch=arch)) as session:
        session.workers.copy_submission()
        runner = session.workers.runner(session.plan.grader.setup)
        try:
            return session.plan.grader.call(runner, {"n": 300, "offset": 0}, 1)
        finally:
            runner.close()


@NO_GPU
def test_a_kernel_may_use_the_shared_memory_of_its_target(tmp_path: Path) -> None:
    # 200 KiB fit into the 227 KiB of a Hopper block but not into the 163 KiB of an Ampere block.
    observation = call_submission(tmp_path, "sm_90a", 200 << 10)
    assert observation.finding is None
    x, y = (tensor for tensor in observation.inputs if isinstance(tensor, torch.Tensor))
    assert torch.equal(observation.outputs[0], x + y)
    with pytest.raises(SubmissionFailed, match="204800 bytes of shared memory exceed the 166912 of a block"):
        call_submission(tmp_path, None, 200 << 10)


@NO_GPU
def test_an_instruction_of_a_later_architecture_is_a_compile_error_with_its_line_number(tmp_path: Path) -> None:
    with pytest.raises(SubmissionFailed) as failure:
        call_submission(tmp_path, None, 1024, later=True)
    finding = failure.value.finding
    assert finding.verdict.value == "COMPILE_ERROR"
    message, _, advice = finding.cause.partition("; ")
    assert message == "Feature 'griddepcontrol' requires .target sm_90 or higher"
    assert advice.startswith("the PTX machine stands for sm_80 here, and for sm_90a with kp check --arch sm_90a")
    assert (Path(finding.file).name, finding.line) == ("submission.cu", 7)


def test_the_arch_option_overrides_the_declared_architecture() -> None:
    exercise = registry.load(registry.find("vector_add"))
    assert devices.choose_target(exercise, "cpu", None) is SM_80
    assert devices.choose_target(exercise, "cpu", "sm_90a") is SM_90A
    assert devices.choose_target(replace(exercise, arch="sm_90a"), "cpu", None) is SM_90A
    assert devices.choose_target(replace(exercise, arch="sm_90a"), "cpu", "sm_80") is SM_80
    with pytest.raises(Usage, match="--arch goes with --device cpu"):
        devices.choose_target(exercise, "cuda", "sm_90a")


def test_an_exercise_that_requires_hopper_is_not_run_for_an_earlier_target() -> None:
    exercise = replace(registry.load(registry.find("vector_add")), arch="sm_90a", requires=(9, 0))
    assert devices.missing_capability(exercise, "cpu", SM_90A) == ""
    assert devices.missing_capability(exercise, "cpu", SM_80) == "needs sm_90, the PTX machine has sm_80; not run"


_NEEDS_HOPPER = "needs sm_90a, whose instructions later GPUs do not all have, this GPU has sm_100; not run"


@pytest.mark.parametrize(
    ("name", "later"),
    [
        ("vector_add", ""),
        ("matmul_persistent", ""),  # Triton compiles it for any architecture
        ("tma_copy", ""),
        ("wgmma_gemm", _NEEDS_HOPPER),
        (
            "flash_attention_cute",
            _NEEDS_HOPPER,
        ),
    ],
)
def test_an_exercise_with_wgmma_is_not_run_on_a_later_gpu(
    name: str, later: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PTX ISA manual, section 9.7.15: only sm_90a has wgmma."""
    exercise = registry.load(registry.find(name))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    assert devices.missing_capability(exercise, "cuda", SM_90A) == ""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (10, 0))
    assert devices.missing_capability(exercise, "cuda", SM_90A) == later


@pytest.mark.parametrize(("capability", "has"), [((7, 5), "sm_75"), ((8, 6), "sm_86"), ((8, 9), "sm_89")])
def test_the_reason_on_an_earlier_gpu_does_not_mention_later_gpus(
    capability: tuple[int, int], has: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    reason = devices.missing_capability(registry.load(registry.find("wgmma_gemm")), "cuda", SM_80)
    assert reason == f"needs sm_90a, this GPU has {has}; not run"


def pretend_gpu(monkeypatch: pytest.MonkeyPatch, name: str, *capability: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: name)


def test_a_missing_capability_is_reported_before_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpu(monkeypatch, "NVIDIA B200", 10, 0)
    item = registry.find("wgmma_gemm")
    report = grade.grade(item, item.solution, seed=1)
    assert (report.verdict, report.cause) == (Verdict.UNAVAILABLE, _NEEDS_HOPPER)
    assert (report.device, report.next_step) == ("NVIDIA B200", "kp check wgmma_gemm --device cpu")
    assert (report.cases, report.compile_seconds) == ((), 0.0)


@NO_GPU
@pytest.mark.parametrize(("capability", "has_counters"), [((8, 9), False), ((9, 0), True)])
def test_the_report_says_when_the_ptx_machine_cannot_count_for_this_gpu(
    capability: tuple[int, int], has_counters: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Next to an RTX 4090, the PTX machine simulates sm_80, which has no float8."""
    pretend_gpu(monkeypatch, "NVIDIA GeForce RTX 4090", *capability)
    item = registry.find("fp8_matmul")
    with grade.Session(grade.Job.create(item, item.solution)) as session:
        grading = GradingContext(session.job, session.plan.grader, session.workers, 1, lambda _: None)
        monkeypatch.setattr(CpuShadow, "start", lambda *_: None)
        steps.start_cpu_shadow(grading)
        sentences = _describe_missing_counters(grading, Verdict.PASSED)
        grading.close()
    missing_counters = (
        "counters: the PTX machine stands for sm_80 beside this GPU; kp check fp8_matmul --device cpu has them"
    )
    assert sentences == (() if has_counters else (missing_counters,))


TURING = (7, 5)
EXERCISES = [registry.load(item) for item in registry.exercises()]
ON_TURING = [exercise for exercise in EXERCISES if exercise.runs_on_gpu and (exercise.requires or TURING) <= TURING]


def test_no_case_on_turing_uses_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turing has no bfloat16 instructions, so each exercise uses float16 or float32 there or requires a later GPU."""
    pretend_gpu(monkeypatch, "Tesla T4", *TURING)
    assert len(ON_TURING) > 40
    for declaration in ON_TURING:
        exercise, substitutions = devices.adapt_exercise(declaration, "cuda", SM_80)
        cases = (*exercise.cases, *exercise.limits, *exercise.sweep, *([exercise.bench] if exercise.bench else []))
        assert not [case for case in cases if case.get("dtype") == "bfloat16"], exercise.entry
        uses_bfloat16 = any(
            case.get("dtype") == "bfloat16"
            for case in (*declaration.cases, *declaration.limits, declaration.bench or {})
        )
        assert [sentence.startswith("bfloat16: ") for sentence in substitutions][:1] == [True] * uses_bfloat16, (
            exercise.entry
        )
        smallest_case = min(exercise.cases, key=lambda case: exercise.compulsory_bytes(**case))
        inputs = generate_inputs(exercise, smallest_case, 1, "cpu")
        assert torch.bfloat16 not in [value.dtype for value in inputs if isinstance(value, torch.Tensor)], (
            exercise.entry
        )


def test_an_exercise_that_runs_on_the_cpu_keeps_bfloat16_on_turing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exercise `portability` runs Pallas, which is interpreted on the CPU."""
    pretend_gpu(monkeypatch, "Tesla T4", *TURING)
    declaration = registry.load(registry.find("portability"))
    assert devices.adapt_exercise(declaration, "cuda", SM_80) == (declaration, ())


def test_the_report_says_that_no_hardware_has_confirmed_blackwell(monkeypatch: pytest.MonkeyPatch) -> None:
    declaration = registry.load(registry.find("tcgen05_gemm"))
    sentence = "sm_100a: the PTX machine follows the manual, and no hardware has confirmed it"
    assert devices.adapt_exercise(declaration, "cpu", TARGETS["sm_100a"]) == (declaration, (sentence,))
    pretend_gpu(monkeypatch, "NVIDIA B200", 10, 0)
    assert devices.adapt_exercise(declaration, "cuda", TARGETS["sm_100a"]) == (declaration, ())


def test_substituting_a_dtype_leaves_no_duplicate_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    declaration = registry.load(registry.find("gelu"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: TURING)
    exercise, substitutions = devices.adapt_exercise(declaration, "cuda", SM_80)
    assert substitutions == ("bfloat16: this GPU (sm_75) does not have it, float32 was taken instead",)
    cases = [tuple(case.items()) for case in exercise.cases]
    assert len(cases) == len(set(cases)) <= len(declaration.cases)
    assert {tuple({**case, "dtype": "float32"}.items()) for case in declaration.cases} == set(cases)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    assert devices.adapt_exercise(declaration, "cuda", SM_80) == (declaration, ())


def test_the_target_next_to_a_turing_gpu_is_sm_80(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretend_gpu(monkeypatch, "Tesla T4", *TURING)
    assert devices.choose_target(registry.load(registry.find("softmax")), "cuda", None) is SM_80


def test_triton_compiles_for_the_target_and_not_for_the_visible_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """An RTX 5090 reports 99 KiB of shared memory, but a wgmma kernel for sm_90a needs the 227 KiB of its target."""
    monkeypatch.setattr(simulated_gpu, "_properties", {**simulated_gpu.H200, "shared_memory_per_block_optin": 99 << 10})
    monkeypatch.setattr(simulated_gpu, "_target", SM_90A)
    assert triton._Driver().get_device_properties(0)["max_shared_mem"] == 227 << 10


@pytest.mark.parametrize(
    ("name", "needs"),
    [("softmax", ""), ("flash_attention", ""), ("tensor_cores", "sm_80"), ("matmul_persistent", "sm_90")],
)
def test_an_exercise_that_requires_a_later_gpu_is_not_run_on_turing(
    name: str, needs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_gpu(monkeypatch, "Tesla T4", *TURING)
    reason = devices.missing_capability(registry.load(registry.find(name)), "cuda", SM_80)
    assert reason == (f"needs {needs}, this GPU has sm_75; not run" if needs else "")


@NO_GPU
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("gelu_triton", "float32"),
        ("paged_decode", "float16"),  # the other three attentions target sm_90a, which has bfloat16
        ("transformer_block", "float16"),
    ],
)
def test_a_reference_passes_with_the_dtype_that_replaces_bfloat16(
    name: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Next to a T4, the PTX machine has the instructions of sm_80, and host code sees the properties of the T4."""
    monkeypatch.setattr(devices, "BFLOAT16", (8, 1))
    monkeypatch.setattr(Workers, "_visible_properties", lambda *_: cards.properties(cards.target("sm_75")))
    item = registry.find(name)
    report = grade.grade(item, item.solution, device="cpu", seed=1)
    assert (report.verdict, report.cause) == (Verdict.PASSED, "")
    assert {case_result.case["dtype"] for case_result in report.cases} == {dtype}
    substitution = f"bfloat16: the PTX machine (sm_80) does not have it, {dtype} was taken instead"
    assert substitution in report.not_measured


def test_the_report_on_turing_says_that_triton_uses_no_tensor_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before sm_80, Triton lowers `tl.dot` to multiply-adds (triton-lang/triton, pull request 5066)."""
    pretend_gpu(monkeypatch, "Tesla T4", *TURING)
    _, sentences = devices.adapt_exercise(registry.load(registry.find("matmul")), "cuda", SM_80)
    assert sentences[1:] == ("tensor cores: Triton uses none on this GPU (sm_75)",)
    assert len(devices.adapt_exercise(registry.load(registry.find("transformer_block")), "cuda", SM_80)[1]) == 1


def test_a_solution_with_wgmma_or_tcgen05_is_declared_specific() -> None:
    declared_specific = {item.name for item in registry.exercises() if registry.load(item).specific}
    # In order: the CuTe DSL, PTX in CUDA C++, Gluon, the CuTe DSL for Blackwell, and CUTLASS.
    signs = ("warpgroup.fence()", "wgmma.fence", "warpgroup_mma(", "tcgen05.commit(", "CollectiveBuilder<")
    uses_specific = {item.name for item in registry.exercises() if any(sign in read_solution(item) for sign in signs)}
    assert declared_specific == uses_specific


def read_solution(item: ExerciseRef) -> str:
    """Return the text of the answer, with its CUDA C++."""
    files = (item.solution, item.solution.with_suffix(".cu"))
    return "\n".join(file.read_text() for file in files if file.is_file())


def test_a_declared_architecture_must_have_the_required_capability() -> None:
    exercise = registry.load(registry.find("vector_add"))
    with pytest.raises(DeclarationError, match="arch: 'sm_91' is none of sm_80, sm_90a, sm_100a"):
        replace(exercise, arch="sm_91")
    with pytest.raises(DeclarationError, match="specific: declare the architecture in requires"):
        replace(exercise, specific=True)
    with pytest.raises(DeclarationError, match="arch: sm_80 has less than requires"):
        replace(exercise, requires=(9, 0))
    assert {name: divmod(target.capability, 10) for name, target in TARGETS.items()} == ARCHITECTURES


@NO_GPU
def test_host_code_sees_the_declared_number_of_multiprocessors(tmp_path: Path) -> None:
    (tmp_path / "submission.py").write_text(
        "import torch\n\n\ndef gemm_epilogue(*inputs):\n"
        "    raise ValueError(torch.cuda.get_device_properties(0).multi_processor_count)\n"
    )
    report = grade.grade(registry.find("gemm_epilogue_cute"), tmp_path / "submission.py", device="cpu", seed=1)
    assert report.cause == "ValueError: 4"
