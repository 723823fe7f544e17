"""Limit the traffic between ranks and the time on simulated links, and explain them from the log of their steps."""

from __future__ import annotations

from collections.abc import Mapping

from kernelpath import words
from kernelpath.course.labs.fabric import Key, Links, Log, Span, Step, Timeline, Transfer, timeline
from kernelpath.course.problem import Case
from kernelpath.course.spec import Exercise
from kernelpath.verdict import Finding, NetworkTraffic, Verdict


def check_case(exercise: Exercise, case: Case, log: Log) -> Finding | None:
    """Return the first limit of the network that a case exceeds."""
    return (
        _check_received_bytes(exercise, case, log)
        or _check_sent_bytes(exercise, case, log)
        or _check_neighbors(exercise, case, log)
        or _check_time(exercise, case, log)
    )


def _check_received_bytes(exercise: Exercise, case: Case, log: Log) -> Finding | None:
    min_bytes = exercise.network.least
    if min_bytes is None or log.size <= 1:
        return None
    needed_bytes = min_bytes(**case)
    # A rank that gets its result past the exchange, for example through a file, receives too few bytes.
    rank = min(range(log.size), key=log.received)
    if log.received(rank) >= needed_bytes:
        return None
    symptom = f"rank {rank} receives {log.received(rank):,} bytes by torch.distributed, but at least {needed_bytes:,}"
    cause = f"{symptom} bytes of its result are known only to other ranks"
    return Finding(Verdict.NOT_YOUR_KERNEL, cause)


def _check_sent_bytes(exercise: Exercise, case: Case, log: Log) -> Finding | None:
    max_bytes = exercise.network.bytes
    if max_bytes is None:
        return None
    limit = max_bytes(**case)
    # The limit applies to each rank, so the one that sends most decides.
    rank = max(range(log.size), key=log.sent)
    if log.sent(rank) <= limit:
        return None
    sent = f"rank {rank} sends {log.sent(rank):,} bytes in {log.messages(rank)} messages"
    cause = f"{words.case(case)}: {sent}, at most {limit:,} are needed"
    return Finding(Verdict.TOO_MUCH_TRAFFIC, cause, line=log.line_of(rank))


def _check_neighbors(exercise: Exercise, case: Case, log: Log) -> Finding | None:
    ring_messages = exercise.network.ring_messages
    allowed = ring_messages(**case) if ring_messages is not None else None
    if allowed is None or (mistake := check_ring(log, allowed)) is None:
        return None
    cause, line = mistake
    return Finding(Verdict.WRONG_VALUES, f"{words.case(case)}: {cause}", line=line)


def _check_time(exercise: Exercise, case: Case, log: Log) -> Finding | None:
    limits = exercise.network
    simulated = timeline(log, limits.links)
    if limits.seconds is not None and simulated.end > (most_seconds := limits.seconds(**case)):
        links = f"links of {limits.links.latency * 1e6:.0f} µs and {limits.links.bandwidth / 1e9:.0f} GB/s"
        time_taken = f"{simulated.end * 1e6:.1f} µs on simulated {links}"
        limit = f"at most {most_seconds * 1e6:.1f} are allowed"
        # The latency of a chain of messages adds up, which explains most calls that are too slow.
        chain = f"{longest_chain(log)} messages in a row, each posted after a wait for the one before"
        cause = f"{words.case(case)}: {time_taken}, {limit}; {chain}"
        return Finding(Verdict.TOO_SLOW, cause, line=longest_wait(log, simulated))
    # In small cases, latency dominates, and there is too little compute to hide anything behind.
    if case is exercise.largest and simulated.hidden < limits.hidden:
        share = f"{simulated.hidden:.0%} of the communication is behind compute, {limits.hidden:.0%} required"
        reason, line = explain_exposed_communication(log, simulated)
        all_reduces = _describe_all_reduces(log, simulated.total("all_reduce", 0))
        return Finding(Verdict.TOO_SLOW, f"{share}; {all_reduces}; {reason}", line=line)
    return None


def _describe_all_reduces(log: Log, seconds: float) -> str:
    sizes = sorted(transfer.bytes for transfer in log.transfers if transfer.name == "all_reduce")
    if len(sizes) == 1:
        return f"one all-reduce of {sizes[0]:,} bytes takes {seconds * 1e6:.0f} µs"
    extent = f"{sizes[0]:,} to {sizes[-1]:,} bytes" if sizes else "nothing"
    return f"{len(sizes)} all-reduces of {extent} take {seconds * 1e6:.0f} µs"


def longest_chain(log: Log) -> int:
    """Return the length of the longest chain of messages, in which each is posted after a wait for the previous one.

    The ranks' steps are replayed. A message has depth d + 1, where d is the largest depth of the messages that its two
    ends had waited for when they were posted.
    """
    message_of: Mapping[Key, Transfer] = {
        key: transfer for transfer in log.transfers for key in transfer.keys if transfer.is_message
    }
    depth_at_post: dict[Key, int] = {}
    waited_depth = [0] * log.size
    next_step = [0] * log.size

    def depth(key: Key) -> int | None:
        """Return the depth of an operation's message: 0 for a collective, None where one end is not yet posted."""
        # A message has two ends, a send and a receive, and needs both to be posted.
        ends = message_of[key].keys if key in message_of else ()
        if any(end not in depth_at_post for end in ends):
            return None
        return max((depth_at_post[end] for end in ends), default=-1) + 1

    def advance(rank: int) -> bool:
        """Replay the next step of a rank. Return False where it has to wait for a message that is not yet posted."""
        step = log.steps[rank][next_step[rank]]
        key = (rank, step.number)
        if step.kind == "post":
            depth_at_post[key] = waited_depth[rank]
        if step.kind == "wait":
            message_depth = depth(key)
            if message_depth is None:
                return False
            waited_depth[rank] = max(waited_depth[rank], message_depth)
        next_step[rank] += 1
        return True

    # Each pass replays a step of the first rank that can go on. The loop ends when no rank can.
    while any(next_step[rank] < len(steps) and advance(rank) for rank, steps in enumerate(log.steps)):
        pass
    depths = (depth(key) for key in message_of)
    return max((message_depth for message_depth in depths if message_depth is not None), default=0)


def check_ring(log: Log, allowed: range) -> tuple[str, int] | None:
    """Return why the messages are not those of a ring, and the line that sends the first wrong message; None for a
    ring.

    In a ring every rank sends to its neighbors alone, where rank 0 and the last rank are neighbors. `allowed` has the
    numbers of messages that a rank may send.
    """
    for transfer in log.transfers:
        if not transfer.is_message:
            continue
        (source, number), (target, _) = transfer.keys
        # The difference modulo the size is 1 to the right neighbor, and size - 1 to the left one.
        if (target - source) % log.size not in (1, log.size - 1):
            cause = f"rank {source} sends a message to rank {target}; in a ring a rank sends to a neighbor alone"
            return cause, _first_line(
                [step for step in log.steps[source] if (step.kind, step.number) == ("post", number)]
            )
    for rank in range(log.size):
        if (sent := log.messages(rank)) not in allowed:
            steps = f"a ring of {log.size} takes {allowed.stop - 1}, one for each step"
            return f"rank {rank} sends {words.count(sent, 'message')}; {steps}", log.line_of(rank)
    return None


def measure_traffic(case: Case, log: Log, links: Links) -> NetworkTraffic:
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


def longest_wait(log: Log, simulated: Timeline) -> int:
    """Return the line in which rank 0 waits longest in total; 0 where it never waits."""
    lines = {step.number: step.line for step in log.steps[0] if step.kind == "wait"}
    seconds = dict.fromkeys(lines.values(), 0.0)
    for span in simulated.spans:
        if _is(span, "wait", 0):
            seconds[lines[int(span.label)]] += span.end - span.begin
    return max(seconds, key=lambda line: seconds[line], default=0)


def explain_exposed_communication(log: Log, simulated: Timeline) -> tuple[str, int]:
    """Return the reason why all-reduces do not overlap with compute, with advice, and the line to change."""
    rank = max(range(log.size), key=lambda rank: simulated.end - simulated.total("compute", rank))
    steps = log.steps[rank]
    last_compute = max((place for place, step in enumerate(steps) if step.kind == "compute"), default=0)
    posts = [step for step in steps if step.kind == "post"]
    early_waits = [step for step in steps[:last_compute] if step.kind == "wait"]
    last_compute_start = max((span.begin for span in simulated.spans if _is(span, "compute", rank)), default=0.0)
    waited_seconds = sum(
        span.end - span.begin for span in simulated.spans if _is(span, "wait", rank) and span.begin < last_compute_start
    )
    if early_waits and waited_seconds > 0:
        symptom = f"rank {rank} waits {_format_microseconds(waited_seconds)} for them before its last layer"
        return f"{symptom}: begin with async_op=True, and wait after the last backward()", early_waits[0].line
    if posts and not any(step.kind == "post" for step in steps[:last_compute]):
        return "none begins before the last backward() has returned: begin one when a bucket is full", posts[0].line
    compute_seconds = simulated.total("compute", rank)
    if simulated.total("all_reduce", rank) > compute_seconds:
        return (
            f"the layers take {_format_microseconds(compute_seconds)}: fewer and larger all-reduces cost less latency",
            _first_line(posts),
        )
    return "the last one begins after all layers: make its bucket smaller", _first_line(posts[-1:])


def _is(span: Span, kind: str, rank: int) -> bool:
    return span.kind == kind and span.rank == rank


def _first_line(steps: list[Step]) -> int:
    return steps[0].line if steps else 0


def _format_microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} µs"
