"""Run one kernel in Helion, TileLang, and cuTile on the PTX machine, from recordings of what their compilers generate.

The course does not require these compilers. results/traces/tile_languages has the sources of week 30 and, for each, the
PTX and the launch: the grid, and the arguments, which include the tensor maps that the language's host code encodes.
"""

from __future__ import annotations

import hashlib
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from kernelpath.course.traces import recordings
from kernelpath.show.mojo import CompileError
from kernelpath.verdict import decode
from warpcheck import assembler, backend, frontends, ptx
from warpcheck.frontends import cuda

if TYPE_CHECKING:
    from warpcheck.backend import Argument

RECORDING = "tile_languages"
INDEX = "recordings.json"

# The sizes m, n, and k that the recorded kernels were compiled for.
SIZES = (128, 128, 512)

_COMPILE_SECONDS = 300

# The alignment of memory in which Triton's kernels make tensor maps.
_SCRATCH_ALIGNMENT = 128


@dataclass(frozen=True)
class Language:
    """A language: the file with its source, the module to import, and what to install."""

    file: str
    module: str
    requirements: str


LANGUAGES: Mapping[str, Language] = {
    "Helion": Language("linear_relu_helion.py", "helion", "helion"),
    "TileLang": Language("linear_relu_tilelang.py", "tilelang", "tilelang"),
    "cuTile": Language("linear_relu_cutile.py", "cuda.tile", "'cuda-tile[tileiras]'"),
}


class CompilerMissing(Exception):
    """There is no recording of a source, and its compiler is not installed."""


@dataclass(frozen=True)
class KernelArgument:
    """An argument of a recorded launch: the address of a tensor, a tensor map of it, or a number.

    Attributes:
        tensor: "a", "b", "bias", "out", "scratch", or "" for a number.
        box: The box of a tensor map, in the order of the tensor's axes; empty for an address.
        swizzle: The swizzle of a tensor map in bytes.
        value: The number.
    """

    tensor: str = ""
    box: tuple[int, ...] = ()
    swizzle: int = 0
    value: int = 0

    def encode(self, tensors: Mapping[str, torch.Tensor]) -> Argument:
        """Return what the launch passes for these tensors."""
        if not self.tensor:
            return self.value
        tensor = tensors[self.tensor]
        return cuda.tensor_map(tensor, self.box, swizzle=self.swizzle).content if self.box else tensor


@dataclass(frozen=True)
class CompiledKernel:
    """PTX that a compiler generated, and how to launch it. Calling it returns relu(a @ b.T + bias).

    Attributes:
        versions: The compilers with their versions.
        digest: The SHA-256 of the source.
        name: The name of the kernel in the PTX.
        grid: The blocks along each axis.
        threads: The threads of a block.
        shared_bytes: The bytes of dynamic shared memory.
        scratch_bytes: The bytes of global memory that the launch provides for tensor maps that the kernel makes itself.
        arguments: The kernel's arguments in order.
    """

    language: str
    versions: str
    digest: str
    name: str
    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int
    arguments: tuple[KernelArgument, ...]
    scratch_bytes: int = 0
    ptx: str = field(default="", repr=False)

    def __call__(self, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Launch the kernel on the PTX machine, for bfloat16 tensors of the recorded sizes.

        Raises:
            ValueError: The tensors have other shapes or dtypes, for which the kernel would have to be compiled.
            warpcheck.errors.Fault: The kernel did something undefined.
        """
        m, n, k = SIZES
        shapes = {"a": (m, k), "b": (n, k), "bias": (n,)}
        tensors = {"a": a, "b": b, "bias": bias}
        for name, tensor in tensors.items():
            if tensor.shape != shapes[name] or tensor.dtype != torch.bfloat16 or not tensor.is_contiguous():
                raise ValueError(f"this kernel was compiled for a contiguous bfloat16 {name} of shape {shapes[name]}")
        out = a.new_empty(m, n)
        tensors["out"] = out
        tensors["scratch"] = _allocate_aligned(self.scratch_bytes)
        module = backend.device().load(self.ptx)
        result = module.launch(
            self.name,
            grid=self.grid,
            block=(self.threads, 1, 1),
            shared=self.shared_bytes,
            arguments=[argument.encode(tensors) for argument in self.arguments],
            tensors=list(tensors.items()),
        )
        launched = frontends.Launched(self.language, self.name, "cpu", (a, b, bias), result.cost, result.launch)
        frontends.record(launched)
        return out


def _allocate_aligned(size: int) -> torch.Tensor:
    memory = torch.zeros(size + _SCRATCH_ALIGNMENT, dtype=torch.uint8)
    return memory[-memory.data_ptr() % _SCRATCH_ALIGNMENT :][:size]


def source(language: str) -> str:
    """Return the source of the kernel in a language."""
    return recordings.read(RECORDING, LANGUAGES[language].file).decode()


def recorded() -> Mapping[str, CompiledKernel]:
    """Return the recorded kernels by their names."""
    kernels = decode(recordings.read(RECORDING, INDEX), dict[str, CompiledKernel])
    texts = {name: recordings.read(RECORDING, f"{name}.ptx").decode() for name in kernels}
    return {name: replace(kernel, ptx=texts[name]) for name, kernel in kernels.items()}


def compile_kernel(language: str, text: str) -> CompiledKernel:
    """Return the recording of a source; compile a source that has none.

    Args:
        language: The language, as in LANGUAGES.
        text: The source, which defines `linear_relu` as the course's source does.

    Raises:
        CompilerMissing: The compiler is not installed.
        CompileError: The compiler rejects the source.
    """
    digest = source_digest(text)
    for kernel in recorded().values():
        if (kernel.language, kernel.digest) == (language, digest):
            return kernel
    if not is_installed(language):
        raise CompilerMissing(
            f"there is no recording of this source, and {language} is not installed: "
            f"pip install {LANGUAGES[language].requirements}, in an environment of its own that also has the course"
        )
    return run_compiler(language, text)


def run_compiler(language: str, text: str) -> CompiledKernel:
    """Compile a source for sm_90a, in a process of its own.

    Raises:
        CompileError: The compiler rejects the source, or runs for too long.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / LANGUAGES[language].file
        result = Path(folder) / "kernel.json"
        path.write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "kernelpath.show.tile_compilers", language, str(path), str(result)]
        try:
            process = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_SECONDS, check=False)
        except subprocess.TimeoutExpired as error:
            raise CompileError(f"the compiler ran for more than {_COMPILE_SECONDS} s") from error
        if process.returncode:
            # The temporary folder says nothing to the reader.
            raise CompileError("\n".join(process.stderr.replace(f"{folder}/", "").splitlines()[-12:]))
        return decode(result.read_bytes(), CompiledKernel)


def is_installed(language: str) -> bool:
    """Return whether the packages of a language are installed."""
    try:
        return find_spec(LANGUAGES[language].module) is not None
    except ModuleNotFoundError:  # the package that contains the module
        return False


def source_digest(text: str) -> str:
    """Return the SHA-256 of a source."""
    return hashlib.sha256(text.encode()).hexdigest()


# The instructions to count in PTX, as patterns of the start of their names.
_INSTRUCTIONS = {
    "wgmma": r"wgmma\.mma_async",
    "cp.async": r"cp\.async\.c[ag]",
    "TMA loads": r"cp\.async\.bulk\.tensor\.\dd\.shared",
    "TMA stores": r"cp\.async\.bulk\.tensor\.\dd\.global",
    "mbarrier": r"mbarrier",
    "setmaxnreg": r"setmaxnreg",
}


def count_instructions(text: str, name: str) -> dict[str, int | None]:
    """Count a kernel's instructions in its PTX, where each counts once, however often it is executed.

    Returns:
        The threads of a block, all instructions, some kinds of them, and the registers that ptxas gives each thread,
        which is None without ptxas.
    """
    kernel = ptx.parse(text).functions[name]
    names = [instruction.name for instruction in kernel.body]
    assembled = assembler.assembled(text, name)
    return {
        "threads": math.prod(kernel.directives.reqntid) if kernel.directives.reqntid else kernel.directives.maxntid,
        "instructions": len(names),
        **{kind: sum(bool(re.match(pattern, name)) for name in names) for kind, pattern in _INSTRUCTIONS.items()},
        "registers": assembled.registers if assembled else None,
    }
