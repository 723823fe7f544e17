"""Compile kernels in Mojo for GPUs that need not be there, and run them on the PTX machine.

Modular's packages mojo-compiler and max-core have the compiler, for a GPU of NVIDIA as well as of AMD. The course does
not require them: results/traces/mojo has the kernels of week 24, and what the compiler makes of them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch

from kernelpath.course.traces import recordings
from warpcheck import backend
from warpcheck.backend import LaunchResult

RECORDING = "mojo"

# The target of each GPU for which there are recordings.
GPU_MODELS: Mapping[str, str] = {"A100": "sm_80", "MI300X": "gfx942"}

_MAIN = """

from std.compile import compile_info
from max.gpu.host import get_gpu_target


def main():
    print(compile_info[{kernel}, target = get_gpu_target["{target}"]()]().asm)
"""
_ENTRY = re.compile(r"\.visible \.entry ([\w$]+)\(")
_COMPILE_SECONDS = 300


class CompileError(Exception):
    """A language's compiler rejects a source. The message has its errors."""


def compiler() -> Path | None:
    """Return Mojo's compiler, which is in the environment of this Python or on PATH; None where there is none."""
    found = shutil.which("mojo", path=str(Path(sys.executable).parent)) or shutil.which("mojo")
    return Path(found) if found else None


def source(kernel: str) -> str:
    """Return the text of a kernel of the course."""
    return recordings.read(RECORDING, f"{kernel}.mojo").decode()


def recorded(kernel: str, target: str) -> str:
    """Return what the compiler made of a kernel of the course, as PTX or as assembly for an AMD GPU."""
    return recordings.read(RECORDING, f"{kernel}.{target}.s").decode()


def compile_kernel(text: str, kernel: str, target: str) -> str:
    """Compile a function of a source, and return its PTX or its assembly.

    Args:
        text: The source.
        kernel: The name of the function.
        target: A GPU as the compiler names it, such as "sm_80" or "gfx942".

    Raises:
        CompileError: The source has an error, or the compiler lacks max-core.
        FileNotFoundError: There is no compiler.
    """
    command = compiler()
    if command is None:
        raise FileNotFoundError("there is no Mojo compiler: pip install max-core, which takes 600 MB, installs one")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{kernel}.mojo"
        path.write_text(text + _MAIN.format(kernel=kernel, target=target), encoding="utf-8")
        process = subprocess.run(
            [command, "run", path], capture_output=True, text=True, timeout=_COMPILE_SECONDS, check=False
        )
    if process.returncode:
        # Of the compiler's output, only the lines with errors are shown, without the temporary folder.
        errors = [line.replace(f"{folder}/", "") for line in process.stderr.splitlines() if " error: " in line]
        raise CompileError("\n".join(errors) or process.stderr)
    return process.stdout


def launch(ptx: str, grid: int, block: int, *arguments: torch.Tensor | int) -> LaunchResult:
    """Launch the kernel of a text of PTX on the PTX machine.

    Args:
        ptx: The text, with one kernel.
        grid: The number of blocks.
        block: The threads of a block.
        arguments: The kernel's arguments in order.

    Raises:
        warpcheck.errors.Fault: The kernel did something undefined.
    """
    (entry,) = _ENTRY.findall(ptx)
    tensors = [(f"argument {i}", value) for i, value in enumerate(arguments) if isinstance(value, torch.Tensor)]
    module = backend.device().load(ptx)
    return module.launch(entry, grid=(grid, 1, 1), block=(block, 1, 1), shared=0, arguments=arguments, tensors=tensors)
