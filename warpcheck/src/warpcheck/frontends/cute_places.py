"""Cache the source locations of operations, whose computation takes half of CuTe DSL's tracing time.

For each operation the DSL checks every frame of the stack for its own code, and decodes the positions of a function's
code up to the running instruction. The result depends on the code object and the instruction only.
"""

from __future__ import annotations

from functools import cache
from inspect import Traceback
from types import CodeType, FrameType

from warpcheck.hooks import Changed
from warpcheck.hooks import cute as hooks

__all__ = ["remember_places"]


def remember_places() -> None:
    """Let the DSL compute each source location once per process. Call this function once."""
    try:
        is_framework_module = hooks.FRAMEWORK.get()
        compute_location = hooks.PLACE.get()
    except Changed:  # Another version of the DSL: trace without the cache.
        return
    tracebacks: dict[tuple[int, int], tuple[CodeType, Traceback]] = {}

    def remembered(frame: FrameType) -> Traceback:
        place = id(frame.f_code), frame.f_lasti
        if place not in tracebacks:
            # The reference keeps the code object alive, so that its id cannot be reused for another one.
            tracebacks[place] = frame.f_code, compute_location(frame)
        return tracebacks[place][1]

    hooks.FRAMEWORK.replace(cache(is_framework_module))
    hooks.PLACE.replace(remembered)
