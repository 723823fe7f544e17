"""What a CUDA C++ source and its PTX say about kernels: their names, and their parameters' names and types."""

from __future__ import annotations

import re
from dataclasses import dataclass

from warpcheck.source_text import blank_comments

_WORDS = """
    auto bool char const constexpr double float half int long restrict short signed size_t unsigned void volatile
    __half __nv_bfloat16 __restrict __restrict__
"""
"""What may end a declaration without being the parameter's name."""

_BUILT_IN = {"bool", "char", "const", "double", "float", "int", "long", "short", "signed", "unsigned", "void"}


@dataclass(frozen=True)
class Parameter:
    """A kernel's parameter: its name in the source, its type in the PTX, and its declaration as written.

    type: "ptr" for what is spelled as a pointer, else "u32", "f32" …, or "b8[n]" for a struct of n bytes. "u64" may be
    a pointer too: behind a typedef, say.
    """

    name: str
    type: str
    declared: str = ""


def base_name(name: str) -> str:
    """A kernel's own name: "softmax" of "ours::softmax<float, 4>"."""
    return name.partition("<")[0].rpartition("::")[2].strip()


def source_kernels(source: str) -> dict[str, list[str]]:
    """The kernels that a CUDA C++ source defines: name -> declarations of its parameters, as written."""
    heads = re.findall(r"__global__[^{;]*?(\w+)\s*\(([^(){};]*)\)\s*\{", blank_comments(source))
    return {name: _separated(parameters) for name, parameters in heads}


def kernel_line(source: str, kernel: str) -> int:
    """The line with the name of a kernel in its head; 0 if no line has it."""
    head = re.search(rf"__global__[^{{;]*?\b{kernel}\s*\(", source)
    return source.count("\n", 0, head.end()) + 1 if head else 0


def template_parameters(source: str, kernel: str) -> list[str]:
    """The parameters of a kernel's template as written; none if it is not one."""
    found = re.search(rf"template\s*<([^<>]*)>[^;{{}}]*?__global__[^;{{}}]*?\b{kernel}\s*\(", blank_comments(source))
    return [parameter.strip() for parameter in found[1].split(",")] if found else []


def may_be_a_variable(source: str, kernel: str) -> bool:
    """Whether `template <int N> __global__ void kernel(half* x)` defines a variable, the product of half and x.

    It does where half is no type, for lack of an #include, and NVRTC crashes when asked for the name of an instance.
    """
    first = next(iter(source_kernels(source).get(kernel, [])), "")
    kind = re.match(r"(\w+)\s*[*&]", first)
    known = {parameter.split()[-1] for parameter in template_parameters(source, kernel)} | _BUILT_IN
    return bool(template_parameters(source, kernel)) and kind is not None and kind[1] not in known


def declared_parameters(source: str, name: str, types: list[str]) -> tuple[Parameter, ...]:
    """A kernel's parameters: names and pointers from its source, the other types from its PTX.

    NVRTC writes a pointer as .u64, as it does a 64-bit integer. Where the source's declaration cannot be read (it
    comes from a macro, say), the parameters are numbered and every .u64 stays one.
    """
    declarations = source_kernels(source).get(name, [])
    if len(declarations) != len(types):
        declarations = [""] * len(types)
    return tuple(
        Parameter(_name(declared) or f"parameter_{i}", _type(declared, kind), declared)
        for i, (declared, kind) in enumerate(zip(declarations, types, strict=True))
    )


def ptx_types(ptx: str, mangled: str) -> list[str]:
    """The types of an entry's parameters in order: "u64", "f32" …, or "b8[n]" for a struct of n bytes.

    Source: PTX ISA, "Kernel Function Parameters".
    """
    _, _, rest = ptx.partition(f".entry {mangled}(")
    found = re.findall(r"\.param (?:\.align \d+ )?\.(\w+) (?:\.ptr .*? )?\w+(\[\d+\])?", rest.partition(")")[0])
    return [kind + count for kind, count in found]


def _separated(parameters: str) -> list[str]:
    """Declarations between commas, but not those of template arguments. They are put on one line each."""
    found, depth = [""], 0
    for character in " ".join(parameters.split()):
        depth += {"<": 1, ">": -1}.get(character, 0)
        if character == "," and depth == 0:
            found.append("")
        else:
            found[-1] += character
    return [declared.strip() for declared in found if declared.strip() not in ("", "void")]


def _name(declared: str) -> str:
    """The parameter's name; empty where it has none."""
    found = re.match(r"(.*\W)(\w+)\s*(?:\[[^\]]*\]\s*)*$", declared.partition("=")[0])
    if found is None or found[2] in _WORDS.split() or found[1].endswith(":"):
        return ""
    has_type = re.search(r"[>\w]", re.sub(r"\b(const|volatile)\b", "", found[1]))
    return found[2] if has_type else ""


def _type(declared: str, kind: str) -> str:
    pointer = "*" in declared or declared.endswith("]")
    return "ptr" if kind == "u64" and pointer else kind
