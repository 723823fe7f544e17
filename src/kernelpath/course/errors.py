"""Define errors in the course itself, as opposed to a learner's."""

from __future__ import annotations


class DeclarationError(Exception):
    """A problem, an exercise or a lesson breaks a rule. The message names the field or the line, and the rule."""


class SolutionUnavailable(Exception):
    """This checkout lacks a reference kernel that is needed, through no fault of a submission."""


class LookupFailed(Exception):
    """A name matches no exercise or several, or there is no course here. The message says what to type."""


def require(condition: bool, message: str) -> None:
    """Raise DeclarationError with this message unless the condition holds."""
    if not condition:
        raise DeclarationError(message)
