"""Run CUDA C++, from a `.cu` file to a launch, on a GPU or on the PTX machine.

    from warpcheck.frontends import cuda

    add = cuda.kernel("w01b_vector_add.cu", "vector_add<float4>")
    add[blocks, threads](x, y, out, x.numel())

NVRTC compiles the file for the device of the tensors: to a cubin for a GPU, where cuda.core launches it on torch's
current stream; to PTX for the CPU, where `warpcheck.simt` runs it. The result is kept in a cache on disk, so the
same source, options and architecture are compiled once.
"""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from warpcheck import backend, frontends, simulated_gpu
from warpcheck.backend import LaunchResult
from warpcheck.errors import Fault, TimedOut
from warpcheck.frontends.arguments import (
    Dim3,
    convert_arguments,
    describe_dtype_mismatches,
    dim3,
    is_tensor,
    parse_configuration,
    tensor_of,
)
from warpcheck.frontends.cuda_gpu import Loaded
from warpcheck.frontends.declarations import Parameter, base_name, declared_parameters, kernel_line, ptx_types
from warpcheck.frontends.nvrtc import Binary, CompileError, KernelNotFound, compile_kernel
from warpcheck.frontends.tensor_map import TensorMap, im2col_map, tensor_map
from warpcheck.source_text import source_text

if TYPE_CHECKING:
    import torch

__all__ = [
    "CPU_ARCHITECTURE",
    "CompileError",
    "Kernel",
    "KernelNotFound",
    "TensorMap",
    "compile_kernel",
    "im2col_map",
    "kernel",
    "tensor_map",
]

# The architecture that the PTX machine runs by default.
CPU_ARCHITECTURE = "compute_80"


def kernel(
    source: str | os.PathLike[str],
    name: str,
    options: tuple[str, ...] = (),
    *,
    cooperative: bool = False,
    cluster: int | tuple[int, ...] | None = None,
    programmatic_stream_serialization: bool = False,
) -> Kernel:
    """Return a CUDA C++ kernel, to be launched as `kernel[grid, block, shared_bytes](*arguments)`.

    A file is read now and compiled at the first launch. Calling this function again is cheap: an unchanged source
    gives the same Kernel.

    Args:
        source: The path of a file, relative to the directory of the calling file, or the source text itself. A string
            that contains a line break is source text.
        name: The kernel as a C++ expression with its template arguments, such as "softmax<float, 4>".
        options: Further NVRTC options.
        cooperative: Launch as cudaLaunchCooperativeKernel does, with all blocks resident at the same time, as
            grid.sync() of cooperative_groups requires. A grid of more blocks than the GPU holds at once is refused. One
            block on each multiprocessor always fits, which is 108 blocks on the PTX machine. grid.sync() is undefined
            in any other launch, and the PTX machine reports it.
        cluster: The extent of a cluster in blocks, as one to three integers. The grid, which still counts blocks, must
            be a multiple of it. A kernel with __cluster_dims__ needs no `cluster`. Clusters require sm_90. A cluster of
            9 to 16 blocks is not portable; the launch requests it explicitly.
        programmatic_stream_serialization: Launch with cudaLaunchAttributeProgrammaticStreamSerialization: the kernel
            may begin before the kernel in front of it in the stream has ended. It may not access what that kernel
            writes, nor write what that kernel reads, before griddepcontrol.wait, and the PTX machine reports it.
            Requires sm_90.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: No GPU supports the cluster.
    """
    cluster_shape = None if cluster is None else dim3("cluster", cluster)
    attributes = LaunchAttributes(cooperative, cluster_shape, programmatic_stream_serialization)
    if "\n" in (text := os.fspath(source)):
        return _kernel_of_text(text, name, tuple(options), attributes)
    # The file that calls this function: a path is relative to it, and not to the working directory.
    caller_file = sys._getframe(1).f_globals.get("__file__", "")
    file = os.path.join(os.path.dirname(caller_file), source)
    try:
        changed_ns = os.stat(file).st_mtime_ns
    except FileNotFoundError as error:
        raise FileNotFoundError(f"there is no {source} beside {os.path.basename(caller_file)}") from error
    # The time of the last change is part of the cache key, so that an edited file is read again.
    return _kernel(file, changed_ns, name, tuple(options), attributes)


def read_ahead(path: Path) -> None:
    """Read a source now, so that this process can still name its kernels when it may no longer read the file."""
    _source(str(path.resolve()), path.stat().st_mtime_ns)


@cache
def _kernel(file: str, changed_ns: int, name: str, options: tuple[str, ...], attributes: LaunchAttributes) -> Kernel:
    path = str(Path(file).resolve())
    return Kernel(path, _source(path, changed_ns), name, options, attributes)


@cache
def _kernel_of_text(source: str, name: str, options: tuple[str, ...], attributes: LaunchAttributes) -> Kernel:
    """Return a kernel of source text, as if the text were a file with the kernel's name."""
    return Kernel(f"{base_name(name)}.cu", source, name, options, attributes)


@cache
def _source(path: str, changed_ns: int) -> str:
    return source_text(Path(path))


@dataclass(frozen=True)
class LaunchAttributes:
    """The attributes of every launch of a kernel; see `kernel`."""

    cooperative: bool = False
    cluster: Dim3 | None = None
    programmatic_stream_serialization: bool = False


class Kernel:
    """A kernel of a CUDA C++ source, launched by `kernel[grid, block](...)` or `kernel[grid, block, shared](...)`."""

    def __init__(
        self,
        file: str,
        source: str,
        name: str,
        options: tuple[str, ...] = (),
        attributes: LaunchAttributes | None = None,
    ) -> None:
        self.file = file
        self.source = source
        self.name = name
        self.base_name = base_name(name)
        self.options = options
        self.attributes = attributes or LaunchAttributes()
        self._launchers: dict[tuple[Any, ...], Launcher] = {}
        self._binaries: dict[str, Binary] = {}
        self._parameters: dict[str, tuple[Parameter, ...]] = {}
        self._loaded: dict[int, Loaded] = {}
        self._checked_dtypes: set[tuple[Any, ...]] = set()

    def __repr__(self) -> str:
        return f"<kernel {self.name} of {self.file}>"

    def __call__(self, *_: Any) -> NoReturn:
        raise TypeError(f"launch {self.base_name} with a grid and a block: kernel[blocks, threads](…)")

    def __getitem__(self, launch: tuple[Any, ...]) -> Launcher:
        """Return the kernel with a launch configuration: (grid, block) or (grid, block, dynamic shared bytes).

        Grid (in blocks) and block (in threads) are an integer or a sequence of up to three. Raises ValueError for
        anything else.
        """
        # The configuration as written is a second key of the same launcher, to skip the parsing in a loop of launches.
        with suppress(TypeError):  # a grid that is a list has no hash
            if launcher := self._launchers.get(launch):
                return launcher
        key = parse_configuration(launch)
        launcher = self._launchers.setdefault(key, Launcher(self, *key))
        with suppress(TypeError):
            self._launchers[launch] = launcher
        return launcher

    def binary(self, architecture: str) -> Binary:
        """Return this kernel compiled for an architecture of NVRTC, such as "sm_90a" or "compute_80".

        Raises CompileError or KernelNotFound.
        """
        if architecture not in self._binaries:
            binary = compile_kernel(self.source, self.file, self.name, architecture, self.options)
            sys.audit("warpcheck.compiled", binary.ptx, self.base_name)  # before it is kept: a hook may refuse it
            self._binaries[architecture] = binary
        return self._binaries[architecture]

    def parameters(self, architecture: str) -> tuple[Parameter, ...]:
        """Return the parameters in order, with names from the source and types from the PTX."""
        if architecture not in self._parameters:
            binary = self.binary(architecture)
            types = ptx_types(binary.ptx, binary.mangled)
            self._parameters[architecture] = declared_parameters(self.source, self.base_name, types)
        return self._parameters[architecture]

    def check_dtypes(self, parameters: tuple[Parameter, ...], arguments: tuple[Any, ...]) -> None:
        """Warn about each tensor whose dtype differs from the element type of its pointer parameter."""
        # Launches are frequent and their dtypes seldom change, so each combination is checked once.
        dtypes = tuple([getattr(argument, "dtype", None) for argument in arguments])
        if dtypes not in self._checked_dtypes:
            self._checked_dtypes.add(dtypes)
            for message in describe_dtype_mismatches(parameters, arguments):
                _warn(message, self)

    def loaded(self, index: int) -> Loaded:
        """Return this kernel loaded on CUDA device `index`, and load it first if necessary."""
        if index not in self._loaded:
            self._loaded[index] = Loaded(self, index)
        return self._loaded[index]


class Launcher:
    """A kernel with its launch configuration; calling it with the kernel's arguments launches the kernel."""

    def __init__(self, kernel: Kernel, grid: Dim3, block: Dim3, shared: int) -> None:
        self.kernel = kernel
        self.grid = grid
        self.block = block
        self.shared = shared

    def __call__(self, *arguments: Any) -> None:
        """Launch the kernel. Pointer parameters take tensors; numbers are converted to the parameter's type.

        Raises:
            TypeError: The arguments do not fit the kernel's parameters.
            ValueError: The tensors are on more than one device, or the launch is not possible.
            CompileError: The source does not compile.
            KernelNotFound: The source has no kernel of this name.
            frontends.Unavailable: This machine cannot run the kernel.
            simt.Fault: The PTX machine found a fault.
        """
        device = _device(self.kernel, arguments)
        result = LaunchResult(0)
        if simulated_gpu.is_host_memory(device):
            result = self._run_on_cpu(arguments)
        else:
            loaded = self.kernel.loaded(device.index)
            self.kernel.check_dtypes(loaded.parameters, arguments)
            loaded.launch(self, arguments)
        name = self.kernel.base_name
        source = self.kernel.source
        frontends.record(
            frontends.Launched("cuda", name, str(device), arguments, result.known_cost, result.launch, source)
        )

    def _run_on_cpu(self, arguments: tuple[Any, ...]) -> LaunchResult:
        architecture = simulated_gpu.target().virtual
        binary = self.kernel.binary(architecture)
        parameters = self.kernel.parameters(architecture)
        values = convert_arguments(self.kernel.base_name, parameters, arguments)
        self.kernel.check_dtypes(parameters, arguments)
        module = backend.device().load(binary.ptx, self.kernel.file)
        # Compiling ahead keeps the time of compilation apart from that of the launch.
        with frontends.compiling():
            module.compile(binary.mangled)
        named_tensors = (
            (parameter.name, tensor_of(argument)) for parameter, argument in zip(parameters, arguments, strict=True)
        )
        try:
            return module.launch(
                binary.mangled,
                grid=self.grid,
                block=self.block,
                shared=self.shared,
                arguments=[a if is_tensor(a) else value for a, value in zip(arguments, values, strict=True)],
                tensors=[(name, tensor) for name, tensor in named_tensors if tensor is not None],
                cooperative=self.kernel.attributes.cooperative,
                cluster=self.kernel.attributes.cluster,
                programmatic_stream_serialization=self.kernel.attributes.programmatic_stream_serialization,
            )
        except (Fault, TimedOut) as error:
            error.source = self.kernel.source  # a kernel of a text is in no file
            raise


# The registry of warnings that were shown, so that Python shows each once.
_WARNED: dict[Any, Any] = {}


def _warn(message: str, kernel: Kernel) -> None:
    """Show a warning at the line of the kernel's head."""
    line = kernel_line(kernel.source, kernel.base_name)
    warnings.warn_explicit(message, UserWarning, Path(kernel.file).name, line, registry=_WARNED)


def _device(kernel: Kernel, arguments: tuple[Any, ...]) -> torch.device:
    # The tensors decide where the kernel runs, as torch's own operators do.
    devices = {tensor.device for tensor in map(tensor_of, arguments) if tensor is not None}
    if {device.type for device in devices} == {"cpu"}:
        # torch tells "cpu" from "cpu:0". The launch checks whether all tensors would be on one simulated GPU.
        devices = {devices.pop()}
    if not devices and any(isinstance(argument, np.ndarray) for argument in arguments):
        raise TypeError(
            f"{kernel.base_name} is given a NumPy array: pass a torch tensor, as torch.from_numpy makes one"
        )
    if len(devices) > 1:
        device_names = " and ".join(sorted(map(str, devices)))
        raise ValueError(f"{kernel.base_name} needs its tensors on one device, got {device_names}")
    device = devices.pop() if devices else _current_device()
    if device.type not in ("cuda", "cpu"):
        raise frontends.Unavailable(f"CUDA C++ runs on cuda and cpu tensors, not on {device.type}")
    return device


def _current_device() -> torch.device:
    """Return the device of a kernel that gets no tensor, but may get pointers in a struct."""
    import torch

    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
