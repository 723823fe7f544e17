"""What the cases that fail have in common, and none of those that pass."""

from __future__ import annotations

from collections.abc import Sequence

from kernelpath.course.problem import Case

_ENOUGH = 3
"""Cases that it takes on either side. A condition that holds for 3 of 6 cases holds for just those that fail by
coincidence 1 time in 20, and 1 time in 6 where there are 2 and 2."""

_MULTIPLES = (128, 64, 32, 16, 8, 4, 2)


def told(failed: Sequence[Case], passed: Sequence[Case]) -> str:
    """In words: "every case with dtype=bfloat16 fails, and no other"; empty where it may be a coincidence.

    Where two arguments tell the cases apart, one of them does so by coincidence, and neither is named.
    """
    if min(len(failed), len(passed)) < _ENOUGH:
        return ""
    found = []
    for name in failed[0]:
        wrong, right = ([case[name] for case in cases if name in case] for cases in (failed, passed))
        if len(wrong) == len(failed) and right and (which := _which(name, wrong, right)):
            found.append(which)
    return f"every case with {found[0]} fails, and no other" if len(found) == 1 else ""


def _which(name: str, wrong: Sequence[object], right: Sequence[object]) -> str:
    """The condition on one argument that holds for all that is wrong and for nothing that is right."""
    if len({*wrong}) == 1 and wrong[0] not in right:
        return f"{name}={wrong[0]}"
    sizes, others = ([one for one in values if isinstance(one, int)] for values in (wrong, right))
    if len(sizes) < len(wrong) or len(others) < len(right):
        return ""
    for factor in _MULTIPLES:
        if any(others) and all(size % factor for size in sizes) and not any(size % factor for size in others):
            return f"{name} not a multiple of {factor}"
    if all(map(_is_power, others)) and not any(map(_is_power, sizes)):
        return f"{name} not a power of 2"
    if min(sizes) > max(others):
        return f"{name} above {max(others):,}"
    if max(sizes) < min(others):
        return f"{name} below {min(others):,}"
    return ""


def _is_power(size: int) -> bool:
    return size > 0 and size & (size - 1) == 0
