"""Declare limits as fields of a dataclass, each with its sentence in the statement and the values that make sense.

A learner has to know every limit before the first check. `kp dev check` requires the paragraph in each stub.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from textwrap import fill
from typing import Any

from kernelpath.course.errors import require

_WIDTH = 120
_KEY = "limit"


@dataclass(frozen=True)
class _Limit:
    sentence: str
    is_allowed: Callable[[Any], bool]


def limit(sentence: str, is_allowed: Callable[[Any], bool] = lambda value: True, default: Any = None) -> Any:
    """Return a dataclass field that holds a limit. None and False set no limit.

    Args:
        sentence: The sentence of the statement, for `str.format` with the value. {s} is the plural ending of a noun
            that the value counts.
        is_allowed: Returns whether a value can be reached and limits something.
        default: The value of a declaration that does not name the limit.
    """
    return field(default=default, metadata={_KEY: _Limit(sentence, is_allowed)})


def check_limits(part: str, declaration: Any) -> None:
    """Raise DeclarationError if a limit of a declaration, a dataclass, has a value that is not allowed.

    `part` begins the message, so that it names the part of the exercise: "traffic: ".
    """
    for name, value, rule in _limits_of(declaration):
        require(rule.is_allowed(value), f"{part}{name}={value} cannot be reached, or limits nothing")


def describe_limits(largest_case: str, *declarations: Any) -> str:
    """Return the paragraph for the statement, in lines of the stub's docstring; empty without limits.

    Upper bounds come first, in the order of the declarations and of their fields.

    Args:
        largest_case: The arguments of the case to which the limits apply as they are stated.
        declarations: The dataclasses that have the limits.
    """
    sentences = [
        rule.sentence.format(value, s="" if value == 1 else "s")
        for declaration in declarations
        for _, value, rule in _limits_of(declaration)
    ]
    if not sentences:
        return ""
    sentences.sort(key=lambda sentence: "at most" not in sentence)
    limits = "this limit" if len(sentences) == 1 else "these limits"
    opening = (
        f"The grader enforces {limits} on the largest case ({largest_case}); smaller cases get some slack for partial"
        " tiles."
    )
    return fill(" ".join([opening, *sentences]), _WIDTH, break_on_hyphens=False)


def _limits_of(declaration: Any) -> Iterator[tuple[str, Any, _Limit]]:
    """Yield the name, the value and the rule of each limit that is set."""
    for declared in fields(declaration):
        value = getattr(declaration, declared.name)
        # A limit of 0 is one: no bank conflicts.
        if _KEY in declared.metadata and value is not None and value is not False:
            yield declared.name, value, declared.metadata[_KEY]
