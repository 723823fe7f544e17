"""One target for a submission: its compilers, the properties it asks for and the PTX machine's limits follow it."""

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
    assert (has.major, has.shared_memory_per_block_optin) == {seen}
    cuda.kernel("submission.cu", "add", ("-DLATER",) * {later})[(n + 255) // 256, 256, {shared}](x, y, out, n)
    return out
"""
NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU the target is its")


def called(folder: Path, arch: str | None, shared: int, *, later: bool = False) -> Observation:
    (folder / "submission.cu").write_text(KERNEL)
    seen = (9, 227 << 10) if arch == "sm_90a" else (8, 163 << 10)
    (folder / "submission.py").write_text(SUBMISSION.format(seen=seen, shared=shared, later=int(later)))
    item = registry.find("vector_add")
    with grade.Session(grade.Job.create(item, folder / "submission.py", device="cpu", arch=arch)) as session:
        session.workers.copy_submission()
        one = session.workers.runner(session.plan.grader.setup)
        try:
            return session.plan.grader.call(one, {"n": 300, "offset": 0}, 1)
        finally:
            one.close()


@NO_GPU
def test_shared_memory_of_hopper_is_there_where_it_is_asked_for(tmp_path: Path) -> None:
    observation = called(tmp_path, "sm_90a", 200 << 10)
    assert observation.finding is None
    x, y = (tensor for tensor in observation.inputs if isinstance(tensor, torch.Tensor))
    assert torch.equal(observation.outputs[0], x + y)
    with pytest.raises(SubmissionFailed, match="204800 bytes of shared memory exceed the 166912 of a block"):
        called(tmp_path, None, 200 << 10)


@NO_GPU
def test_an_instruction_of_a_later_architecture_is_a_compile_error_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(SubmissionFailed) as stopped:
        called(tmp_path, None, 1024, later=True)
    finding = stopped.value.finding
    assert finding.verdict.value == "COMPILE_ERROR"
    words, _, advice = finding.cause.partition("; ")
    assert words == "Feature 'griddepcontrol' requires .target sm_90 or higher"
    assert advice.startswith("the PTX machine stands for sm_80 here, and for sm_90a with kp check --arch sm_90a")
    assert (Path(finding.file).name, finding.line) == ("submission.cu", 7)


def test_what_is_asked_for_comes_before_what_is_declared() -> None:
    exercise = registry.load(registry.find("vector_add"))
    assert devices.choose_target(exercise, "cpu", None) is SM_80
    assert devices.choose_target(exercise, "cpu", "sm_90a") is SM_90A
    assert devices.choose_target(replace(exercise, arch="sm_90a"), "cpu", None) is SM_90A
    assert devices.choose_target(replace(exercise, arch="sm_90a"), "cpu", "sm_80") is SM_80
    with pytest.raises(Usage, match="--arch goes with --device cpu"):
        devices.choose_target(exercise, "cuda", "sm_90a")


def test_what_needs_hopper_is_not_run_for_what_is_before_it() -> None:
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
def test_what_asks_for_wgmma_is_not_run_on_a_later_gpu(name: str, later: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PTX ISA manual, section 9.7.15: wgmma is of sm_90a alone."""
    exercise = registry.load(registry.find(name))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    assert devices.missing_capability(exercise, "cuda", SM_90A) == ""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (10, 0))
    assert devices.missing_capability(exercise, "cuda", SM_90A) == later


@pytest.mark.parametrize(("capability", "has"), [((7, 5), "sm_75"), ((8, 6), "sm_86"), ((8, 9), "sm_89")])
def test_an_earlier_gpu_is_not_told_of_later_ones(
    capability: tuple[int, int], has: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    told = devices.missing_capability(registry.load(registry.find("wgmma_gemm")), "cuda", SM_80)
    assert told == f"needs sm_90a, this GPU has {has}; not run"


def as_if_on(monkeypatch: pytest.MonkeyPatch, name: str, *capability: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: name)


def test_what_this_gpu_lacks_is_said_before_anything_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    as_if_on(monkeypatch, "NVIDIA B200", 10, 0)
    item = registry.find("wgmma_gemm")
    report = grade.grade(item, item.solution, seed=1)
    assert (report.verdict, report.cause) == (Verdict.UNAVAILABLE, _NEEDS_HOPPER)
    assert (report.device, report.next_step) == ("NVIDIA B200", "kp check wgmma_gemm --device cpu")
    assert (report.cases, report.compile_seconds) == ((), 0.0)


@NO_GPU
@pytest.mark.parametrize(("capability", "counted"), [((8, 9), False), ((9, 0), True)])
def test_it_is_said_where_no_machine_beside_a_gpu_counts(
    capability: tuple[int, int], counted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside an RTX 4090 the machine is one of sm_80, which has no float8."""
    as_if_on(monkeypatch, "NVIDIA GeForce RTX 4090", *capability)
    item = registry.find("fp8_matmul")
    with grade.Session(grade.Job.create(item, item.solution)) as session:
        grading = GradingContext(session.job, session.plan.grader, session.workers, 1, lambda _: None)
        monkeypatch.setattr(CpuShadow, "start", lambda *_: None)
        steps.start_cpu_shadow(grading)
        told = _describe_missing_counters(grading, Verdict.PASSED)
        grading.close()
    beside = "counters: the PTX machine stands for sm_80 beside this GPU; kp check fp8_matmul --device cpu has them"
    assert told == (() if counted else (beside,))


TURING = (7, 5)
EXERCISES = [registry.load(item) for item in registry.exercises()]
ON_TURING = [one for one in EXERCISES if one.runs_on_gpu and (one.requires or TURING) <= TURING]


def test_turing_gets_no_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no instruction for it: each exercise has float16 or float32 in its place, or requires a later GPU."""
    as_if_on(monkeypatch, "Tesla T4", *TURING)
    assert len(ON_TURING) > 40
    for declared in ON_TURING:
        exercise, instead = devices.adapt_exercise(declared, "cuda", SM_80)
        cases = (*exercise.cases, *exercise.limits, *exercise.sweep, *([exercise.bench] if exercise.bench else []))
        assert not [case for case in cases if case.get("dtype") == "bfloat16"], exercise.entry
        had = any(case.get("dtype") == "bfloat16" for case in (*declared.cases, *declared.limits, declared.bench or {}))
        assert [one.startswith("bfloat16: ") for one in instead][:1] == [True] * had, exercise.entry
        least = min(exercise.cases, key=lambda case: exercise.compulsory_bytes(**case))
        drawn = generate_inputs(exercise, least, 1, "cpu")
        assert torch.bfloat16 not in [one.dtype for one in drawn if isinstance(one, torch.Tensor)], exercise.entry


def test_what_the_gpu_does_not_run_keeps_its_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pallas is interpreted on the CPU."""
    as_if_on(monkeypatch, "Tesla T4", *TURING)
    declared = registry.load(registry.find("portability"))
    assert devices.adapt_exercise(declared, "cuda", SM_80) == (declared, ())


def test_blackwell_is_not_confirmed_by_hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = registry.load(registry.find("tcgen05_gemm"))
    sentence = "sm_100a: the PTX machine follows the manual, and no hardware has confirmed it"
    assert devices.adapt_exercise(declared, "cpu", TARGETS["sm_100a"]) == (declared, (sentence,))
    as_if_on(monkeypatch, "NVIDIA B200", 10, 0)
    assert devices.adapt_exercise(declared, "cuda", TARGETS["sm_100a"]) == (declared, ())


def test_a_case_in_place_of_another_is_there_once(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = registry.load(registry.find("gelu"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: TURING)
    exercise, instead = devices.adapt_exercise(declared, "cuda", SM_80)
    assert instead == ("bfloat16: this GPU (sm_75) does not have it, float32 was taken instead",)
    told = [tuple(case.items()) for case in exercise.cases]
    assert len(told) == len(set(told)) <= len(declared.cases)
    assert {tuple({**case, "dtype": "float32"}.items()) for case in declared.cases} == set(told)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    assert devices.adapt_exercise(declared, "cuda", SM_80) == (declared, ())


def test_beside_turing_the_machine_runs_what_is_compiled_for_the_first_architecture_that_it_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    as_if_on(monkeypatch, "Tesla T4", *TURING)
    assert devices.choose_target(registry.load(registry.find("softmax")), "cuda", None) is SM_80


def test_triton_compiles_for_the_target_whatever_gpu_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside an RTX 5090 host code sees 99 KiB, and wgmma of sm_90a takes more stages than mma of sm_120."""
    monkeypatch.setattr(simulated_gpu, "_properties", {**simulated_gpu.H200, "shared_memory_per_block_optin": 99 << 10})
    monkeypatch.setattr(simulated_gpu, "_target", SM_90A)
    assert triton._Driver().get_device_properties(0)["max_shared_mem"] == 227 << 10


@pytest.mark.parametrize(
    ("name", "needs"),
    [("softmax", ""), ("flash_attention", ""), ("tensor_cores", "sm_80"), ("matmul_persistent", "sm_90")],
)
def test_what_needs_more_than_turing_is_not_run_there(name: str, needs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    as_if_on(monkeypatch, "Tesla T4", *TURING)
    told = devices.missing_capability(registry.load(registry.find(name)), "cuda", SM_80)
    assert told == (f"needs {needs}, this GPU has sm_75; not run" if needs else "")


@NO_GPU
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("gelu_triton", "float32"),
        ("paged_decode", "float16"),  # the machine stands for sm_90a, which has bfloat16, in the other three attentions
        ("transformer_block", "float16"),
    ],
)
def test_a_reference_passes_with_what_is_put_in_place_of_bfloat16(
    name: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the PTX machine as it is beside a T4: it has the instructions of sm_80, and host code sees the T4."""
    monkeypatch.setattr(devices, "BFLOAT16", (8, 1))
    monkeypatch.setattr(Workers, "_visible_properties", lambda *_: cards.properties(cards.target("sm_75")))
    item = registry.find(name)
    report = grade.grade(item, item.solution, device="cpu", seed=1)
    assert (report.verdict, report.cause) == (Verdict.PASSED, "")
    assert {one.case["dtype"] for one in report.cases} == {dtype}
    said = f"bfloat16: the PTX machine (sm_80) does not have it, {dtype} was taken instead"
    assert said in report.not_measured


def test_on_turing_it_is_said_that_triton_uses_no_tensor_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """triton-lang/triton, pull request 5066: before sm_80, products are made of multiply-adds."""
    as_if_on(monkeypatch, "Tesla T4", *TURING)
    _, told = devices.adapt_exercise(registry.load(registry.find("matmul")), "cuda", SM_80)
    assert told[1:] == ("tensor cores: Triton uses none on this GPU (sm_75)",)
    assert len(devices.adapt_exercise(registry.load(registry.find("transformer_block")), "cuda", SM_80)[1]) == 1


def test_an_answer_with_wgmma_or_tcgen05_is_declared_so() -> None:
    told = {item.name for item in registry.exercises() if registry.load(item).specific}
    # Of the CuTe DSL, of PTX in CUDA C++, of Gluon, of the CuTe DSL for Blackwell, and of CUTLASS.
    signs = ("warpgroup.fence()", "wgmma.fence", "warpgroup_mma(", "tcgen05.commit(", "CollectiveBuilder<")
    solved = {item.name for item in registry.exercises() if any(sign in _solution(item) for sign in signs)}
    assert told == solved


def _solution(item: ExerciseRef) -> str:
    """Return the text of the answer, with its CUDA C++."""
    files = (item.solution, item.solution.with_suffix(".cu"))
    return "\n".join(file.read_text() for file in files if file.is_file())


def test_a_declaration_names_an_architecture_that_has_what_it_requires() -> None:
    exercise = registry.load(registry.find("vector_add"))
    with pytest.raises(DeclarationError, match="arch: 'sm_91' is none of sm_80, sm_90a, sm_100a"):
        replace(exercise, arch="sm_91")
    with pytest.raises(DeclarationError, match="specific: declare the architecture in requires"):
        replace(exercise, specific=True)
    with pytest.raises(DeclarationError, match="arch: sm_80 has less than requires"):
        replace(exercise, requires=(9, 0))
    assert {name: divmod(target.capability, 10) for name, target in TARGETS.items()} == ARCHITECTURES


@NO_GPU
def test_host_code_sees_as_few_multiprocessors_as_are_declared(tmp_path: Path) -> None:
    (tmp_path / "submission.py").write_text(
        "import torch\n\n\ndef gemm_epilogue(*inputs):\n"
        "    raise ValueError(torch.cuda.get_device_properties(0).multi_processor_count)\n"
    )
    report = grade.grade(registry.find("gemm_epilogue_cute"), tmp_path / "submission.py", device="cpu", seed=1)
    assert report.cause == "ValueError: 4"
