"""Compare a report with the facts that the reference computed from the same recording."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kernelpath.course.problem import Tolerance
from kernelpath.course.traces import Fact, Facts
from kernelpath.verdict import Finding, Verdict

_MAX_DESCRIBED = 3

# The likely mistake where a number is too large or too small by this factor.
_FACTORS: dict[float, str] = {
    1.024: "kilobytes of 1000 bytes, or of 1024",
    100: "a percentage instead of a fraction",
    **dict.fromkeys((10**3, 10**6, 10**9), "a unit"),
}


def check_facts(entry: str, reported: Facts, expected: Facts, tolerance: Tolerance) -> Finding | None:
    """Return a finding about missing facts, or else about wrong facts; None where all are right.

    Facts that were not asked for are ignored.
    """
    missing_names = [name for name in expected if name not in reported]
    if missing_names:
        return Finding(
            Verdict.WRONG_TYPE, f"{entry} says nothing of {', '.join(missing_names)}; None is an answer, too"
        )
    wrong = [name for name in expected if not facts_match(reported[name], expected[name], tolerance)]
    if not wrong:
        return None
    descriptions = "; ".join(
        f"{name} {_describe(reported[name], expected[name], tolerance)}" for name in wrong[:_MAX_DESCRIBED]
    )
    remaining = f"; and {', '.join(wrong[_MAX_DESCRIBED:])}" if len(wrong) > _MAX_DESCRIBED else ""
    return Finding(Verdict.WRONG_VALUES, f"{len(wrong)} of {len(expected)} facts are wrong: {descriptions}{remaining}")


def facts_match(reported: Fact, expected: Fact, tolerance: Tolerance) -> bool:
    """Return whether a fact is right: numbers within the tolerance, lists element by element, the rest exactly."""
    if isinstance(expected, Mapping):
        if not isinstance(reported, Mapping) or reported.keys() != expected.keys():
            return False
        return all(facts_match(reported[name], expected[name], tolerance) for name in expected)
    if _is_list(expected):
        assert isinstance(expected, Sequence)
        if not _is_list(reported) or len(reported) != len(expected):  # type: ignore[arg-type]
            return False
        pairs = zip(reported, expected, strict=True)  # type: ignore[arg-type]
        return all(facts_match(element, expected_element, tolerance) for element, expected_element in pairs)
    if _is_number(reported) and _is_number(expected):
        # A relative tolerance admits nothing around a fact of 0, such as the idle time of a GPU that is never idle.
        return math.isclose(float(reported), float(expected), rel_tol=tolerance.rtol, abs_tol=1e-9)  # type: ignore[arg-type]
    # In Python True equals 1. A report must not pass one for the other.
    return type(reported) is type(expected) and reported == expected


def _is_list(fact: Fact) -> bool:
    return isinstance(fact, Sequence) and not isinstance(fact, str)


def _is_number(fact: Fact) -> bool:
    return isinstance(fact, (int, float)) and not isinstance(fact, bool)


def _describe(reported: Fact, expected: Fact, tolerance: Tolerance) -> str:
    """Describe a wrong fact. Of a dict, only what is missing, extra or wrong is described."""
    if isinstance(reported, Mapping) and isinstance(expected, Mapping):
        common = [name for name in expected if name in reported]
        wrong = [name for name in common if not facts_match(reported[name], expected[name], tolerance)]
        missing_items = [f"has no {_format_fact(name)}" for name in expected if name not in reported]
        extra = [f"has {_format_fact(name)}, which does not belong there" for name in reported if name not in expected]
        differences = [f"{_format_fact(name)} {_describe(reported[name], expected[name], tolerance)}" for name in wrong]
        return ", ".join([*missing_items, *extra, *differences])
    return f"is {_format_fact(reported)}, expected {_format_fact(expected)}{_explain_ratio(reported, expected)}"


def _format_fact(fact: Fact) -> str:
    if isinstance(fact, float):
        return f"{fact:.6g}"
    if isinstance(fact, str):
        return repr(fact if len(fact) <= 60 else f"{fact[:45]}…{fact[-14:]}")
    if isinstance(fact, Mapping):
        return f"{{{', '.join(f'{name}: {_format_fact(value)}' for name, value in sorted(fact.items()))}}}"
    return f"[{', '.join(map(_format_fact, fact))}]" if isinstance(fact, Sequence) else str(fact)


def _explain_ratio(reported: Fact, expected: Fact) -> str:
    """Return the likely mistake behind the ratio of two numbers, or of the first numbers of two lists; empty without
    any.
    """
    if _is_list(reported) and _is_list(expected) and reported and expected:
        reported, expected = reported[0], expected[0]  # type: ignore[index]
    if not (_is_number(reported) and _is_number(expected)) or not reported or not expected:
        return ""
    small, large = sorted(abs(float(number)) for number in (reported, expected))  # type: ignore[arg-type]
    for factor, mistake in _FACTORS.items():
        if math.isclose(large / small, factor, rel_tol=1e-3):
            return f" ({mistake}: a factor of {factor:,})"
    return ""
