"""Provide the cell magic %%cuda: a cell of CUDA C++, whose kernels Python then launches.

    %%cuda add.cu
    __global__ void add(const float* x, float* out) { … }

`add[grid, block](x, out)` launches the kernel in a later cell, and `add.source` is its text. A kernel that is a
template is called with the template's arguments first: `transpose(33)[grid, block](…)`.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import cache
from typing import Any

from kernelpath.show.cells import Stop
from warpcheck import simulated_gpu
from warpcheck.frontends import cuda, declarations

NAME = "cuda"


@dataclass(frozen=True)
class KernelTemplate:
    """A kernel template of a CUDA C++ source.

    Attributes:
        options: Further options for NVRTC.
    """

    file: str
    source: str
    name: str
    options: tuple[str, ...]

    def __call__(self, *arguments: object) -> cuda.Kernel:
        """Return the instance for these arguments, spelled as in C++. Equal arguments give the same object."""
        return _instance(self, tuple(map(_cpp_literal, arguments)))


@cache
def _instance(template: KernelTemplate, arguments: tuple[str, ...]) -> cuda.Kernel:
    name = f"{template.name}<{', '.join(arguments)}>"
    return cuda.Kernel(template.file, template.source, name, template.options)


def _cpp_literal(argument: object) -> str:
    return str(argument).lower() if isinstance(argument, bool) else str(argument)


def register(shell: Any) -> None:
    """Register %%cuda in an IPython shell."""
    shell.register_magic_function(lambda line, cell: shell.push(kernels(line, cell)), "cell", NAME)


def kernels(line: str, cell: str) -> dict[str, cuda.Kernel | KernelTemplate]:
    """Return every kernel of a cell by its name, compiled unless it is a template.

    Args:
        line: A file name for messages, and options of NVRTC as name=value: "add.cu maxrregcount=32".
        cell: The source. Its lines are numbered as in the cell, in which the magic is the first line.

    Raises Stop if the source does not compile or has no kernel.
    """
    words = shlex.split(line)
    file = next((word for word in words if "=" not in word), "cell.cu")
    options = tuple(f"--{word}" for word in words if "=" in word)
    # An empty first line in place of the magic, so that messages name the line of the cell.
    source = f"\n{cell}"
    names = declarations.source_kernels(source)
    if not names:
        raise Stop(f"{file} defines no kernel; a kernel is a function that begins with __global__ void")
    return {name: _compile_unless_template(KernelTemplate(file, source, name, options)) for name in names}


def _compile_unless_template(template: KernelTemplate) -> cuda.Kernel | KernelTemplate:
    if declarations.template_parameters(template.source, template.name):
        return template
    kernel = cuda.Kernel(template.file, template.source, template.name, template.options)
    try:
        # Compiled here and not at the launch, so that an error appears below the cell that has it.
        kernel.binary(simulated_gpu.target().virtual)
    except (cuda.CompileError, cuda.KernelNotFound) as error:
        raise Stop(str(error)) from error
    return kernel
