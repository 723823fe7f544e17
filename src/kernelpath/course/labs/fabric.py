"""Simulate ranks on links: what they posted, in the order of their programs, becomes a timeline with exact times.

The model is alpha + n / beta: a message arrives `latency` seconds after its last byte has left, and every rank has one
port out and one port in, full duplex, as GPUs behind an NVSwitch have. A message starts when both sides have posted it
and both ports are free. Collectives run on a stream of their own, in the order of their calls, as NCCL's do.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

# An operation: the rank that posted it, and its number there.
Key = tuple[int, int]


@dataclass(frozen=True)
class Step:
    """An action of a rank: it computed for so many seconds, posted an operation, or waited for one.

    Attributes:
        line: The line of the submission, 0 if unknown.
    """

    kind: Literal["compute", "post", "wait"]
    number: int = 0
    seconds: float = 0.0
    line: int = 0


@dataclass(frozen=True)
class Transfer:
    """Operations that were matched: the send and the receive of a message, or one of every rank for a collective.

    Attributes:
        floats: Whether it moves floating-point numbers.
    """

    name: str
    keys: tuple[Key, ...]
    bytes: int
    floats: bool = True

    @property
    def is_message(self) -> bool:
        return self.name == "send"


@dataclass(frozen=True)
class Log:
    """All actions of a group of ranks.

    Attributes:
        steps: The steps by rank, in the order of its program.
    """

    steps: Sequence[Sequence[Step]]
    transfers: Sequence[Transfer]

    @property
    def size(self) -> int:
        return len(self.steps)

    def sent(self, rank: int) -> int:
        """Return the bytes that a rank sent in messages and passed to collectives."""
        return sum(
            transfer.bytes for transfer in self.transfers if not transfer.is_message or transfer.keys[0][0] == rank
        )

    def received(self, rank: int) -> int:
        """Return the bytes that a rank received in messages and from collectives."""
        return sum(
            transfer.bytes for transfer in self.transfers if not transfer.is_message or transfer.keys[1][0] == rank
        )

    def line_of(self, rank: int) -> int:
        """Return the line of the submission that sends most bytes of a rank; 0 if nothing is sent."""
        lines = {step.number: step.line for step in self.steps[rank] if step.kind == "post"}
        sent: Counter[int] = Counter()
        for transfer in self.transfers:
            senders = transfer.keys[:1] if transfer.is_message else transfer.keys
            sent.update({lines[number]: transfer.bytes for sender, number in senders if sender == rank})
        return max(sent, key=lambda line: sent[line], default=0)

    def messages(self, rank: int) -> int:
        """Return the number of messages that a rank sent, and collectives that it took part in."""
        return sum(not transfer.is_message or transfer.keys[0][0] == rank for transfer in self.transfers)


@dataclass(frozen=True)
class Layers:
    """A model's layers among the inputs of an exercise: elements of each gradient, seconds of each backward pass.

    The first input holds the gradients of a rank, float32, one after another; the entry gets the layers in this place.
    """

    sizes: tuple[int, ...]
    seconds: tuple[float, ...]


@dataclass(frozen=True)
class Links:
    """The properties of a rank's links.

    Attributes:
        latency: Seconds (alpha).
        bandwidth: Bytes per second of a port, each way (beta).
    """

    latency: float
    bandwidth: float

    def collective(self, name: str, size: int, count: int) -> float:
        """Return the seconds of a ring over `size` ranks: an all-reduce of `count` bytes, or a barrier."""
        # size - 1 rounds reduce and scatter, and as many gather. Each moves a size-th of the bytes.
        rounds = 2 * (size - 1)
        return rounds * (self.latency + (count / size / self.bandwidth if name == "all_reduce" else 0.0))


# Round numbers, similar to a GPU's links; week 16's notebook fits those of two H200s.
NVLINK = Links(latency=2e-6, bandwidth=400e9)

# Round numbers, similar to a network between hosts.
ETHERNET = Links(latency=5e-6, bandwidth=10e9)


@dataclass(frozen=True)
class Span:
    """An interval on a rank: "compute", "wait", "send" (its port out) or the name of a collective.

    Attributes:
        label: The part of a computation, or the operation that a wait is for.
    """

    rank: int
    kind: str
    begin: float
    end: float
    label: str = ""


@dataclass
class Timeline:
    """The duration of a run on simulated links, in seconds."""

    spans: list[Span] = field(default_factory=list)
    end: float = 0.0

    def total(self, kind: str, rank: int) -> float:
        return sum(span.end - span.begin for span in self.spans if span.kind == kind and span.rank == rank)

    @property
    def hidden(self) -> float:
        """Return the smallest share of a rank's communication time that is hidden behind compute.

        The share is 1 if nothing is exchanged.
        """
        shares = []
        for rank in {span.rank for span in self.spans}:
            busy = sum(self.total(kind, rank) for kind in ("all_reduce", "barrier", "send"))
            exposed = self.end - self.total("compute", rank)
            # `exposed` is the time in which the rank does not compute: it waits for communication, or for slower ranks.
            shares.append(1.0 - exposed / busy if busy else 1.0)
        return max(0.0, min(shares, default=1.0))


def timeline(log: Log, links: Links) -> Timeline:
    """Simulate the run. An operation that no rank completed takes no time."""
    return _Simulation(log, links).run()


def _program_order(transfer: Transfer) -> tuple[int, tuple[Key, ...]]:
    """Return what orders transfers that become ready at the same time: their place in the programs of the ranks.

    The order of the log does not: it is the one in which the processes of the ranks happened to meet.
    """
    return max(number for _, number in transfer.keys), transfer.keys


class _Simulation:
    """A discrete-event simulation: ranks that continue, and transfers that end, in the order of time."""

    def __init__(self, log: Log, links: Links) -> None:
        self.log = log
        self.links = links
        self.timeline = Timeline()
        self._transfer_of: Mapping[Key, Transfer] = {
            key: transfer for transfer in log.transfers for key in transfer.keys
        }
        # The times at which operations were posted, and at which their transfers end, which may be in the future.
        self._posted: dict[Key, float] = {}
        self._done: dict[Key, float] = {}
        # The rank that waits for an operation, and since when.
        self._waits: dict[Key, tuple[int, float]] = {}
        self._next_step = [0] * log.size
        # The time from which on a port is free.
        self._free: dict[object, float] = {}
        # A heap of transfers that both sides have posted: since when, and their place in the programs.
        self._ready: list[tuple[float, tuple[int, tuple[Key, ...]], Transfer]] = []
        # A heap: time, kind, a count that breaks ties, and the rank of kind 0; see `_schedule`.
        self._events: list[tuple[float, int, int, object]] = []
        self._count = itertools.count()

    def run(self) -> Timeline:
        for rank in range(self.log.size):
            self._schedule(0.0, 0, rank)
        while self._events:
            now, kind, _, payload = heapq.heappop(self._events)
            if kind == 0:
                assert isinstance(payload, int)
                self._run_rank(payload, now)
            else:
                self._start_ready_transfers(now)
        return self.timeline

    def _schedule(self, when: float, kind: int, what: object = None) -> None:
        """Schedule an event.

        Args:
            kind: 0 for a rank that continues, 1 for an attempt to start transfers, which comes after all ranks of that
                time.
        """
        # The count keeps events of one time and kind in order. Without it, heapq would compare their payloads.
        heapq.heappush(self._events, (when, kind, next(self._count), what))

    def _run_rank(self, rank: int, now: float) -> None:
        """Run a rank's program up to its next computation or wait."""
        steps = self.log.steps[rank]
        # The run ends with the last action of a rank; a transfer that nobody waits for does not prolong it.
        self.timeline.end = max(self.timeline.end, now)
        while self._next_step[rank] < len(steps):
            step = steps[self._next_step[rank]]
            self._next_step[rank] += 1
            key = (rank, step.number)
            if step.kind == "compute":
                self._span(rank, "compute", now, now + step.seconds, str(step.number))
                return self._schedule(now + step.seconds, 0, rank)
            if step.kind == "post":
                self._post(key, now)
            elif key in self._done and self._done[key] <= now:
                continue
            else:
                self._waits[key] = (rank, now)
                # A transfer that has begun has an end in the future, at which the rank goes on. Otherwise the transfer
                # wakes the rank.
                return self._wake(key) if key in self._done else None
        return None

    def _post(self, key: Key, now: float) -> None:
        self._posted[key] = now
        transfer = self._transfer_of.get(key)
        if transfer is not None and all(other_key in self._posted for other_key in transfer.keys):
            heapq.heappush(self._ready, (now, _program_order(transfer), transfer))
            self._schedule(now, 1)

    def _start_ready_transfers(self, now: float) -> None:
        """Start the ready transfers whose ports are free, in the order in which they became ready."""
        postponed = []
        while self._ready:
            since, order, transfer = heapq.heappop(self._ready)
            ports = self._ports(transfer)
            if all(self._free.get(port, 0.0) <= now for port in ports):
                self._transfer(transfer, ports, now)
            else:
                postponed.append((since, order, transfer))
        # With the time at which they became ready, postponed transfers stay ahead of those that become ready later.
        self._ready = postponed
        heapq.heapify(self._ready)

    def _ports(self, transfer: Transfer) -> tuple[object, ...]:
        if not transfer.is_message:
            return ("collectives",)
        (source, _), (target, _) = transfer.keys
        return ("out", source), ("in", target)

    def _transfer(self, transfer: Transfer, ports: Sequence[object], now: float) -> None:
        if transfer.is_message:
            # A port is free when the last byte has left it: the latency of a message overlaps with the next message.
            free = now + transfer.bytes / self.links.bandwidth
            end = free + self.links.latency
            self._span(transfer.keys[0][0], "send", now, end, f"to {transfer.keys[1][0]}")
        else:
            free = end = now + self.links.collective(transfer.name, self.log.size, transfer.bytes)
            for rank in range(self.log.size):
                self._span(rank, transfer.name, now, end, f"{transfer.bytes:,} bytes")
        for port in ports:
            self._free[port] = free
        self._schedule(free, 1)
        for key in transfer.keys:
            self._done[key] = end
            self._wake(key)

    def _wake(self, key: Key) -> None:
        if key in self._waits:
            rank, since = self._waits.pop(key)
            self._span(rank, "wait", since, self._done[key], str(key[1]))
            self._schedule(self._done[key], 0, rank)

    def _span(self, rank: int, kind: str, begin: float, end: float, label: str = "") -> None:
        self.timeline.spans.append(Span(rank, kind, begin, end, label))
        if kind != "wait":
            self.timeline.end = max(self.timeline.end, end)
