"""What the cases that fail have in common, and none of those that pass."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from kernelpath.course.problem import Case

_ENOUGH = 3
"""Cases that it takes on either side. A condition that holds for 3 of 6 cases holds for just those that fail by
coincidence 1 time in 20, and 1 time in 6 where there are 2 and 2."""

_COINCIDENCE = 0.05
_CONDITIONS = 10
"""On one size that are tried: so many may hold by coincidence."""

_MULTIPLES = (128, 64, 32, 16, 8, 4, 2)


def told(failed: Sequence[Case], passed: Sequence[Case]) -> str:
    """Describe it: "every case with dtype=bfloat16 fails, and no other"; empty where it may be a coincidence.

    A mode (a flag or a name) explains more than a number of which one value fails, and this more than a size. Where two
    arguments of one kind tell the cases apart, one of them does so by coincidence, and neither is named.
    """
    if min(len(failed), len(passed)) < _ENOUGH:
        return ""
    columns = []
    for name in failed[0]:
        wrong, right = ([case[name] for case in cases if name in case] for cases in (failed, passed))
        if len(wrong) == len(failed) and right:
            columns.append((name, wrong, right))
    kinds = [
        [text for name, wrong, right in columns if (text := _mode(name, wrong, right))],
        [text for name, wrong, right in columns if (text := _value(name, wrong, right))],
    ]
    sizes = [(name, wrong, right) for name, wrong, right in columns if _are(int, wrong + right)]
    choices = math.comb(len(failed) + len(passed), len(failed))
    if sizes and _CONDITIONS * len(sizes) <= _COINCIDENCE * choices:
        kinds.append([text for name, wrong, right in sizes for text in _conditions(name, wrong, right)])
    found: list[str] = next(filter(None, kinds), [])
    return found[0] if len(found) == 1 else ""


def _mode(name: str, wrong: Sequence[object], right: Sequence[object]) -> str:
    """What is said of a flag or a name whose values are all wrong, or all right."""
    if not _are((bool, str), [*wrong, *right]) or {*wrong} & {*right}:
        return ""
    *others, last = (f"{name}={value}" for value in dict.fromkeys(wrong))
    return _no_other(f"{', '.join(others)} or {last}" if others else last)


def _value(name: str, wrong: Sequence[object], right: Sequence[object]) -> str:
    """What is said of an integer of which one value alone is wrong, or right where it is 0 or 1."""
    if not _are(int, [*wrong, *right]):
        return ""
    if len({*wrong}) == 1 and wrong[0] not in right:
        return _no_other(f"{name}={wrong[0]}")
    if len({*right}) == 1 and right[0] in (0, 1) and min(wrong) > right[0]:  # type: ignore[type-var, operator]
        return _no_other(f"{name} above {right[0]}")
    return ""


def _conditions(name: str, wrong: Sequence[int], right: Sequence[int]) -> Iterator[str]:
    """Yield each condition on a size that holds for all that is wrong and for nothing that is right."""
    for factor in _MULTIPLES:
        if any(right) and all(size % factor for size in wrong) and not any(size % factor for size in right):
            yield _no_other(f"{name} not a multiple of {factor}")
            break
    else:
        if all(map(_is_power, right)) and not any(map(_is_power, wrong)):
            yield _no_other(f"{name} not a power of 2")
    if min(wrong) > max(right):
        yield f"every case with {name} >= {min(wrong):,} fails, and those with {name} <= {max(right):,} pass"
    if max(wrong) < min(right):
        yield f"every case with {name} <= {max(wrong):,} fails, and those with {name} >= {min(right):,} pass"


def _no_other(condition: str) -> str:
    return f"every case with {condition} fails, and no other"


def _are(kinds: type | tuple[type, ...], values: Sequence[object]) -> bool:
    """Whether all values are of these kinds; a flag is no integer."""
    return all(isinstance(value, kinds) and (kinds is not int or not isinstance(value, bool)) for value in values)


def _is_power(size: int) -> bool:
    return size > 0 and size & (size - 1) == 0
