"""Test the reports of ptxas and nvdisasm about a kernel, and their mapping to source lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import pytest
from markupsafe import Markup
from rich.console import Console

from kernelpath.cli.app import _status
from kernelpath.show import assembly, templates
from warpcheck.assembler import Assembled, Instruction, assembled, ptx_of, sass_of
from warpcheck.frontends.nvrtc import compile_kernel
from warpcheck.instruction_classes import DIVISION

pytest.importorskip("triton", reason="ptxas comes with Triton")

SOURCE = """
__device__ float4 doubled(float4 v) {
    return {v.x + v.x, v.y + v.y, v.z + v.z, v.w + v.w};
}
__global__ void k(const float4* a, float4* out, long long n) {
    const long long i = blockIdx.x * (long long)blockDim.x / n;
    out[i] = doubled(a[i]);
}
"""
LOCAL = """
__global__ void k(const float* a, float* out, int n) {
    float kept[64];
    #pragma unroll 1
    for (int i = 0; i < n; ++i)
        kept[i % 64] = a[i];
    out[0] = kept[(int)a[n]];
}
"""


def compile_k(source: str) -> tuple[list[Instruction], Assembled, tuple[Instruction, ...]]:
    """Return the PTX, the report of ptxas, and the SASS of the kernel k."""
    binary = compile_kernel(source, "k.cu", "k", "compute_80")
    code = assembled(binary.ptx, binary.mangled)
    assert code is not None
    return ptx_of(binary.ptx, binary.mangled, "k.cu"), code, sass_of(code.cubin, binary.mangled, "k.cu")


def find_opcodes(instructions: Sequence[Instruction], line: int) -> list[str]:
    return [instruction.text.split()[0] for instruction in instructions if instruction.line == line]


def test_instructions_are_mapped_to_their_source_lines() -> None:
    front, code, back = compile_k(SOURCE)
    assert find_opcodes(front, 3) == ["add.f32"] * 4
    assert Counter(find_opcodes(front, 7))["ld.global.v4.f32"] == 1
    assert find_opcodes(back, 3) == ["FADD"] * 4
    assert {"LDG.E.128", "STG.E.128"} <= set(find_opcodes(back, 7))
    assert code.stack == code.spill_stores == code.spill_loads == 0
    assert not code.uses_local_memory


def test_the_subroutine_of_a_division_has_no_line() -> None:
    _, _, back = compile_k(SOURCE)
    assert any(name.startswith("CALL") for name in find_opcodes(back, 6))
    assert len(find_opcodes(back, 0)) > 50
    assert back[-1].text.startswith("RET"), "the NOPs that pad the end must be left out"


def test_a_dynamically_indexed_array_is_in_local_memory() -> None:
    _, code, back = compile_k(LOCAL)
    # 64 floats take 256 bytes. Registers cannot be indexed, so ptxas puts the array on the stack.
    assert (code.stack, code.uses_local_memory) == (256, True)
    assert "STL" in find_opcodes(back, 6)


@pytest.mark.parametrize(("kind", "bits"), [("unsigned", "32"), ("int", "32"), ("long long", "64")])
def test_the_cost_of_a_division_is_close_to_its_sass(kind: str, bits: str) -> None:
    """A 64-bit division compiles to both a 64-bit and a 32-bit version, which serves small operands."""
    lengths = {}
    for operator in "+/":
        _, _, back = compile_k(f"__global__ void k(const {kind}* a, {kind}* out) {{ out[0] = a[0] {operator} a[1]; }}")
        lengths[operator] = len(back)
    expected = DIVISION["32"] + (DIVISION["64"] if bits == "64" else 0)
    assert lengths["/"] - lengths["+"] == pytest.approx(expected, rel=0.35)


def test_other_kernels_of_the_file_are_ignored() -> None:
    _, alone, back = compile_k(SOURCE)
    _, code_of_two, back_of_two = compile_k(SOURCE + LOCAL.replace("void k(", "void other("))
    assert (code_of_two.stack, code_of_two.registers) == (0, alone.registers)
    assert [instruction.text for instruction in back_of_two if "L_x" not in instruction.text] == [
        instruction.text for instruction in back if "L_x" not in instruction.text
    ]


def test_ptx_that_ptxas_refuses_is_not_assembled() -> None:
    assert assembled(".version 8.0\n.target sm_80\nnonsense", "k") is None
    assert assembled("", "k") is None
    assert ptx_of("", "k", "k.cu") == []


class LaunchOfK:
    kernel = "k"
    file = "k.cu"
    ptx = """.version 8.0
.target sm_80
.visible .entry k(
	.param .u64 k_param_0
)
{
	.reg .b64 %rd<3>;
	.loc 1 3 1
	ld.param.u64 	%rd1, [k_param_0];
	.loc 1 0 1
	add.s64 	%rd2, %rd1, 4;
$L__BB0_1:
	.loc 2 7 1, function_name $L0, inlined_at 1 4 1
	ret;
}
	.file	1 "/somewhere/k.cu"
	.file	2 "/somewhere/header.h"
"""


def test_line_0_continues_a_line_and_a_header_maps_to_its_call() -> None:
    listing = assembly.of_launch(LaunchOfK(), "\n\nfirst\nsecond\n")
    assert [
        (compiled_line.number, compiled_line.text, tuple(compiled_line.ptx))
        for compiled_line in listing.lines
        if compiled_line.ptx
    ] == [
        (3, "first", ("ld.param.u64 %rd1, [param_0]", "add.s64 %rd2, %rd1, 4")),
        (4, "second", ("ret",)),
    ]
    assert listing.summary.startswith("3 PTX instructions; no SASS"), "ptxas rejects the undefined $L0"


def test_the_listing_is_a_table_of_80_columns_and_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    Console(width=80).print(assembly.table(assembly.of_launch(LaunchOfK(), "\n\nfirst\nsecond\n")))
    printed_lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert printed_lines[3:] == [
        "3  first",
        "  ld.param.u64 %rd1, [param_0]",
        "  add.s64 %rd2, %rd1, 4",
        "",
        "4  second",
        "  ret",
    ]
    listing = assembly.of_launch(LaunchOfK(), "\n\na < b;\nsecond\n")
    html = templates.render("assembly.html", found=listing, texts=[Markup.escape("a < b;"), "second"])
    assert "a &lt; b;" in html
    assert html.index("a &lt; b;") < html.index("ld.param.u64 %rd1, [param_0]") < html.index("second")


def test_profile_shows_the_assembly_of_an_exercise(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert _status(["profile", "ptx", "--tree", "solutions", "--sass"]) == 0
    output = capsys.readouterr().out
    assert re.search(r"^  ld\.global\.nc\.v4\.f32 .*  LDG\.E\.128\.CONSTANT ", output, re.MULTILINE)
    assert "0 bytes stack frame" in " ".join(output.split())
    assert max(map(len, output.splitlines()[1:])) <= 80
    assert _status(["profile", "--sass", "--record", "a.py"]) == 2
    assert "--sass goes with NAME alone" in capsys.readouterr().err


def test_a_long_line_says_how_much_is_left_out() -> None:
    line = assembly.CompiledLine(1, "x", [f"p{n}" for n in range(46)], ["s"])
    assert line.rows[0] == ("p0", "s")
    assert line.rows[-1] == ("… and 7 more", "")
    assert len(line.rows) == assembly.MAX_INSTRUCTIONS_PER_LINE


def test_inline_assembly_maps_to_the_line_of_its_statement() -> None:
    """Triton writes a masked load as five lines of inline PTX, and LLVM gives each its own line number."""
    ptx = compile_kernel(SOURCE, "k.cu", "k", "compute_80").ptx
    location = re.search(r"\n(\t\.loc\s+(\d+)\s+7 .*?\n)", ptx)
    assert location is not None
    inline_assembly = f"// begin inline asm\n\t.loc {location[2]} 3 1\n\tbar.sync 0;\n\t// end inline asm\n"
    ptx = ptx.replace(location[1], location[1] + inline_assembly, 1)
    kernel = re.search(r"\.entry (\w+)", ptx)
    code = assembled(ptx, kernel[1]) if kernel else None
    assert code is not None
    assert kernel is not None
    (front,) = [instruction for instruction in ptx_of(ptx, kernel[1], "k.cu") if instruction.text.startswith("bar")]
    (back,) = [
        instruction for instruction in sass_of(code.cubin, kernel[1], "k.cu") if instruction.text.startswith("BAR")
    ]
    assert (front.line, back.line) == (7, 7)
