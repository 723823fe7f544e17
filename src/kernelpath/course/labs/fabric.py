"""Ranks on simulated links: what they posted, in the order of their programs, becomes a timeline with exact times.

The model is alpha + n / beta: a message arrives `latency` seconds after its last byte has left, and every rank has one
port out and one port in, full duplex, as GPUs behind an NVSwitch have. A message begins when both sides have posted it
and both ports are free. Collectives run on a stream of their own, in the order of their calls, as NCCL's do.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Key = tuple[int, int]
"""An operation: the rank that posted it, and its number there."""


@dataclass(frozen=True)
class Step:
    """What a rank did: computed for so many seconds, posted an operation, or waited for one.

    line: of the submission, 0 where that is not known.
    """

    kind: Literal["compute", "post", "wait"]
    number: int = 0
    seconds: float = 0.0
    line: int = 0


@dataclass(frozen=True)
class Transfer:
    """Operations that were matched: of a message the send and the receive, of a collective one of every rank.

    floats: whether it moves floating-point numbers.
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
    """All that a group of ranks did. steps: by rank, in the order of its program."""

    steps: Sequence[Sequence[Step]]
    transfers: Sequence[Transfer]

    @property
    def size(self) -> int:
        return len(self.steps)

    def sent(self, rank: int) -> int:
        """Bytes that a rank sent in messages, and those that it gave to collectives."""
        return sum(one.bytes for one in self.transfers if not one.is_message or one.keys[0][0] == rank)

    def received(self, rank: int) -> int:
        """Bytes that a rank received in messages, and those that collectives gave to it."""
        return sum(one.bytes for one in self.transfers if not one.is_message or one.keys[1][0] == rank)

    def line_of(self, rank: int) -> int:
        """The line of the submission that sends most bytes of a rank; 0 where nothing is sent."""
        lines = {step.number: step.line for step in self.steps[rank] if step.kind == "post"}
        sent: Counter[int] = Counter()
        for one in self.transfers:
            senders = one.keys[:1] if one.is_message else one.keys
            sent.update({lines[number]: one.bytes for sender, number in senders if sender == rank})
        return max(sent, key=lambda line: sent[line], default=0)

    def messages(self, rank: int) -> int:
        """How many messages a rank sent, and collectives that it was part of."""
        return sum(not one.is_message or one.keys[0][0] == rank for one in self.transfers)


@dataclass(frozen=True)
class Layers:
    """A model's layers among the inputs of an exercise: elements of each gradient, seconds of each backward pass.

    The first input holds the gradients of a rank, float32, one after another; the entry takes the layers in its place.
    """

    sizes: tuple[int, ...]
    seconds: tuple[float, ...]


@dataclass(frozen=True)
class Links:
    """latency: seconds (alpha). bandwidth: bytes per second of a port, each way (beta)."""

    latency: float
    bandwidth: float

    def collective(self, name: str, size: int, count: int) -> float:
        """Seconds of a ring: an all-reduce of so many bytes, or a barrier, over `size` ranks."""
        rounds = 2 * (size - 1)
        return rounds * (self.latency + (count / size / self.bandwidth if name == "all_reduce" else 0.0))


NVLINK = Links(latency=2e-6, bandwidth=400e9)
"""Round numbers of the kind that a GPU's links have; week 16's notebook fits those of two H200s."""

ETHERNET = Links(latency=5e-6, bandwidth=10e9)
"""Of the kind that a network between hosts has."""


@dataclass(frozen=True)
class Span:
    """Something that took time on a rank: "compute", "wait", "send" (its port out) or the name of a collective.

    label: of compute its part, of a wait the operation that it waits for.
    """

    rank: int
    kind: str
    begin: float
    end: float
    label: str = ""


@dataclass
class Timeline:
    """What a run takes on simulated links. Seconds."""

    spans: list[Span] = field(default_factory=list)
    end: float = 0.0

    def total(self, kind: str, rank: int) -> float:
        return sum(span.end - span.begin for span in self.spans if span.kind == kind and span.rank == rank)

    @property
    def hidden(self) -> float:
        """The share of its collectives' and sends' time that a rank spends behind compute, of the one that hides least.

        1 where nothing is exchanged.
        """
        shares = []
        for rank in {span.rank for span in self.spans}:
            busy = sum(self.total(kind, rank) for kind in ("all_reduce", "barrier", "send"))
            exposed = self.end - self.total("compute", rank)
            shares.append(1.0 - exposed / busy if busy else 1.0)
        return max(0.0, min(shares, default=1.0))


def timeline(log: Log, links: Links) -> Timeline:
    """When everything happened. What no rank completed takes no time."""
    return _Simulation(log, links).run()


class _Simulation:
    """Discrete events: ranks that go on, and transfers that end, in the order of time."""

    def __init__(self, log: Log, links: Links) -> None:
        self.log, self.links, self.timeline = log, links, Timeline()
        self._of: Mapping[Key, Transfer] = {key: one for one in log.transfers for key in one.keys}
        self._posted: dict[Key, float] = {}
        self._done: dict[Key, float] = {}
        self._waits: dict[Key, tuple[int, float]] = {}
        self._at = [0] * log.size
        self._free: dict[object, float] = {}
        self._ready: list[tuple[float, int, Transfer]] = []
        self._order = {id(one): place for place, one in enumerate(log.transfers)}
        self._events: list[tuple[float, int, int, object]] = []
        self._count = itertools.count()

    def run(self) -> Timeline:
        for rank in range(self.log.size):
            self._later(0.0, 0, rank)
        while self._events:
            now, kind, _, what = heapq.heappop(self._events)
            if kind == 0:
                assert isinstance(what, int)
                self._go_on(what, now)
            else:
                self._begin(now)
        return self.timeline

    def _later(self, when: float, kind: int, what: object = None) -> None:
        """kind: 0 for a rank that goes on, 1 for a look at what may begin, which comes after all ranks of that time."""
        heapq.heappush(self._events, (when, kind, next(self._count), what))

    def _go_on(self, rank: int, now: float) -> None:
        """A rank's program up to where it computes or waits."""
        steps = self.log.steps[rank]
        self.timeline.end = max(self.timeline.end, now)
        while self._at[rank] < len(steps):
            step = steps[self._at[rank]]
            self._at[rank] += 1
            key = (rank, step.number)
            if step.kind == "compute":
                self._span(rank, "compute", now, now + step.seconds, str(step.number))
                return self._later(now + step.seconds, 0, rank)
            if step.kind == "post":
                self._post(key, now)
            elif key in self._done and self._done[key] <= now:
                continue
            else:
                self._waits[key] = (rank, now)
                return self._wake(key) if key in self._done else None
        return None

    def _post(self, key: Key, now: float) -> None:
        self._posted[key] = now
        transfer = self._of.get(key)
        if transfer is not None and all(other in self._posted for other in transfer.keys):
            heapq.heappush(self._ready, (now, self._order[id(transfer)], transfer))
            self._later(now, 1)

    def _begin(self, now: float) -> None:
        """Begin what is ready and has its ports free, what was ready first before the others."""
        kept = []
        while self._ready:
            since, order, transfer = heapq.heappop(self._ready)
            ports = self._ports(transfer)
            if all(self._free.get(port, 0.0) <= now for port in ports):
                self._transfer(transfer, ports, now)
            else:
                kept.append((since, order, transfer))
        self._ready = kept
        heapq.heapify(self._ready)

    def _ports(self, transfer: Transfer) -> tuple[object, ...]:
        if not transfer.is_message:
            return ("collectives",)
        (source, _), (target, _) = transfer.keys
        return ("out", source), ("in", target)

    def _transfer(self, transfer: Transfer, ports: Sequence[object], now: float) -> None:
        if transfer.is_message:
            free = now + transfer.bytes / self.links.bandwidth
            end = free + self.links.latency
            self._span(transfer.keys[0][0], "send", now, end, f"to {transfer.keys[1][0]}")
        else:
            free = end = now + self.links.collective(transfer.name, self.log.size, transfer.bytes)
            for rank in range(self.log.size):
                self._span(rank, transfer.name, now, end, f"{transfer.bytes:,} bytes")
        for port in ports:
            self._free[port] = free
        self._later(free, 1)
        for key in transfer.keys:
            self._done[key] = end
            self._wake(key)

    def _wake(self, key: Key) -> None:
        if key in self._waits:
            rank, since = self._waits.pop(key)
            self._span(rank, "wait", since, self._done[key], str(key[1]))
            self._later(self._done[key], 0, rank)

    def _span(self, rank: int, kind: str, begin: float, end: float, label: str = "") -> None:
        self.timeline.spans.append(Span(rank, kind, begin, end, label))
        if kind != "wait":
            self.timeline.end = max(self.timeline.end, end)
