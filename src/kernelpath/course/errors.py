"""What is wrong with the course itself, in contrast to what a learner did wrong."""

from __future__ import annotations


class DeclarationError(Exception):
    """A problem, an exercise or a lesson breaks a rule. The message names the field or the line, and the rule."""


class Withheld(Exception):
    """A reference kernel is needed that this checkout does not have. Nobody's submission is at fault."""


def require(condition: bool, message: str) -> None:
    """Raise DeclarationError with this message unless the condition holds."""
    if not condition:
        raise DeclarationError(message)
