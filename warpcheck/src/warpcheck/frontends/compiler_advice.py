"""What NVRTC objects to in a source, in words that name the line and the fix. Does not import it."""

from __future__ import annotations

import re

from warpcheck.frontends.triton_advice import alike

_NVRTC_ERROR = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): (?:catastrophic )?error:? (?P<text>.*)", re.MULTILINE)
_NEVER_CLOSED = re.compile(
    r'^At end of source: error: .*?\n(?P<file>.+?)\((?P<line>\d+)\): note.*this "\{"', re.MULTILINE
)

BUILT_IN = ("threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize")
"""What CUDA C++ knows in a kernel alone."""

_FUNCTIONS = ("__syncthreads", "__syncwarp", "__shared__", "__global__", "__device__", "__shfl_down_sync", "atomicAdd")
_HEADERS = {
    "__nv_bfloat16": "cuda_bf16.h",
    "__nv_bfloat162": "cuda_bf16.h",
    "__half": "cuda_fp16.h",
    "half": "cuda_fp16.h",
}

_FIXES = {
    r"expression must be a modifiable lvalue": "; what is written to must not be const",
    r'must have pointer-to-object type but it has type "(\w+)"': r"; for an array declare it as \1*",
    r"expression must have a constant value": (
        "; an array has a size that is known at compile time: a number, a constexpr or a template parameter"
    ),
}
"""By what NVRTC says: what to do about it."""


def nvrtc(log: str, sources: dict[str, str]) -> tuple[str, str, int] | None:
    """The first error of NVRTC's log: what to do, the file and the line; None where the log has none.

    sources: the texts of the files, by the path that the log has.
    """
    if found := _NEVER_CLOSED.search(log):
        return 'the "{" of this line is not closed: a "}" is missing', found["file"], int(found["line"])
    found = _NVRTC_ERROR.search(log)
    if found is None:
        return None
    text, file, line = found["text"], found["file"], int(found["line"])
    source = sources.get(file, "")
    if text == 'expected a ";"':
        return f"{text} at the end of this line", file, _unended(source, line)
    if operands := re.match(r"(?s)(?:(?!\): error).)*?operand types are: ([^\n]+)", log[found.end() :]):
        text += f": {operands[1].strip()}{_of_operands(operands[1])}"
    return text + _fix(text, source), file, line


def _of_operands(types: str) -> str:
    if re.search(r"\b(uint3|dim3)\b", types):
        return "; threadIdx, blockIdx and blockDim have parts: take .x, .y or .z"
    if vector := re.search(r"\b(?:u?(?:char|short|int|long|longlong)|float|double)[234]\b", types):
        return f"; {vector[0]} has no operators: compute with .x, .y and so on"
    return ""


def _fix(text: str, source: str) -> str:
    for name, header in _HEADERS.items():
        if re.search(rf'(?:incomplete type|identifier) "{name}\b', text):
            return f"; #include <{header}>"
    if found := re.search(r'identifier "(\w+)" is undefined', text):
        known = {*BUILT_IN, *_FUNCTIONS, *re.findall(r"[A-Za-z_]\w*", source)} - {found[1]}
        return alike(found[1], known)
    for said, fix in _FIXES.items():
        if found := re.search(said, text):
            return found.expand(fix)
    return ""


def _unended(source: str, line: int) -> int:
    """The line that lacks a semicolon, where NVRTC names the one after it."""
    lines = [re.sub(r"//.*|/\*.*?\*/", "", text).rstrip() for text in source.splitlines()]
    before = next((number for number in range(min(line - 1, len(lines)), 0, -1) if lines[number - 1].strip()), line)
    return line if not lines or lines[before - 1].endswith((";", "{", "}", ":", ",", ">")) else before
