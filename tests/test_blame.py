"""What a learner reads about an error: its verdict, the line of the learner's file, and a sentence that helps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernelpath.simt import Fault, FaultKind
from kernelpath.verdict import Verdict
from kernelpath.work.blame import blame

FAULTS = {
    FaultKind.OUT_OF_BOUNDS: Verdict.OUT_OF_BOUNDS,
    FaultKind.UNINITIALIZED: Verdict.UNINITIALIZED,
    FaultKind.RACE: Verdict.RACE,
    FaultKind.BARRIER: Verdict.BARRIER,
    FaultKind.MISALIGNED: Verdict.CRASHED,
    FaultKind.BAD_MASK: Verdict.CRASHED,
}


@pytest.mark.parametrize(("kind", "verdict"), FAULTS.items(), ids=lambda value: value.name)
def test_fault_of_the_ptx_machine(kind: FaultKind, verdict: Verdict) -> None:
    fault = Fault(kind, "thread 3 of block 0 did it", "kernel", "/folder/kernel.cu", 7, (0, 0, 0), (3, 0, 0), None)
    complaint = blame(fault, Path("/folder/kernel.py"))
    assert complaint.verdict is verdict
    assert (complaint.cause, complaint.file, complaint.line) == (
        "thread 3 of block 0 did it",
        "/folder/kernel.cu",
        7,
    )


def test_nvrtcs_error_in_a_folder_with_a_space() -> None:
    class CompileError(Exception):
        pass

    said = 'error: expected a ";"\n\n1 error detected in the compilation of "/my class/w01a.cu".'
    complaint = blame(CompileError(f"/my class/w01a.cu(11): {said}"), Path("/my class/w01a.py"))
    assert (complaint.cause, complaint.file, complaint.line) == ('expected a ";"', "/my class/w01a.cu", 11)


TRITON = """
from pathlib import Path
from kernelpath.work.blame import blame
from kernelpath.lanes import triton as lane
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

for kernel in (loads_by_index, stores_by_index, returns, calls, library):
    try:
        kernel[(2,)](torch.zeros(8), torch.zeros(8), 7, BLOCK=8)
    except Exception as error:
        complaint = blame(error, Path(__file__))
        line = Path(__file__).read_text().splitlines()[complaint.line - 1]
        print(complaint.verdict.value, line.partition("#")[2], complaint.cause)
"""
SAID = """\
COMPILE_ERROR  1 a pointer has no [ ]: use tl.load(x + i + n, mask=…)
COMPILE_ERROR  2 a pointer has no [ ]: use tl.store(out + i, …, mask=…)
COMPILE_ERROR  3 a kernel returns nothing: write what it computes with tl.store
COMPILE_ERROR  4 NameError: wrong is not defined
COMPILE_ERROR  5 invalid axis 3. Expected -1 <= axis < 1
"""


def test_kernel_that_triton_does_not_compile(tmp_path: Path) -> None:
    file = tmp_path / "submission.py"
    file.write_text(TRITON, encoding="utf-8")
    ran = subprocess.run([sys.executable, file], capture_output=True, text=True, encoding="utf-8")
    assert ran.stdout == SAID, ran.stderr
    assert not ran.stderr


def failed(line: str, folder: Path) -> str:
    """The cause of what this line of a submission raises."""
    file = folder / "submission.py"
    file.write_text(f"import torch\nx = torch.zeros(1)\n{line}\n")
    try:
        exec(compile(file.read_text(), str(file), "exec"), {})
    except Exception as error:
        complaint = blame(error, file)
        assert (complaint.verdict, complaint.line) == (Verdict.CRASHED, 3)
        return complaint.cause
    raise AssertionError(f"{line} raises nothing")


@pytest.mark.parametrize(
    "line", ["assert x.is_cuda", "assert x.device.type == 'cuda'", "assert x.is_cuda, 'on a GPU!'"]
)
def test_an_assertion_about_the_device_says_where_tensors_are(line: str, tmp_path: Path) -> None:
    cause = failed(line, tmp_path)
    assert cause.startswith(f"AssertionError: {'on a GPU!' if '!' in line else line}; there is no GPU here")


def test_a_bare_assertion_is_quoted_and_another_ones_words_are_left(tmp_path: Path) -> None:
    assert failed("assert x.numel() == 3", tmp_path) == "AssertionError: assert x.numel() == 3"
    assert failed("assert x.numel() == 3, 'three'", tmp_path) == "AssertionError: three"


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_device_that_is_not_there_is_answered_with_what_to_write(tmp_path: Path) -> None:
    assert failed("torch.empty(3, device='cuda')", tmp_path).endswith("as torch.empty_like(x) does")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a = 1\n# f\xfcr\n", "line 2 is not UTF-8: save the file as UTF-8"),
        (b"\xef\xbb\xbfa = 1\n# f\xfcr\n", "line 2 is not UTF-8: save the file as UTF-8"),
        (b"# coding: ascii\n\n# f\xfcr\n", "line 3 is not ASCII: save the file as UTF-8"),
        (b"# coding: latin-1\n# f\xfcr\n", "ValueError: from the lane"),
        ("# für\n".encode("utf-8-sig"), "ValueError: from the lane"),
    ],
)
def test_a_file_in_another_encoding_is_named(content: bytes, said: str, tmp_path: Path) -> None:
    file = tmp_path / "submission.py"
    file.write_bytes(content)
    complaint = blame(ValueError("from the lane"), file, loading=True)
    assert (complaint.verdict, complaint.cause) == (Verdict.COMPILE_ERROR, said)
