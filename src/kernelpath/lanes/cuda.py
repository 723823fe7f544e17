"""CUDA C++: from a `.cu` file to a launch, on a GPU or on the PTX machine.

    from kernelpath.lanes import cuda

    add = cuda.kernel("w01b_vector_add.cu", "vector_add<float4>")
    add[blocks, threads](x, y, out, x.numel())

NVRTC compiles the file for the device of the tensors: to a cubin for a GPU, where cuda.core launches it on torch's
current stream; to PTX for the CPU, where `kernelpath.simt` runs it. The result is kept in a cache on disk, so the
same source, options and architecture are compiled once.
"""

from __future__ import annotations

import ctypes
import os
import sys
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from kernelpath import lanes
from kernelpath.device import api
from kernelpath.device.api import Ran
from kernelpath.files import source_text
from kernelpath.lanes.arguments import C_TYPES, Dim3, Value, checked, configuration, is_tensor, of_another_type
from kernelpath.lanes.declarations import Parameter, base_name, declared_parameters, kernel_line, ptx_types
from kernelpath.lanes.nvrtc import Binary, CompileError, KernelNotFound, compile_kernel, device_architecture

if TYPE_CHECKING:
    import torch

__all__ = ["CPU_ARCHITECTURE", "CompileError", "Kernel", "KernelNotFound", "compile_kernel", "kernel"]

CPU_ARCHITECTURE = "compute_80"
"""What the PTX machine runs."""


def kernel(
    path: str | os.PathLike[str], name: str, options: tuple[str, ...] = (), *, cooperative: bool = False
) -> Kernel:
    """The kernel `name` of a CUDA C++ file, to be launched as `kernel[grid, block, shared_bytes](*arguments)`.

    path: a relative path starts at the directory of the calling file. name: as a C++ expression, with its template
    arguments: "softmax<float, 4>". options: further NVRTC options. The file is read now and compiled at the first
    launch. Calling this again is cheap: an unchanged file gives the same Kernel.

    cooperative: launch as cudaLaunchCooperativeKernel does: all blocks are resident together, as grid.sync() of
    cooperative_groups needs it. A grid of more blocks than the GPU holds at once is refused (a block on each
    multiprocessor always fits: 108 on the PTX machine). In any other launch what grid.sync() does is undefined; the PTX
    machine stops there.

    Raises FileNotFoundError when there is no such file.
    """
    beside = sys._getframe(1).f_globals.get("__file__", "")
    file = os.path.join(os.path.dirname(beside), path)
    try:
        changed_ns = os.stat(file).st_mtime_ns
    except FileNotFoundError as error:
        raise FileNotFoundError(f"there is no {path} beside {os.path.basename(beside)}") from error
    return _kernel(file, changed_ns, name, tuple(options), cooperative)


def read_ahead(path: Path) -> None:
    """Read a source now, so that a process which may not read it later can still name its kernels."""
    _source(str(path.resolve()), path.stat().st_mtime_ns)


@cache
def _kernel(file: str, changed_ns: int, name: str, options: tuple[str, ...], cooperative: bool) -> Kernel:
    path = str(Path(file).resolve())
    return Kernel(path, _source(path, changed_ns), name, options, cooperative)


@cache
def _source(path: str, changed_ns: int) -> str:
    return source_text(Path(path))


class Kernel:
    """A kernel of a CUDA C++ source; `kernel[grid, block]` or `kernel[grid, block, shared_bytes]` launches it."""

    def __init__(
        self, file: str, source: str, name: str, options: tuple[str, ...] = (), cooperative: bool = False
    ) -> None:
        self.file = file
        self.source = source
        self.name = name
        self.base_name = base_name(name)
        self.options = options
        self.cooperative = cooperative
        self._launchers: dict[tuple[Any, ...], _Launcher] = {}
        self._binaries: dict[str, Binary] = {}
        self._loaded: dict[int, _Loaded] = {}

    def __repr__(self) -> str:
        return f"<kernel {self.name} of {self.file}>"

    def __call__(self, *_: Any) -> NoReturn:
        raise TypeError(f"launch {self.base_name} with a grid and a block: kernel[blocks, threads](…)")

    def __getitem__(self, launch: tuple[Any, ...]) -> _Launcher:
        """The kernel with its launch configuration: (grid, block) or (grid, block, dynamic shared bytes).

        grid, block: an integer or a sequence of up to three, in blocks and in threads. Raises ValueError for anything
        else.
        """
        with suppress(TypeError):  # a grid that is a list has no hash
            if launcher := self._launchers.get(launch):
                return launcher
        key = configuration(launch)
        launcher = self._launchers.setdefault(key, _Launcher(self, *key))
        with suppress(TypeError):
            self._launchers[launch] = launcher
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
        ran = Ran(0)
        if device.type == "cuda":
            self.kernel.loaded(device.index).launch(self, arguments)
        else:
            ran = self._run_on_cpu(arguments)
        lanes.record(lanes.Launched("cuda", self.kernel.base_name, str(device), arguments, ran.cost, ran.launch))

    def _run_on_cpu(self, arguments: tuple[Any, ...]) -> Ran:
        binary = self.kernel.binary(CPU_ARCHITECTURE)
        parameters = self.kernel.parameters(CPU_ARCHITECTURE)
        values = checked(self.kernel.base_name, parameters, arguments)
        for said in of_another_type(parameters, arguments):
            _warn(said, self.kernel)
        module = api.device().load(binary.ptx, self.kernel.file)
        with lanes.compiling():
            module.compile(binary.mangled)
        named = zip(parameters, arguments, strict=True)
        return module.launch(
            binary.mangled,
            grid=self.grid,
            block=self.block,
            shared=self.shared,
            arguments=[a if is_tensor(a) else value for a, value in zip(arguments, values, strict=True)],
            tensors=[(parameter.name, argument) for parameter, argument in named if is_tensor(argument)],
            cooperative=self.kernel.cooperative,
        )


_WARNED: dict[Any, Any] = {}
"""What warnings were given, each once."""


def _warn(said: str, kernel: Kernel) -> None:
    """At the kernel's head."""
    line = kernel_line(kernel.source, kernel.base_name)
    warnings.warn_explicit(said, UserWarning, Path(kernel.file).name, line, registry=_WARNED)


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
        self.shared_limit = 0
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

        values = checked(self.kernel.base_name, self.parameters, arguments)
        with self.device_guard:
            if any(isinstance(value, bytes) for value in values):
                return self._launch_with_structs(launcher, values)
            packed = [c_type(value) for c_type, value in zip(self.c_types, values, strict=True)]
            configuration = self.configurations.get(launcher) or self._configure(launcher)
            core.launch(self._stream(), configuration, self.function, *packed)

    def _launch_with_structs(self, launcher: _Launcher, values: list[Value]) -> None:
        """Through the driver, which takes any bytes for an argument."""
        from cuda.bindings import driver

        self._configure(launcher)
        packed = [
            (ctypes.c_uint8 * len(value))(*value)
            if isinstance(value, bytes)
            else C_TYPES.get(parameter.type, ctypes.c_void_p)(value)
            for parameter, value in zip(self.parameters, values, strict=True)
        ]
        addresses = (ctypes.c_void_p * len(packed))(*map(ctypes.addressof, packed))
        function = driver.CUfunction(int(self.function.handle))
        stream = driver.CUstream(self.current_stream(self.index))
        configuration = (*launcher.grid, *launcher.block, launcher.shared)
        if self.kernel.cooperative:
            (status,) = driver.cuLaunchCooperativeKernel(function, *configuration, stream, ctypes.addressof(addresses))
        else:
            (status,) = driver.cuLaunchKernel(function, *configuration, stream, ctypes.addressof(addresses), 0)
        if status != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"the launch of {self.kernel.name}: {status.name}")

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
            grid=launcher.grid,
            block=launcher.block,
            shmem_size=launcher.shared,
            is_cooperative=self.kernel.cooperative,
        )
        return self.configurations[launcher]

    def _allow_shared(self, nbytes: int) -> None:
        """Past 48 KiB, static and dynamic together, a kernel gets no shared memory that was not asked for."""
        from cuda.bindings import driver

        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        (status,) = driver.cuKernelSetAttribute(attribute, nbytes, self.function.handle, self.index)
        if status != driver.CUresult.CUDA_SUCCESS:
            raise ValueError(f"{self.kernel.name} asks for {nbytes} bytes of shared memory, more than this GPU has")
        self.shared_limit = nbytes


def _device(kernel: Kernel, arguments: tuple[Any, ...]) -> torch.device:
    devices = {argument.device for argument in arguments if hasattr(argument, "data_ptr")}
    if len(devices) != 1:
        found = " and ".join(sorted(map(str, devices))) or "no tensor"
        raise ValueError(f"{kernel.base_name} needs its tensors on one device, got {found}")
    device: torch.device = devices.pop()
    if device.type not in ("cuda", "cpu"):
        raise lanes.Unavailable(f"CUDA C++ runs on cuda and cpu tensors, not on {device.type}")
    return device
