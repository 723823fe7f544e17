"""Define the messages between a rank and the exchange of its group, which is in the grader's process.

An operation is named by its number: the rank's first posted operation is number 1. `line` is a line of the submission.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

OperationName = Literal["send", "recv", "all_reduce", "barrier"]


class Post(Struct, frozen=True, tag=True):
    """Begin an operation.

    Attributes:
        number: The number of the operation.
        peer: The other rank of a message; -1 for a collective.
        content: The bytes of the buffer, unless the operation receives.
        mean: Whether an all-reduce computes the mean instead of the sum.
    """

    number: int
    name: OperationName
    peer: int = -1
    tag: int = 0
    dtype: str = ""
    count: int = 0
    content: bytes = b""
    mean: bool = False
    line: int = 0


class Await(Struct, frozen=True, tag=True):
    """Wait until an operation is complete. `touched` says whether its buffer differs from the buffer that was
    posted.
    """

    number: int
    touched: bool = False
    line: int = 0


class Poll(Struct, frozen=True, tag=True):
    """Ask whether an operation is complete."""

    number: int


class ComputePart(Struct, frozen=True, tag=True):
    """Compute one of the parts that the grader gave to the rank. The response is a Completion with the part's
    result.
    """

    part: int
    line: int = 0


class UnsupportedCollective(Struct, frozen=True, tag=True):
    """Report a call of a library's collective that the group does not have."""

    name: str
    line: int = 0


class Leave(Struct, frozen=True, tag=True):
    """Report that the rank has returned, or raised.

    Attributes:
        raised: Whether it raised an exception.
        open: The numbers of the operations that it has not waited for.
    """

    raised: bool
    open: Sequence[int] = ()


FromRank = Post | Await | Poll | ComputePart | UnsupportedCollective | Leave


class Completion(Struct, frozen=True, tag=True):
    """Answer a wait or a computation. `content` is what a receive or a collective writes to its buffer, or a part's
    result.
    """

    content: bytes = b""


class PollResult(Struct, frozen=True, tag=True):
    """Answer a Poll."""

    complete: bool


class GroupEnd(Struct, frozen=True, tag=True):
    """Report that the group cannot go on."""

    reason: str


ToRank = Completion | PollResult | GroupEnd
