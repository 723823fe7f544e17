"""Compile CUDA C++ to PTX and cubin by NVRTC, with a cache on disk. Needs no GPU, no driver and no toolkit."""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
from cuda.bindings import nvrtc

from warpcheck import frontends
from warpcheck.cache import cache_read, cache_write
from warpcheck.frontends import cutlass, headers
from warpcheck.frontends.declarations import base_name, may_be_a_variable, source_kernels, template_parameters
from warpcheck.target import gpu_architecture

COMMON_OPTIONS = (
    "-lineinfo",  # counters and faults name the learner's line
    "--std=c++17",
    f"--pre-include={headers.PRELUDE}",
)

_DEFAULT_DEVICE = "--device-as-default-execution-space"


class CompileError(Exception):
    """The source does not compile; the message is the compiler's log, with file and lines of the source."""


class KernelNotFound(LookupError):
    """The source has no kernel of this name; the message lists its kernels."""


@dataclass(frozen=True)
class Binary:
    """A compiled kernel. `cubin` is empty for a virtual architecture such as compute_80."""

    mangled: str
    ptx: str
    cubin: bytes


def compile_kernel(source: str, file: str, name: str, architecture: str, options: tuple[str, ...] = ()) -> Binary:
    """Compile a kernel by NVRTC, or return the result of an earlier compilation from the cache.

    Args:
        source: The text of the source.
        file: The file name for the compiler's messages and the line table.
        name: The kernel as a C++ expression, such as "softmax<float, 4>".
        architecture: "sm_90a" for PTX and a cubin, "compute_80" for PTX only.
        options: Further NVRTC options.

    Raises:
        CompileError: The source does not compile.
        KernelNotFound: The source has no such kernel.
    """
    # Spaces make no other kernel, and no other cache entry.
    name = " ".join(name.split())
    folders = (f"-I{folder}" for folder in headers.folders())
    flags = (f"--gpu-architecture={architecture}", *COMMON_OPTIONS, *folders, *options)
    if cutlass.is_included(source):  # CUTLASS calls constexpr functions without __device__ in kernels.
        flags = (*flags, f"-I{cutlass.folder()}", _DEFAULT_DEVICE)
    if re.search(r'#\s*include\s*"', source):  # The cache key does not cover the content of an included file.
        return _compile(source, file, name, flags)
    key = hashlib.sha256(repr((source, file, name, flags, _version(), _bundled_headers(source))).encode()).hexdigest()
    binary = _decoded(cache_read("cuda", key))
    if binary is None:
        binary = _compile(source, file, name, flags)
        cache_write("cuda", key, msgspec.msgpack.encode(binary))
    return binary


def _compile(source: str, file: str, name: str, flags: tuple[str, ...]) -> Binary:
    if may_be_a_variable(
        source, base_name(name)
    ):  # Check the syntax first, so that NVRTC reports it and does not crash.
        nvrtc.nvrtcDestroyProgram(_compiled(source, file, "", (*flags, "--fdevice-syntax-only")))
    program = _compiled(source, file, name, flags)
    try:
        return Binary(
            mangled=_call(nvrtc.nvrtcGetLoweredName, program, name.encode()).decode(),
            # NVRTC's texts end with a NUL.
            ptx=_text(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX).decode().strip("\0"),
            cubin=_text(program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN),
        )
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _compiled(source: str, file: str, name: str, flags: tuple[str, ...]) -> Any:
    """Return NVRTC's program, which the caller destroys. Its PTX contains the kernel `name`, unless that is empty."""
    bundled = _bundled_headers(source)
    names, texts = ([text.encode() for text in texts] for texts in (bundled, bundled.values()))
    program = _call(nvrtc.nvrtcCreateProgram, source.encode(), file.encode(), len(names), texts, names)
    # Only with a name expression NVRTC instantiates a template, and tells its lowered name.
    if name:
        _call(nvrtc.nvrtcAddNameExpression, program, name.encode())
    with frontends.compiling():
        (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), [flag.encode() for flag in flags])
    if status == nvrtc.nvrtcResult.NVRTC_SUCCESS:
        return program
    log = _text(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog).decode(errors="replace")
    nvrtc.nvrtcDestroyProgram(program)
    if _DEFAULT_DEVICE not in flags and headers.rejects_only_implicit_device_code(source, log):
        return _compiled(source, file, name, (*flags, _DEFAULT_DEVICE))
    raise _failure(source, file, name, headers.explain_log(log.strip("\0\n "), file))


def _bundled_headers(source: str) -> dict[str, str]:
    """Return the text of each header that NVRTC gets from memory, by name."""
    return headers.BUNDLED | (cutlass.patched_headers() if cutlass.is_included(source) else {})


def _failure(source: str, file: str, name: str, log: str) -> Exception:
    """Return the error for a log: KernelNotFound if all errors are in NVRTC's list of names, __nv_name_map."""
    elsewhere = re.search(r"^(?!__nv_name_map).*\(\d+\): (?:catastrophic )?error", log, flags=re.MULTILINE)
    if elsewhere or "__nv_name_map" not in log:
        return CompileError(log)
    base = base_name(name)
    kernels = source_kernels(source)
    if base not in kernels:
        return KernelNotFound(f"no kernel {name} in {file}; kernels there: {', '.join(kernels) or 'none'}")
    parameters = template_parameters(source, base)
    if not parameters:
        return KernelNotFound(f'"{name}" names no kernel: {base} is not a template; call it "{base}"')
    example = f'"{base}<{", ".join(map(_example, parameters))}>"'
    if name == base:
        return KernelNotFound(f"{base} is a template: name an instance of it, such as {example}")
    message = re.findall(r"error: (.*)", log)[0]
    template = f"template <{', '.join(parameters)}> {base}"
    return KernelNotFound(f'"{name}" is no instance of {template}, such as {example}: {message}')


def _example(parameter: str) -> str:
    """Return an example of an argument for a template parameter."""
    kind = parameter.split()[0]
    if kind in ("typename", "class"):
        return "float"
    return "true" if kind == "bool" else "32"


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


def device_architecture(major: int, minor: int) -> str:
    """Return NVRTC's name of a compute capability, with architecture-specific features from sm_90 on.

    Raises frontends.Unavailable if this NVRTC does not compile for the capability.
    """
    if 10 * major + minor not in _architectures():
        version = ".".join(map(str, _version()))
        raise frontends.Unavailable(
            f"this GPU has compute capability {major}.{minor}; NVRTC {version} does not compile for it"
        )
    return gpu_architecture(major, minor)


# The cache on disk


def _decoded(content: bytes | None) -> Binary | None:
    """Decode a binary from the cache; return None for missing or invalid content."""
    with suppress(msgspec.MsgspecError):
        return msgspec.msgpack.decode(content or b"", type=Binary)
    return None
