"""Compares a report with the facts that were found in the same recording, fact by fact."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kernelpath.course.problem import Tolerance
from kernelpath.course.traces import Fact, Facts
from kernelpath.verdict import Finding, Verdict

_SHOWN = 3
_MISTAKES: dict[float, str] = {
    1.024: "kilobytes of 1000 bytes, or of 1024",
    100: "a percentage where a share is asked",
    **dict.fromkeys((10**3, 10**6, 10**9), "a unit"),
}
"""What a number is a sign of that is so many times too large or too small."""


def check_facts(entry: str, told: Facts, expected: Facts, tolerance: Tolerance) -> Finding | None:
    """The facts that are not there, else those that are wrong; None where all are right. Others are ignored."""
    lacking = [name for name in expected if name not in told]
    if lacking:
        return Finding(Verdict.WRONG_TYPE, f"{entry} says nothing of {', '.join(lacking)}; None is an answer, too")
    wrong = [name for name in expected if not alike(told[name], expected[name], tolerance)]
    if not wrong:
        return None
    shown = "; ".join(f"{name} {_shown(told[name], expected[name], tolerance)}" for name in wrong[:_SHOWN])
    others = f"; and {', '.join(wrong[_SHOWN:])}" if len(wrong) > _SHOWN else ""
    return Finding(Verdict.WRONG_VALUES, f"{len(wrong)} of {len(expected)} facts are wrong: {shown}{others}")


def alike(told: Fact, expected: Fact, tolerance: Tolerance) -> bool:
    """Whether a fact is right: numbers within the tolerance, lists element by element, the rest exactly."""
    if isinstance(expected, Mapping):
        if not isinstance(told, Mapping) or told.keys() != expected.keys():
            return False
        return all(alike(told[name], expected[name], tolerance) for name in expected)
    if _is_list(expected):
        assert isinstance(expected, Sequence)
        if not _is_list(told) or len(told) != len(expected):  # type: ignore[arg-type]
            return False
        return all(alike(one, other, tolerance) for one, other in zip(told, expected, strict=True))  # type: ignore[arg-type]
    if _is_number(told) and _is_number(expected):
        return math.isclose(float(told), float(expected), rel_tol=tolerance.rtol, abs_tol=1e-9)  # type: ignore[arg-type]
    return type(told) is type(expected) and told == expected


def _is_list(fact: Fact) -> bool:
    return isinstance(fact, Sequence) and not isinstance(fact, str)


def _is_number(fact: Fact) -> bool:
    return isinstance(fact, (int, float)) and not isinstance(fact, bool)


def _shown(told: Fact, expected: Fact, tolerance: Tolerance) -> str:
    """Of a fact. Of a dict, only what is missing, extra or wrong."""
    if isinstance(told, Mapping) and isinstance(expected, Mapping):
        both = [name for name in expected if name in told]
        wrong = [name for name in both if not alike(told[name], expected[name], tolerance)]
        missing = [f"has no {_text(name)}" for name in expected if name not in told]
        extra = [f"has {_text(name)}, which does not belong there" for name in told if name not in expected]
        differ = [f"{_text(name)} {_shown(told[name], expected[name], tolerance)}" for name in wrong]
        return ", ".join([*missing, *extra, *differ])
    return f"is {_text(told)}, expected {_text(expected)}{_mistake(told, expected)}"


def _text(fact: Fact) -> str:
    if isinstance(fact, float):
        return f"{fact:.6g}"
    if isinstance(fact, str):
        return repr(fact if len(fact) <= 60 else f"{fact[:45]}…{fact[-14:]}")
    if isinstance(fact, Mapping):
        return f"{{{', '.join(f'{name}: {_text(value)}' for name, value in sorted(fact.items()))}}}"
    return f"[{', '.join(map(_text, fact))}]" if isinstance(fact, Sequence) else str(fact)


def _mistake(told: Fact, expected: Fact) -> str:
    """What the ratio of two numbers, or of the first of two lists, is a sign of."""
    if _is_list(told) and _is_list(expected) and told and expected:
        told, expected = told[0], expected[0]  # type: ignore[index]
    if not (_is_number(told) and _is_number(expected)) or not told or not expected:
        return ""
    small, large = sorted(abs(float(one)) for one in (told, expected))  # type: ignore[arg-type]
    for factor, sign in _MISTAKES.items():
        if math.isclose(large / small, factor, rel_tol=1e-3):
            return f" ({sign}: a factor of {factor:,})"
    return ""
