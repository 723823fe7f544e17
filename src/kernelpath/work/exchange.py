"""What passes the messages of a group of ranks on: it counts them, and knows exactly when no rank can go on.

It is in the grader's process and trusts no rank. A send is complete when its receive has been posted, as NCCL's are and
gloo's large ones: a program that hopes for a buffer ends in a deadlock here, every time.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from kernelpath import wire
from kernelpath.course.labs.fabric import Key, Log, Step, Transfer
from kernelpath.course.problem import BYTES
from kernelpath.verdict import Finding, Verdict
from kernelpath.wire import ConnectionClosed, ProtocolError, ResponseTimeout, Wire
from kernelpath.work import fabric_messages as fabric
from kernelpath.work.tensors import from_bytes, to_bytes

_FRAME_SECONDS = 2.0
"""For a rank to send a frame that it has begun, and to take one."""

_NAMES = {"send": "send to", "recv": "receive from"}
_KINDS = {"send": "send", "recv": "receive"}
_OPPOSITE: dict[str, fabric.OperationName] = {"send": "recv", "recv": "send"}


def _is_float(dtype: str) -> bool:
    """Whether this names a dtype of floating-point numbers; a rank may say anything."""
    return dtype in BYTES and bool(getattr(torch, dtype).is_floating_point)


Perturbed = Literal["", "floats", "all"]
"""Which messages are perturbed: those of integers may be lengths, without which a program cannot go on."""

CONTROL = 64
"""Bytes up to which a message of integers may be a length, or a token that somebody waits for."""


def perturb(dtype: str, content: bytes, which: Perturbed) -> bytes:
    """Return other values: larger floats, so that differences do not cancel where they are added."""
    if _is_float(dtype):
        values = from_bytes(dtype, [len(content) // BYTES[dtype]], content, "cpu").double()
        return to_bytes((values + 1 + values.abs() / 4).to(getattr(torch, dtype)))
    if which == "all" and len(content) > CONTROL:
        return bytes(byte ^ 0x11 for byte in content)
    return content


@dataclass
class _Rank:
    """A rank as the exchange knows it. waits: the operation that it waits for. left: why it does not come any more."""

    wire: Wire[fabric.FromRank]
    steps: list[Step] = field(default_factory=list)
    posted: dict[int, fabric.Post] = field(default_factory=dict)
    complete: dict[int, bytes] = field(default_factory=dict)
    waits: int = 0
    left: str = ""
    raised: bool = False
    collectives: int = 0


class Exchange:
    """Of one call on every rank.

    collectives: those of the library that are allowed. parts: seconds of what ranks compute, by its number. results:
    by rank, what each of its parts gives: no rank has it before it has computed that part.
    perturbed: what a rank receives is not what was sent, so that its result shows whether it uses what it receives.
    finding: what went wrong between the ranks, when `serve` has returned.
    """

    def __init__(
        self,
        size: int,
        collectives: Collection[str] = (),
        parts: Sequence[float] = (),
        results: Sequence[Sequence[bytes]] = (),
        perturbed: Perturbed = "",
    ) -> None:
        pairs = [wire.pair() for _ in range(size)]
        self.ends = [there for _, there in pairs]
        self.finding: Finding | None = None
        self._ranks = [_Rank(Wire(here, fabric.FromRank)) for here, _ in pairs]
        self._allowed, self._parts, self._results = collectives, parts, results
        self._perturbed = perturbed
        self._queues: dict[tuple[int, int, int, bool], deque[Key]] = {}
        self._transfers: list[Transfer] = []
        self._collectives: list[list[Key]] = []

    def serve(self, seconds: float) -> None:
        """Pass messages on until every rank has left, or none can go on, or so many seconds are over."""
        end = time.monotonic() + seconds
        while self.finding is None and (here := [one for one in self._ranks if not one.left]):
            left = end - time.monotonic()
            ready = select.select([one.wire for one in here], [], [], max(left, 0.0))[0]
            if not ready and left <= 0:
                return self._silent(seconds)
            for rank, one in enumerate(self._ranks):
                if one.wire in ready and self.finding is None:
                    self._take(rank)
            if self.finding is None:
                self._stuck()
        return None

    def close(self) -> None:
        """Tell whoever waits that it is over."""
        for one in self._ranks:
            if one.waits and not one.left:
                self._answer(one, fabric.GroupEnded("the group has ended"))
            one.wire.close()
        for end in self.ends:
            end.close()

    @property
    def first_to_fail(self) -> list[int]:
        """The ranks that raised or died, in the order of their numbers."""
        return [rank for rank, one in enumerate(self._ranks) if one.raised]

    def log(self) -> Log:
        """What the ranks did."""
        return Log([one.steps for one in self._ranks], self._transfers)

    def computed(self, rank: int) -> list[int]:
        """The parts that a rank computed, in its order."""
        return [step.number for step in self._ranks[rank].steps if step.kind == "compute"]

    def computed_in(self, rank: int) -> int:
        """The line of the submission in which a rank computed its first part; 0 where it computed none."""
        return next((step.line for step in self._ranks[rank].steps if step.kind == "compute"), 0)

    def _take(self, rank: int) -> None:
        one = self._ranks[rank]
        try:
            message = one.wire.receive(_FRAME_SECONDS)
        except ConnectionClosed:
            one.left, one.raised = "its process has ended", True
            return
        except (ProtocolError, ResponseTimeout):
            self._complain(Verdict.TAMPERED, f"rank {rank} does not speak as torch.distributed does")
            return
        match message:
            case fabric.Post():
                self._post(rank, message)
            case fabric.Await():
                self._await(rank, message)
            case fabric.Poll(number=number):
                self._answer(one, fabric.PollResult(number in one.complete))
            case fabric.ComputePart(part=part, line=line) if 0 <= part < len(self._parts):
                one.steps.append(Step("compute", part, self._parts[part], line))
                self._answer(one, fabric.Completion(self._results[rank][part]))
            case fabric.UnsupportedCollective(name=name, line=line):
                cause = f"rank {rank} calls torch.distributed's {name}; write it with send and receive"
                self._complain(Verdict.NOT_YOUR_KERNEL, cause, line)
            case fabric.Leave():
                self._leave(rank, message)
            case _:
                self._complain(Verdict.TAMPERED, f"rank {rank} computed what it was not given")

    def _leave(self, rank: int, message: fabric.Leave) -> None:
        one = self._ranks[rank]
        one.left, one.raised = "it raised an exception" if message.raised else "it has returned", message.raised
        open_ = [one.posted[number] for number in message.open if number in one.posted]
        if open_ and not message.raised:
            first = open_[0]
            cause = f"rank {rank} returned before its {_told(first)} was complete: wait for every request"
            self._complain(Verdict.RACE, cause, first.line)

    def _post(self, rank: int, post: fabric.Post) -> None:
        one, key = self._ranks[rank], (rank, post.number)
        size = post.count * BYTES.get(post.dtype, 0)
        if post.number != len(one.posted) + 1 or (post.name != "recv" and len(post.content) != size):
            return self._complain(Verdict.TAMPERED, f"rank {rank} does not speak as torch.distributed does")
        one.posted[post.number] = post
        one.steps.append(Step("post", post.number, line=post.line))
        if post.name in ("all_reduce", "barrier"):
            return self._collective(rank, key, post)
        if post.peer == rank or not 0 <= post.peer < len(self._ranks):
            return self._complain(Verdict.CRASHED, f"rank {rank} posts a {_told(post)}{self._nobody(post)}", post.line)
        sends = post.name == "send"
        source, target = (rank, post.peer) if sends else (post.peer, rank)
        others = self._queues.setdefault((source, target, post.tag, not sends), deque())
        if not others:
            self._queues.setdefault((source, target, post.tag, sends), deque()).append(key)
            return None
        other = others.popleft()
        return self._pass(*((key, other) if sends else (other, key)))

    def _nobody(self, post: fabric.Post) -> str:
        """Why there is no other rank at the end of a message, and what to do."""
        if 0 <= post.peer < len(self._ranks):
            return ", which is itself: a message goes to another rank, so leave its own number out"
        there = f"the ranks are 0 to {len(self._ranks) - 1}" if len(self._ranks) > 1 else "there is only rank 0"
        return f", and {there}: take the neighbor modulo the number of ranks"

    def _pass(self, sent: Key, received: Key) -> None:
        """A send and its receive have met."""
        send, receive = self._posted(sent), self._posted(received)
        if (send.dtype, send.count) != (receive.dtype, receive.count):
            told = f"rank {received[0]} receives {receive.count:,} {receive.dtype} (line {receive.line})"
            cause = f"{told}, rank {sent[0]} sends it {send.count:,} {send.dtype} (line {send.line})"
            verdict = Verdict.WRONG_SHAPE if send.dtype == receive.dtype else Verdict.WRONG_DTYPE
            return self._complain(verdict, cause, receive.line)
        self._transfers.append(Transfer("send", (sent, received), len(send.content), _is_float(send.dtype)))
        self._complete(sent, b"")
        return self._complete(received, self._delivered(send.dtype, send.content))

    def _collective(self, rank: int, key: Key, post: fabric.Post) -> None:
        """The n-th collective of one rank is that of every other."""
        if post.name != "barrier" and post.name not in self._allowed:
            return self._complain(Verdict.TAMPERED, f"rank {rank} does not speak as torch.distributed does")
        one = self._ranks[rank]
        if one.collectives == len(self._collectives):
            self._collectives.append([])
        met = self._collectives[one.collectives]
        one.collectives += 1
        met.append(key)
        first = self._posted(met[0])
        if (first.name, first.dtype, first.count, first.mean) != (post.name, post.dtype, post.count, post.mean):
            told = f"collective {one.collectives}: rank {rank} calls {_told(post)} (line {post.line})"
            cause = f"{told}, rank {met[0][0]} {_told(first)} (line {first.line})"
            return self._complain(Verdict.WRONG_SHAPE, cause, post.line)
        if len(met) < len(self._ranks):
            return None
        met.sort()
        self._transfers.append(Transfer(post.name, tuple(met), len(post.content)))
        total = self._sum([self._posted(other) for other in met]) if post.count else b""
        total = self._delivered(post.dtype, total)
        for other in met:
            self._complete(other, total)
        return None

    def _delivered(self, dtype: str, content: bytes) -> bytes:
        return perturb(dtype, content, self._perturbed) if self._perturbed else content

    def _sum(self, posts: Sequence[fabric.Post]) -> bytes:
        first = posts[0]
        total = torch.stack([from_bytes(one.dtype, [one.count], one.content, "cpu") for one in posts]).double().sum(0)
        if first.mean:
            total /= len(posts)
        return to_bytes(total.to(getattr(torch, first.dtype)))

    def _posted(self, key: Key) -> fabric.Post:
        return self._ranks[key[0]].posted[key[1]]

    def _complete(self, key: Key, content: bytes) -> None:
        rank, number = key
        one = self._ranks[rank]
        one.complete[number] = content
        if one.waits == number:
            self._answer_wait(one, number)

    def _await(self, rank: int, message: fabric.Await) -> None:
        one, number = self._ranks[rank], message.number
        post = one.posted.get(number)
        if post is None:
            return self._complain(Verdict.TAMPERED, f"rank {rank} does not speak as torch.distributed does")
        one.steps.append(Step("wait", number, line=message.line))
        if message.touched:
            what = "the buffer of a" if post.name in ("send", "recv") else "the tensor of an"
            cause = f"rank {rank} changes {what} {_told(post)} before it has waited for it"
            return self._complain(Verdict.RACE, cause, post.line)
        one.waits = number
        if number in one.complete:
            self._answer_wait(one, number)
        return None

    def _answer_wait(self, one: _Rank, number: int) -> None:
        one.waits = 0
        self._answer(one, fabric.Completion(one.complete[number]))

    def _answer(self, one: _Rank, message: fabric.ToRank) -> None:
        try:
            one.wire.send(message, _FRAME_SECONDS)
        except (ConnectionClosed, ResponseTimeout):
            one.left, one.raised = "its process has ended", True

    def _stuck(self) -> None:
        """Whether every rank that is left waits, and for what cannot come."""
        waiting = [(rank, one) for rank, one in enumerate(self._ranks) if one.waits]
        if not waiting or any(not one.left and not one.waits for one in self._ranks):
            return
        gone = [f"rank {rank} does not come: {one.left}" for rank, one in enumerate(self._ranks) if one.left]
        said = [*gone, *(f"rank {rank} waits in its {self._waits(one)}" for rank, one in waiting)]
        first = waiting[0][1].posted[waiting[0][1].waits]
        self._complain(Verdict.DEADLOCK, "; ".join([*said, *([] if gone else self._unmet(first))]), first.line)

    def _unmet(self, post: fabric.Post) -> list[str]:
        """What is posted in place of the message that would complete this one, and what to do. Of every rank waits."""
        if post.name not in _OPPOSITE:
            return []
        wanted = _OPPOSITE[post.name]
        open_ = [key for queue in self._queues.values() for key in queue if self._posted(key).name == wanted]
        if not open_:
            return [f"nobody has posted a {_KINDS[wanted]}: post both messages of a step before you wait for either"]
        of_peer = [self._posted(key) for key in open_ if key[0] == post.peer]
        return [f"rank {post.peer} has posted a {_told(one)} (line {one.line}) instead" for one in of_peer[:1]]

    def _silent(self, seconds: float) -> None:
        """No rank said anything for too long, and not all of them wait."""
        busy = [rank for rank, one in enumerate(self._ranks) if not one.left and not one.waits]
        said = [f"rank {rank} does not come within {seconds:.0f} s: an endless loop?" for rank in busy]
        said += [f"rank {rank} waits in its {self._waits(one)}" for rank, one in enumerate(self._ranks) if one.waits]
        self._complain(Verdict.TIMED_OUT, "; ".join(said))

    def _waits(self, one: _Rank) -> str:
        post = one.posted[one.waits]
        return f"{_told(post)} (line {post.line})"

    def _complain(self, verdict: Verdict, cause: str, line: int = 0) -> None:
        self.finding = self.finding or Finding(verdict, cause, line=line)


def _told(post: fabric.Post) -> str:
    if post.name == "barrier":
        return "barrier"
    if post.name == "all_reduce":
        return f"all_reduce of {post.count:,} elements"
    tag = f", tag {post.tag}" if post.tag else ""
    return f"{_NAMES[post.name]} rank {post.peer}{tag}"
