"""What a rank tells the exchange of its group, and what it is answered. The exchange is the grader's.

An operation's number counts what the rank has posted. line: of the submission.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

OperationName = Literal["send", "recv", "all_reduce", "barrier"]


class Post(Struct, frozen=True, tag=True):
    """A rank begins an operation. peer: of a message, else -1. content: of the buffer, unless it receives."""

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
    """A rank goes on when the operation is complete. touched: its buffer is not as it was posted."""

    number: int
    touched: bool = False
    line: int = 0


class Poll(Struct, frozen=True, tag=True):
    """A rank asks whether the operation is complete."""

    number: int


class ComputePart(Struct, frozen=True, tag=True):
    """A rank computes one of the parts that the grader gave it, and is answered with what that gives."""

    part: int
    line: int = 0


class UnsupportedCollective(Struct, frozen=True, tag=True):
    """A rank called what the group does not have: a library's collective."""

    name: str
    line: int = 0


class Leave(Struct, frozen=True, tag=True):
    """A rank has returned, or raised. open: the numbers of operations that it has not waited for."""

    raised: bool
    open: Sequence[int] = ()


FromRank = Post | Await | Poll | ComputePart | UnsupportedCollective | Leave


class Completion(Struct, frozen=True, tag=True):
    """content: what a receive or a collective puts into its buffer, or what a part gives."""

    content: bytes = b""


class PollResult(Struct, frozen=True, tag=True):
    complete: bool


class GroupEnded(Struct, frozen=True, tag=True):
    """The group cannot go on."""

    why: str


ToRank = Completion | PollResult | GroupEnded
