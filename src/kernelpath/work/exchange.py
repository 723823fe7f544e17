"""Pass on the messages of a group of ranks, count them, and detect exactly when no rank can go on.

The exchange is in the grader's process and trusts no rank. A send is complete when its receive has been posted, as is a
send of NCCL and a large send of gloo. A program that relies on buffered sends therefore ends in a deadlock, every time.
"""

from __future__ import annotations

import select
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
from kernelpath.work.process_clock import POLL_SECONDS, ProcessClock
from kernelpath.work.tensors import from_bytes, to_bytes

# The time by the wall clock that a rank has to send a frame that it has begun, and to read one.
_FRAME_SECONDS = 5.0

_PREPOSITIONS = {"send": "send to", "recv": "receive from"}
_VERBS = {"send": "send", "recv": "receive"}
_OPPOSITE: dict[str, fabric.OperationName] = {"send": "recv", "recv": "send"}


def _is_float(dtype: str) -> bool:
    """Return whether this names a floating-point dtype. A rank may send any name."""
    return dtype in BYTES and bool(getattr(torch, dtype).is_floating_point)


# Which messages are perturbed. Integers may be lengths, without which a program cannot go on.
Perturbed = Literal["", "floats", "all"]

# The bytes up to which a message of integers may be a length, or a token that a rank waits for.
CONTROL = 64


def perturb(dtype: str, content: bytes, which: Perturbed) -> bytes:
    """Return other values: floats become larger, so that differences do not cancel where they are added."""
    if _is_float(dtype):
        values = from_bytes(dtype, [len(content) // BYTES[dtype]], content, "cpu").double()
        return to_bytes((values + 1 + values.abs() / 4).to(getattr(torch, dtype)))
    if which == "all" and len(content) > CONTROL:
        return bytes(byte ^ 0x11 for byte in content)
    return content


@dataclass
class _RankState:
    """The exchange's state of one rank.

    Attributes:
        posted: Its operations by number.
        complete: The contents of its complete operations by number.
        waits_for: The number of the operation that it waits for; 0 where it does not wait.
        departure: Why it will send nothing more; empty where it may.
        collectives: How many collectives it has posted.
    """

    wire: Wire[fabric.FromRank]
    steps: list[Step] = field(default_factory=list)
    posted: dict[int, fabric.Post] = field(default_factory=dict)
    complete: dict[int, bytes] = field(default_factory=dict)
    waits_for: int = 0
    departure: str = ""
    raised: bool = False
    collectives: int = 0

    @property
    def is_running(self) -> bool:
        """True where the rank computes: it neither waits nor has departed."""
        return not self.departure and not self.waits_for


class Exchange:
    """The exchange of one call on every rank.

    Args:
        size: The number of ranks.
        collectives: The library's collectives that are allowed.
        parts: The seconds of each part that ranks compute, by its number.
        results: By rank, the result of each of its parts. No rank has it before it has computed that part.
        perturbed: Which messages are received with other values than were sent, so that a rank's result shows whether
            the rank uses what it receives.

    Attributes:
        ends: The ranks' ends of the sockets.
        finding: What went wrong between the ranks, when `serve` has returned.
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
        self.ends = [rank_end for _, rank_end in pairs]
        self.finding: Finding | None = None
        self._ranks = [_RankState(Wire(exchange_end, fabric.FromRank)) for exchange_end, _ in pairs]
        self._allowed_collectives = collectives
        self._parts = parts
        self._results = results
        self._perturbed = perturbed
        # The messages without a partner, by source, target, tag, and whether they are sends.
        self._unmatched: dict[tuple[int, int, int, bool], deque[Key]] = {}
        self._transfers: list[Transfer] = []
        # The operations of each collective, of the ranks that have posted it.
        self._collectives: list[list[Key]] = []

    def serve(self, seconds: float, pids: Sequence[int] = ()) -> None:
        """Pass on messages until every rank has left, none can go on, or the time limit is reached.

        Args:
            seconds: The time limit, by the ProcessClock of the ranks.
            pids: The processes of the ranks.
        """
        clock = ProcessClock(lambda: pids)
        while self.finding is None and (present := [state for state in self._ranks if not state.departure]):
            # A short wait, because the clock of the ranks advances without any message, too.
            ready = select.select([state.wire for state in present], [], [], POLL_SECONDS)[0]
            # A rank whose messages never end must not keep the group from its time limit.
            if clock.elapsed() >= seconds:
                return self._report_timeout(seconds)
            for rank, state in enumerate(self._ranks):
                if state.wire in ready and self.finding is None:
                    self._receive(rank)
            if self.finding is None:
                self._detect_deadlock()
        return None

    def close(self) -> None:
        """Tell the waiting ranks that the group has ended, and close all sockets."""
        for state in self._ranks:
            if state.waits_for and not state.departure:
                self._send(state, fabric.GroupEnd("the group has ended"))
            state.wire.close()
        for end in self.ends:
            end.close()

    @property
    def first_to_fail(self) -> list[int]:
        """The ranks that raised or died, in the order of their numbers."""
        return [rank for rank, state in enumerate(self._ranks) if state.raised]

    def log(self) -> Log:
        """Return the steps of the ranks and the transfers between them."""
        return Log([state.steps for state in self._ranks], self._transfers)

    def computed(self, rank: int) -> list[int]:
        """Return the parts that a rank computed, in its order."""
        return [step.number for step in self._ranks[rank].steps if step.kind == "compute"]

    def first_compute_line(self, rank: int) -> int:
        """Return the line of the submission in which a rank computed its first part; 0 where it computed none."""
        return next((step.line for step in self._ranks[rank].steps if step.kind == "compute"), 0)

    def _receive(self, rank: int) -> None:
        """Read a message of a rank and process it."""
        state = self._ranks[rank]
        try:
            message = state.wire.receive(_FRAME_SECONDS)
        except ConnectionClosed:
            # A departed rank is not read again, but what it has posted may still be received by others.
            state.departure = "its process has ended"
            state.raised = True
            return
        except (ProtocolError, ResponseTimeout):
            self._report_tampering(rank)
            return
        match message:
            case fabric.Post():
                self._post(rank, message)
            case fabric.Await():
                self._await(rank, message)
            case fabric.Poll(number=number):
                self._send(state, fabric.PollResult(number in state.complete))
            case fabric.ComputePart(part=part, line=line) if 0 <= part < len(self._parts):
                state.steps.append(Step("compute", part, self._parts[part], line))
                self._send(state, fabric.Completion(self._results[rank][part]))
            case fabric.UnsupportedCollective(name=name, line=line):
                cause = f"rank {rank} calls torch.distributed's {name}; write it with send and receive"
                self._report(Verdict.NOT_YOUR_KERNEL, cause, line)
            case fabric.Leave():
                self._leave(rank, message)
            case _:
                self._report(Verdict.TAMPERED, f"rank {rank} computed a part that it was not given")

    def _leave(self, rank: int, message: fabric.Leave) -> None:
        state = self._ranks[rank]
        state.departure = "it raised an exception" if message.raised else "it has returned"
        state.raised = message.raised
        open_operations = [state.posted[number] for number in message.open if number in state.posted]
        if open_operations and not message.raised:
            first = open_operations[0]
            cause = f"rank {rank} returned before its {_describe_post(first)} was complete: wait for every request"
            self._report(Verdict.RACE, cause, first.line)

    def _post(self, rank: int, post: fabric.Post) -> None:
        state = self._ranks[rank]
        # All that a rank sends is untrusted: each field is checked before it is used as an index or as a size.
        key = (rank, post.number)
        size = post.count * BYTES.get(post.dtype, 0)
        # A Member numbers its operations from 1, and sends exactly the bytes of its tensor. Something else wrote this
        # message.
        if post.number != len(state.posted) + 1 or (post.name != "recv" and len(post.content) != size):
            return self._report_tampering(rank)
        state.posted[post.number] = post
        state.steps.append(Step("post", post.number, line=post.line))
        if post.name in ("all_reduce", "barrier"):
            return self._match_collective(rank, key, post)
        if post.peer == rank or not 0 <= post.peer < len(self._ranks):
            cause = f"rank {rank} posts a {_describe_post(post)}{self._describe_missing_peer(post)}"
            return self._report(Verdict.CRASHED, cause, post.line)
        is_send = post.name == "send"
        source, target = (rank, post.peer) if is_send else (post.peer, rank)
        # Messages between two ranks with one tag match in the order in which they were posted, as in MPI.
        partners = self._unmatched.setdefault((source, target, post.tag, not is_send), deque())
        if not partners:
            self._unmatched.setdefault((source, target, post.tag, is_send), deque()).append(key)
            return None
        partner = partners.popleft()
        return self._transfer(*((key, partner) if is_send else (partner, key)))

    def _describe_missing_peer(self, post: fabric.Post) -> str:
        """Say why there is no other rank at the end of a message, and what to do."""
        if 0 <= post.peer < len(self._ranks):
            return ", which is itself: a message goes to another rank, so leave its own number out"
        ranks = f"the ranks are 0 to {len(self._ranks) - 1}" if len(self._ranks) > 1 else "there is only rank 0"
        return f", and {ranks}: take the neighbor modulo the number of ranks"

    def _transfer(self, sent: Key, received: Key) -> None:
        """Complete a send and its matching receive."""
        send = self._posted(sent)
        receive = self._posted(received)
        if (send.dtype, send.count) != (receive.dtype, receive.count):
            received_part = f"rank {received[0]} receives {receive.count:,} {receive.dtype} (line {receive.line})"
            cause = f"{received_part}, rank {sent[0]} sends it {send.count:,} {send.dtype} (line {send.line})"
            verdict = Verdict.WRONG_SHAPE if send.dtype == receive.dtype else Verdict.WRONG_DTYPE
            return self._report(verdict, cause, receive.line)
        # The log is written by the exchange and not by the ranks, so limits on the network cannot be evaded.
        self._transfers.append(Transfer("send", (sent, received), len(send.content), _is_float(send.dtype)))
        self._complete(sent, b"")
        return self._complete(received, self._perturb(send.dtype, send.content))

    def _match_collective(self, rank: int, key: Key, post: fabric.Post) -> None:
        """Match the n-th collective of a rank with the n-th collective of every other rank, and complete the last."""
        # A Member refuses other collectives itself, so this message does not come from a Member.
        if post.name != "barrier" and post.name not in self._allowed_collectives:
            return self._report_tampering(rank)
        state = self._ranks[rank]
        if state.collectives == len(self._collectives):
            self._collectives.append([])
        keys = self._collectives[state.collectives]
        state.collectives += 1
        keys.append(key)
        first = self._posted(keys[0])
        if (first.name, first.dtype, first.count, first.mean) != (post.name, post.dtype, post.count, post.mean):
            own_part = f"collective {state.collectives}: rank {rank} calls {_describe_post(post)} (line {post.line})"
            cause = f"{own_part}, rank {keys[0][0]} {_describe_post(first)} (line {first.line})"
            return self._report(Verdict.WRONG_SHAPE, cause, post.line)
        if len(keys) < len(self._ranks):
            return None
        keys.sort()  # the order of the ranks, so that sums are the same in every run
        self._transfers.append(Transfer(post.name, tuple(keys), len(post.content)))
        total = self._sum([self._posted(member_key) for member_key in keys]) if post.count else b""
        total = self._perturb(post.dtype, total)
        for member_key in keys:
            self._complete(member_key, total)
        return None

    def _perturb(self, dtype: str, content: bytes) -> bytes:
        return perturb(dtype, content, self._perturbed) if self._perturbed else content

    def _sum(self, posts: Sequence[fabric.Post]) -> bytes:
        first = posts[0]
        tensors = [from_bytes(post.dtype, [post.count], post.content, "cpu") for post in posts]
        total = torch.stack(tensors).double().sum(0)
        if first.mean:
            total /= len(posts)
        return to_bytes(total.to(getattr(torch, first.dtype)))

    def _posted(self, key: Key) -> fabric.Post:
        rank, number = key
        return self._ranks[rank].posted[number]

    def _complete(self, key: Key, content: bytes) -> None:
        rank, number = key
        state = self._ranks[rank]
        state.complete[number] = content
        if state.waits_for == number:
            self._end_wait(state, number)

    def _await(self, rank: int, message: fabric.Await) -> None:
        state = self._ranks[rank]
        number = message.number
        post = state.posted.get(number)
        if post is None:
            return self._report_tampering(rank)
        state.steps.append(Step("wait", number, line=message.line))
        if message.touched:
            owner = "the buffer of a" if post.name in ("send", "recv") else "the tensor of an"
            cause = f"rank {rank} changes {owner} {_describe_post(post)} before it has waited for it"
            return self._report(Verdict.RACE, cause, post.line)
        state.waits_for = number
        if number in state.complete:
            self._end_wait(state, number)
        return None

    def _end_wait(self, state: _RankState, number: int) -> None:
        state.waits_for = 0
        self._send(state, fabric.Completion(state.complete[number]))

    def _send(self, state: _RankState, message: fabric.ToRank) -> None:
        try:
            state.wire.send(message, _FRAME_SECONDS)
        except (ConnectionClosed, ResponseTimeout):
            state.departure = "its process has ended"
            state.raised = True

    def _detect_deadlock(self) -> None:
        """Report a deadlock where every remaining rank waits.

        This is exact: a rank that waits does nothing until the exchange answers, and the exchange answers when the
        operation completes, which only a message of a rank that runs could cause.
        """
        waiting = [(rank, state) for rank, state in enumerate(self._ranks) if state.waits_for]
        if not waiting or any(state.is_running for state in self._ranks):
            return
        departed = [
            f"rank {rank} does not come: {state.departure}" for rank, state in enumerate(self._ranks) if state.departure
        ]
        waits = [f"rank {rank} waits in its {self._describe_wait(state)}" for rank, state in waiting]
        first_state = waiting[0][1]
        first = first_state.posted[first_state.waits_for]
        explanation = [] if departed else self._explain_unmatched(first)
        self._report(Verdict.DEADLOCK, "; ".join([*departed, *waits, *explanation]), first.line)

    def _explain_unmatched(self, post: fabric.Post) -> list[str]:
        """Say what was posted instead of the message that would complete this one, and what to do.

        Every rank waits, so the message will not be posted any more.
        """
        if post.name not in _OPPOSITE:
            return []
        needed = _OPPOSITE[post.name]
        unmatched = [key for queue in self._unmatched.values() for key in queue if self._posted(key).name == needed]
        if not unmatched:
            return [f"nobody has posted a {_VERBS[needed]}: post both messages of a step before you wait for either"]
        of_peer = [self._posted(key) for key in unmatched if key[0] == post.peer]
        return [
            f"rank {post.peer} has posted a {_describe_post(candidate)} (line {candidate.line}) instead"
            for candidate in of_peer[:1]
        ]

    def _report_timeout(self, seconds: float) -> None:
        """Report that no rank sent anything for too long, though not all of them wait."""
        causes = [
            f"rank {rank} does not come within {seconds:.0f} s: an endless loop?"
            for rank, state in enumerate(self._ranks)
            if state.is_running
        ]
        causes += [
            f"rank {rank} waits in its {self._describe_wait(state)}"
            for rank, state in enumerate(self._ranks)
            if state.waits_for
        ]
        self._report(Verdict.TIMED_OUT, "; ".join(causes))

    def _describe_wait(self, state: _RankState) -> str:
        post = state.posted[state.waits_for]
        return f"{_describe_post(post)} (line {post.line})"

    def _report_tampering(self, rank: int) -> None:
        self._report(Verdict.TAMPERED, f"rank {rank} does not follow the protocol of torch.distributed")

    def _report(self, verdict: Verdict, cause: str, line: int = 0) -> None:
        """Keep the first finding."""
        self.finding = self.finding or Finding(verdict, cause, line=line)


def _describe_post(post: fabric.Post) -> str:
    if post.name == "barrier":
        return "barrier"
    if post.name == "all_reduce":
        return f"all_reduce of {post.count:,} elements"
    tag = f", tag {post.tag}" if post.tag else ""
    return f"{_PREPOSITIONS[post.name]} rank {post.peer}{tag}"
