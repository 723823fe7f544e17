"""Name mbarriers that no variable of the kernel names, after the line of the source that initializes them.

The CuTe DSL allocates all of shared memory as one variable, so the PTX has an address and no name. The line that
initializes an mbarrier has one: ``cute.arch.mbarrier_init(full + stage, 1)`` gives full[0], full[1] and so on, in the
order of their addresses. ``ring = PipelineTmaAsync.create(...)`` creates two arrays: the mbarriers that copies signal
are ring.full, the others ring.empty.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from warpcheck.events import Event, EventKind

__all__ = ["infer_names", "rename_barriers"]

# Matches `mbarrier_init(full + stage, 1)` or `mbarrier_init(&full[stage], 1)`, and captures "full".
_INITIALIZED = re.compile(r"\bmbarrier_init\w*\(\s*&?([A-Za-z_][\w.]*)")

# Matches the beginning of an assignment, such as `ring: Ring =` or `auto ring =`, and captures "ring".
_ASSIGNED = re.compile(r"^\s*(?:auto\s+)?([A-Za-z_][\w.]*)\s*(?::[^=]+)?=(?!=)")


def rename_barriers(events: Sequence[Event], lines: Mapping[str, int], source: str) -> list[Event]:
    """Return the events with the names that the source gives to their mbarriers.

    Args:
        lines: The line that initializes each mbarrier.
    """
    copy_barriers = {event.barrier for event in events if event.kind == EventKind.LAND}
    by_name = infer_names(lines, source, copy_barriers)

    def name_of(barrier: str) -> str:
        name, separator, block = barrier.partition(" of block ")
        return f"{by_name.get(name, name)}{separator}{block}"

    return [replace(event, barrier=name_of(event.barrier)) if event.barrier else event for event in events]


def infer_names(lines: Mapping[str, int], source: str, copy_barriers: set[str]) -> dict[str, str]:
    """Return a name for each mbarrier that the source names.

    Args:
        copy_barriers: The mbarriers that copies signal.
    """
    text = source.splitlines()
    arrays: dict[tuple[str, bool], list[str]] = defaultdict(list)
    created: list[str] = []
    for barrier, line in lines.items():  # in the order of their addresses
        line_text = text[line - 1] if 0 < line <= len(text) else ""
        if init_match := _INITIALIZED.search(line_text):
            arrays[init_match[1], True].append(barrier)
        elif assignment := _ASSIGNED.match(line_text):
            arrays[assignment[1], False].append(barrier)
        elif "create(" in line_text:  # in a helper, perhaps for several pipelines
            created.append(barrier)
    pipelines = _split_pipelines(created, copy_barriers)
    for number, barriers in enumerate(pipelines):
        arrays[f"pipeline{number if len(pipelines) > 1 else ''}", False] += barriers
    names: dict[str, str] = {}
    for (name, is_array), barriers in arrays.items():
        half = len(barriers) // 2
        full = [barrier in copy_barriers for barrier in barriers]
        if not is_array and 2 * half == len(barriers) and not any(full[half:]) and any(full[:half]):
            names |= _element_names(f"{name}.full", barriers[:half])
            names |= _element_names(f"{name}.empty", barriers[half:])
        else:
            names |= _element_names(name, barriers)
    return names


def _split_pipelines(barriers: Sequence[str], copy_barriers: set[str]) -> list[list[str]]:
    """Split the mbarriers of several pipelines: each begins with mbarriers that copies signal."""
    pipelines: list[list[str]] = []
    previous_is_full = False
    for barrier in barriers:
        starts_pipeline = barrier in copy_barriers and not previous_is_full
        if starts_pipeline or not pipelines:
            pipelines.append([])
        pipelines[-1].append(barrier)
        previous_is_full = barrier in copy_barriers
    return pipelines


def _element_names(name: str, barriers: Sequence[str]) -> dict[str, str]:
    """Name the elements of an array by their indices. A single element has no index."""
    return {barrier: f"{name}[{index}]" if len(barriers) > 1 else name for index, barrier in enumerate(barriers)}
