"""CUDA C++: from a `.cu` file to a launch, on a GPU or on the PTX machine.

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
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from warpcheck import backend, frontends, simulated_gpu
from warpcheck.backend import Ran
from warpcheck.frontends.arguments import Dim3, checked, configuration, dim3, is_tensor, of_another_type, tensor_of
from warpcheck.frontends.cuda_gpu import Loaded
from warpcheck.frontends.declarations import Parameter, base_name, declared_parameters, kernel_line, ptx_types
from warpcheck.frontends.nvrtc import Binary, CompileError, KernelNotFound, compile_kernel
from warpcheck.frontends.tensor_map import TensorMap, tensor_map
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
    "kernel",
    "tensor_map",
]

CPU_ARCHITECTURE = "compute_80"
"""What the PTX machine runs where nothing later is declared or asked for."""


def kernel(
    source: str | os.PathLike[str],
    name: str,
    options: tuple[str, ...] = (),
    *,
    cooperative: bool = False,
    cluster: int | tuple[int, ...] | None = None,
) -> Kernel:
    """The kernel `name` of CUDA C++, to be launched as `kernel[grid, block, shared_bytes](*arguments)`.

    source: the path of a file, where a relative path starts at the directory of the calling file; or the source text
    itself, which is whatever contains a line break. name: as a C++ expression, with its template arguments:
    "softmax<float, 4>". options: further NVRTC options. A file is read now and compiled at the first launch. Calling
    this again is cheap: an unchanged source gives the same Kernel.

    cooperative: launch as cudaLaunchCooperativeKernel does: all blocks are resident together, as grid.sync() of
    cooperative_groups needs it. A grid of more blocks than the GPU holds at once is refused (a block on each
    multiprocessor always fits: 108 on the PTX machine). In any other launch what grid.sync() does is undefined; the PTX
    machine stops there.

    cluster: the blocks of a cluster, a number or up to three, of which the grid is a multiple; it still counts blocks.
    A kernel with __cluster_dims__ needs none. Clusters begin with sm_90. Those of more than 8 blocks, 16 at most, are
    not portable: the GPU is told that they are meant.

    Raises FileNotFoundError when there is no such file, and ValueError for a cluster that no GPU has.
    """
    together = None if cluster is None else dim3("cluster", cluster)
    if "\n" in (text := os.fspath(source)):
        return _kernel_of_text(text, name, tuple(options), cooperative, together)
    beside = sys._getframe(1).f_globals.get("__file__", "")
    file = os.path.join(os.path.dirname(beside), source)
    try:
        changed_ns = os.stat(file).st_mtime_ns
    except FileNotFoundError as error:
        raise FileNotFoundError(f"there is no {source} beside {os.path.basename(beside)}") from error
    return _kernel(file, changed_ns, name, tuple(options), cooperative, together)


def read_ahead(path: Path) -> None:
    """Read a source now, so that a process which may not read it later can still name its kernels."""
    _source(str(path.resolve()), path.stat().st_mtime_ns)


@cache
def _kernel(
    file: str, changed_ns: int, name: str, options: tuple[str, ...], cooperative: bool, cluster: Dim3 | None
) -> Kernel:
    path = str(Path(file).resolve())
    return Kernel(path, _source(path, changed_ns), name, options, cooperative, cluster)


@cache
def _kernel_of_text(
    source: str, name: str, options: tuple[str, ...], cooperative: bool, cluster: Dim3 | None
) -> Kernel:
    """Lines in messages count from the first line of the text, as if it were a file named for the kernel."""
    return Kernel(f"{base_name(name)}.cu", source, name, options, cooperative, cluster)


@cache
def _source(path: str, changed_ns: int) -> str:
    return source_text(Path(path))


class Kernel:
    """A kernel of a CUDA C++ source; `kernel[grid, block]` or `kernel[grid, block, shared_bytes]` launches it."""

    def __init__(
        self,
        file: str,
        source: str,
        name: str,
        options: tuple[str, ...] = (),
        cooperative: bool = False,
        cluster: Dim3 | None = None,
    ) -> None:
        self.file = file
        self.source = source
        self.name = name
        self.base_name = base_name(name)
        self.options = options
        self.cooperative = cooperative
        self.cluster = cluster
        self._launchers: dict[tuple[Any, ...], Launcher] = {}
        self._binaries: dict[str, Binary] = {}
        self._loaded: dict[int, Loaded] = {}

    def __repr__(self) -> str:
        return f"<kernel {self.name} of {self.file}>"

    def __call__(self, *_: Any) -> NoReturn:
        raise TypeError(f"launch {self.base_name} with a grid and a block: kernel[blocks, threads](…)")

    def __getitem__(self, launch: tuple[Any, ...]) -> Launcher:
        """The kernel with its launch configuration: (grid, block) or (grid, block, dynamic shared bytes).

        grid, block: an integer or a sequence of up to three, in blocks and in threads. Raises ValueError for anything
        else.
        """
        with suppress(TypeError):  # a grid that is a list has no hash
            if launcher := self._launchers.get(launch):
                return launcher
        key = configuration(launch)
        launcher = self._launchers.setdefault(key, Launcher(self, *key))
        with suppress(TypeError):
            self._launchers[launch] = launcher
        return launcher

    def binary(self, architecture: str) -> Binary:
        """This kernel compiled for an architecture as NVRTC spells it: "sm_90a", "compute_80".

        Raises CompileError or KernelNotFound.
        """
        if architecture not in self._binaries:
            binary = compile_kernel(self.source, self.file, self.name, architecture, self.options)
            sys.audit("warpcheck.compiled", binary.ptx, self.base_name)  # before it is kept: a hook may refuse it
            self._binaries[architecture] = binary
        return self._binaries[architecture]

    def parameters(self, architecture: str) -> tuple[Parameter, ...]:
        """Names from the source and types from the PTX, in order."""
        binary = self.binary(architecture)
        return declared_parameters(self.source, self.base_name, ptx_types(binary.ptx, binary.mangled))

    def loaded(self, index: int) -> Loaded:
        """This kernel on CUDA device `index`, ready to launch."""
        if index not in self._loaded:
            self._loaded[index] = Loaded(self, index)
        return self._loaded[index]


class Launcher:
    """A kernel with grid, block and dynamic shared memory: call it with the kernel's arguments."""

    def __init__(self, kernel: Kernel, grid: Dim3, block: Dim3, shared: int) -> None:
        self.kernel = kernel
        self.grid = grid
        self.block = block
        self.shared = shared

    def __call__(self, *arguments: Any) -> None:
        """Launch. Tensors go to pointer parameters, numbers to the parameter's declared type.

        Raises TypeError for arguments that do not fit the kernel's parameters, ValueError for tensors on more than one
        device, CompileError, KernelNotFound, frontends.Unavailable, and whatever the launch itself raises.
        """
        device = _device(self.kernel, arguments)
        ran = Ran(0)
        if device.type == "cuda":
            self.kernel.loaded(device.index).launch(self, arguments)
        else:
            ran = self._run_on_cpu(arguments)
        name, source = self.kernel.base_name, self.kernel.source
        frontends.record(frontends.Launched("cuda", name, str(device), arguments, ran.cost, ran.launch, source))

    def _run_on_cpu(self, arguments: tuple[Any, ...]) -> Ran:
        architecture = simulated_gpu.target().virtual
        binary = self.kernel.binary(architecture)
        parameters = self.kernel.parameters(architecture)
        values = checked(self.kernel.base_name, parameters, arguments)
        for said in of_another_type(parameters, arguments):
            _warn(said, self.kernel)
        module = backend.device().load(binary.ptx, self.kernel.file)
        with frontends.compiling():
            module.compile(binary.mangled)
        named = ((parameter.name, tensor_of(one)) for parameter, one in zip(parameters, arguments, strict=True))
        return module.launch(
            binary.mangled,
            grid=self.grid,
            block=self.block,
            shared=self.shared,
            arguments=[a if is_tensor(a) else value for a, value in zip(arguments, values, strict=True)],
            tensors=[(name, tensor) for name, tensor in named if tensor is not None],
            cooperative=self.kernel.cooperative,
            cluster=self.kernel.cluster,
        )


_WARNED: dict[Any, Any] = {}
"""What warnings were given, each once."""


def _warn(said: str, kernel: Kernel) -> None:
    """At the kernel's head."""
    line = kernel_line(kernel.source, kernel.base_name)
    warnings.warn_explicit(said, UserWarning, Path(kernel.file).name, line, registry=_WARNED)


def _device(kernel: Kernel, arguments: tuple[Any, ...]) -> torch.device:
    devices = {tensor.device for tensor in map(tensor_of, arguments) if tensor is not None}
    if {device.type for device in devices} == {"cpu"}:
        devices = {devices.pop()}  # of which some have an index; the launch checks that a GPU would have them all
    if not devices and any(isinstance(argument, np.ndarray) for argument in arguments):
        raise TypeError(
            f"{kernel.base_name} is given a NumPy array: pass a torch tensor, as torch.from_numpy makes one"
        )
    if len(devices) != 1:
        found = " and ".join(sorted(map(str, devices))) or "no tensor"
        raise ValueError(f"{kernel.base_name} needs its tensors on one device, got {found}")
    device: torch.device = devices.pop()
    if device.type not in ("cuda", "cpu"):
        raise frontends.Unavailable(f"CUDA C++ runs on cuda and cpu tensors, not on {device.type}")
    return device
