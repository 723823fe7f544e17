"""The CuTe lane: run a `@cute.jit` host function on torch tensors, on their GPU or on the PTX machine.

    from kernelpath.lanes import cute as lane

    @cute.jit
    def copy(src: cute.Tensor, dst: cute.Tensor): ...     # launches its @cute.kernel functions

    lane.run(copy, x, out)

A host function is compiled once for each kind of arguments. The dtype of a tensor, its rank, which of its strides is 1
and how its address is aligned are compiled in; extents and other strides are read when it runs. The result is host
code that works out the grid and calls the CUDA runtime. That code runs as it is on both devices. Only its calls are
redirected, so that the lane sees every launch:

- On a GPU a launch goes on to the runtime, on PyTorch's current stream.
- On the CPU the kernel's PTX for sm_80 runs on `kernelpath.simt`.

The DSL has no public hook for this, hence its exact version in pyproject.toml.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import re
import struct
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import cutlass
import torch
from cuda.bindings import runtime
from cutlass import cute as dsl
from cutlass._mlir.execution_engine import ExecutionEngine
from cutlass.base_dsl.typing import Constexpr
from cutlass.cute.runtime import make_fake_tensor
from cutlass.cutlass_dsl import CuTeDSL

from kernelpath import lanes, simt

DTYPES = {
    torch.float32: cutlass.Float32,
    torch.float16: cutlass.Float16,
    torch.bfloat16: cutlass.BFloat16,
    torch.float8_e4m3fn: cutlass.Float8E4M3FN,
    torch.float8_e5m2: cutlass.Float8E5M2,
    torch.int64: cutlass.Int64,
    torch.int32: cutlass.Int32,
    torch.int16: cutlass.Int16,
    torch.int8: cutlass.Int8,
    torch.uint8: cutlass.Uint8,
}
WIDEST_ACCESS = 16  # bytes that one thread loads or stores at once; a better alignment gains nothing
MAX_ELEMENTS = 2**31 - 1  # extents are 32-bit
CPU_ARCH = "sm_80"  # what the PTX machine runs

Argument = torch.Tensor | int | float


class CompileError(Exception):
    """The DSL or its compiler refused the source; the message is theirs."""


def run(host: Callable[..., None], *args: Argument) -> None:
    """Call `host`, a `@cute.jit` function, after compiling it for this kind of arguments if that is still to be done.

    Tensors lie on one device. Numbers are passed at run time, or compiled in where the parameter is annotated
    `cutlass.Constexpr`. On a GPU the call returns once the kernels are launched, on the CPU once they are done.

    Raises `CompileError`; `TypeError` for arguments that `host` does not take; `ValueError` for tensors on several
    devices or with 2**31 elements or more; `lanes.Unavailable` where the kernels compile but this machine cannot run
    them; `simt.Fault` for what they do wrong on the CPU.
    """
    device = _device(args)
    kinds = _kinds(host, args)
    if device.type == "cpu":
        _cpu_program(host, kinds)(args)
    else:
        with torch.cuda.device(device):
            _gpu_program(host, kinds, _arch(device))(args)


def ptx(host: Callable[..., None], *args: Argument, arch: str = CPU_ARCH) -> str:
    """The PTX of the kernels that `host` launches for such arguments. Needs no GPU. Raises `CompileError`."""
    return _compile(host, _kinds(host, args), arch).__ptx__  # type: ignore[no-any-return]


def _device(args: Sequence[Argument]) -> torch.device:
    devices = {arg.device for arg in args if isinstance(arg, torch.Tensor)}
    if len(devices) != 1:
        found = ", ".join(sorted(map(str, devices))) or "no tensor"
        raise ValueError(f"a kernel needs tensors on one device, found {found}")
    return devices.pop()


def _arch(device: torch.device) -> str:
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


# What of an argument is compiled in. The kinds of a call's arguments are the key to its program.


@dataclass(frozen=True)
class TensorKind:
    """`unit` is the mode of stride 1, if there is one; the address is a multiple of `align` bytes."""

    dtype: torch.dtype
    rank: int
    unit: int | None
    align: int

    @classmethod
    def of(cls, tensor: torch.Tensor, name: str) -> TensorKind:
        if tensor.dtype not in DTYPES:
            raise TypeError(f"{name} has dtype {tensor.dtype}, which no kernel takes")
        if tensor.numel() > MAX_ELEMENTS:
            raise ValueError(f"{name} has {tensor.numel()} elements; extents are 32-bit, so {MAX_ELEMENTS} is the most")
        unit = next((mode for mode in reversed(range(tensor.dim())) if tensor.stride(mode) == 1), None)
        bits = tensor.data_ptr() | WIDEST_ACCESS
        return cls(tensor.dtype, tensor.dim(), unit, align=bits & -bits)

    def placeholder(self) -> Any:
        """A tensor without data, for the DSL to compile from."""
        shape = tuple(dsl.sym_int() for _ in range(self.rank))
        stride = tuple(1 if mode == self.unit else dsl.sym_int64() for mode in range(self.rank))
        return make_fake_tensor(DTYPES[self.dtype], shape, stride, assumed_align=self.align)

    def pack(self, tensor: torch.Tensor) -> bytes:
        """The tensor as compiled code takes it: address, 32-bit extents, 64-bit strides other than 1."""
        strides = [stride for mode, stride in enumerate(tensor.stride()) if mode != self.unit]
        return struct.pack(f"@P{self.rank}i{len(strides)}q", tensor.data_ptr(), *tensor.shape, *strides)


@dataclass(frozen=True)
class Constant:
    """An argument for a parameter annotated `cutlass.Constexpr`."""

    value: Any


Kind = TensorKind | Constant | type


@functools.cache
def _parameters(host: Callable[..., None]) -> tuple[inspect.Parameter, ...]:
    return tuple(inspect.signature(host, eval_str=True).parameters.values())


def _kinds(host: Callable[..., None], args: Sequence[Argument]) -> tuple[Kind, ...]:
    parameters = _parameters(host)
    if len(args) != len(parameters):
        raise TypeError(f"{host.__name__} takes {len(parameters)} arguments, {len(args)} were given")
    return tuple(map(_kind, parameters, args))


def _kind(parameter: inspect.Parameter, arg: Argument) -> Kind:
    if parameter.annotation is Constexpr:
        return Constant(arg)
    if isinstance(arg, torch.Tensor):
        return TensorKind.of(arg, parameter.name)
    if isinstance(arg, (int, float)):
        return type(arg)
    raise TypeError(f"{parameter.name} is a {type(arg).__name__}; a kernel takes tensors, ints and floats")


def _placeholder(kind: Kind) -> Any:
    if isinstance(kind, TensorKind):
        return kind.placeholder()
    return kind.value if isinstance(kind, Constant) else kind(0)


def _compile(host: Callable[..., None], kinds: Sequence[Kind], arch: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        options = f"--gpu-arch {arch} --generate-line-info --keep-ptx --dump-dir {folder}"
        try:
            with lanes.compiling():
                return dsl.compile(host, *map(_placeholder, kinds), options=options)
        except NotImplementedError:  # a stub's
            raise
        except Exception as error:
            raise CompileError(re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip()) from error


def _compile_for_cpu(host: Callable[..., None], kinds: Sequence[Kind]) -> Any:
    try:
        return _compile(host, kinds, CPU_ARCH)
    except CompileError as refused:
        try:
            _compile(host, kinds, "sm_90a")
        except CompileError:
            raise refused from refused.__cause__
        raise lanes.Unavailable(
            f"{host.__name__} compiles for sm_90a but not for {CPU_ARCH}; not run: needs a GPU of capability 9.0"
        ) from refused


class _Packed:
    """A tensor in memory, as host code takes it; the DSL asks an argument for `__c_pointers__`."""

    def __init__(self, content: bytes) -> None:
        self.memory = ctypes.create_string_buffer(content, len(content))

    def __c_pointers__(self) -> list[int]:
        return [ctypes.addressof(self.memory)]


def _packed(kind: Kind, arg: Argument) -> Any:
    """The argument as `generate_execution_args` takes it."""
    if isinstance(kind, TensorKind) and isinstance(arg, torch.Tensor):
        return _Packed(kind.pack(arg))
    return arg


# The calls to the CUDA runtime that host code makes, and what happens to them.


class LaunchConfig(ctypes.Structure):
    """cudaLaunchConfig_t of the CUDA runtime."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared", ctypes.c_size_t),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint32),
    )


_LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(LaunchConfig), ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
_GET_KERNEL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p, ctypes.c_char_p)
_SUCCESS, _UNKNOWN_ERROR = 0, 999  # of cudaError_t
_OTHER_CALLS = (
    "_cudaGetDevice",
    "_cudaDeviceGetAttribute",
    "_cuKernelGetAttribute",
    "_cudaFuncSetAttribute",
    "_cudaKernelSetAttributeForDevice",
)


class _Program(ABC):
    """A compiled host function that asks `_get_kernel` for its kernels and calls `_launch` to launch them."""

    def __init__(self, host: Callable[..., None], kinds: Sequence[Kind], compiled: Any) -> None:
        self._kinds = kinds
        self._names = tuple(parameter.name for parameter in _parameters(host))
        self._compiled = compiled
        self._kernels: dict[int, str] = {}  # the name behind each handle
        self._args: tuple[Argument, ...] = ()  # of the call in progress
        self._error: BaseException | None = None
        self._callbacks = self._redirected()  # kept, because the engine holds only their addresses
        self._engine = ExecutionEngine(compiled.ir_module, opt_level=2, shared_libs=[_runtime_library()])
        for name, callback in self._callbacks.items():
            self._engine.raw_register_runtime(name, ctypes.cast(callback, ctypes.c_void_p))
        self._host_code = self._engine.lookup(compiled.function_name)  # type: ignore[no-untyped-call]

    def __call__(self, args: Sequence[Argument]) -> None:
        self._args, self._error = tuple(args), None
        packed = self._passed(args)
        pointers, adapted = self._compiled.generate_execution_args(*packed)
        status = ctypes.c_int32()
        self._host_code((ctypes.c_void_p * (len(pointers) + 1))(*pointers, ctypes.addressof(status)))
        del packed, adapted  # not earlier: host code reads their memory
        if self._error:
            raise self._error
        if status.value:
            raise RuntimeError(f"the CUDA runtime refused the launch: {_error_text(status.value)}")

    def _passed(self, args: Sequence[Argument]) -> list[Any]:
        pairs = zip(self._kinds, args, strict=True)
        return [_packed(kind, arg) for kind, arg in pairs if not isinstance(kind, Constant)]

    def _redirected(self) -> dict[str, Any]:
        return {
            "_cudaLibraryGetKernel": self._guarded(_GET_KERNEL, self._get_kernel),
            "_cudaLaunchKernelEx": self._guarded(_LAUNCH, self._launch),
        }

    def _guarded(self, prototype: Any, function: Callable[..., int]) -> Any:
        """`function` as a C callback. What it raises waits in `_error`: no exception passes through compiled code."""

        def call(*args: Any) -> int:
            try:
                return function(*args)
            except BaseException as error:
                self._error = error
                return _UNKNOWN_ERROR

        return prototype(call)

    @abstractmethod
    def _get_kernel(self, handle: Any, library: int | None, name: bytes) -> int: ...

    @abstractmethod
    def _launch(self, config: Any, handle: int, params: Any) -> int: ...


class _CpuProgram(_Program):
    """Launches go to the PTX machine; every other call to the runtime succeeds and does nothing."""

    def __init__(self, host: Callable[..., None], kinds: Sequence[Kind]) -> None:
        super().__init__(host, kinds, _compile_for_cpu(host, kinds))
        if self._compiled.kernel_info:  # a host function may do without kernels
            self._module = simt.load(self._compiled.__ptx__)
            self._load_kernels()

    def _load_kernels(self) -> None:
        """Let host code ask for its kernels. The DSL's own loader would ask the driver first."""
        library, device, status = ctypes.pointer(ctypes.c_void_p()), ctypes.c_int32(), ctypes.c_int32()
        packed = (ctypes.c_void_p * 3)(*map(ctypes.addressof, (library, device, status)))
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._engine.raw_lookup("cuda_load_to_device"))(packed)
        if self._error:
            raise self._error

    def _redirected(self) -> dict[str, Any]:
        nothing = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: _SUCCESS)
        return dict.fromkeys(_OTHER_CALLS, nothing) | super()._redirected()

    def _get_kernel(self, handle: Any, library: int | None, name: bytes) -> int:
        handle[0] = len(self._kernels) + 1
        self._kernels[handle[0]] = name.decode()
        with lanes.compiling():
            self._module.compile(name.decode())
        return _SUCCESS

    def _launch(self, config: Any, handle: int, params: Any) -> int:
        name, launch = self._kernels[handle], config[0]
        sizes = [param.size for param in self._module.kernels[name].params]
        counted = self._module.launch(
            name,
            grid=tuple(launch.grid),
            block=tuple(launch.block),
            shared=launch.shared,
            args=[ctypes.string_at(params[i], size) for i, size in enumerate(sizes)],
            buffers=self._buffers(),
        )
        lanes.record(lanes.Launched("cute", _plain(name), "cpu", self._args, counted))
        return _SUCCESS

    def _buffers(self) -> list[simt.Buffer]:
        named = zip(self._names, self._args, strict=True)
        return [_buffer(name, arg) for name, arg in named if isinstance(arg, torch.Tensor)]


class _GpuProgram(_Program):
    """Launches go to the GPU, on PyTorch's current stream where the source names none."""

    def __init__(self, host: Callable[..., None], kinds: Sequence[Kind], arch: str) -> None:
        library = ctypes.CDLL(_runtime_library())
        self._runtime_get_kernel = _GET_KERNEL(("_cudaLibraryGetKernel", library))
        self._runtime_launch = _LAUNCH(("_cudaLaunchKernelEx", library))
        super().__init__(host, kinds, _compile(host, kinds, arch))
        if self._compiled.kernel_info:
            self._compiled.engine = self._engine
            self._libraries = self._compiled._load_cuda_library()

    def _get_kernel(self, handle: Any, library: int | None, name: bytes) -> int:
        status: int = self._runtime_get_kernel(handle, library, name)
        self._kernels[handle[0]] = name.decode()
        return status

    def _launch(self, config: Any, handle: int, params: Any) -> int:
        config[0].stream = config[0].stream or torch.cuda.current_stream().cuda_stream
        status: int = self._runtime_launch(config, handle, params)
        lanes.record(lanes.Launched("cute", _plain(self._kernels[handle]), "cuda", self._args))
        return status


_cpu_program = functools.cache(_CpuProgram)
_gpu_program = functools.cache(_GpuProgram)


def _runtime_library() -> str:
    return str(CuTeDSL._get_dsl().get_shared_libs()[0])


def _error_text(status: int) -> str:
    return str(runtime.cudaGetErrorString(runtime.cudaError_t(status))[1].decode())


def _buffer(name: str, tensor: torch.Tensor) -> simt.Buffer:
    """The memory from the tensor's first element to its last."""
    span = 1 + sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    size = span * tensor.element_size() if tensor.numel() else 0
    return simt.Buffer(name, tensor.data_ptr(), size, tensor.element_size())


def _plain(mangled: str) -> str:
    """The name of the Python function in the name that the DSL gives its kernel."""
    return re.sub(r"^kernel_cutlass_|_tensorptr.*$|_\d+$", "", mangled)
