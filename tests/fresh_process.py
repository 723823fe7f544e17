"""Call a function in a process of its own, forked from one that has imported the compilers and has no threads.

Some functions replace parts of the compilers, or fork, which a process with threads must not. A new interpreter would
take 2 s of processor time for the imports alone.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import ParamSpec, TypeVar

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

PRELOADED = ["kernelpath.dev.cards", "kernelpath.dev.spills", "warpcheck.frontends.triton_ready"]


def call(function: Callable[_Parameters, _Result], *args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
    """Return what a function of a module returns, or raise what it raises, in a process that ends afterwards."""
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)  # of the first call: the server lives as long as this process
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        return executor.submit(function, *args, **kwargs).result()
