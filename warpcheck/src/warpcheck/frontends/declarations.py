"""Read the names of kernels, and the names and types of their parameters, from a CUDA C++ source and its PTX."""

from __future__ import annotations

import re
from dataclasses import dataclass

from warpcheck.source_text import blank_comments

# Words that may end a declaration without being the parameter's name.
_WORDS = """
    auto bool char const constexpr double float half int long restrict short signed size_t unsigned void volatile
    __half __nv_bfloat16 __restrict __restrict__
"""

_BUILT_IN = {"bool", "char", "const", "double", "float", "int", "long", "short", "signed", "unsigned", "void"}


@dataclass(frozen=True)
class Parameter:
    """A kernel's parameter.

    Attributes:
        name: The name in the source.
        type: "ptr" for a parameter that is declared as a pointer, else the PTX type such as "u32" or "f32", or "b8[n]"
            for a struct of n bytes. "u64" may be a pointer too, behind a typedef for example.
        declared: The declaration as written in the source.
    """

    name: str
    type: str
    declared: str = ""


def base_name(name: str) -> str:
    """Return a kernel's unqualified name, such as "softmax" of "ours::softmax<float, 4>"."""
    return name.partition("<")[0].rpartition("::")[2].strip()


def source_kernels(source: str) -> dict[str, list[str]]:
    """Return the declarations of the parameters of each kernel that a CUDA C++ source defines, by kernel name."""
    heads = re.findall(r"__global__[^{;]*?(\w+)\s*\(([^(){};]*)\)\s*\{", blank_comments(source))
    return {name: _separated(parameters) for name, parameters in heads}


def kernel_line(source: str, kernel: str) -> int:
    """Return the line of a kernel's head that contains its name; 0 if there is none."""
    head = re.search(rf"__global__[^{{;]*?\b{kernel}\s*\(", source)
    return source.count("\n", 0, head.end()) + 1 if head else 0


def template_parameters(source: str, kernel: str) -> list[str]:
    """Return the parameters of a kernel's template as written; none for a kernel that is no template."""
    head = re.search(rf"template\s*<([^<>]*)>[^;{{}}]*?__global__[^;{{}}]*?\b{kernel}\s*\(", blank_comments(source))
    return [parameter.strip() for parameter in head[1].split(",")] if head else []


def may_be_a_variable(source: str, kernel: str) -> bool:
    """Return whether `template <int N> __global__ void kernel(half* x)` may define a variable.

    If half is no type, because an #include is missing, `half* x` is a product and `kernel` a variable template. NVRTC
    then crashes when it looks up the name of an instance.
    """
    first = next(iter(source_kernels(source).get(kernel, [])), "")
    kind = re.match(r"(\w+)\s*[*&]", first)
    type_names = {parameter.split()[-1] for parameter in template_parameters(source, kernel)} | _BUILT_IN
    return bool(template_parameters(source, kernel)) and kind is not None and kind[1] not in type_names


def declared_parameters(source: str, name: str, types: list[str]) -> tuple[Parameter, ...]:
    """Return a kernel's parameters, with names and pointers from its source and other types from its PTX.

    NVRTC declares both pointers and 64-bit integers as .u64. If the declaration in the source cannot be read, because
    a macro generates it for example, parameters are numbered and .u64 keeps its type.
    """
    declarations = source_kernels(source).get(name, [])
    # The source was not read as the compiler reads it, so no name belongs to a type for certain.
    if len(declarations) != len(types):
        declarations = [""] * len(types)
    return tuple(
        Parameter(_name(declared) or f"parameter_{i}", _type(declared, kind), declared)
        for i, (declared, kind) in enumerate(zip(declarations, types, strict=True))
    )


def ptx_types(ptx: str, mangled: str) -> list[str]:
    """Return the types of an entry's parameters in order: "u64", "f32" …, or "b8[n]" for a struct of n bytes.

    Reference: PTX ISA, "Kernel Function Parameters".
    """
    _, _, after_entry = ptx.partition(f".entry {mangled}(")
    parameter_list = after_entry.partition(")")[0]
    parameters = re.findall(r"\.param (?:\.align \d+ )?\.(\w+) (?:\.ptr .*? )?\w+(\[\d+\])?", parameter_list)
    return [kind + count for kind, count in parameters]


def _separated(parameters: str) -> list[str]:
    """Split declarations at the commas outside of template arguments, and join the lines of each."""
    declarations = [""]
    depth = 0
    for character in " ".join(parameters.split()):
        depth += {"<": 1, ">": -1}.get(character, 0)
        if character == "," and depth == 0:
            declarations.append("")
        else:
            declarations[-1] += character
    return [declared.strip() for declared in declarations if declared.strip() not in ("", "void")]


def _name(declared: str) -> str:
    """Return the parameter's name; empty for an unnamed parameter."""
    match = re.match(r"(.*\W)(\w+)\s*(?:\[[^\]]*\]\s*)*$", declared.partition("=")[0])
    if match is None or match[2] in _WORDS.split() or match[1].endswith(":"):
        return ""
    # In `const int` the last word is the type of an unnamed parameter, not a name: only qualifiers precede it.
    has_type = re.search(r"[>\w]", re.sub(r"\b(const|volatile)\b", "", match[1]))
    return match[2] if has_type else ""


def _type(declared: str, kind: str) -> str:
    # The compiler declares a __grid_constant__ parameter as bytes, whatever its type.
    if "__grid_constant__" in declared and (size := _SIZES.get(kind)):
        words = {*re.findall(r"\w+", declared)}
        if words & {"float", "double"} and "*" not in declared:
            kind = f"f{size}"
        elif "*" in declared or words & _INTEGERS:
            kind = f"u{size}"
    pointer = "*" in declared or declared.endswith("]")
    return "ptr" if kind == "u64" and pointer else kind


_SIZES = {f"b8[{bits // 8}]": bits for bits in (8, 16, 32, 64)}
# The C++ types of integers that a parameter may have.
_INTEGERS = {"bool", "char", "int", "long", "short", "signed", "size_t", "unsigned"}
_INTEGERS |= {f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)}
