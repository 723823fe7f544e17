"""Explain the errors of NVRTC by line and fix, and those of ptxas, without importing either."""

from __future__ import annotations

import re

from warpcheck.frontends.triton_advice import suggest

_NVRTC_ERROR = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): (?:catastrophic )?error:? (?P<text>.*)", re.MULTILINE)
_NEVER_CLOSED = re.compile(
    r'^At end of source: error: .*?\n(?P<file>.+?)\((?P<line>\d+)\): note.*this "\{"', re.MULTILINE
)

_PTXAS_ERROR = re.compile(r"^ptxas .+?, line \d+; error\s*: (?P<text>.+)", re.MULTILINE)

# Variables that CUDA C++ defines in kernels only.
BUILT_IN = ("threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize")

_FUNCTIONS = ("__syncthreads", "__syncwarp", "__shared__", "__global__", "__device__", "__shfl_down_sync", "atomicAdd")
_HEADERS = {
    "__nv_bfloat16": "cuda_bf16.h",
    "__nv_bfloat162": "cuda_bf16.h",
    "__half": "cuda_fp16.h",
    "half": "cuda_fp16.h",
}

# The advice for each error of NVRTC, by a pattern of the error's text.
_FIXES = {
    r"expression must be a modifiable lvalue": "; what is written to must not be const",
    r'must have pointer-to-object type but it has type "(\w+)"': r"; for an array declare it as \1*",
    r"expression must have a constant value": (
        "; an array has a size that is known at compile time: a number, a constexpr or a template parameter"
    ),
}


def explain_nvrtc_log(log: str, sources: dict[str, str]) -> tuple[str, str, int] | None:
    """Return the first error of NVRTC's log with advice, its file and its line; None for a log without an error.

    Args:
        log: The text that NVRTC wrote.
        sources: The texts of the source files, by their paths in the log.
    """
    if match := _NEVER_CLOSED.search(log):
        return 'the "{" of this line is not closed: a "}" is missing', match["file"], int(match["line"])
    match = _NVRTC_ERROR.search(log)
    if match is None:
        return None
    text = match["text"]
    file = match["file"]
    line = int(match["line"])
    source = sources.get(file, "")
    if text == 'expected a ";"':
        return f"{text} at the end of this line", file, _line_without_semicolon(source, line)
    # The operand types follow on a line of their own; the lookahead keeps the search before the next error.
    if operands := re.match(r"(?s)(?:(?!\): error).)*?operand types are: ([^\n]+)", log[match.end() :]):
        text += f": {operands[1].strip()}{_operand_advice(operands[1])}"
    return text + _fix(text, source), file, line


def explain_ptxas_log(log: str, source: str) -> tuple[list[str], int]:
    """Return the errors in the log of ptxas, each text once, and the line of ``source`` that has what they quote.

    ptxas reports an instruction of inline PTX once for each copy in the kernel, and by its line of the PTX.

    Args:
        log: The text that ptxas wrote, possibly among text of Triton's.
        source: The text of the file with the kernel.

    Returns:
        The texts; empty for a log without an error of ptxas. The line is 0 where the source contains nothing quoted.
    """
    texts = list(dict.fromkeys(match["text"].strip() for match in _PTXAS_ERROR.finditer(log)))
    quoted = [name for text in texts for name in re.findall(r"'([^']+)'", text)]
    lines = enumerate(source.splitlines(), 1)
    return texts, next((number for number, line in lines if any(name in line for name in quoted)), 0)


def _operand_advice(types: str) -> str:
    if re.search(r"\b(uint3|dim3)\b", types):
        return "; threadIdx, blockIdx and blockDim have parts: take .x, .y or .z"
    if vector := re.search(r"\b(?:u?(?:char|short|int|long|longlong)|float|double)[234]\b", types):
        return f"; {vector[0]} has no operators: compute with .x, .y and so on"
    return ""


def _fix(text: str, source: str) -> str:
    for name, header in _HEADERS.items():
        if re.search(rf'(?:incomplete type|identifier) "{name}\b', text):
            return f"; #include <{header}>"
    if match := re.search(r'identifier "(\w+)" is undefined', text):
        candidates = {*BUILT_IN, *_FUNCTIONS, *re.findall(r"[A-Za-z_]\w*", source)} - {match[1]}
        return suggest(match[1], candidates)
    for pattern, fix in _FIXES.items():
        if match := re.search(pattern, text):
            return match.expand(fix)
    return ""


def _line_without_semicolon(source: str, line: int) -> int:
    """Return the line that lacks a semicolon; NVRTC reports the next line with code."""
    lines = [re.sub(r"//.*|/\*.*?\*/", "", text).rstrip() for text in source.splitlines()]
    previous = next((number for number in range(min(line - 1, len(lines)), 0, -1) if lines[number - 1].strip()), line)
    return line if not lines or lines[previous - 1].endswith((";", "{", "}", ":", ",", ">")) else previous
