"""NVRTC: CUDA C++ source to PTX and cubin, with a cache on disk. Needs neither a GPU, nor a driver, nor a toolkit."""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
from cuda import pathfinder
from cuda.bindings import nvrtc

from kernelpath import lanes, packages
from kernelpath.files import cache_read, cache_write

COMMON_OPTIONS = (
    "-lineinfo",  # counters and faults name the learner's line
    "--std=c++17",
    "-DINFINITY=__int_as_float(0x7f800000)",  # nvcc has these from <math.h>, which NVRTC lacks
    "-DNAN=__int_as_float(0x7fffffff)",
)


class CompileError(Exception):
    """The source does not compile; the message is the compiler's log, with the learner's file and lines."""


class KernelNotFound(LookupError):
    """The source has no kernel of that name; the message lists those it has."""


@dataclass(frozen=True)
class Binary:
    """One kernel, compiled. `cubin` is empty when the architecture is a virtual one (compute_80)."""

    mangled: str
    ptx: str
    cubin: bytes


@dataclass(frozen=True)
class Parameter:
    """A kernel's parameter: its name in the source and its type in the PTX ("ptr" for a pointer, "u32", "f32" …)."""

    name: str
    type: str


def compile_kernel(source: str, file: str, name: str, architecture: str, options: tuple[str, ...] = ()) -> Binary:
    """One kernel of a source, compiled by NVRTC or taken from the cache.

    file: what the compiler's messages and the line table call the source. architecture: "sm_90a" gives PTX and a
    cubin, "compute_80" PTX alone. Needs no GPU and no driver. Raises CompileError or KernelNotFound.
    """
    flags = (f"--gpu-architecture={architecture}", *COMMON_OPTIONS, f"-I{_headers()}", *options)
    if re.search(r'#\s*include\s*"', source):  # the key below would not see that file change
        return _compile(source, file, name, flags)
    key = hashlib.sha256(repr((source, file, name, flags, _version())).encode()).hexdigest()
    binary = _decoded(cache_read("cuda", key))
    if binary is None:
        binary = _compile(source, file, name, flags)
        cache_write("cuda", key, msgspec.msgpack.encode(binary))
    return binary


def _compile(source: str, file: str, name: str, flags: tuple[str, ...]) -> Binary:
    program = _call(nvrtc.nvrtcCreateProgram, source.encode(), file.encode(), 0, [], [])
    try:
        _call(nvrtc.nvrtcAddNameExpression, program, name.encode())
        with lanes.compiling():
            (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), [flag.encode() for flag in flags])
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = _text(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
            raise _failure(source, file, name, log.decode(errors="replace").strip("\0\n "))
        return Binary(
            mangled=_call(nvrtc.nvrtcGetLoweredName, program, name.encode()).decode(),
            ptx=_text(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX).decode().strip("\0"),
            cubin=_text(program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN),
        )
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _failure(source: str, file: str, name: str, log: str) -> Exception:
    """The name alone is wrong if NVRTC complains about nothing but its list of names (__nv_name_map)."""
    elsewhere = re.search(r"^(?!__nv_name_map).*\(\d+\): (?:catastrophic )?error", log, flags=re.MULTILINE)
    if elsewhere or "__nv_name_map" not in log:
        return CompileError(log)
    base, kernels = base_name(name), source_kernels(source)
    if base not in kernels:
        return KernelNotFound(f"no kernel {name} in {file}; kernels there: {', '.join(kernels) or 'none'}")
    parameters = _template_parameters(source, base)
    if not parameters:
        return KernelNotFound(f'"{name}" names no kernel: {base} is not a template; call it "{base}"')
    example = f'"{base}<{", ".join(map(_example, parameters))}>"'
    if name == base:
        return KernelNotFound(f"{base} is a template: name an instance of it, such as {example}")
    said = re.findall(r"error: (.*)", log)[0]
    template = f"template <{', '.join(parameters)}> {base}"
    return KernelNotFound(f'"{name}" is no instance of {template}, such as {example}: {said}')


def _call(function: Any, *arguments: Any) -> Any:
    status, *results = function(*arguments)
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise RuntimeError(f"{function.__name__}: {status.name}")
    return results[0] if len(results) == 1 else tuple(results)


def _text(program: Any, size: Any, get: Any) -> bytes:
    buffer = bytes(_call(size, program))
    if buffer:
        _call(get, program, buffer)
    return buffer


@cache
def _version() -> tuple[int, int]:
    major, minor = _call(nvrtc.nvrtcVersion)
    return major, minor


@cache
def _architectures() -> frozenset[int]:
    return frozenset(_call(nvrtc.nvrtcGetSupportedArchs))


@cache
def _headers() -> str:
    """The folder of cuda_fp16.h and the like: of the pip package, else of an installed toolkit."""
    folder = pathfinder.find_nvidia_header_directory("cudart")
    if folder is None:
        raise lanes.Unavailable(packages.missing("nvidia-cuda-runtime"))
    return str(folder)


def device_architecture(major: int, minor: int) -> str:
    """NVRTC's name for a compute capability, with the features of that very architecture where it has some.

    Raises lanes.Unavailable where this NVRTC does not compile for it.
    """
    if 10 * major + minor not in _architectures():
        version = ".".join(map(str, _version()))
        raise lanes.Unavailable(
            f"this GPU has compute capability {major}.{minor}; NVRTC {version} does not compile for it"
        )
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


# What the source and the PTX say about a kernel's parameters


def base_name(name: str) -> str:
    """A kernel's own name: "softmax" of "ours::softmax<float, 4>"."""
    return name.partition("<")[0].rpartition("::")[2].strip()


def source_kernels(source: str) -> dict[str, list[str]]:
    """The kernels that a CUDA C++ source defines: name -> declarations of its parameters, as written."""
    heads = re.findall(r"__global__[^{;]*?(\w+)\s*\(([^(){};]*)\)\s*\{", _without_comments(source))
    return {name: re.sub(r"<[^<>]*>", "", parameters).split(",") for name, parameters in heads}


def _without_comments(source: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.DOTALL)


def _template_parameters(source: str, kernel: str) -> list[str]:
    """The parameters of a kernel's template as written; none if it is not one."""
    found = re.search(rf"template\s*<([^<>]*)>[^;{{}}]*?__global__[^;{{}}]*?\b{kernel}\s*\(", _without_comments(source))
    return [parameter.strip() for parameter in found[1].split(",")] if found else []


def _example(parameter: str) -> str:
    """An argument that a template's parameter takes."""
    kind = parameter.split()[0]
    return "float" if kind in ("typename", "class") else "true" if kind == "bool" else "32"


def declared_parameters(source: str, name: str, types: list[str]) -> tuple[Parameter, ...]:
    """A kernel's parameters: names and pointers from its source, the other types from its PTX.

    NVRTC writes a pointer as .u64, as it does a 64-bit integer. Where the source's declaration cannot be read
    (it comes from a macro, say), every .u64 is taken for a pointer.
    """
    declarations = source_kernels(source).get(name, [])
    if len(declarations) != len(types):
        declarations = [f"*parameter_{i}" for i in range(len(types))]
    return tuple(
        Parameter(re.findall(r"\w+", declaration)[-1], "ptr" if kind == "u64" and "*" in declaration else kind)
        for declaration, kind in zip(declarations, types, strict=True)
    )


def ptx_types(ptx: str, mangled: str) -> list[str]:
    """The types of an entry's parameters in order: "u64", "f32" …, or "b8[n]" for a struct of n bytes.

    Source: PTX ISA, "Kernel Function Parameters".
    """
    _, _, rest = ptx.partition(f".entry {mangled}(")
    found = re.findall(r"\.param (?:\.align \d+ )?\.(\w+) \w+(\[\d+\])?", rest.partition(")")[0])
    return [kind + count for kind, count in found]


# The cache on disk


def _decoded(content: bytes | None) -> Binary | None:
    """A binary from the cache; None for anything else."""
    with suppress(msgspec.MsgspecError):
        return msgspec.msgpack.decode(content or b"", type=Binary)
    return None
