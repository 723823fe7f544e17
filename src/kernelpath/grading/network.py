"""Why ranks take longer on simulated links than they may: what their log shows beside its times."""

from __future__ import annotations

from collections.abc import Mapping

from kernelpath import words
from kernelpath.course.labs.fabric import Key, Links, Log, Span, Step, Timeline, Transfer, timeline
from kernelpath.course.problem import Case
from kernelpath.verdict import NetworkTraffic


def longest_chain(log: Log) -> int:
    """How many messages follow each other: each is posted by a rank that has waited for the one before."""
    of: Mapping[Key, Transfer] = {key: one for one in log.transfers for key in one.keys if one.is_message}
    before: dict[Key, int] = {}
    behind, at = [0] * log.size, [0] * log.size

    def depth(key: Key) -> int | None:
        """Of the message of an operation: 0 of none, None where one of its ends is still to come."""
        ends = of[key].keys if key in of else ()
        if any(end not in before for end in ends):
            return None
        return max((before[end] for end in ends), default=-1) + 1

    def step(rank: int) -> bool:
        """Whether a rank can go on."""
        now = log.steps[rank][at[rank]]
        key = (rank, now.number)
        if now.kind == "post":
            before[key] = behind[rank]
        if now.kind == "wait":
            reached = depth(key)
            if reached is None:
                return False
            behind[rank] = max(behind[rank], reached)
        at[rank] += 1
        return True

    while any(at[rank] < len(steps) and step(rank) for rank, steps in enumerate(log.steps)):
        pass
    return max((found for key in of if (found := depth(key)) is not None), default=0)


def not_a_ring(log: Log, allowed: range) -> tuple[str, int] | None:
    """Say why the messages are not those of a ring, with the line that sends the first wrong one.

    Every rank sends to a neighbor alone, rank 0 and the last rank being neighbors; `allowed` numbers of messages.
    """
    for transfer in log.transfers:
        if not transfer.is_message:
            continue
        (source, number), (target, _) = transfer.keys
        if (target - source) % log.size not in (1, log.size - 1):
            cause = f"rank {source} sends a message to rank {target}; in a ring a rank sends to a neighbor alone"
            return cause, _line([step for step in log.steps[source] if (step.kind, step.number) == ("post", number)])
    for rank in range(log.size):
        if (sent := log.messages(rank)) not in allowed:
            steps = f"a ring of {log.size} takes {allowed.stop - 1}, one for each step"
            return f"rank {rank} sends {words.count(sent, 'message')}; {steps}", log.line_of(rank)
    return None


def traffic(case: Case, log: Log, links: Links) -> NetworkTraffic:
    """Count what the ranks of a case sent, and time it on simulated links."""
    simulated = timeline(log, links)
    computes = any(step.kind == "compute" for steps in log.steps for step in steps)
    return NetworkTraffic(
        case=case,
        messages=max(map(log.messages, range(log.size))),
        bytes=max(map(log.sent, range(log.size))),
        seconds=simulated.end,
        hidden=simulated.hidden if computes else None,
    )


def longest_wait(log: Log, found: Timeline) -> int:
    """The line in which rank 0 waits longest in all; 0 where it waits nowhere."""
    lines = {step.number: step.line for step in log.steps[0] if step.kind == "wait"}
    seconds = dict.fromkeys(lines.values(), 0.0)
    for span in found.spans:
        if _is(span, "wait", 0):
            seconds[lines[int(span.label)]] += span.end - span.begin
    return max(seconds, key=lambda line: seconds[line], default=0)


def exposed(log: Log, found: Timeline) -> tuple[str, int]:
    """What keeps all-reduces from passing behind compute, with what to do, and the line of it."""
    rank = max(range(log.size), key=lambda one: found.end - found.total("compute", one))
    steps = log.steps[rank]
    last = max((place for place, step in enumerate(steps) if step.kind == "compute"), default=0)
    posts = [step for step in steps if step.kind == "post"]
    early = [step for step in steps[:last] if step.kind == "wait"]
    begun = max((span.begin for span in found.spans if _is(span, "compute", rank)), default=0.0)
    waited = sum(span.end - span.begin for span in found.spans if _is(span, "wait", rank) and span.begin < begun)
    if early and waited > 0:
        told = f"rank {rank} waits {_micro(waited)} for them before its last layer"
        told += ": begin with async_op=True, and wait after the last backward()"
        return told, early[0].line
    if posts and not any(step.kind == "post" for step in steps[:last]):
        return "none begins before the last backward() has returned: begin one when a bucket is full", posts[0].line
    computed = found.total("compute", rank)
    if found.total("all_reduce", rank) > computed:
        return f"the layers take {_micro(computed)}: fewer and larger all-reduces cost less latency", _line(posts)
    return "the last one begins after all layers: make its bucket smaller", _line(posts[-1:])


def _is(span: Span, kind: str, rank: int) -> bool:
    return span.kind == kind and span.rank == rank


def _line(steps: list[Step]) -> int:
    return steps[0].line if steps else 0


def _micro(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} µs"
