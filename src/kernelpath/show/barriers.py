"""Names for mbarriers that no variable of the kernel names, from the line of the source that initializes them.

The CuTe DSL allocates all of shared memory as one variable, so the PTX has an address and no name. The line that
initializes an mbarrier has one: ``cute.arch.mbarrier_init(full + stage, 1)`` gives full[0], full[1] and so on, in the
order of their addresses. Behind ``ring = PipelineTmaAsync.create(...)`` there are two arrays: those that copies signal
are ring.full, the others ring.empty.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from warpcheck.events import Event, EventKind

__all__ = ["names", "renamed"]

_INITIALIZED = re.compile(r"\bmbarrier_init\w*\(\s*&?([A-Za-z_][\w.]*)")
_ASSIGNED = re.compile(r"^\s*(?:auto\s+)?([A-Za-z_][\w.]*)\s*(?::[^=]+)?=(?!=)")


def renamed(events: Sequence[Event], lines: Mapping[str, int], source: str) -> list[Event]:
    """The events with the names that the source gives to their mbarriers. lines: the line that initializes each."""
    landed = {event.barrier for event in events if event.kind == EventKind.LAND}
    by_name = names(lines, source, landed)

    def name_of(barrier: str) -> str:
        name, of, block = barrier.partition(" of block ")
        return f"{by_name.get(name, name)}{of}{block}"

    return [replace(event, barrier=name_of(event.barrier)) if event.barrier else event for event in events]


def names(lines: Mapping[str, int], source: str, landed: set[str]) -> dict[str, str]:
    """A name for each mbarrier that the source names. landed: those that copies signal."""
    text = source.splitlines()
    arrays: dict[tuple[str, bool], list[str]] = defaultdict(list)
    created: list[str] = []
    for barrier, line in lines.items():  # in the order of their addresses
        at = text[line - 1] if 0 < line <= len(text) else ""
        if initialized := _INITIALIZED.search(at):
            arrays[initialized[1], True].append(barrier)
        elif assigned := _ASSIGNED.match(at):
            arrays[assigned[1], False].append(barrier)
        elif "create(" in at:  # in a helper, perhaps for several pipelines
            created.append(barrier)
    pipelines = _pipelines(created, landed)
    for number, barriers in enumerate(pipelines):
        arrays[f"pipeline{number if len(pipelines) > 1 else ''}", False] += barriers
    found: dict[str, str] = {}
    for (name, is_array), barriers in arrays.items():
        half = len(barriers) // 2
        full = [barrier in landed for barrier in barriers]
        if not is_array and 2 * half == len(barriers) and not any(full[half:]) and any(full[:half]):
            found |= _numbered(f"{name}.full", barriers[:half])
            found |= _numbered(f"{name}.empty", barriers[half:])
        else:
            found |= _numbered(name, barriers)
    return found


def _pipelines(barriers: Sequence[str], landed: set[str]) -> list[list[str]]:
    """Split the mbarriers of several pipelines: each begins with those that copies signal."""
    found: list[list[str]] = []
    signaled = False
    for barrier in barriers:
        begins = barrier in landed and not signaled
        if begins or not found:
            found.append([])
        found[-1].append(barrier)
        signaled = barrier in landed
    return found


def _numbered(name: str, barriers: Sequence[str]) -> dict[str, str]:
    """Elements of an array by their numbers; one alone has no number."""
    return {barrier: f"{name}[{at}]" if len(barriers) > 1 else name for at, barrier in enumerate(barriers)}
