"""CUDA C++: from a `.cu` file to a launch, on a GPU or on the PTX machine.

    from kernelpath.lanes import cuda

    add = cuda.kernel("w01b_vector_add.cu", "vector_add<float4>")
    add[blocks, threads](x, y, out, x.numel())

NVRTC compiles the file for the device of the tensors: to a cubin for a GPU, where cuda.core launches it on torch's
current stream; to PTX for the CPU, where `kernelpath.simt` runs it. The result is kept in a cache on disk, so the
same source, options and architecture are compiled once.
"""

from __future__ import annotations

import base64
import ctypes
import hashlib
import json
import operator
import os
import re
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs
from cuda import pathfinder
from cuda.bindings import nvrtc

from kernelpath import lanes

if TYPE_CHECKING:
    import torch

CPU_ARCHITECTURE = "compute_80"
"""What the PTX machine runs."""

COMMON_OPTIONS = (
    "-lineinfo",  # counters and faults name the learner's line
    "--std=c++17",
    "-DINFINITY=__int_as_float(0x7f800000)",  # nvcc has these from <math.h>, which NVRTC lacks
    "-DNAN=__int_as_float(0x7fffffff)",
)

STATIC_SHARED_LIMIT = 48 * 1024
"""Bytes of shared memory that a block gets without asking the driver for more."""

Dim3 = tuple[int, int, int]


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


def kernel(path: str | os.PathLike[str], name: str, options: tuple[str, ...] = ()) -> Kernel:
    """The kernel `name` of a CUDA C++ file, to be launched as `kernel[grid, block, shared_bytes](*arguments)`.

    path: a relative path starts at the directory of the calling file. name: as a C++ expression, with its template
    arguments: "softmax<float, 4>". options: further NVRTC options. The file is read now and compiled at the first
    launch. Calling this again is cheap: an unchanged file gives the same Kernel.

    Raises FileNotFoundError when there is no such file.
    """
    beside = sys._getframe(1).f_globals.get("__file__", "")
    file = os.path.join(os.path.dirname(beside), path)
    return _kernel(file, os.stat(file).st_mtime_ns, name, options)


@cache
def _kernel(file: str, changed_ns: int, name: str, options: tuple[str, ...]) -> Kernel:
    path = Path(file).resolve()
    return Kernel(str(path), path.read_text(encoding="utf-8"), name, options)


class Kernel:
    """A kernel of a CUDA C++ source; `kernel[grid, block]` or `kernel[grid, block, shared_bytes]` launches it."""

    def __init__(self, file: str, source: str, name: str, options: tuple[str, ...] = ()) -> None:
        self.file = file
        self.source = source
        self.name = name
        self.base_name = base_name(name)
        self.options = options
        self._launchers: dict[tuple[Any, ...], _Launcher] = {}
        self._binaries: dict[str, Binary] = {}
        self._loaded: dict[int, _Loaded] = {}

    def __repr__(self) -> str:
        return f"<kernel {self.name} of {self.file}>"

    def __getitem__(self, launch: tuple[Any, ...]) -> _Launcher:
        """The kernel with its launch configuration: (grid, block) or (grid, block, dynamic shared bytes).

        grid, block: an int or a tuple of up to three, in blocks and in threads. Raises ValueError for anything else.
        """
        launcher = self._launchers.get(launch)
        if launcher is None:
            launcher = self._launchers[launch] = _Launcher(self, *_configuration(launch))
        return launcher

    def binary(self, architecture: str) -> Binary:
        """This kernel compiled for an architecture as NVRTC spells it: "sm_90a", "compute_80".

        Raises CompileError or KernelNotFound.
        """
        if architecture not in self._binaries:
            self._binaries[architecture] = compile_kernel(self.source, self.file, self.name, architecture, self.options)
            sys.audit("kernelpath.compiled", self._binaries[architecture].ptx)
        return self._binaries[architecture]

    def parameters(self, architecture: str) -> tuple[Parameter, ...]:
        """Names from the source and types from the PTX, in order."""
        binary = self.binary(architecture)
        return declared_parameters(self.source, self.base_name, ptx_types(binary.ptx, binary.mangled))

    def loaded(self, index: int) -> _Loaded:
        """This kernel on CUDA device `index`, ready to launch."""
        if index not in self._loaded:
            self._loaded[index] = _Loaded(self, index)
        return self._loaded[index]


class _Launcher:
    """A kernel with grid, block and dynamic shared memory: call it with the kernel's arguments."""

    def __init__(self, kernel: Kernel, grid: Dim3, block: Dim3, shared: int) -> None:
        self.kernel = kernel
        self.grid = grid
        self.block = block
        self.shared = shared

    def __call__(self, *arguments: Any) -> None:
        """Launch. Tensors go to pointer parameters, numbers to the parameter's declared type.

        Raises TypeError for arguments that do not fit the kernel's parameters, ValueError for tensors on more than one
        device, CompileError, KernelNotFound, lanes.Unavailable, and whatever the launch itself raises.
        """
        device = _device(self.kernel, arguments)
        counted = None
        if device.type == "cuda":
            self.kernel.loaded(device.index).launch(self, arguments)
        else:
            counted = self._run_on_cpu(arguments)
        lanes.record(lanes.Launched("cuda", self.kernel.base_name, str(device), arguments, counted))

    def _run_on_cpu(self, arguments: tuple[Any, ...]) -> Any:
        from kernelpath import simt

        binary = self.kernel.binary(CPU_ARCHITECTURE)
        parameters = self.kernel.parameters(CPU_ARCHITECTURE)
        values = checked(self.kernel, parameters, arguments)
        buffers = [
            simt.Buffer(parameter.name, argument.data_ptr(), _span_bytes(argument), argument.element_size())
            for parameter, argument in zip(parameters, arguments, strict=True)
            if parameter.type == "ptr"
        ]
        module = simt.load(binary.ptx, self.kernel.file)
        with lanes.compiling():
            module.compile(binary.mangled)
        return module.launch(
            binary.mangled, grid=self.grid, block=self.block, shared=self.shared, args=values, buffers=buffers
        )


class _Loaded:
    """A kernel in a GPU's memory, launched through cuda.core."""

    def __init__(self, kernel: Kernel, index: int) -> None:
        import torch
        from cuda import core

        self.kernel = kernel
        self.index = index
        self.device_guard = torch.cuda.device(index)
        self.current_stream = torch._C._cuda_getCurrentRawStream
        self.streams = {0: core.LEGACY_DEFAULT_STREAM}
        self.configurations: dict[_Launcher, Any] = {}
        self.shared_limit = STATIC_SHARED_LIMIT
        architecture = device_architecture(*torch.cuda.get_device_capability(index))
        binary = kernel.binary(architecture)
        self.parameters = kernel.parameters(architecture)
        self.c_types = [C_TYPES.get(parameter.type, int) for parameter in self.parameters]
        with self.device_guard:
            core.Device(index).set_current()
            self.function = core.ObjectCode.from_cubin(binary.cubin).get_kernel(binary.mangled)

    def launch(self, launcher: _Launcher, arguments: tuple[Any, ...]) -> None:
        """Launch on torch's current stream; raises what the driver reports."""
        from cuda import core

        values = checked(self.kernel, self.parameters, arguments)
        packed = [c_type(value) for c_type, value in zip(self.c_types, values, strict=True)]
        with self.device_guard:
            configuration = self.configurations.get(launcher) or self._configure(launcher)
            core.launch(self._stream(), configuration, self.function, *packed)

    def _stream(self) -> Any:
        from cuda import core

        handle = self.current_stream(self.index)
        if handle not in self.streams:
            self.streams[handle] = core.Stream.from_handle(handle)
        return self.streams[handle]

    def _configure(self, launcher: _Launcher) -> Any:
        from cuda import core

        if launcher.shared > self.shared_limit:
            self._allow_shared(launcher.shared)
        self.configurations[launcher] = core.LaunchConfig(
            grid=launcher.grid, block=launcher.block, shmem_size=launcher.shared
        )
        return self.configurations[launcher]

    def _allow_shared(self, nbytes: int) -> None:
        from cuda.bindings import driver

        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        (status,) = driver.cuKernelSetAttribute(attribute, nbytes, self.function.handle, self.index)
        if status != driver.CUresult.CUDA_SUCCESS:
            raise ValueError(f"{self.kernel.name} asks for {nbytes} bytes of shared memory, more than this GPU has")
        self.shared_limit = nbytes


def device_architecture(major: int, minor: int) -> str:
    """NVRTC's name for a compute capability, with the features of that very architecture where it has some."""
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


# Launch configuration and arguments


def _configuration(launch: tuple[Any, ...]) -> tuple[Dim3, Dim3, int]:
    if not isinstance(launch, tuple) or len(launch) not in (2, 3):
        raise ValueError("launch a kernel as kernel[grid, block](…) or kernel[grid, block, shared_bytes](…)")
    grid, block, shared = (*launch, 0)[:3]
    return _dim3("grid", grid), _dim3("block", block), operator.index(shared)


def _dim3(what: str, size: Any) -> Dim3:
    sizes = size if isinstance(size, tuple) else (size,)
    if not 1 <= len(sizes) <= 3 or any(operator.index(n) < 1 for n in sizes):
        raise ValueError(f"{what} {size!r}: expected one to three positive integers")
    x, y, z = (*map(operator.index, sizes), 1, 1)[:3]
    return x, y, z


def _device(kernel: Kernel, arguments: tuple[Any, ...]) -> torch.device:
    devices = {argument.device for argument in arguments if hasattr(argument, "data_ptr")}
    if len(devices) != 1:
        found = " and ".join(sorted(map(str, devices))) or "no tensor"
        raise ValueError(f"{kernel.base_name} needs its tensors on one device, got {found}")
    device: torch.device = devices.pop()
    if device.type not in ("cuda", "cpu"):
        raise lanes.Unavailable(f"CUDA C++ runs on cuda and cpu tensors, not on {device.type}")
    return device


def _span_bytes(tensor: torch.Tensor) -> int:
    """Bytes from a tensor's first element to the end of its last one."""
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


C_TYPES: dict[str, Any] = {
    "u8": ctypes.c_uint8,
    "s8": ctypes.c_int8,
    "u16": ctypes.c_uint16,
    "s16": ctypes.c_int16,
    "u32": ctypes.c_uint32,
    "s32": ctypes.c_int32,
    "u64": ctypes.c_uint64,
    "s64": ctypes.c_int64,
    "f32": ctypes.c_float,
    "f64": ctypes.c_double,
}
"""PTX scalar types. PTX has no sign where the kernel does no arithmetic, so both ranges are accepted."""


def checked(kernel: Kernel, parameters: tuple[Parameter, ...], arguments: tuple[Any, ...]) -> list[int | float]:
    """Every argument as its parameter's number: an address for a tensor, else an int or a float.

    Raises TypeError that names the parameter and the kernel.
    """
    if len(arguments) != len(parameters):
        names = ", ".join(parameter.name for parameter in parameters)
        raise TypeError(f"{kernel.base_name} takes {len(parameters)} arguments ({names}), got {len(arguments)}")
    return [_value(kernel, parameter, argument) for parameter, argument in zip(parameters, arguments, strict=True)]


def _value(kernel: Kernel, parameter: Parameter, argument: Any) -> int | float:
    if parameter.type == "ptr":
        if not hasattr(argument, "data_ptr"):
            raise _mismatch(kernel, parameter, "a tensor", argument)
        address: int = argument.data_ptr()
        return address
    if parameter.type in ("f32", "f64"):
        if not isinstance(argument, (int, float)):
            raise _mismatch(kernel, parameter, "a number", argument)
        return float(argument)
    if parameter.type not in C_TYPES:
        raise TypeError(
            f"{parameter.name} of {kernel.base_name}: parameters of type {parameter.type} are not supported"
        )
    if not isinstance(argument, int):
        raise _mismatch(kernel, parameter, "an integer", argument)
    bits = 8 * ctypes.sizeof(C_TYPES[parameter.type])
    if not -(1 << bits - 1) <= argument < 1 << bits:
        raise _mismatch(kernel, parameter, f"an integer of {bits} bits", argument)
    return argument


def _mismatch(kernel: Kernel, parameter: Parameter, wanted: str, argument: Any) -> TypeError:
    got = f"{argument!r}" if isinstance(argument, (int, float)) else type(argument).__name__
    return TypeError(f"{parameter.name} of {kernel.base_name} takes {wanted}, got {got}")


# What the source and the PTX say about parameters


def base_name(name: str) -> str:
    """A kernel's own name: "softmax" of "ours::softmax<float, 4>"."""
    return name.partition("<")[0].rpartition("::")[2].strip()


def source_kernels(source: str) -> dict[str, list[str]]:
    """The kernels that a CUDA C++ source defines: name -> declarations of its parameters, as written."""
    code = re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.DOTALL)
    heads = re.findall(r"__global__[^{;]*?(\w+)\s*\(([^(){};]*)\)\s*\{", code)
    return {name: re.sub(r"<[^<>]*>", "", parameters).split(",") for name, parameters in heads}


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


# Compilation


def compile_kernel(source: str, file: str, name: str, architecture: str, options: tuple[str, ...] = ()) -> Binary:
    """One kernel of a source, compiled by NVRTC or taken from the cache.

    file: what the compiler's messages and the line table call the source. architecture: "sm_90a" gives PTX and a
    cubin, "compute_80" PTX alone. Needs no GPU and no driver. Raises CompileError or KernelNotFound.
    """
    flags = (f"--gpu-architecture={architecture}", *COMMON_OPTIONS, f"-I{_headers()}", *options)
    if re.search(r'#\s*include\s*"', source):  # the key below would not see such a file change
        return _compile(source, file, name, flags)
    key = hashlib.sha256(repr((source, file, name, flags, _version())).encode()).hexdigest()
    cached = _cache_folder() / f"{key}.json"
    binary = _read(cached)
    if binary is None:
        with lanes.compiling():
            binary = _compile(source, file, name, flags)
        _write(cached, binary)
    return binary


def _compile(source: str, file: str, name: str, flags: tuple[str, ...]) -> Binary:
    program = _call(nvrtc.nvrtcCreateProgram, source.encode(), file.encode(), 0, [], [])
    try:
        _call(nvrtc.nvrtcAddNameExpression, program, name.encode())
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
    kernels = source_kernels(source)
    if elsewhere or "__nv_name_map" not in log or base_name(name) in kernels:
        return CompileError(log)
    return KernelNotFound(f"no kernel {name} in {file}; kernels there: {', '.join(kernels) or 'none'}")


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
def _headers() -> str:
    """The folder of cuda_fp16.h and the like: of the pip package, else of an installed toolkit."""
    folder = pathfinder.find_nvidia_header_directory("cudart")
    if folder is None:
        raise lanes.Unavailable("the CUDA headers are missing: pip install nvidia-cuda-runtime")
    return str(folder)


# The cache on disk


def _cache_folder() -> Path:
    folder = os.environ.get("KERNELPATH_CACHE") or platformdirs.user_cache_dir("kernelpath")
    return Path(folder) / "cuda"


def _read(cached: Path) -> Binary | None:
    try:
        entry = json.loads(cached.read_text())
        return Binary(entry["mangled"], entry["ptx"], base64.b64decode(entry["cubin"]))
    except (OSError, ValueError, KeyError):
        return None


def _write(cached: Path, binary: Binary) -> None:
    """Atomic: another process sees the whole file or none. A folder that cannot be written only costs time."""
    entry = {"mangled": binary.mangled, "ptx": binary.ptx, "cubin": base64.b64encode(binary.cubin).decode()}
    with suppress(OSError):
        cached.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=cached.parent, suffix=".tmp", delete=False) as partial:
            json.dump(entry, partial)
        os.replace(partial.name, cached)
