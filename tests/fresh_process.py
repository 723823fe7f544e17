"""Call a function in a new process, forked from a process that has imported the compilers and has no threads.

Some functions replace parts of the compilers or fork, which is unsafe in a process with threads. A new interpreter
would take 2 s of processor time for the imports alone.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import ParamSpec, TypeVar

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

PRELOADED = [
    "kernelpath.dev.cards",
    "kernelpath.dev.spills",
    "tests.direct",
    "warpcheck.frontends.triton_ready",
    "warpcheck.simt",
]


def context() -> ForkServerContext:
    """Return the context of multiprocessing that forks from such a process."""
    forking = get_context("forkserver")
    forking.set_forkserver_preload(
        PRELOADED
    )  # only the first call has an effect, because the server lives as long as this process
    return forking


def call(function: Callable[_Parameters, _Result], *args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
    """Return what a function of a module returns, or raise what it raises, in a process that ends afterwards."""
    with ProcessPoolExecutor(1, mp_context=context()) as executor:
        return executor.submit(function, *args, **kwargs).result()


def run(file: Path, *arguments: str) -> tuple[str, str]:
    """Run a program of Python in such a process, and return what it writes to stdout and to stderr.

    file: The program. Its outputs are written beside it.
    """
    outputs = [file.with_suffix(f".{number}") for number in (1, 2)]
    process = context().Process(target=_run, args=(file, arguments, outputs))
    process.start()
    process.join()
    stdout, stderr = (output.read_text("utf-8") for output in outputs)
    return stdout, stderr


def _run(file: Path, arguments: tuple[str, ...], outputs: list[Path]) -> None:
    for stream, output in enumerate(outputs, start=1):
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(descriptor, stream)
        os.close(descriptor)
    sys.argv = [str(file), *arguments]
    runpy.run_path(str(file), run_name="__main__")
