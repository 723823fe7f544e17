"""Compile the kernel of week 30 in Helion, TileLang, or cuTile for Hopper (sm_90a), without a GPU.

`python -m kernelpath.show.tile_compilers LANGUAGE SOURCE RESULT` writes the PTX and the launch to RESULT, as JSON.
`tile_languages.run_compiler` starts this process, so that the compilers change nothing in a notebook's process.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

import warpcheck
from kernelpath.show.tile_languages import SIZES, CompiledKernel, KernelArgument, source_digest
from kernelpath.verdict import encode
from warpcheck import backend, elf
from warpcheck.backend import Device, Dim3, LaunchResult, Module
from warpcheck.frontends import host_program
from warpcheck.packages import version

if TYPE_CHECKING:
    from warpcheck.backend import Argument

ARCHITECTURE = "sm_90a"

# The extent of a tile of a, b, and out along each axis, which is in the sources.
TILE = 64


def compile_helion(path: Path) -> CompiledKernel:
    """Run Helion's kernel on the PTX machine, and take the launch from there."""
    recorder = _LaunchRecorder(backend.device())
    m, n, k = SIZES
    with warpcheck.gpu(ARCHITECTURE):
        a, b, bias = (torch.zeros(shape, dtype=torch.bfloat16, device="cuda") for shape in ((m, k), (n, k), (n,)))
        backend.use(recorder)
        out = _load(path).linear_relu(a, b, bias)
    (launch,) = recorder.launches
    names = {tensor.data_ptr(): name for name, tensor in (("a", a), ("b", b), ("bias", bias), ("out", out))}
    arguments = tuple(_describe_argument(argument, names) for argument in launch.arguments)
    memory = [value for value in launch.arguments if isinstance(value, torch.Tensor) and value.data_ptr() not in names]
    versions = f"Helion {version('helion')}, Triton {version('triton')}"
    return CompiledKernel(
        "Helion",
        versions,
        source_digest(path.read_text(encoding="utf-8")),
        launch.name,
        launch.grid,
        launch.block[0],
        launch.shared,
        arguments,
        sum(scratch.nbytes for scratch in memory),
        _without_debug_information(launch.ptx),
    )


@dataclass(frozen=True)
class _RecordedLaunch:
    ptx: str
    name: str
    grid: Dim3
    block: Dim3
    shared: int
    arguments: Sequence[Argument]


class _LaunchRecorder:
    """A device that passes everything on to another device, and keeps the launches."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.launches: list[_RecordedLaunch] = []

    def load(self, text: str, source: str | None = None) -> Module:
        return _RecordedModule(self._device.load(text, source), text, self.launches)


class _RecordedModule:
    def __init__(self, module: Module, ptx: str, launches: list[_RecordedLaunch]) -> None:
        self._module = module
        self._ptx = ptx
        self._launches = launches

    @property
    def kernels(self) -> Mapping[str, Any]:
        return self._module.kernels

    def compile(self, name: str) -> None:
        self._module.compile(name)

    def launch(
        self, name: str, *, grid: Dim3, block: Dim3, shared: int, arguments: Sequence[Argument], **options: Any
    ) -> LaunchResult:
        self._launches.append(_RecordedLaunch(self._ptx, name, grid, block, shared, arguments))
        return self._module.launch(name, grid=grid, block=block, shared=shared, arguments=arguments, **options)


def _describe_argument(argument: Argument, names: Mapping[int, str]) -> KernelArgument:
    if isinstance(argument, torch.Tensor):
        return KernelArgument(names.get(argument.data_ptr(), "scratch"))
    if not isinstance(argument, int):
        raise TypeError(f"a launch with {argument!r} among its arguments cannot be recorded")
    return KernelArgument(value=argument)


# The values of cuTensorMapEncodeTiled's enumerations (cuda.h): the data type bfloat16; the swizzles by their bytes; no
# interleave, L2 promotion by 128 bytes, zeros outside of the tensor, as `cuda.tensor_map` encodes them.
_BFLOAT16 = 9
_SWIZZLES = {0: 0, 1: 32, 2: 64, 3: 128}
_INTERLEAVE_NONE, _PROMOTION_128B, _FILL_ZEROS = 0, 2, 0


def compile_tilelang(path: Path) -> CompiledKernel:
    """Lower TileLang's kernel to CUDA C++, and compile that with nvcc."""
    tilelang: Any = import_module("tilelang")
    target = tilelang.tvm.target.Target({"kind": "cuda", "arch": ARCHITECTURE})
    with target:
        artifact = tilelang.lower(_load(path).linear_relu(*SIZES), target=target)
    ((_, host),) = artifact.host_mod.functions.items()
    ((_, device),) = artifact.device_mod.functions.items()
    # The host function has the arguments of cuTensorMapEncodeTiled for each parameter that is a tensor map.
    maps = dict(host.attrs["tma_descriptor_args"]) if "tma_descriptor_args" in host.attrs else {}
    maps = {variable.name: _describe_map(arguments) for variable, arguments in maps.items()}
    extents = {axis: int(extent) for axis, extent in device.attrs["thread_extent"].items()}
    return CompiledKernel(
        "TileLang",
        f"TileLang {version('tilelang')}, nvcc {version('nvidia-cuda-nvcc')}",
        source_digest(path.read_text(encoding="utf-8")),
        str(device.attrs["global_symbol"]),
        (extents["blockIdx.x"], extents.get("blockIdx.y", 1), extents.get("blockIdx.z", 1)),
        extents["threadIdx.x"],
        int(device.attrs["dyn_shared_memory_buf"]) if "dyn_shared_memory_buf" in device.attrs else 0,
        tuple(maps.get(variable.name) or KernelArgument(variable.name) for variable in device.params),
        ptx=_without_debug_information(_ptx_of_cuda(artifact.kernel_source, Path(tilelang.__file__).parent)),
    )


def _describe_map(arguments: Sequence[Any]) -> KernelArgument:
    """Describe a tensor map from TileLang's arguments.

    These are a function's name, the map, data type, rank and address, then extents, strides, box and element strides
    with the contiguous axis first, then interleave, swizzle, promotion and fill.
    """
    _, _, data_type, rank, tensor, *numbers = arguments
    rank = int(rank)
    *shapes, interleave, swizzle, promotion, fill = (int(number) for number in numbers)
    box, steps = shapes[2 * rank : 3 * rank], shapes[3 * rank : 4 * rank]
    fixed = (int(data_type), steps, interleave, promotion, fill)
    if fixed != (_BFLOAT16, [1] * rank, _INTERLEAVE_NONE, _PROMOTION_128B, _FILL_ZEROS):
        raise ValueError(f"a tensor map with {fixed} cannot be recorded")
    return KernelArgument(tensor.name, tuple(box[::-1]), _SWIZZLES[swizzle])


def _ptx_of_cuda(source: str, package: Path) -> str:
    """Compile CUDA C++ that includes the headers of TileLang, whose folder is `package`."""
    nvcc = host_program.nvcc()
    toolkit = Path(nvcc).parents[1] / "include"
    folders = [package / "src", package / "3rdparty" / "cutlass" / "include", toolkit, toolkit / "cccl"]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernel.cu").write_text(source, encoding="utf-8")
        command = [nvcc, "-ptx", "-w", "-std=c++17", f"-arch={ARCHITECTURE}", "-o", "kernel.ptx", "kernel.cu"]
        subprocess.run([*command, *(f"-I{each}" for each in folders)], cwd=folder, check=True)
        return (Path(folder) / "kernel.ptx").read_text(encoding="utf-8")


def compile_cutile(path: Path) -> CompiledKernel:
    """Compile cuTile's kernel with tileiras, and take the PTX from the debug information of the cubin.

    cuTile's launcher encodes a tensor map for each tensor and passes it in a parameter that the source does not have.
    The arguments here are maps that fit the PTX: boxes of a tile, and for the tiles of two axes the swizzle of 128
    bytes that the matrix descriptors of its wgmma have.
    """
    ct = import_module("cuda.tile")
    compilation = import_module("cuda.tile.compilation")

    def describe(rank: int) -> Any:
        # ct.launch assumes the same of the tensors of SIZES: contiguous, aligned, extents divisible by 16.
        return compilation.ArrayConstraint(
            ct.bfloat16,
            rank,
            index_dtype=ct.int32,
            stride_lower_bound_incl=0,
            alias_groups=[],
            may_alias_internally=False,
            stride_constant=[None] * (rank - 1) + [1],
            stride_divisible_by=[16] * (rank - 1) + [1],
            shape_divisible_by=16,
            base_addr_divisible_by=16,
        )

    name = "linear_relu"
    m, n, k = SIZES
    shapes = {"a": (m, k), "b": (n, k), "bias": (n,), "out": (m, n)}
    signature = compilation.KernelSignature(
        [*(describe(len(shape)) for shape in shapes.values()), compilation.ConstantConstraint(TILE)],
        compilation.CallingConvention.cutile_python_v1(),
        symbol=name,
    )
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernel.cubin"
        # The name of the architecture has no "a": every Hopper GPU has the instructions of sm_90a.
        compilation.export_kernel(
            _load(path).linear_relu, [signature], str(cubin), gpu_code=ARCHITECTURE.rstrip("a"), output_format="cubin"
        )
        ptx, shared_bytes = _with_dynamic_shared_memory(_ptx_of_cubin(cubin.read_bytes()))
    arguments = []
    for tensor, shape in shapes.items():
        # A tensor has its address, its extents, and its strides.
        strides = torch.empty(shape).stride()
        arguments += [KernelArgument(tensor), *(KernelArgument(value=number) for number in (*shape, *strides))]
    for tensor, shape in shapes.items():
        arguments.append(KernelArgument(tensor, (TILE,) * len(shape), 128 if len(shape) > 1 else 0))
    return CompiledKernel(
        "cuTile",
        f"cuda-tile {version('cuda-tile')}, tileiras {version('nvidia-cuda-tileiras')}",
        source_digest(path.read_text(encoding="utf-8")),
        name,
        (m // TILE, n // TILE, 1),
        int(re.findall(r"\.reqntid (\d+)", ptx)[0]),
        shared_bytes,
        tuple(arguments),
        ptx=ptx,
    )


def _ptx_of_cubin(cubin: bytes) -> str:
    """Return the PTX that a cubin with line information has in its section .nv_debug_ptx_txt.

    Each line ends in a zero byte. The kernel is followed by the source of the intermediate representation. The
    directives .hidden and .language, which the PTX ISA manual does not have, change no instruction and are left out.
    """
    (text,) = (section.content for section in elf.sections(cubin) if section.name == ".nv_debug_ptx_txt")
    ptx = text.decode().replace("\0", "\n").partition(".nv_intermediate_source_section")[0]
    return re.sub(r"^\.hidden\s+|^\.language .*\n", "", _without_debug_information(ptx), flags=re.MULTILINE)


def _with_dynamic_shared_memory(ptx: str) -> tuple[str, int]:
    """Make the kernel's static shared memory dynamic, and return its bytes.

    tileiras assembles kernels with more than 48 KiB of static shared memory; ptxas, and drivers that get PTX, refuse
    them.
    """
    (declaration,) = re.finditer(r"^\.shared (\.align \d+ \.b8 \w+)\[(\d+)\];\n", ptx, re.MULTILINE)
    ptx = ptx.replace(declaration[0], "")
    return ptx.replace(".visible .entry", f".extern .shared {declaration[1]}[];\n.visible .entry", 1), int(
        declaration[2]
    )


def _without_debug_information(ptx: str) -> str:
    """Return PTX without places in the source, comments, and empty lines."""
    ptx = re.sub(r"^\s*\.section\s+\.debug\w*\s*\{[^}]*\}", "", ptx, flags=re.MULTILINE)
    ptx = re.sub(r"^\s*\.(?:loc|file)\s.*$|//.*$", "", ptx, flags=re.MULTILINE)
    return "\n".join(line.rstrip() for line in ptx.splitlines() if line.strip()) + "\n"


def _load(path: Path) -> ModuleType:
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = module_from_spec(spec)
    sys.modules[path.stem] = module  # where compilers look for the globals of a function
    spec.loader.exec_module(module)
    return module


COMPILERS = {"Helion": compile_helion, "TileLang": compile_tilelang, "cuTile": compile_cutile}


def main(language: str, source: str, result: str) -> None:
    """Compile a source, and write the kernel to a file."""
    # A cache would be in the home directory, and Helion would look for tuned configurations there.
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        kernel = COMPILERS[language](Path(source))
    Path(result).write_text(encode(kernel), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
