"""Exercises of several ranks: a process each, whose messages pass through an exchange of the grader's.

Bytes and messages are counted there, and what the ranks did is timed on simulated links: the same numbers on every
machine. Nothing here needs a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from kernelpath.course.inputs import PLAIN, InputMode
from kernelpath.course.labs.fabric import Layers, Log, timeline
from kernelpath.course.problem import Case
from kernelpath.grading import compare, ground_truth, network
from kernelpath.grading.kinds.python import Python, sent, told_tensor
from kernelpath.grading.provenance import Observation
from kernelpath.verdict import Finding, Verdict
from kernelpath.work import messages, runner
from kernelpath.work.exchange import CONTROL, Exchange, Perturbed
from kernelpath.work.rank_runners import RankRunners
from kernelpath.work.runner import Runner, SubmissionFailed
from kernelpath.work.tensors import to_bytes

_OWN = (Verdict.NOT_STARTED, Verdict.COMPILE_ERROR, Verdict.UNAVAILABLE)
"""What is true of the file, whichever rank says it."""

_BETWEEN = (Verdict.DEADLOCK, Verdict.TIMED_OUT)
"""What may follow from the end of a rank."""

_NAN = "; NaN is what a new tensor holds until it is written, and a receive's until wait() has returned"
"""Inputs have none."""

_ENDING_SECONDS = 1.0
"""For ranks to answer after the group has ended."""


@dataclass(frozen=True)
class Ran:
    """A call on every rank: what those told that returned, what is wrong with it, and what they did."""

    returned: Mapping[int, messages.CallResult]
    finding: Finding | None
    log: Log

    @property
    def outputs(self) -> list[torch.Tensor]:
        """Those of rank 0, rank 1 and so on."""
        told = (one for answer in self.returned.values() for one in answer.outputs)
        return [told_tensor(one.dtype, one.shape, one.content, "cpu") for one in told]


def rows(drawn: Sequence[Any], world: int) -> list[list[Any]]:
    """What each rank is given: its row of every tensor."""
    return [[_row(value, rank) for value in drawn] for rank in range(world)]


def together(
    ranks: RankRunners, own: Sequence[Sequence[Any]], collectives: Sequence[str] = (), perturbed: Perturbed = ""
) -> Ran:
    """Call the entry on every rank, with its own inputs. Raises runner.SubmissionFailed where it cannot be loaded.

    perturbed: see Exchange.
    """
    layers = next((value for value in own[0] if isinstance(value, Layers)), Layers((), ()))
    members = ranks.members(len(own))
    results = [_gradients(inputs, layers) for inputs in own]
    exchange = Exchange(len(members), collectives, layers.seconds, results, perturbed)
    try:
        for rank, member in enumerate(members):
            member.send(_joining(own[rank], rank, len(members), layers, collectives))
            member.send_descriptor(exchange.ends[rank].fileno())
            exchange.ends[rank].close()
        exchange.serve(_seconds())
    finally:
        exchange.close()
    returned, stopped = _answers(members, _ENDING_SECONDS if exchange.finding else _seconds())
    return Ran(returned, _finding(exchange, stopped) or _uncomputed(exchange, layers), exchange.log())


class Distributed(Python):
    """Rank 0 is the runner that is given, which holds the others."""

    def call(
        self, runner: Runner, case: Case, seed: int, *, variety: InputMode = PLAIN, order: int = 0, label: str = ""
    ) -> Observation:
        """Call the entry twice, once with perturbed messages: what a rank returns has to follow what it receives.

        Which of both calls that is depends on the seed, so that no submission can know it.
        """
        assert isinstance(runner, RankRunners)
        drawn = ground_truth.generate_inputs(self.exercise, case, seed, "cpu", variety)
        own = rows(drawn, case["world"])
        least = self.exercise.network.least
        wanted = least(**case) if least is not None and len(own) > 1 else 0
        comes_first = bool(wanted) and bool(ground_truth.derive(seed, "perturbed messages") & 1)
        perturbed = self._perturbed(runner, own) if comes_first else None
        if perturbed is not None and perturbed.finding is not None and perturbed.finding.verdict in _BETWEEN:
            return Observation(inputs=drawn, outputs=[], finding=perturbed.finding, log=perturbed.log)
        ran = together(runner, own, self.exercise.network.collectives)
        finding = ran.finding or self._conduct(ran.returned, own)
        unmoved: Finding | None = None
        if finding is None and wanted:
            perturbed = perturbed or self._perturbed(runner, own)
            unmoved = _unmoved(ran, perturbed, wanted)
            if unmoved is not None and perturbed.finding is None and _sends_integers(ran.log):
                unmoved = _unmoved(ran, self._perturbed(runner, own, "all"), wanted)
        return Observation(inputs=drawn, outputs=ran.outputs, finding=finding, log=ran.log, unmoved=unmoved)

    def _perturbed(self, ranks: RankRunners, own: Sequence[Sequence[Any]], which: Perturbed = "floats") -> Ran:
        return together(ranks, own, self.exercise.network.collectives, which)

    def judged(self, observation: Observation) -> Finding | None:
        if observation.finding is not None:
            return observation.finding
        expected = ground_truth.expected_outputs(self.exercise, observation.inputs)
        assert observation.log is not None
        size = observation.log.size
        if len(observation.outputs) != len(expected):
            counts = f"{len(observation.outputs)} tensors on {size} ranks, expected {len(expected)}"
            return Finding(Verdict.WRONG_TYPE, f"{self.exercise.entry} returned {counts}")
        dtype = ground_truth.output_dtype(self.exercise, observation.inputs)
        names = _names(size, len(expected) // size)
        magnitudes = ground_truth.magnitudes_of(self.exercise, observation.inputs)
        finding = compare.judge(observation.outputs, expected, self.exercise.tolerance, dtype, names, magnitudes)
        if finding is None or finding.verdict is Verdict.WRONG_VALUES:
            finding = compare.checked(self.exercise, observation) or finding
        if finding is not None and any(bool(output.isnan().any()) for output in observation.outputs):
            finding = replace(finding, cause=finding.cause + _NAN)
        return finding or observation.unmoved

    def beyond(self, case: Case, log: Log) -> Finding | None:
        """The first limit of the network that a case breaks."""
        limits = self.exercise.network
        if limits.least is not None and log.size > 1:
            least = limits.least(**case)
            rank = min(range(log.size), key=log.received)
            if log.received(rank) < least:
                cause = f"rank {rank} receives {log.received(rank):,} bytes by torch.distributed, at least {least:,}"
                told = f"{cause} of what it returns are known to other ranks alone"
                return Finding(Verdict.NOT_YOUR_KERNEL, told)
        if limits.bytes is not None:
            most = limits.bytes(**case)
            rank = max(range(log.size), key=log.sent)
            if log.sent(rank) > most:
                cause = f"rank {rank} sends {log.sent(rank):,} bytes in {log.messages(rank)} messages, at most {most:,}"
                return Finding(Verdict.TOO_MUCH_TRAFFIC, f"{_told(case)}: {cause} are needed", line=log.line_of(rank))
        allowed = limits.ring_messages(**case) if limits.ring_messages is not None else None
        if allowed is not None and (wrong := network.not_a_ring(log, allowed)):
            cause, line = wrong
            return Finding(Verdict.WRONG_VALUES, f"{_told(case)}: {cause}", line=line)
        found = timeline(log, limits.links)
        if limits.seconds is not None and found.end > (most_seconds := limits.seconds(**case)):
            links = f"links of {limits.links.latency * 1e6:.0f} µs and {limits.links.bandwidth / 1e9:.0f} GB/s"
            took = f"{found.end * 1e6:.1f} µs on simulated {links}, at most {most_seconds * 1e6:.1f} are allowed"
            row = f"{network.longest_chain(log)} messages in a row, each posted after a wait for the one before"
            return Finding(Verdict.TOO_SLOW, f"{_told(case)}: {took}; {row}", line=network.longest_wait(log, found))
        if case is self.exercise.largest and found.hidden < limits.hidden:
            cause = f"{found.hidden:.0%} of the communication is behind compute, {limits.hidden:.0%} required"
            why, line = network.exposed(log, found)
            made_of = _made_of(log, found.total("all_reduce", 0))
            return Finding(Verdict.TOO_SLOW, f"{cause}; {made_of}; {why}", line=line)
        return None

    def _conduct(self, returned: Mapping[int, messages.CallResult], own: Sequence[Sequence[Any]]) -> Finding | None:
        for rank, told in returned.items():
            inputs = () if any(isinstance(value, Layers) for value in own[rank]) else tuple(own[rank])
            if finding := self.conduct(told, inputs):
                return _by(rank, finding)
        return None


def _unmoved(ran: Ran, perturbed: Ran, least: int) -> Finding | None:
    """What is wrong where a rank returns less than `least` bytes that are others with perturbed messages."""
    if (finding := perturbed.finding) is not None:
        return replace(finding, cause=f"with other values in its messages, {finding.cause}")
    for rank, returned in ran.returned.items():
        pairs = zip(returned.outputs, perturbed.returned[rank].outputs, strict=True)
        moved = sum(_different_bytes(one, other) for one, other in pairs)
        if moved < least:
            cause = f"rank {rank} returns the same whatever it receives by torch.distributed"
            if moved:
                cause = f"{moved:,} bytes of what rank {rank} returns depend on what it receives by torch.distributed"
            told = f"{cause}; at least {least:,} are known to other ranks alone"
            return Finding(Verdict.NOT_YOUR_KERNEL, told)
    return None


def _different_bytes(one: messages.TensorData, other: messages.TensorData) -> int:
    """The bytes of the elements that differ between two outputs."""
    itemsize: int = getattr(torch, one.dtype).itemsize
    if len(one.content) != len(other.content):
        return len(one.content)
    first, second = (np.frombuffer(output.content, np.uint8).reshape(-1, itemsize) for output in (one, other))
    return int((first != second).any(1).sum()) * itemsize


def _sends_integers(log: Log) -> bool:
    return any(transfer.bytes > CONTROL and not transfer.floats for transfer in log.transfers)


def _seconds() -> float:
    """For the ranks of a case, so that the verdict comes within CASE_SECONDS."""
    return runner.CASE_SECONDS - 2.0


def _gradients(inputs: Sequence[Any], layers: Layers) -> list[bytes]:
    """What the layers of a rank compute."""
    return [to_bytes(gradient) for gradient in inputs[0].split(list(layers.sizes))] if layers.sizes else []


def _row(value: Any, rank: int) -> Any:
    return value[rank].clone() if isinstance(value, torch.Tensor) else value


def _joining(inputs: Sequence[Any], rank: int, size: int, layers: Layers, collectives: Sequence[str]) -> messages.Join:
    given = sent([value for value in inputs[1:] if not isinstance(value, Layers)] if layers.sizes else inputs)
    return messages.Join(
        arguments=given.arguments,
        tensors=given.tensors,
        rank=rank,
        size=size,
        collectives=collectives,
        sizes=layers.sizes,
    )


def _answers(members: Sequence[Runner], seconds: float) -> tuple[dict[int, messages.CallResult], dict[int, Finding]]:
    """What the ranks returned, and how the others ended, within so many seconds for all of them."""
    end = time.monotonic() + seconds
    returned, stopped = {}, {}
    for rank, member in enumerate(members):
        try:
            returned[rank] = member.receive(messages.CallResult, max(end - time.monotonic(), 0.1))
        except SubmissionFailed as ended:
            stopped[rank] = ended.finding
    return returned, stopped


def _finding(exchange: Exchange, stopped: dict[int, Finding]) -> Finding | None:
    """The cause before what followed from it."""
    between = exchange.finding
    if between is not None and between.verdict not in _BETWEEN:
        return between
    first = next((rank for rank in exchange.first_to_fail if rank in stopped), None)
    if first is not None:
        return _by(first, stopped[first])
    return between or next((_by(rank, finding) for rank, finding in stopped.items()), None)


def _by(rank: int, finding: Finding) -> Finding:
    if finding.verdict in _OWN:
        return finding
    return Finding(finding.verdict, f"rank {rank}: {finding.cause}", finding.file, finding.line)


def _uncomputed(exchange: Exchange, layers: Layers) -> Finding | None:
    """Whether a rank computed each part once, from the last to the first."""
    wanted = list(reversed(range(len(layers.seconds))))
    for rank in range(len(exchange.ends)):
        if (done := exchange.computed(rank)) != wanted:
            told = ", ".join(map(str, done[:4])) + (", …" if len(done) > 4 else "")
            cause = f"rank {rank} calls backward of layers {told or 'none'}; call each once, the last layer first"
            return Finding(Verdict.WRONG_VALUES, cause, line=exchange.first_compute_line(rank))
    return None


def _names(size: int, each: int) -> list[str]:
    if each == 1:
        return [f"rank {rank}'s output" for rank in range(size)]
    return [f"rank {rank}'s output {number}" for rank in range(size) for number in range(each)]


def _told(case: Case) -> str:
    return " ".join(f"{name}={value}" for name, value in case.items())


def _made_of(log: Log, seconds: float) -> str:
    found = sorted(one.bytes for one in log.transfers if one.name == "all_reduce")
    if len(found) == 1:
        return f"one all-reduce of {found[0]:,} bytes takes {seconds * 1e6:.0f} µs"
    sizes = f"{found[0]:,} to {found[-1]:,} bytes" if found else "nothing"
    return f"{len(found)} all-reduces of {sizes} take {seconds * 1e6:.0f} µs"
