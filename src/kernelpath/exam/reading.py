"""Run the kernels of checks/<phase>/reading/ on the PTX machine, which gives the answers of the reading tasks.

The first line of a kernel's file is its launch, with an argument for each parameter, of CUDA C++ or of Triton:

    // Launch: <<<4, (32, 8)>>> float x[1024], float out[1024], int n = 1000
    // Launch on sm_90a: <<<1, 64>>> float x[256], float out[256]
    # Launch: [4] float x[1024], float out[1024], int n = 1000, BLOCK = 256, num_warps = 4

A kernel that ends in a fault is a task to find the fault. The counters of any other kernel are a "picture", and the
task is to find the kernel of a picture among those whose file names begin alike (copy_, tile_). No answer is typed by
hand.
"""

from __future__ import annotations

import os
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kernelpath.course import registry
from kernelpath.course.errors import DeclarationError
from warpcheck import simt
from warpcheck.counters import by_access
from warpcheck.frontends import cuda
from warpcheck.hooks import triton as hooks
from warpcheck.layout import Access
from warpcheck.simt import Fault, FaultKind

# The names that learners use for the kinds of faults.
FAULT_NAMES = {
    FaultKind.RACE: "race",
    FaultKind.OUT_OF_BOUNDS: "bounds",
    FaultKind.UNINITIALIZED: "uninitialized",
    FaultKind.BARRIER: "barrier",
    FaultKind.MISALIGNED: "misaligned",
    FaultKind.UNFENCED: "unfenced",
}

# The number of kernels among which learners find the kernel of a picture.
CANDIDATES = 4

# The name of the buffer that is uninitialized before the launch.
OUTPUT = "out"

_LAUNCH = re.compile(r"(?:// Launch(?: on (sm_90a))?: <<<([^>]+)>>>|# Launch: (\[[^]]+\])) (.+)")
_BUFFER = re.compile(r"(float|int) (\w+)\[(\d+)\]")
_NUMBER = re.compile(r"int (\w+) = (-?\d+)")
_CONSTANT = re.compile(r"(\w+) = (\d+)")
_OTHER_LINE = re.compile(r" in (?:line (\d+)|the same line)")
_VERBS = {Access.LOAD: "load", Access.STORE: "store", Access.ATOMIC: "atomic"}


@dataclass(frozen=True)
class AccessSummary:
    """The sum of a kernel's loads from, or stores to, one buffer or one variable in shared memory.

    Attributes:
        cost: The sectors of global memory, or the wavefronts of shared memory, of all requests.
    """

    memory: str
    access: str
    shared: bool
    requests: int
    cost: int

    @property
    def per_request(self) -> str:
        cost = f"{self.cost / self.requests:.3g}"
        return f"{cost} {'wavefront' if self.shared else 'sector'}{'' if cost == '1' else 's'}"


@dataclass(frozen=True)
class _LaunchConfig:
    """The parsed first line of a file.

    Attributes:
        constants: The constexpr arguments of a Triton kernel, with num_warps.
    """

    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: Mapping[str, npt.NDArray[np.generic] | int]
    constants: Mapping[str, int]
    shared: int = 0
    architecture: str = cuda.CPU_ARCHITECTURE


Picture = tuple[AccessSummary, ...]


@dataclass(frozen=True)
class ExecutedKernel:
    """A kernel with its fault, which has a kind and lines, or with its picture."""

    path: Path
    source: str
    kind: str = ""
    lines: frozenset[int] = frozenset()
    message: str = ""
    picture: Picture = ()

    @property
    def family(self) -> str:
        return self.path.stem.partition("_")[0]


@dataclass(frozen=True)
class KernelPool:
    """The kernels of a phase."""

    faults: tuple[ExecutedKernel, ...]
    families: Mapping[str, tuple[ExecutedKernel, ...]]

    def sample_faults(self, count: int, seed: int) -> list[ExecutedKernel]:
        return random.Random(seed).sample(self.faults, count)

    def sample_pictures(self, count: int, seed: int) -> list[tuple[ExecutedKernel, list[ExecutedKernel]]]:
        """Sample kernels without replacement, each with CANDIDATES kernels of its family in random order.

        No two candidates have the same picture.
        """
        rng = random.Random(seed)
        tasks: list[tuple[ExecutedKernel, list[ExecutedKernel]]] = []
        # A family is listed once for each of its kernels. So every kernel is equally likely, and no family is sampled
        # more often than it has kernels.
        for family in rng.sample([name for name in self.families for _ in self.families[name]], count):
            remaining = [
                other_kernel
                for other_kernel in self.families[family]
                if all(other_kernel is not kernel for kernel, _ in tasks)
            ]
            kernel = rng.choice(remaining)
            kernels_by_picture = {
                other_kernel.picture: other_kernel
                for other_kernel in self.families[family]
                if other_kernel.picture != kernel.picture
            }
            candidates = [kernel, *rng.sample(list(kernels_by_picture.values()), CANDIDATES - 1)]
            rng.shuffle(candidates)
            tasks.append((kernel, candidates))
        return tasks


@lru_cache
def load_pool(folder: Path) -> KernelPool:
    """Run the kernels in a folder. An empty folder gives an empty pool. Raises DeclarationError."""
    kernels = [run_kernel(path) for path in kernel_files(folder)]
    families: dict[str, tuple[ExecutedKernel, ...]] = defaultdict(tuple)
    for kernel in kernels:
        if not kernel.kind:
            families[kernel.family] += (kernel,)
    return KernelPool(tuple(kernel for kernel in kernels if kernel.kind), families)


def kernel_files(folder: Path) -> list[Path]:
    """Return the paths of the kernels in a folder."""
    return sorted(path for path in folder.glob("*") if path.suffix in (".cu", ".py"))


def run_kernel(path: Path, *, reverse: bool = False) -> ExecutedKernel:
    """Run one kernel of the pool. Raises DeclarationError.

    Args:
        reverse: Run the last block and the last warp first.
    """
    source = path.read_text("utf-8")
    try:
        config = _parse_launch(path, source.splitlines()[0])
        module, name, config = (_compile_triton if path.suffix == ".py" else _compile_cuda)(path, source, config)
        arrays = {
            parameter: argument for parameter, argument in config.arguments.items() if isinstance(argument, np.ndarray)
        }
        buffers = [
            simt.Buffer(parameter, argument.ctypes.data, argument.nbytes, 4, parameter != OUTPUT, str(argument.dtype))
            for parameter, argument in arrays.items()
        ]
        values = [
            argument.ctypes.data if isinstance(argument, np.ndarray) else argument
            for argument in config.arguments.values()
        ]
        values += [0] * (
            len(module.kernels[name].params) - len(values)
        )  # the scratch pointers that Triton appends to each kernel's parameters
        launch = module.launch(
            name,
            grid=config.grid,
            block=config.block,
            shared=config.shared,
            args=values,
            buffers=buffers,
            reverse=reverse,
        )
    except Fault as fault:
        # An answer names both accesses. The message about a barrier names the branches that led past it as well, which
        # are no part of the answer.
        others = [] if fault.kind is FaultKind.BARRIER else _OTHER_LINE.findall(fault.message)
        other_lines = {int(line or fault.line) for line in others}
        return ExecutedKernel(
            path, source, FAULT_NAMES[fault.kind], frozenset({fault.line, *other_lines}), fault.message
        )
    except (cuda.CompileError, simt.Unsupported, simt.TimedOut, ValueError, LookupError) as error:
        raise DeclarationError(f"{path} cannot be run: {error}; fix it") from error
    return ExecutedKernel(path, source, picture=_summarize_accesses(launch))


def _compile_cuda(path: Path, source: str, config: _LaunchConfig) -> tuple[simt.Module, str, _LaunchConfig]:
    binary = cuda.compile_kernel(source, path.name, "kernel", config.architecture)
    return simt.load(binary.ptx, path.name), binary.mangled, config


def _compile_triton(path: Path, source: str, config: _LaunchConfig) -> tuple[simt.Module, str, _LaunchConfig]:
    constants = dict(config.constants)
    warps = constants.pop("num_warps", 4)
    types = {
        name: f"*{'fp32' if argument.dtype == np.float32 else 'i32'}" if isinstance(argument, np.ndarray) else "i32"
        for name, argument in config.arguments.items()
    }
    compiled = compile_kernel(path, types, constants, warps)
    return (
        simt.load(compiled.ptx, path.name),
        compiled.name,
        replace(config, block=(compiled.threads,), shared=compiled.shared),
    )


def number_lines(source: str) -> str:
    """Prefix each line with its number."""
    return "\n".join(f"{number:3}  {text}" for number, text in enumerate(source.splitlines(), start=1))


def format_picture(picture: Picture) -> str:
    """Format a picture as a table of text."""
    rows = [("memory", "access", "requests", "per request")]
    rows += [(row.memory, row.access, str(row.requests), row.per_request) for row in picture]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        f"  {cells[0]:<{widths[0]}}  {cells[1]:<{widths[1]}}  {cells[2]:>{widths[2]}}  {cells[3]}".rstrip()
        for cells in rows
    )


def _summarize_accesses(launch: simt.Launch) -> Picture:
    sums: dict[tuple[bool, str, str], list[int]] = defaultdict(lambda: [0, 0])
    # A row of a picture has all accesses to one buffer, whatever lines they are in.
    for access in by_access(launch.accesses):
        total = sums[access.shared, access.buffer, _VERBS[access.access]]
        total[0] += access.requests
        total[1] += access.wavefronts if access.shared else access.sectors
    return tuple(
        AccessSummary(f"{memory} (shared)" if shared else memory, verb, shared, *total)
        for (shared, memory, verb), total in sorted(sums.items())
    )


def _parse_launch(path: Path, first: str) -> _LaunchConfig:
    match = _LAUNCH.fullmatch(first)
    if match is None:
        example = (
            "# Launch: [2] float x[128], BLOCK = 64"
            if path.suffix == ".py"
            else "// Launch: <<<2, 64>>> float x[128], int n = 128"
        )
        raise DeclarationError(f"{path}:1: begin with a line such as {example}")
    dims = [tuple(int(number) for number in re.findall(r"\d+", text)) for text in _split_dims(match[2] or match[3])]
    arguments: dict[str, npt.NDArray[np.generic] | int] = {}
    constants: dict[str, int] = {}
    for text in match[4].split(", "):
        if buffer := _BUFFER.fullmatch(text):
            arguments[buffer[2]] = _aligned_range(int(buffer[3]), np.float32 if buffer[1] == "float" else np.int32)
        elif number := _NUMBER.fullmatch(text):
            arguments[number[1]] = int(number[2])
        elif match[3] and (constant := _CONSTANT.fullmatch(text)):
            constants[constant[1]] = int(constant[2])
        else:
            raise DeclarationError(f"{path}:1: {text!r} is neither like float x[128] nor like int n = 128")
    return _LaunchConfig(dims[0], dims[-1], arguments, constants, architecture=match[1] or cuda.CPU_ARCHITECTURE)


def _aligned_range(count: int, dtype: type[np.generic]) -> npt.NDArray[np.generic]:
    """Return 1, 2, 3 …, aligned to 256 bytes as cudaMalloc aligns device memory."""
    memory = np.zeros(4 * count + 256, np.uint8)
    # Allocate 256 bytes more than needed, and start at the first aligned byte.
    start = -memory.ctypes.data % 256
    values = memory[start : start + 4 * count].view(dtype)
    values[:] = np.arange(1, count + 1)
    return values


def _split_dims(text: str) -> Iterable[str]:
    """Split "4, (32, 8)" into grid and block, and "[4, 2]" into a grid."""
    return re.findall(r"\([^)]*\)|\[[^]]*\]|\d+", text)


@dataclass(frozen=True)
class Ahead:
    """A compiled kernel: its PTX, its name there, the threads of a block, and its bytes of shared memory."""

    ptx: str
    name: str
    threads: int
    shared: int


def compile_kernel(path: Path, signature: Mapping[str, str], constants: Mapping[str, int], warps: int) -> Ahead:
    """Compile the function `kernel` of a file for sm_80.

    Pointers are multiples of 16 bytes, as the addresses of tensors are. Raises ValueError for a kernel that Triton does
    not compile.

    Args:
        signature: Triton's type of each parameter that is not a constant, such as "*fp32" or "i32".
    """
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # Triton 3.9 warns where it is not set
    import triton

    module = registry.import_file(path, path.stem, listed=False)
    types = {**signature, **dict.fromkeys(constants, "constexpr")}
    names = module.kernel.arg_names
    if set(types) != set(names):
        raise ValueError(f"the kernel takes {', '.join(names)}, and the launch gives {', '.join(types)}")
    aligned = {(at,): [["tt.divisibility", 16]] for at, name in enumerate(names) if types[name].startswith("*")}
    source = hooks.AHEAD.get()(module.kernel, {name: types[name] for name in names}, dict(constants), aligned)
    try:
        compiled = triton.compile(source, hooks.TARGET.get()("cuda", 80, 32), {"num_warps": warps})
    except hooks.REFUSED.get() as error:
        raise ValueError(str(error)) from error
    return Ahead(compiled.asm["ptx"], compiled.metadata.name, 32 * warps, compiled.metadata.shared)
