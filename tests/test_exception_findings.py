"""Test how errors are explained to a learner: the verdict, the line of the learner's file, and the fix."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from kernelpath.device.messages import Failed
from kernelpath.grading.graders.machine import machine_finding
from kernelpath.verdict import Verdict
from kernelpath.work.exception_findings import classify_exception
from tests import fresh_process
from warpcheck.frontends import compiler_advice, cute_advice, triton_advice
from warpcheck.simt import Fault, FaultKind

FAULTS = {
    FaultKind.OUT_OF_BOUNDS: Verdict.OUT_OF_BOUNDS,
    FaultKind.UNINITIALIZED: Verdict.UNINITIALIZED,
    FaultKind.RACE: Verdict.RACE,
    FaultKind.BARRIER: Verdict.BARRIER,
    FaultKind.MISALIGNED: Verdict.CRASHED,
    FaultKind.BAD_MASK: Verdict.CRASHED,
    FaultKind.UNFENCED: Verdict.RACE,
}


@pytest.mark.parametrize(("kind", "verdict"), FAULTS.items(), ids=lambda value: value.name)
def test_fault_of_the_ptx_machine(kind: FaultKind, verdict: Verdict) -> None:
    fault = Fault(kind, "thread 3 of block 0 did it", "kernel", "/folder/kernel.cu", 7, (0, 0, 0), (3, 0, 0), None)
    finding = classify_exception(fault, Path("/folder/kernel.py"))
    assert finding.verdict is verdict
    assert (finding.cause, finding.file, finding.line) == (
        "thread 3 of block 0 did it",
        "/folder/kernel.cu",
        7,
    )


@pytest.mark.parametrize("kind", FaultKind)
def test_a_fault_has_the_same_verdict_in_process_and_from_the_server(kind: FaultKind) -> None:
    place = "kernel", "/folder/kernel.cu", 7, (0, 0, 0), (3, 0, 0)
    in_the_process = classify_exception(
        Fault(kind, "thread 3 of block 0 did it", *place, None), Path("/folder/kernel.py")
    )
    from_the_server = machine_finding(Failed(kind.name, "thread 3 of block 0 did it", *place), Path("submission.py"))
    assert in_the_process.verdict is from_the_server.verdict


def test_a_fault_names_an_element_with_the_indices_of_the_source(tmp_path: Path) -> None:
    (tmp_path / "kernel.cu").write_text("__shared__ float tile[4][8];\nout[0] = tile[1][3];\n")
    submission = tmp_path / "kernel.py"
    message = "thread 3 of block 0 reads 4 bytes at tile[11] (byte 44 of 128)"
    place = "kernel", "kernel.cu", 2, (0, 0, 0), (3, 0, 0)
    in_the_process = classify_exception(Fault(FaultKind.OUT_OF_BOUNDS, message, *place, None), submission)
    from_the_server = machine_finding(Failed("OUT_OF_BOUNDS", message, *place), submission, "; as a remark says")
    assert in_the_process.cause == "thread 3 of block 0 reads 4 bytes at tile[1][3] (byte 44 of 128)"
    assert from_the_server.cause == f"{in_the_process.cause}; as a remark says"


def test_nvrtc_error_in_a_folder_with_a_space() -> None:
    class CompileError(Exception):
        pass

    log = 'error: expected a ";"\n\n1 error detected in the compilation of "/my class/w01a.cu".'
    finding = classify_exception(CompileError(f"/my class/w01a.cu(11): {log}"), Path("/my class/w01a.py"))
    assert finding.cause == 'expected a ";" at the end of this line'
    assert (finding.file, finding.line) == ("/my class/w01a.cu", 11)


TRITON = """
from pathlib import Path
from kernelpath.work.exception_findings import classify_exception
from warpcheck.frontends import triton as lane
lane.activate("cpu")
import torch, triton
import triton.language as tl

@triton.jit
def loads_by_index(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, x[i + n], mask=i < n)  # 1

@triton.jit
def stores_by_index(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    out[i] = 3  # 2

@triton.jit
def returns(x, out, n, BLOCK: tl.constexpr):
    if n == 0:
        return
    return tl.load(x + tl.arange(0, BLOCK))  # 3

@triton.jit
def helper(x):
    return x + wrong  # 4

@triton.jit
def calls(x, out, n, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), helper(n))

@triton.jit
def library(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.sum(i, axis=3))  # 5

@triton.jit
def misread(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, 3, mask=i < n & i < 7)  # 6

@triton.jit
def meant(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    most = tl.lod(x)  # 7
    tl.store(out + i, 1 < (n & i) < most)

@triton.jit
def compares_addresses(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, 3, mask=out + i < n)  # 8

@triton.jit
def tests_a_block(x, out, n, BLOCK: tl.constexpr):
    if tl.arange(0, BLOCK) < n:  # 9
        tl.store(out, 3)

@triton.jit
def of_torch(x, out, n, BLOCK: tl.constexpr):
    i = torch.arange(0, BLOCK)  # 10

@triton.jit
def odd(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, n)  # 11

@triton.jit
def uncalled(x, out, n, BLOCK: tl.constexpr):
    tl.store(out + tl.program_id * BLOCK, 3)  # 12

@triton.jit
def hyperbolic(x, out, n, BLOCK: tl.constexpr):
    tl.store(out, tl.tanh(tl.load(x)))  # 13

@triton.jit
def described(x, out, n, BLOCK: tl.constexpr):
    tl.store(out, x.load([0]))  # 14

@triton.jit
def of_none(x, out, n, BLOCK: tl.constexpr):
    tl.store(out, tl.load(x + tl.arange(0, BLOCK)))  # 15

@triton.jit
def of_one(x, out, n, BLOCK: tl.constexpr):
    tl.store(out + n.to(tl.int64), 3)  # 16

@triton.jit
def changes_type(x, out, n, BLOCK: tl.constexpr):
    first = tl.load(x)
    while tl.sum(first) < n:  # 17
        first += tl.arange(0, BLOCK)
    tl.store(out, 3)

kernels = (loads_by_index, stores_by_index, returns, calls, library, misread, meant, compares_addresses, changes_type)
for kernel in (*kernels, tests_a_block, of_torch, odd, uncalled, hyperbolic, described, of_none, of_one):
    try:
        x = None if kernel is of_none else torch.zeros(8)
        kernel[(2,)](x, torch.zeros(8), 1 if kernel is of_one else 7, BLOCK=8)
    except Exception as error:
        finding = classify_exception(error, Path(__file__))
        line = Path(__file__).read_text().splitlines()[finding.line - 1]
        print(finding.verdict.value, line.partition("#")[2], finding.cause)
"""
TRITON_FINDINGS = """\
COMPILE_ERROR  1 a pointer has no [ ]: use tl.load(x + i + n, mask=…)
COMPILE_ERROR  2 a pointer has no [ ]: use tl.store(out + i, …, mask=…)
COMPILE_ERROR  3 a kernel returns nothing: write what it computes with tl.store
COMPILE_ERROR  4 wrong is not defined
COMPILE_ERROR  5 invalid axis 3. Expected -1 <= axis < 1
COMPILE_ERROR  6 & binds tighter than <: write (i < n) & (i < 7)
COMPILE_ERROR  7 tl has no lod; did you mean load?
COMPILE_ERROR  8 out + i is an address: compare the offset alone
COMPILE_ERROR  17 first is fp32 before the loop and fp32[8] in the loop: use another name for one of them
COMPILE_ERROR  9 an if takes one value, and this is a block of them: use mask=…, or tl.where
COMPILE_ERROR  10 torch.arange cannot be used in a kernel: look for its like in tl
COMPILE_ERROR  11 tl.arange takes what is known at compile time, and n is not: use a parameter BLOCK: tl.constexpr
COMPILE_ERROR  12 tl.program_id is a function: write tl.program_id(0)
COMPILE_ERROR  13 tl has no tanh: write it with what tl has, or take libdevice.tanh of triton.language.extra
COMPILE_ERROR  14 x is no tensor descriptor: make one on the host, with TensorDescriptor.from_tensor(…)
COMPILE_ERROR  15 an argument is None in this launch: use it inside of `if … is not None:`, which the compiler decides
COMPILE_ERROR  16 n has no .to in this launch: it is 1, and Triton compiles an integer argument of 1 as a constant; \
write tl.cast(n, …)
"""


def test_triton_compile_errors_are_explained(tmp_path: Path) -> None:
    file = tmp_path / "submission.py"
    file.write_text(TRITON, encoding="utf-8")
    stdout, stderr = fresh_process.run(file)
    assert stdout == TRITON_FINDINGS, stderr
    assert not stderr


class PTXASError(Exception):
    """A stand-in for Triton's exception of this name."""


PTXAS_LOG = """PTXAS error: Internal Triton PTX codegen error
`ptxas` stderr:
ptxas /tmp/tmpli2akz35.ptx, line 507; error   : Feature 'sub.bf16x2' requires .target sm_90 or higher
ptxas /tmp/tmpli2akz35.ptx, line 511; error   : Feature 'sub.bf16x2' requires .target sm_90 or higher
ptxas fatal   : Ptx assembly aborted due to errors

Repro command: ptxas -lineinfo -v --gpu-name=sm_80 /tmp/tmpli2akz35.ptx
"""


def test_a_ptxas_error_is_reported_once_at_its_instruction(tmp_path: Path) -> None:
    file = tmp_path / "submission.py"
    file.write_text('import triton\nSUBTRACT = "sub.bf16x2 $0, $1, $2;"\n')
    finding = classify_exception(PTXASError(PTXAS_LOG), file)
    assert (finding.verdict, finding.line) == (Verdict.COMPILE_ERROR, 2)
    assert finding.cause == (
        "ptxas: Feature 'sub.bf16x2' requires .target sm_90 or higher; the PTX machine stands for sm_80 here, and for "
        'sm_90a with kp check --arch sm_90a, or where the exercise declares arch="sm_90a"'
    )


LAUNCHES = """import triton

@triton.jit
def add(x, y, n, BLOCK): ...

def plain(x): ...
"""


@pytest.mark.parametrize(
    ("matrix", "broken"),
    [
        (torch.zeros(4, 65), "strides must be 16-byte aligned"),
        (torch.zeros(33)[1:].view(4, 8), "base must be 16-byte aligned"),
        (torch.zeros(8, 8).t(), "strides must be 16-byte aligned"),
        (torch.zeros(8, 8)[:, ::2], "Last dimension must be contiguous"),
    ],
    ids=["rows", "base", "transposed", "every second column"],
)
def test_a_matrix_unfit_for_a_descriptor_is_explained(matrix: torch.Tensor, broken: str) -> None:
    with pytest.raises(AssertionError) as raised:
        TensorDescriptor.from_tensor(matrix, [4, 4])
    explanation = triton_advice.explain_launch_error(raised.value, "describe(x)\n", 1)
    assert explanation.startswith(f"{broken}: a descriptor's rows begin at multiples of 16 bytes")


@pytest.mark.parametrize(
    ("launch", "raised", "expected"),
    [
        ("add[8,](x, y, n)", "dynamic_func() missing 1 required", "add takes x, y, n, BLOCK: the launch lacks BLOCK"),
        ("add[8,](x, y, BLOCK=1)", "dynamic_func() missing", "add takes x, y, n, BLOCK: the launch lacks n"),
        (
            "add[8,](x, y, n, 8, 9)",
            "dynamic_func() takes",
            "add takes x, y, n, BLOCK: 4 arguments, and the launch has 5",
        ),
        ("add[8](x, y, n, 8)", "'int' has no len()", "a grid is a tuple: write add[8,](…), with a comma before the ]"),
        ("add(x, y, n, 8)", "Cannot call outside of the scope of a kernel", "launch it with a grid, add[programs,](…)"),
        (
            "plain[8,](x)",
            "'function' object is not subscriptable",
            "plain is a plain function: a kernel has @triton.jit",
        ),
        ("add[8,](x, y, n, len(3))", "object of type 'list' has no length", ""),
        (
            "p = {'early_config_prune': keep}; add[8,](x, y, n, 8)",
            "keep() got an unexpected keyword argument 'grid'",
            "early_config_prune is called as keep(configs, arguments, **named): keep() got an unexpected keyword",
        ),
        ("add[8,](x, y, n, 8)", "keep() got an unexpected keyword argument 'grid'", ""),
        (
            "tuned = triton.jit(add)",
            "<triton.runtime.autotuner.Autotuner object at 0x7f43> is not a callable object",
            "@triton.autotune stands above @triton.jit",
        ),
    ],
)
def test_refused_triton_launches_are_explained(launch: str, raised: str, expected: str) -> None:
    explanation = triton_advice.explain_launch_error(
        TypeError(raised), f"{LAUNCHES}{launch}\n", LAUNCHES.count("\n") + 1
    )
    assert expected in explanation
    assert bool(expected) == bool(explanation)


OUTSIDE = "program 3 reads memory past the end of b (4096 bfloat16)"


@pytest.mark.parametrize(
    ("columns", "load", "expected"),
    [
        ("rn % N", "tl.load(b + columns)", "; this tl.load has no mask"),
        ("tl.max_contiguous(rn % N, 64)", "tl.load(b + columns)", "; tl.max_contiguous(rn % N, 64) promises"),
        ("tl.max_contiguous(rn % N, 64)", "tl.load(b + columns, mask=rn < N)", ""),
        ("tl.max_contiguous(rn, 64)", "tl.load(b + columns)", "; this tl.load has no mask"),
    ],
)
def test_a_wrong_max_contiguous_promise_is_explained(columns: str, load: str, expected: str) -> None:
    source = f"@triton.jit\ndef k(b, N, rn):\n    columns = {columns}\n    x = {load}\n"
    explanation = triton_advice.explain_out_of_bounds(OUTSIDE, source, 4)
    assert explanation.startswith(f"{OUTSIDE}{expected}")
    assert bool(expected) == (explanation != OUTSIDE)


@pytest.mark.parametrize(
    ("source", "log", "expected", "line"),
    [
        ("int a = 1\n\n// b\nint c;", 'k.cu(4): error: expected a ";"', "at the end of this line", 1),
        ("int a; int b int c;", 'k.cu(1): error: expected a ";"', "at the end of this line", 1),
        ("{", 'At end of source: error: expected a "}"\nk.cu(1): note: to match this "{"', 'a "}" is missing', 1),
        ("threadidx", 'k.cu(1): error: identifier "threadidx" is undefined', "did you mean threadIdx?", 1),
        ("__half h;", 'k.cu(1): error: identifier "__half" is undefined', "#include <cuda_fp16.h>", 1),
        (
            "a + b",
            'k.cu(1): error: no operator "+" matches these operands\n    operand types are: float4 + float4\n',
            "operands: float4 + float4; float4 has no operators: compute with .x, .y and so on",
            1,
        ),
        (
            "threadIdx + 1",
            'k.cu(1): error: no operator "+" matches these operands\n    operand types are: const uint3 + int\n',
            "const uint3 + int; threadIdx, blockIdx and blockDim have parts: take .x, .y or .z",
            1,
        ),
        ("int q;", 'k.cu(1): error: identifier "zzz" is undefined', 'identifier "zzz" is undefined', 1),
    ],
)
def test_nvrtc_errors_name_the_line_and_the_fix(source: str, log: str, expected: str, line: int) -> None:
    explanation = compiler_advice.explain_nvrtc_log(log, {"k.cu": source})
    assert explanation is not None
    assert explanation[0].endswith(expected)
    assert explanation[1:] == ("k.cu", line)


CUTE = """error[LAUNCH_NEVER_ISSUED]: Kernel `k` was called but
never launched.
  --> copy of mine.py:21:5
   |
21 |     k(src)
  suggestion: Launch the kernel, e.g.
              `k(...).launch()`.
  suggestion: If you meant to discard the call, remove it.
"""


def test_cute_alignment_error_is_explained() -> None:
    log = """error[INTERNAL]: The compiler could not build valid IR for this code.

  --> /folder/copy.py:40:8
      in function `copy_kernel(...)`:
> 40 |         cute.copy(atom, source, values)
  error: IR verification failed: 'cute.copy' op S ptr alignment (32 bits) does not meet requirement
         (128 bits) of atom '!cute_nvgpu.atom.universal_copy<f32, 128 b>'
  suggestion: Check the source location above for invalid primitive arguments.
"""
    explanation = "this copy takes 16 bytes at a time, and the address is a multiple of 4 bytes only"
    assert cute_advice.explain(log) == (explanation, 40)
    shape_error = cute_advice.explain(log.replace("S ptr alignment", "S ptr shape"))
    assert shape_error is not None
    assert shape_error[0].startswith(
        "'cute.copy' op S ptr shape (32 bits) does not meet requirement (128 bits) of atom"
    )


def test_cute_errors_end_with_the_first_suggestion() -> None:
    sentence = "Kernel `k` was called but never launched. Launch the kernel, e.g. `k(...).launch()`."
    assert cute_advice.explain(CUTE) == (sentence, 21)


SLICED = """Operation creation failed:
error: "cute.copy(copy_a, from_a[None, i, j, step], to_a[None, i, j])"("/folder/gemm.py":62:38): expects `coord` and """
SLICED += """shape of view are weakly congruent, but got '!cute.layout<"((8,1),4,1):((1,0),?{i64 div=128},0)">', """
SLICED += """'!cute.coord<"(_,0,0,?)">'"""
BOX = """Operation creation failed:
error: "in_b = (*cpasync.make_tiled_tma_atom(load, b, one, (tile[0], DEPTH)), ring_b)"("/folder/gemm.py":149:13): """
BOX += """expected top-level shape equivalence between the SMEM layout and the CTA V-map, but got """
BOX += """'!cute.composed_layout<"S<3,4,3> o 0 o ((8,16),(64,1)):((64,512),(1,0))">' """
BOX += """and '!cute.layout<"(64,64):(1@0,1@1)">'"""
GEMM = """[Error] MLIRError: Verification failed:
error: "cute.gemm(pv, sums, weights, values, sums)"("/folder/gemm.py":271:16): 'cute.gemm' op layoutA, layoutB and """
GEMM += """layoutD fail to form a gemm. A: ((2,2,2),1):((1,2,4),0), B: (1,2):(0,512), D: ((2,2,8),1,1):((1,2,4),0,0)
 note: "cute.gemm(pv, sums, weights, values, sums)"("/folder/gemm.py":271:16): see current operation: "cute.gemm"(%1)
"""
LOWERED = """error: NVVM backend compilation failed
  error: libNVVM failed while compiling generated device IR.
  note: backend log:
        LLVM Translation failed for operation: builtin.unrealized_conversion_cast
        Failed creating the llvm::Module.
  suggestion: check that CUDA_TOOLKIT_PATH is set correctly; rerun with IR dump flags if backend
              context is needed
"""
LOCATED = """error[INTERNAL]: The compiler could not build valid IR for this code.

  --> /folder/gemm.py:36:50
      in function `multiply(...)`:
   |
> 36 |     scratch = torch.Tensor
     |                                                  ^
  error: IR verification failed: {}
  suggestion: Check the source location above for invalid primitive arguments, types, or address
              spaces. If the code looks valid, report this with the snippet above and your kernel.
"""


@pytest.mark.parametrize(
    ("log", "expected", "line"),
    [
        (SLICED, "4 coordinates (_,0,0,?) (_ is None, ? a number that only the running kernel knows) for 3 modes", 62),
        (SLICED.replace("(_,0,0,?)", "(_,0,(0,1))"), "the coordinate (_,0,(0,1)) (_ is None", 62),
        (BOX, "the box is (64,64), and its layout in shared memory has the shape ((8,16),(64,1)): they have to", 149),
        (
            GEMM,
            "cute.gemm takes shapes (.., M), (.., N) and (.., M, N), and here a has ((2,2,2),1), b (1,2) and the sums "
            "((2,2,8),1,1): is each partitioned by this mma",
            271,
        ),
        (
            LOCATED.format("operand #0 does not dominate this use"),
            "a loop or an if changes this in a way that the code after it cannot see, as in a helper (advance()",
            36,
        ),
        (LOWERED, "the compiler finds no instructions for this kernel, and names no line; an mma whose a lies in", 0),
        (
            "error: expects the 'b_major_mode' Op parameter to be a cute.nvgpu.OperandMajorMode\n"
            "  --> /folder/gemm.py:25:10\n",
            "the major mode of b has to be an OperandMajorMode, as LayoutEnum.ROW_MAJOR.sm90_mma_major_mode() is",
            25,
        ),
        (
            LOCATED.format("'cute.composed_get_outer' op using value defined outside the region"),
            "this was made outside of the kernel and not given to it: make it a parameter",
            36,
        ),
        (
            LOCATED.format(
                "'cute.copy' op src ptr alignment (16 bits) does not meet\n         requirement (128 bits) of atom "
                "'!cute_nvgpu.atom.ldsm<val_type = f32, num_matrices = 4, n>'"
            ),
            "ldmatrix takes pieces of 16 bytes, and here only 2 lie together: is the first argument of LdMatrix8x8x16b",
            36,
        ),
        (
            LOCATED.format(
                "'cute.copy' op '!cute_nvgpu.atom.simt_async_copy<bf16, cache = always, 16 b>' 'cp_size' only\n"
                "         supports (32, 64, 128), but got 16."
            ),
            "cp.async copies 4, 8 or 16 bytes at a time, not 2",
            36,
        ),
        (
            "error: compiler pass failed\n\n  --> /folder/gemm.py:69:22\n  error: failed to legalize operation "
            "'cute_nvgpu.make_gmma_smem_desc' that was explicitly marked\n         illegal: %754",
            "wgmma cannot read a tile of this layout",
            69,
        ),
        (
            "error[E]: `const_expr()` requires a value known at code-read time, but you gave it a Runtime value "
            "(Staged value).\n  --> /folder/gemm.py:61:8\n",
            "cutlass.const_expr is for what is known at compile time",
            61,
        ),
        (
            "error[E]: Explicit boolean conversion requires a value known at code-read time, but you gave it a "
            "Runtime value (Staged value).\n  --> /folder/gemm.py:58:8\n",
            "Python cannot decide by a value that only the running kernel knows",
            58,
        ),
        ("'_ComposedLayout' object has no attribute 'stride'", "a layout with a swizzle has no strides for this", 0),
        ("make_layout() takes 1 positional argument but 2 positional arguments", "a stride is given by name", 0),
        ("shape and stride must be congruent", "shape and stride must be congruent: the same brackets", 0),
        ("All elements of `src` must be Tensor", "src is a single element, not a tensor: None in place of", 0),
        (
            "Expected source and destination tensors to have the same size in mode-1, but got 8 and 16",
            "mode 1 of the two sides has different sizes, 8 and 16: one tiled copy has to deal out both",
            0,
        ),
    ],
)
def test_cute_layout_errors_are_explained(log: str, expected: str, line: int) -> None:
    explanation = cute_advice.explain(log)
    assert explanation is not None
    assert explanation[0].startswith(expected)
    assert explanation[1] == line


def explain_line(line: str, folder: Path) -> str:
    """Return the cause that the grader reports for a submission whose third line raises."""
    file = folder / "submission.py"
    file.write_text(f"import torch\nx = torch.zeros(1)\n{line}\n")
    try:
        exec(compile(file.read_text(), str(file), "exec"), {})
    except Exception as error:
        finding = classify_exception(error, file)
        assert (finding.verdict, finding.line) == (Verdict.CRASHED, 3)
        return finding.cause
    raise AssertionError(f"this line must raise an exception: {line}")


@pytest.mark.parametrize(
    "line", ["assert x.is_cuda", "assert x.device.type == 'cuda'", "assert x.is_cuda, 'on a GPU!'"]
)
def test_an_assertion_about_the_device_says_that_there_is_no_gpu(line: str, tmp_path: Path) -> None:
    cause = explain_line(line, tmp_path)
    assert cause.startswith(f"AssertionError: {'on a GPU!' if '!' in line else line}; there is no GPU here")


def test_an_assertion_without_a_message_is_quoted(tmp_path: Path) -> None:
    assert explain_line("assert x.numel() == 3", tmp_path) == "AssertionError: assert x.numel() == 3"
    assert explain_line("assert x.numel() == 3, 'three'", tmp_path) == "AssertionError: three"


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_missing_device_is_answered_with_the_fix(tmp_path: Path) -> None:
    assert explain_line("torch.empty(3, device='cuda')", tmp_path).endswith("as torch.empty_like(x) does")


@pytest.mark.parametrize(
    ("content", "expected_cause"),
    [
        (b"a = 1\n# f\xfcr\n", "line 2 is not UTF-8: save the file as UTF-8"),
        (b"\xef\xbb\xbfa = 1\n# f\xfcr\n", "line 2 is not UTF-8: save the file as UTF-8"),
        (b"# coding: ascii\n\n# f\xfcr\n", "line 3 is not ASCII: save the file as UTF-8"),
        (b"# coding: latin-1\n# f\xfcr\n", "ValueError: from the lane"),
        ("# für\n".encode("utf-8-sig"), "ValueError: from the lane"),
    ],
)
def test_a_file_that_is_not_utf8_is_reported(content: bytes, expected_cause: str, tmp_path: Path) -> None:
    file = tmp_path / "submission.py"
    file.write_bytes(content)
    finding = classify_exception(ValueError("from the lane"), file, loading=True)
    assert (finding.verdict, finding.cause) == (Verdict.COMPILE_ERROR, expected_cause)


def test_an_impossible_line_number_is_dropped() -> None:
    """A submission can raise a forged exception, whose line number must fit into a message."""
    error = SyntaxError("bad")
    error.lineno = 10**30
    assert classify_exception(error, Path("/folder/kernel.py")).line == 0
