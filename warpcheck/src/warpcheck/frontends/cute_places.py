"""Remembers where operations stand in the source: CuTe DSL works that out for each that it traces, half of its time.

It asks of every frame of the stack whether it is the DSL's own, and reads the positions of a function's code from the
start up to the one that runs. What it finds is the same whenever that place runs again.
"""

from __future__ import annotations

from functools import cache
from inspect import Traceback
from types import CodeType, FrameType

from warpcheck.hooks import Changed
from warpcheck.hooks import cute as hooks

__all__ = ["remember_places"]


def remember_places() -> None:
    """Have the DSL look at a place once, for the life of the process. To be called once."""
    try:
        of_framework, look = hooks.FRAMEWORK.get(), hooks.PLACE.get()
    except Changed:  # the DSL looks at each place again then
        return
    seen: dict[tuple[int, int], tuple[CodeType, Traceback]] = {}

    def remembered(frame: FrameType) -> Traceback:
        place = id(frame.f_code), frame.f_lasti
        if place not in seen:
            seen[place] = frame.f_code, look(frame)  # with the code, so that no other can take its id
        return seen[place][1]

    hooks.FRAMEWORK.replace(cache(of_framework))
    hooks.PLACE.replace(remembered)
