"""Grade exercises with several ranks: a process for each rank, whose messages pass through the grader's exchange.

The exchange counts bytes and messages, and the steps of the ranks are timed on simulated links: the numbers are the
same on every machine. Nothing here needs a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from kernelpath.course.inputs import PLAIN, InputMode
from kernelpath.course.labs.fabric import Layers, Log
from kernelpath.course.problem import Case
from kernelpath.grading import compare, ground_truth
from kernelpath.grading.graders.results import call_request, decode_output, process_finding
from kernelpath.grading.job import Job
from kernelpath.grading.provenance import Observation
from kernelpath.grading.workers import ProcessSetup
from kernelpath.verdict import Finding, Verdict
from kernelpath.work import messages
from kernelpath.work import runner as runner_module
from kernelpath.work.exchange import CONTROL, Exchange, Perturbed
from kernelpath.work.rank_runners import RankRunners
from kernelpath.work.runner import Runner, SubmissionFailed
from kernelpath.work.tensors import to_bytes

# Verdicts on the file, whichever rank reports them.
_INDEPENDENT_OF_RANK = (Verdict.NOT_STARTED, Verdict.COMPILE_ERROR, Verdict.UNAVAILABLE)

# Verdicts that may follow from the end of a rank.
_CONSEQUENCES = (Verdict.DEADLOCK, Verdict.TIMED_OUT)

# An explanation of NaN in outputs, since inputs have none.
_NAN = "; NaN is what a new tensor holds until it is written, and a receive's until wait() has returned"

# The time for ranks to respond after the group has ended.
_ENDING_SECONDS = 1.0


@dataclass(frozen=True)
class GroupResult:
    """A call on every rank.

    Attributes:
        returned: The results of the ranks that returned, by rank. Week 16's notebook uses this name.
        finding: What is wrong with the call.
        log: The steps of the ranks.
    """

    returned: Mapping[int, messages.CallResult]
    finding: Finding | None
    log: Log

    @property
    def outputs(self) -> list[torch.Tensor]:
        """The outputs of rank 0, rank 1 and so on."""
        return [decode_output(output, "cpu") for result in self.returned.values() for output in result.outputs]


def split_rows(inputs: Sequence[Any], world: int) -> list[list[Any]]:
    """Return the arguments of each rank: its row of every tensor."""
    return [[_row(value, rank) for value in inputs] for rank in range(world)]


def run_group(
    ranks: RankRunners,
    inputs_by_rank: Sequence[Sequence[Any]],
    collectives: Sequence[str] = (),
    perturbed: Perturbed = "",
) -> GroupResult:
    """Call the entry on every rank, with its own inputs.

    Args:
        ranks: The submission in a process for each rank.
        inputs_by_rank: The arguments of each rank.
        collectives: The library's collectives that the entry may call.
        perturbed: See Exchange.

    Raises:
        SubmissionFailed: The submission cannot be loaded.
    """
    layers = next((value for value in inputs_by_rank[0] if isinstance(value, Layers)), Layers((), ()))
    members = ranks.members(len(inputs_by_rank))
    results = [_gradients(inputs, layers) for inputs in inputs_by_rank]
    exchange = Exchange(len(members), collectives, layers.seconds, results, perturbed)
    try:
        for rank, member in enumerate(members):
            member.send(_join_request(inputs_by_rank[rank], rank, len(members), layers, collectives))
            member.send_descriptor(exchange.ends[rank].fileno())
            # The rank then has the only copy of its end, so the exchange sees the connection close when the rank's
            # process ends.
            exchange.ends[rank].close()
        # This ends first: a rank leaves the exchange before it sends its result.
        exchange.serve(_time_limit(), [pid for member in members for pid in member.pids])
    finally:
        exchange.close()
    seconds = _ENDING_SECONDS if exchange.finding else _time_limit()
    results_by_rank, findings_by_rank = _receive_results(members, seconds)
    finding = _select_cause(exchange, findings_by_rank) or _check_computed_parts(exchange, layers)
    return GroupResult(results_by_rank, finding, exchange.log())


class Distributed:
    """Calls an entry on several ranks. The runner of a call is that of rank 0, which owns the others.

    See `Grader` for its methods.
    """

    needs_shadow_run = False

    def __init__(self, job: Job) -> None:
        self.exercise = job.exercise
        self.setup = ProcessSetup("cpu", has_ranks=True, entry=job.exercise.entry)

    def call(
        self, runner: Runner, case: Case, seed: int, *, variety: InputMode = PLAIN, order: int = 0, label: str = ""
    ) -> Observation:
        """Call the entry twice, once with perturbed messages: a rank's result has to depend on what it receives.

        The seed decides which of the two calls comes first, so that no submission can know it.
        """
        assert isinstance(runner, RankRunners)
        inputs = ground_truth.generate_inputs(self.exercise, case, seed, "cpu", variety)
        inputs_by_rank = split_rows(inputs, case["world"])
        min_bytes = self.exercise.network.least
        needed_bytes = min_bytes(**case) if min_bytes is not None and len(inputs_by_rank) > 1 else 0
        comes_first = bool(needed_bytes) and bool(ground_truth.derive_seed(seed, "perturbed messages") & 1)
        perturbed = self._run_perturbed(runner, inputs_by_rank) if comes_first else None
        # A program that hangs would hang again.
        if perturbed is not None and perturbed.finding is not None and perturbed.finding.verdict in _CONSEQUENCES:
            return Observation(inputs=inputs, outputs=[], finding=perturbed.finding, log=perturbed.log)
        plain = run_group(runner, inputs_by_rank, self.exercise.network.collectives)
        finding = plain.finding or self._check_processes(plain.returned, inputs_by_rank)
        ignored_messages: Finding | None = None
        if finding is None and needed_bytes:
            perturbed = perturbed or self._run_perturbed(runner, inputs_by_rank)
            ignored_messages = _check_dependence(plain, perturbed, needed_bytes)
            # A result may also travel in integers, which the first perturbation leaves as they are.
            if ignored_messages is not None and perturbed.finding is None and _sends_integers(plain.log):
                all_perturbed = self._run_perturbed(runner, inputs_by_rank, "all")
                ignored_messages = _check_dependence(plain, all_perturbed, needed_bytes)
        return Observation(
            inputs=inputs,
            outputs=plain.outputs,
            finding=finding,
            log=plain.log,
            ignored_messages=ignored_messages,
        )

    def _run_perturbed(
        self, ranks: RankRunners, inputs_by_rank: Sequence[Sequence[Any]], which: Perturbed = "floats"
    ) -> GroupResult:
        return run_group(ranks, inputs_by_rank, self.exercise.network.collectives, which)

    def check(self, observation: Observation) -> Finding | None:
        if observation.finding is not None:
            return observation.finding
        expected = ground_truth.expected_outputs(self.exercise, observation.inputs)
        assert observation.log is not None
        size = observation.log.size
        if len(observation.outputs) != len(expected):
            counts = f"{len(observation.outputs)} tensors on {size} ranks, expected {len(expected)}"
            return Finding(Verdict.WRONG_TYPE, f"{self.exercise.entry} returned {counts}")
        dtype = ground_truth.output_dtype(self.exercise, observation.inputs)
        names = _output_names(size, len(expected) // size)
        magnitudes = ground_truth.magnitudes_of(self.exercise, observation.inputs)
        finding = compare.check_outputs(
            observation.outputs, expected, self.exercise.tolerance, dtype, names, magnitudes
        )
        if finding is None or finding.verdict is Verdict.WRONG_VALUES:
            finding = compare.run_own_check(self.exercise, observation) or finding
        if finding is not None and any(bool(output.isnan().any()) for output in observation.outputs):
            finding = replace(finding, cause=finding.cause + _NAN)
        return finding or observation.ignored_messages

    def check_process(self, result: messages.CallResult, inputs: tuple[object, ...]) -> Finding | None:
        return process_finding(result, inputs, self.exercise.overwritten(inputs))

    def add_writer(self, runner: Runner, observation: Observation, finding: Finding) -> Finding:
        """Return the finding as it is: there is no kernel whose thread wrote the wrong element."""
        return finding

    def _check_processes(
        self, results: Mapping[int, messages.CallResult], inputs_by_rank: Sequence[Sequence[Any]]
    ) -> Finding | None:
        for rank, result in results.items():
            rank_inputs = inputs_by_rank[rank]
            # With layers, the gradients in the inputs are sent by the exchange, and the rank gets none of them.
            has_layers = any(isinstance(value, Layers) for value in rank_inputs)
            if finding := self.check_process(result, () if has_layers else tuple(rank_inputs)):
                return _name_rank(rank, finding)
        return None


def _check_dependence(plain: GroupResult, perturbed: GroupResult, min_bytes: int) -> Finding | None:
    """Return a finding where fewer than `min_bytes` bytes of a rank's result change with perturbed messages."""
    if (finding := perturbed.finding) is not None:
        return replace(finding, cause=f"with other values in its messages, {finding.cause}")
    for rank, result in plain.returned.items():
        pairs = zip(result.outputs, perturbed.returned[rank].outputs, strict=True)
        changed_bytes = sum(_different_bytes(output, perturbed_output) for output, perturbed_output in pairs)
        if changed_bytes < min_bytes:
            symptom = f"rank {rank} returns the same values for all messages from torch.distributed"
            if changed_bytes:
                part = f"{changed_bytes:,} bytes of rank {rank}'s result"
                symptom = f"{part} depend on messages from torch.distributed"
            cause = f"{symptom}; at least {min_bytes:,} bytes are known only to other ranks"
            return Finding(Verdict.NOT_YOUR_KERNEL, cause)
    return None


def _different_bytes(first: messages.TensorData, second: messages.TensorData) -> int:
    """Return the bytes of the elements that differ between two outputs."""
    itemsize: int = getattr(torch, first.dtype).itemsize
    if len(first.content) != len(second.content):
        return len(first.content)
    # Whole elements are compared: a float that changed may keep some of its bytes.
    first_elements, second_elements = (
        np.frombuffer(output.content, np.uint8).reshape(-1, itemsize) for output in (first, second)
    )
    return int((first_elements != second_elements).any(1).sum()) * itemsize


def _sends_integers(log: Log) -> bool:
    return any(transfer.bytes > CONTROL and not transfer.floats for transfer in log.transfers)


def _time_limit() -> float:
    """Return the seconds that the ranks of a case have, so that the exchange's verdict comes within CASE_SECONDS."""
    return runner_module.CASE_SECONDS - 2.0


def _gradients(inputs: Sequence[Any], layers: Layers) -> list[bytes]:
    """Return the gradients that the layers of a rank compute."""
    return [to_bytes(gradient) for gradient in inputs[0].split(list(layers.sizes))] if layers.sizes else []


def _row(value: Any, rank: int) -> Any:
    return value[rank].clone() if isinstance(value, torch.Tensor) else value


def _join_request(
    inputs: Sequence[Any], rank: int, size: int, layers: Layers, collectives: Sequence[str]
) -> messages.Join:
    # With layers, input 0 has the gradients: a rank gets each of them when it computes the layer.
    if layers.sizes:
        inputs = [value for value in inputs[1:] if not isinstance(value, Layers)]
    request = call_request(inputs)
    return messages.Join(
        arguments=request.arguments,
        tensors=request.tensors,
        rank=rank,
        size=size,
        collectives=collectives,
        sizes=layers.sizes,
    )


def _receive_results(
    members: Sequence[Runner], seconds: float
) -> tuple[dict[int, messages.CallResult], dict[int, Finding]]:
    """Return the results of the ranks that returned and the findings about the others, by rank.

    `seconds` is the time limit for all of them together.
    """
    results: dict[int, messages.CallResult] = {}
    findings: dict[int, Finding] = {}
    for rank, member in enumerate(members):
        try:
            # The ranks run in parallel. After one of them has used up the time, a result that a later rank has already
            # sent is still read.
            has_timed_out = any(finding.verdict is Verdict.TIMED_OUT for finding in findings.values())
            results[rank] = member.receive(messages.CallResult, 0.1 if has_timed_out else seconds)
        except SubmissionFailed as error:
            findings[rank] = error.finding
    return results, findings


def _select_cause(exchange: Exchange, findings_by_rank: dict[int, Finding]) -> Finding | None:
    """Return the finding about the cause, and not about what followed from it."""
    between_ranks = exchange.finding
    if between_ranks is not None and between_ranks.verdict not in _CONSEQUENCES:
        return between_ranks
    first = next((rank for rank in exchange.first_to_fail if rank in findings_by_rank), None)
    if first is not None:
        return _name_rank(first, findings_by_rank[first])
    return between_ranks or next((_name_rank(rank, finding) for rank, finding in findings_by_rank.items()), None)


def _name_rank(rank: int, finding: Finding) -> Finding:
    """Return the finding with the rank in its cause, where the rank matters."""
    if finding.verdict in _INDEPENDENT_OF_RANK:
        return finding
    return Finding(finding.verdict, f"rank {rank}: {finding.cause}", finding.file, finding.line)


def _check_computed_parts(exchange: Exchange, layers: Layers) -> Finding | None:
    """Return a finding unless every rank computed each part once, from the last part to the first."""
    expected = list(reversed(range(len(layers.seconds))))
    for rank in range(len(exchange.ends)):
        if (computed := exchange.computed(rank)) != expected:
            numbers = ", ".join(map(str, computed[:4])) + (", …" if len(computed) > 4 else "")
            cause = f"rank {rank} calls backward of layers {numbers or 'none'}; call each once, the last layer first"
            return Finding(Verdict.WRONG_VALUES, cause, line=exchange.first_compute_line(rank))
    return None


def _output_names(size: int, outputs_of_rank: int) -> list[str]:
    if outputs_of_rank == 1:
        return [f"rank {rank}'s output" for rank in range(size)]
    return [f"rank {rank}'s output {number}" for rank in range(size) for number in range(outputs_of_rank)]
