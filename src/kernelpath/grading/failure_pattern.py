"""Find what the failing cases have in common and the passing cases have not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from kernelpath.course.problem import Case

_MIN_CASES = 3
"""The least number of cases on either side.

A condition that holds for 3 of 6 cases holds for exactly the failing ones by coincidence 1 time in 20, and 1 time in 6
where there are 2 and 2.
"""

_COINCIDENCE = 0.05
"""The probability up to which a pattern may be a coincidence."""
_CONDITIONS = 10
"""The conditions on one size that are tried. Each may hold by coincidence."""

_MULTIPLES = (128, 64, 32, 16, 8, 4, 2)


def describe_pattern(failed: Sequence[Case], passed: Sequence[Case]) -> str:
    """Describe the pattern: "every case with dtype=bfloat16 fails, and no other"; empty where it may be a coincidence.

    A mode (a flag or a name) explains more than a number of which one value fails, and this more than a size. Where two
    arguments of one kind separate the cases, one of them does so by coincidence, and neither is named.
    """
    if min(len(failed), len(passed)) < _MIN_CASES:
        return ""
    columns = []
    for name in failed[0]:
        failed_values, passed_values = ([case[name] for case in cases if name in case] for cases in (failed, passed))
        if len(failed_values) == len(failed) and passed_values:
            columns.append((name, failed_values, passed_values))
    kinds = [
        [text for name, wrong, right in columns if (text := _mode_pattern(name, wrong, right))],
        [text for name, wrong, right in columns if (text := _value_pattern(name, wrong, right))],
    ]
    sizes = [(name, wrong, right) for name, wrong, right in columns if _all_of_type(int, wrong + right)]
    # With `choices` ways to pick the failing cases, each condition that is tried holds by coincidence in one of them.
    choices = math.comb(len(failed) + len(passed), len(failed))
    if sizes and _CONDITIONS * len(sizes) <= _COINCIDENCE * choices:
        kinds.append([text for name, wrong, right in sizes for text in _size_patterns(name, wrong, right)])
    patterns: list[str] = next(filter(None, kinds), [])
    return patterns[0] if len(patterns) == 1 else ""


def _mode_pattern(name: str, wrong: Sequence[object], right: Sequence[object]) -> str:
    """Return the pattern of a flag or a name whose values all fail or all pass; empty without any."""
    if not _all_of_type((bool, str), [*wrong, *right]) or {*wrong} & {*right}:
        return ""
    *values, last = (f"{name}={value}" for value in dict.fromkeys(wrong))
    return _describe_condition(f"{', '.join(values)} or {last}" if values else last)


def _value_pattern(name: str, wrong: Sequence[object], right: Sequence[object]) -> str:
    """Return the pattern of an integer of which a single value fails, or only 0 or only 1 passes; empty without any."""
    if not _all_of_type(int, [*wrong, *right]):
        return ""
    if len({*wrong}) == 1 and wrong[0] not in right:
        return _describe_condition(f"{name}={wrong[0]}")
    if len({*right}) == 1 and right[0] in (0, 1) and min(wrong) > right[0]:  # type: ignore[type-var, operator]
        return _describe_condition(f"{name} above {right[0]}")
    return ""


def _size_patterns(name: str, wrong: Sequence[int], right: Sequence[int]) -> Iterator[str]:
    """Yield each condition on a size that holds for all failing cases and for no passing case."""
    for factor in _MULTIPLES:
        # 0 is a multiple of every factor, so cases that pass show nothing if they are all empty.
        if any(right) and all(size % factor for size in wrong) and not any(size % factor for size in right):
            yield _describe_condition(f"{name} not a multiple of {factor}")
            break
    else:
        if all(map(_is_power, right)) and not any(map(_is_power, wrong)):
            yield _describe_condition(f"{name} not a power of 2")
    if min(wrong) > max(right):
        yield f"every case with {name} >= {min(wrong):,} fails, and those with {name} <= {max(right):,} pass"
    if max(wrong) < min(right):
        yield f"every case with {name} <= {max(wrong):,} fails, and those with {name} >= {min(right):,} pass"


def _describe_condition(condition: str) -> str:
    return f"every case with {condition} fails, and no other"


def _all_of_type(types: type | tuple[type, ...], values: Sequence[object]) -> bool:
    """Return whether all values are of these types. A flag does not count as an integer."""
    return all(isinstance(value, types) and (types is not int or not isinstance(value, bool)) for value in values)


def _is_power(size: int) -> bool:
    return size > 0 and size & (size - 1) == 0
