"""Reading tasks: kernels of checks/<phase>/reading/, whose answers come from the PTX machine when the exam is set.

The first line of a kernel's file is its launch, with an argument for each parameter, of CUDA C++ or of Triton:

    // Launch: <<<4, (32, 8)>>> float x[1024], float out[1024], int n = 1000
    // Launch on sm_90a: <<<1, 64>>> float x[256], float out[256]
    # Launch: [4] float x[1024], float out[1024], int n = 1000, BLOCK = 256, num_warps = 4

The machine runs it. One that ends in a fault is for finding the fault; the counters of one that does not are a picture,
and the kernels whose names begin alike (copy_, tile_) are those that it may have been. No answer is typed in by hand.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kernelpath.course.errors import DeclarationError
from kernelpath.exam import triton_ahead
from warpcheck import simt
from warpcheck.counters import by_access
from warpcheck.frontends import cuda
from warpcheck.layout import Access
from warpcheck.simt import Fault, FaultKind

KINDS = {
    FaultKind.RACE: "race",
    FaultKind.OUT_OF_BOUNDS: "bounds",
    FaultKind.UNINITIALIZED: "uninitialized",
    FaultKind.BARRIER: "barrier",
    FaultKind.MISALIGNED: "misaligned",
    FaultKind.UNFENCED: "unfenced",
}
"""What a learner calls them."""

CHOICES = 4
"""Kernels among which that of a picture is to be found."""

OUTPUT = "out"
"""The buffer that nothing has written before the launch."""

_LAUNCH = re.compile(r"(?:// Launch(?: on (sm_90a))?: <<<([^>]+)>>>|# Launch: (\[[^]]+\])) (.+)")
_BUFFER = re.compile(r"(float|int) (\w+)\[(\d+)\]")
_NUMBER = re.compile(r"int (\w+) = (-?\d+)")
_CONSTANT = re.compile(r"(\w+) = (\d+)")
_OTHER = re.compile(r" in (?:line (\d+)|the same line)")
_VERBS = {Access.LOAD: "load", Access.STORE: "store", Access.ATOMIC: "atomic"}


@dataclass(frozen=True)
class Row:
    """What a kernel's loads from, or its stores to, one buffer or variable in shared memory came to.

    cost: sectors of global memory, or wavefronts of shared memory, of all requests.
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
class _Launch:
    """The first line of a file. constants: of a Triton kernel, its num_warps among them."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: Mapping[str, npt.NDArray[np.generic] | int]
    constants: Mapping[str, int]
    shared: int = 0
    architecture: str = cuda.CPU_ARCHITECTURE


Picture = tuple[Row, ...]


@dataclass(frozen=True)
class Ran:
    """A kernel of the pool and what became of it: a fault, with its kind and its lines, or a picture."""

    path: Path
    source: str
    kind: str = ""
    lines: frozenset[int] = frozenset()
    said: str = ""
    picture: Picture = ()

    @property
    def family(self) -> str:
        return self.path.stem.partition("_")[0]


@dataclass(frozen=True)
class Pool:
    """The kernels of a phase."""

    faults: tuple[Ran, ...]
    families: Mapping[str, tuple[Ran, ...]]

    def draw_faults(self, count: int, seed: int) -> list[Ran]:
        return random.Random(seed).sample(self.faults, count)

    def draw_pictures(self, count: int, seed: int) -> list[tuple[Ran, list[Ran]]]:
        """So many kernels, and for each the four among which it is to be found; no two have the same picture."""
        rng = random.Random(seed)
        found: list[tuple[Ran, list[Ran]]] = []
        for family in rng.sample([name for name in self.families for _ in self.families[name]], count):
            left = [one for one in self.families[family] if all(one is not right for right, _ in found)]
            right = rng.choice(left)
            others = {one.picture: one for one in self.families[family] if one.picture != right.picture}
            four = [right, *rng.sample(list(others.values()), CHOICES - 1)]
            rng.shuffle(four)
            found.append((right, four))
        return found


@lru_cache
def pool(folder: Path) -> Pool:
    """The kernels in a folder, run; an empty folder gives an empty pool. Raises DeclarationError."""
    ran = [run(path) for path in files(folder)]
    families: dict[str, tuple[Ran, ...]] = defaultdict(tuple)
    for one in ran:
        if not one.kind:
            families[one.family] += (one,)
    return Pool(tuple(one for one in ran if one.kind), families)


def files(folder: Path) -> list[Path]:
    """The kernels of a folder."""
    return sorted(path for path in folder.glob("*") if path.suffix in (".cu", ".py"))


def run(path: Path, *, reverse: bool = False) -> Ran:
    """Run one kernel of the pool. reverse: the last block and the last warp first. Raises DeclarationError."""
    source = path.read_text("utf-8")
    try:
        asked = _launch(path, source.splitlines()[0])
        module, name, asked = (_of_triton if path.suffix == ".py" else _of_cuda)(path, source, asked)
        arrays = {of: one for of, one in asked.arguments.items() if isinstance(one, np.ndarray)}
        buffers = [
            simt.Buffer(of, one.ctypes.data, one.nbytes, 4, of != OUTPUT, str(one.dtype)) for of, one in arrays.items()
        ]
        values = [one.ctypes.data if isinstance(one, np.ndarray) else one for one in asked.arguments.values()]
        values += [0] * (len(module.kernels[name].params) - len(values))  # Triton's own
        launch = module.launch(
            name, grid=asked.grid, block=asked.block, shared=asked.shared, args=values, buffers=buffers, reverse=reverse
        )
    except Fault as fault:
        others = {int(line or fault.line) for line in _OTHER.findall(fault.message)}
        return Ran(path, source, KINDS[fault.kind], frozenset({fault.line, *others}), fault.message)
    except (cuda.CompileError, simt.Unsupported, simt.TimedOut, ValueError, LookupError) as error:
        raise DeclarationError(f"{path} cannot be run: {error}; fix it") from error
    return Ran(path, source, picture=_picture(launch))


def _of_cuda(path: Path, source: str, asked: _Launch) -> tuple[simt.Module, str, _Launch]:
    binary = cuda.compile_kernel(source, path.name, "kernel", asked.architecture)
    return simt.load(binary.ptx, path.name), binary.mangled, asked


def _of_triton(path: Path, source: str, asked: _Launch) -> tuple[simt.Module, str, _Launch]:
    constants = dict(asked.constants)
    warps = constants.pop("num_warps", 4)
    types = {
        name: f"*{'fp32' if one.dtype == np.float32 else 'i32'}" if isinstance(one, np.ndarray) else "i32"
        for name, one in asked.arguments.items()
    }
    ahead = triton_ahead.compile_kernel(path, types, constants, warps)
    return simt.load(ahead.ptx, path.name), ahead.name, replace(asked, block=(ahead.threads,), shared=ahead.shared)


def listing(source: str) -> str:
    """A kernel with the numbers of its lines."""
    return "\n".join(f"{number:3}  {text}" for number, text in enumerate(source.splitlines(), start=1))


def table(picture: Picture) -> str:
    """A picture as text."""
    rows = [("memory", "access", "requests", "per request")]
    rows += [(one.memory, one.access, str(one.requests), one.per_request) for one in picture]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        f"  {row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]}".rstrip() for row in rows
    )


def _picture(launch: simt.Launch) -> Picture:
    sums: dict[tuple[bool, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for one in by_access(launch.accesses):
        counted = sums[one.shared, one.buffer, _VERBS[one.access]]
        counted[0] += one.requests
        counted[1] += one.wavefronts if one.shared else one.sectors
    return tuple(
        Row(f"{memory} (shared)" if shared else memory, access, shared, *counted)
        for (shared, memory, access), counted in sorted(sums.items())
    )


def _launch(path: Path, first: str) -> _Launch:
    found = _LAUNCH.fullmatch(first)
    if found is None:
        told = (
            "# Launch: [2] float x[128], BLOCK = 64"
            if path.suffix == ".py"
            else "// Launch: <<<2, 64>>> float x[128], int n = 128"
        )
        raise DeclarationError(f"{path}:1: begin with a line such as {told}")
    dims = [tuple(int(one) for one in re.findall(r"\d+", text)) for text in _dims(found[2] or found[3])]
    arguments: dict[str, npt.NDArray[np.generic] | int] = {}
    constants: dict[str, int] = {}
    for text in found[4].split(", "):
        if buffer := _BUFFER.fullmatch(text):
            arguments[buffer[2]] = _counting(int(buffer[3]), np.float32 if buffer[1] == "float" else np.int32)
        elif number := _NUMBER.fullmatch(text):
            arguments[number[1]] = int(number[2])
        elif found[3] and (constant := _CONSTANT.fullmatch(text)):
            constants[constant[1]] = int(constant[2])
        else:
            raise DeclarationError(f"{path}:1: {text!r} is neither like float x[128] nor like int n = 128")
    return _Launch(dims[0], dims[-1], arguments, constants, architecture=found[1] or cuda.CPU_ARCHITECTURE)


def _counting(count: int, dtype: type[np.generic]) -> npt.NDArray[np.generic]:
    """1, 2, 3 …, beginning where device memory does: at a multiple of 256 bytes."""
    memory = np.zeros(4 * count + 256, np.uint8)
    start = -memory.ctypes.data % 256
    values = memory[start : start + 4 * count].view(dtype)
    values[:] = np.arange(1, count + 1)
    return values


def _dims(text: str) -> Iterable[str]:
    """ "4, (32, 8)" as grid and block, "[4, 2]" as a grid."""
    return re.findall(r"\([^)]*\)|\[[^]]*\]|\d+", text)
