"""The CuTe lane: run a `@cute.jit` host function on torch tensors, on their GPU or on the PTX machine.

    from warpcheck.frontends import cute as lane

    @cute.jit
    def copy(src: cute.Tensor, dst: cute.Tensor): ...     # launches its @cute.kernel functions

    lane.run(copy, x, out)

A host function is compiled once for each kind of arguments. The dtype of a tensor, its rank, which of its strides is 1,
and how its address and its other strides are aligned are compiled in; extents and strides are read when it runs. How
the result is run on either device stands in `cute_host`.
"""

from __future__ import annotations

import functools
import inspect
import re
import struct
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_origin

import cutlass
import torch
from cuda.bindings.driver import CUstream
from cutlass import cute as dsl

from warpcheck import frontends, simulated_gpu
from warpcheck.frontends.cute_cache import cached_passes
from warpcheck.frontends.cute_host import Argument, CpuHost, GpuHost, Host, Packed
from warpcheck.frontends.cute_places import remember_places
from warpcheck.hooks import Changed
from warpcheck.hooks import cute as hooks
from warpcheck.target import TARGETS

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
MAX_EXTENT = 2**31 - 1  # extents are 32-bit

remember_places()


class CompileError(Exception):
    """The DSL or its compiler refused the source; the message is theirs."""


def run(host: Callable[..., None], *args: Argument) -> None:
    """Call `host`, a `@cute.jit` function, and compile it first if arguments of this kind are new.

    Args:
        host: A function decorated with `@cute.jit` that launches kernels.
        *args: Tensors on one device; numbers, which are compiled in if their parameter is annotated
            `cutlass.Constexpr`; and streams, as CUstream of cuda.bindings.driver. The call returns when the kernels
            are launched on a GPU, and when they have finished on the CPU.

    Raises:
        CompileError: The DSL or its compiler rejects the source.
        TypeError: `host` does not take these arguments.
        ValueError: The tensors are on several devices, or an extent is 2**31 or more.
        frontends.Unavailable: The kernels compile, but this machine cannot run them.
        simt.Fault: The PTX machine found a fault.
    """
    device = _device(args)
    kinds = _kinds(host, args)
    on_gpu = not simulated_gpu.is_host_memory(device)
    program = _program(host, kinds, _arch(device) if on_gpu else simulated_gpu.target().name, on_gpu)
    values = [_packed(kind, arg) for kind, arg in zip(kinds, args, strict=True) if not isinstance(kind, Constant)]
    program(values, dict(zip(_parameters(host), args, strict=True)))


def ptx(host: Callable[..., None], *args: Argument, arch: str = "sm_80") -> str:
    """Return the PTX of the kernels that `host` launches for such arguments. Needs no GPU. Raises `CompileError`."""
    return hooks.PTX.of(_compile(host, _kinds(host, args), arch))  # type: ignore[no-any-return]


def _device(args: Sequence[Argument]) -> torch.device:
    devices = {arg.device for arg in args if isinstance(arg, torch.Tensor)}
    if len(devices) != 1:
        device_names = ", ".join(sorted(map(str, devices))) or "none of torch's (pass x itself, not from_dlpack(x))"
        raise ValueError(f"a kernel needs tensors on one device, found {device_names}")
    return devices.pop()


@functools.cache
def _arch(device: torch.device) -> str:
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


# A kind holds the properties of an argument that are compiled in. The kinds of all arguments identify a program.


@dataclass(frozen=True)
class TensorKind:
    """The properties of a tensor that are compiled in.

    The alignments are powers of two up to 16 bytes. A copy of 16 bytes compiles only if all of them are 16 bytes.

    Attributes:
        unit: The mode of stride 1, if there is one.
        align: The alignment of the address in bytes.
        steps: The alignment of each mode's stride in elements.
    """

    dtype: torch.dtype
    rank: int
    unit: int | None
    align: int
    steps: tuple[int, ...]

    @classmethod
    def of(cls, tensor: torch.Tensor, name: str) -> TensorKind:
        return _tensor_kind(name, tensor.dtype, tensor.shape, tensor.stride(), tensor.data_ptr() % WIDEST_ACCESS)

    def placeholder(self) -> Any:
        """Return a tensor without data that the DSL compiles for."""
        shape = tuple(dsl.sym_int() for _ in range(self.rank))
        stride = tuple(1 if mode == self.unit else dsl.sym_int64(step) for mode, step in enumerate(self.steps))
        return hooks.PLACEHOLDER.get()(DTYPES[self.dtype], shape, stride, assumed_align=self.align)

    def pack(self, tensor: torch.Tensor) -> bytes:
        """Pack the tensor for compiled code: address, 32-bit extents, and 64-bit strides without the unit stride."""
        return _ADDRESS.pack(tensor.data_ptr()) + _pack_layout(self.unit, tensor.shape, tensor.stride())


_ADDRESS = struct.Struct("@P")


@functools.lru_cache(maxsize=4096)
def _pack_layout(unit: int | None, shape: tuple[int, ...], strides: tuple[int, ...]) -> bytes:
    # The leading "P" and the slice afterwards make struct insert the padding that follows an address.
    dynamic_strides = [stride for mode, stride in enumerate(strides) if mode != unit]
    return struct.pack(f"@P{len(shape)}i{len(dynamic_strides)}q", 0, *shape, *dynamic_strides)[_ADDRESS.size :]


@functools.lru_cache(maxsize=4096)
def _tensor_kind(
    name: str, dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...], address: int
) -> TensorKind:
    """Return a tensor's kind. It is cached, because computing it takes longer than a small kernel runs.

    address: The address modulo WIDEST_ACCESS, so that the cache holds few entries.
    """
    if dtype not in DTYPES:
        raise TypeError(f"{name} has dtype {dtype}, which no kernel takes")
    if max(shape, default=0) > MAX_EXTENT:
        raise ValueError(f"{name} has {max(shape)} elements in a row; {MAX_EXTENT} is the most")
    # Several modes have stride 1 where an extent is 1: the last of them counts.
    unit = next((mode for mode in reversed(range(len(shape))) if strides[mode] == 1), None)
    widest = WIDEST_ACCESS // dtype.itemsize
    steps = tuple(widest if mode == unit else _power_of_two_in(stride, widest) for mode, stride in enumerate(strides))
    return TensorKind(dtype, len(shape), unit, _power_of_two_in(address, WIDEST_ACCESS), steps)


def _power_of_two_in(number: int, limit: int) -> int:
    """Return the largest power of two that divides a number, but at most `limit`, which is a power of two."""
    bits = number | limit
    return bits & -bits


@dataclass(frozen=True)
class Constant:
    """An argument for a parameter annotated `cutlass.Constexpr`."""

    value: Any


Kind = TensorKind | Constant | type


@functools.cache
def _parameters(host: Callable[..., None]) -> dict[str, bool]:
    """Return for each parameter's name whether the parameter is compiled in."""
    parameters = inspect.signature(host, eval_str=True).parameters.values()
    return {
        parameter.name: hooks.CONSTEXPR.get() in (parameter.annotation, get_origin(parameter.annotation))
        for parameter in parameters
    }


def _kinds(host: Callable[..., None], args: Sequence[Argument]) -> tuple[Kind, ...]:
    parameters = _parameters(host)
    if len(args) != len(parameters):
        raise TypeError(f"{host.__name__} takes {len(parameters)} arguments, {len(args)} were given")
    return tuple(_kind(name, constant, arg) for (name, constant), arg in zip(parameters.items(), args, strict=True))


def _kind(name: str, constant: bool, arg: Argument) -> Kind:
    if constant:
        return Constant(arg)
    if isinstance(arg, torch.Tensor):
        return TensorKind.of(arg, name)
    if isinstance(arg, (int, float, CUstream)):
        # Numbers are passed at the launch, so only their type is compiled in.
        return type(arg)
    raise TypeError(f"{name} is a {type(arg).__name__}; a kernel takes tensors, ints and floats")


def _placeholder(kind: Kind) -> Any:
    if isinstance(kind, TensorKind):
        return kind.placeholder()
    return kind.value if isinstance(kind, Constant) else kind(0)


def _compile(host: Callable[..., None], kinds: Sequence[Kind], arch: str) -> Any:
    """Compile a host function with its kernels.

    Raises CompileError, and frontends.Unavailable if the DSL does not compile for the architecture.
    """
    if arch not in hooks.ARCH.get().__members__:
        raise frontends.Unavailable(f"the CuTe DSL does not compile for {arch}")
    with tempfile.TemporaryDirectory() as folder:
        options = f"--gpu-arch {arch} --generate-line-info --keep-ptx --dump-dir {folder}"
        try:
            with frontends.compiling(), cached_passes(Path(folder)):
                return dsl.compile(host, *map(_placeholder, kinds), options=options)
        except Changed:
            raise
        except Exception as error:
            if isinstance(error, NotImplementedError) and not _raised_by_dsl(error):  # a stub's
                raise
            # Without the colors of a terminal.
            raise CompileError(re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip()) from error


def _raised_by_dsl(error: Exception) -> bool:
    raised_in = traceback.extract_tb(error.__traceback__)[-1].filename
    return Path(raised_in).is_relative_to(Path(cutlass.__file__).parent)


def _compile_for_cpu(host: Callable[..., None], kinds: Sequence[Kind], arch: str) -> Any:
    try:
        return _compile(host, kinds, arch)
    except CompileError as refused:
        by_capability = sorted(TARGETS.values(), key=lambda target: target.capability)
        for later in (target.name for target in by_capability if target.capability > TARGETS[arch].capability):
            # The suffix means that the kernel uses features of one architecture alone, so each has to be tried.
            try:
                _compile(host, kinds, later)
            except CompileError:
                continue
            raise frontends.Unavailable(
                f"{host.__name__} compiles for {later} but not for {arch}; not run: give kp check --arch {later}"
            ) from refused
        raise


@functools.cache
def _program(host: Callable[..., None], kinds: tuple[Kind, ...], arch: str, on_gpu: bool) -> Host:
    functions = _names_around(host)
    if on_gpu:
        return GpuHost(_compile(host, kinds, arch), functions)
    return CpuHost(_compile_for_cpu(host, kinds, arch), functions)


def _names_around(host: Callable[..., None]) -> list[str]:
    """Return the names of a host function's module, and of its class for a method or a callable object."""
    function = inspect.unwrap(host)
    if not inspect.isroutine(function):
        function = inspect.unwrap(type(host).__call__)
    return [*function.__globals__, *dir(getattr(host, "__self__", host))]


def _packed(kind: Kind, arg: Argument) -> Any:
    return Packed(kind.pack(arg)) if isinstance(kind, TensorKind) and isinstance(arg, torch.Tensor) else arg
