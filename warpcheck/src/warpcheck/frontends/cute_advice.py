"""Explain the CuTe DSL's errors by cause and fix, without importing the DSL."""

from __future__ import annotations

import re
from collections.abc import Callable

__all__ = ["explain"]

_ERROR = re.compile(
    r"^error(?:\[\w+\])?: (?P<text>.*?)(?:^\s*--> [^\n]+?:(?P<line>\d+)|^\s*(?:suggestion|=)|\Z)",
    re.MULTILINE | re.DOTALL,
)
# The prefix of an error about an operation that MLIR could not create: the source text, its file and its line.
_QUOTED = re.compile(r'^"(?s:.*?)"\("[^"]+":(?P<line>\d+):\d+\): ')

_INNER = re.compile(r"^[ \t]+error: (.*?)(?=\n\s*(?:suggestion|error):|\Z)", re.MULTILINE | re.DOTALL)
_REFUSED = "IR verification failed: "

_NAMED = "(_ is None, ? a number that only the running kernel knows)"


def _modes(text: str) -> int:
    """Return the number of top-level modes of a shape or a coordinate, such as 3 of ((8,1),4,1)."""
    depth = commas = 0
    for sign in text:
        depth += (sign == "(") - (sign == ")")
        commas += sign == "," and depth == 1
    return commas + 1


def _coordinate(match: re.Match[str]) -> str:
    shape = match["shape"]
    coordinate = match["coordinate"]
    if _modes(shape) == _modes(coordinate):
        return f"the coordinate {coordinate} {_NAMED} does not fit the shape {shape}"
    coordinates = f"{_modes(coordinate)} coordinates {coordinate} {_NAMED}"
    return f"{coordinates} for {_modes(shape)} modes, of shape {shape}: each mode takes a number, or None to keep it"


def _alignment(match: re.Match[str]) -> str:
    known_bytes = int(match["known"]) // 8
    needed_bytes = int(match["needed"]) // 8
    if "atom.ldsm" in match["atom"]:
        return (
            f"ldmatrix takes pieces of {needed_bytes} bytes, and here only {known_bytes} lie together: is the first "
            "argument of LdMatrix8x8x16bOp right (True where the other mode is contiguous), and the dtype of the atom?"
        )
    return f"this copy takes {needed_bytes} bytes at a time, and the address is a multiple of {known_bytes} bytes only"


# The explanation of each error of the DSL, by a pattern of the error's text.
_TRANSLATED: dict[str, str | Callable[[re.Match[str]], str]] = {
    r"torch\.Tensor": "a @cute.jit function takes no torch tensors: call it through lane.run(function, *tensors)",
    r"const_expr\(\)` requires a value known": (
        "cutlass.const_expr is for what is known at compile time, and this value only the running kernel knows: write "
        "the `if` without it"
    ),
    r"oolean.*Runtime value \(Staged value\)|Runtime value \(Staged value\).*oolean": (
        "Python cannot decide by a value that only the running kernel knows: write an `if` or a `while` of the "
        "kernel's own, or pass the value as cutlass.Constexpr"
    ),
    r"Early exit": "a kernel cannot return from inside an if or a loop: put the work under the opposite condition",
    r"ptr alignment \((?P<known>\d+) bits\) does not meet requirement \((?P<needed>\d+) bits\)(?P<atom>.*)": _alignment,
    r"weakly congruent, but got '!cute\.layout<\"(?P<shape>[^:\"]+):[^\"]*\">', "
    r"'!cute\.coord<\"(?P<coordinate>[^\"]+)\">": _coordinate,
    r"weakly congruent to the layout, but got '!cute\.coord<\"(?P<coordinate>[^\"]+)\">": (
        rf"the coordinate \g<coordinate> {_NAMED} does not fit the modes of this tensor: each mode takes a number, or "
        "None to keep it"
    ),
    r"does not dominate this use": (
        "a loop or an if changes this in a way that the code after it cannot see, as in a helper (advance() of a "
        "state, set() of an mma): return it from the helper, or change it in the loop itself"
    ),
    r"value defined outside the region": (
        "this was made outside of the kernel and not given to it: make it a parameter, annotated cute.Layout, "
        "cute.ComposedLayout or cute.Tensor, not cutlass.Constexpr"
    ),
    r"simt_async_copy<[^>]*?(?P<bits>\d+) b>.*'cp_size' only supports": (
        lambda match: (
            f"cp.async copies 4, 8 or 16 bytes at a time, not {int(match['bits']) // 8}: change "
            "num_bits_per_copy, and copy single elements of 2 bytes by cute.nvgpu.CopyUniversalOp"
        )
    ),
    r"equivalence between the SMEM layout and the CTA V-map, but got '!cute\.\w+<\"(?:[^\"]* o )?(?P<shared>[^:\"]+):"
    r"[^\"]*\">' and '!cute\.layout<\"(?P<box>[^:\"]+):": (
        r"the box is \g<box>, and its layout in shared memory has the shape \g<shared>: they have to agree"
    ),
    r"failed to legalize operation 'cute_nvgpu\.make_gmma_smem_desc'": (
        "wgmma cannot read a tile of this layout: allocate it as its ring was made, swizzle included, with "
        "allocate_tensor(dtype, layout.outer, 1024, layout.inner), and give the mma the major mode of that layout"
    ),
    r"fail to form a gemm\. A: (?P<a>[^:]+):.*?, B: (?P<b>[^:]+):.*?, D: (?P<sums>[^:]+):": (
        r"cute.gemm takes shapes (.., M), (.., N) and (.., M, N), and here a has \g<a>, b \g<b> and the sums \g<sums>: "
        "is each partitioned by this mma, and its tile as long and as wide as the mma's?"
    ),
    r"builtin\.unrealized_conversion_cast": (
        "the compiler finds no instructions for this kernel, and names no line; an mma whose a lies in registers is "
        "made with a_source=warpgroup.OperandSource.RMEM"
    ),
    r"'(?P<side>\w)_major_mode' Op parameter": (
        r"the major mode of \g<side> has to be an OperandMajorMode, as LayoutEnum.ROW_MAJOR.sm90_mma_major_mode() is, "
        "or that of COL_MAJOR"
    ),
    r"Operand \d+ of operation \"(?P<operation>[\w.]+)\" must be a Value": (
        r"\g<operation> was given something that is not a tensor: a tuple, perhaps (make_tiled_tma_atom returns the "
        "copy and the tensor that it addresses)"
    ),
    r"_ComposedLayout' object has no attribute": (
        "a layout with a swizzle has no strides for this: put the swizzle on the pointer, with "
        "allocate_tensor(dtype, layout.outer, alignment, layout.inner)"
    ),
    r"make_layout\(\) takes 1 positional argument": "a stride is given by name: cute.make_layout(shape, stride=...)",
    r"shape and stride must be congruent": (
        "shape and stride must be congruent: the same brackets, with one stride for each number of the shape"
    ),
    r"All elements of `(?P<side>src|dst)` must be Tensor": (
        r"\g<side> is a single element, not a tensor: None in place of a coordinate keeps a mode"
    ),
    r"same size in mode-(?P<mode>\d+), but got (?P<sizes>\d+ and \d+)": (
        r"mode \g<mode> of the two sides has different sizes, \g<sizes>: one tiled copy has to deal out both, by "
        "partition_S, partition_D or, of registers that a tiled MMA dealt out, retile"
    ),
}


def explain(log: str) -> tuple[str, int] | None:
    """Return an explanation of the DSL's first error and its line, or 0 for an error without a line.

    An error that matches no pattern keeps the DSL's text, with the DSL's first suggestion appended.

    Returns:
        None if the log is a plain sentence that matches no pattern: the sentence then speaks for itself.
    """
    diagnostic = _ERROR.search(log)
    text = log
    line = 0
    if diagnostic:
        text = " ".join(diagnostic["text"].split())
        line = int(diagnostic["line"] or 0)
    if quoted := _QUOTED.match(text):
        text = text[quoted.end() :]
        line = int(quoted["line"])
    inner = [" ".join(error.split()) for error in _INNER.findall(log)]
    for pattern, meaning in _TRANSLATED.items():
        if match := re.search(pattern, " ".join([text, *inner])):
            return match.expand(meaning) if isinstance(meaning, str) else meaning(match), line
    if refused := next((error for error in inner if error.startswith(_REFUSED)), ""):
        return refused.removeprefix(_REFUSED), line
    if diagnostic is None:
        wants_number = re.search(r"must be an? [^\n]*\bint\b", log)
        return (f"{log}; a parameter is one if it is annotated cutlass.Constexpr", 0) if wants_number else None
    advice = re.search(r"suggestion: (.*?)(?=\n\s*suggestion:|\n\S|\Z)", log, re.DOTALL)
    if advice and "NameError" not in text:
        text += f" {' '.join(advice[1].split())}"
    return text, line
