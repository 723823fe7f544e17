"""Ranks with a GPU each: the entry on NCCL's messages, right there too, and beside the library's own all-reduce."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import torch

from kernelpath.course.problem import Case
from kernelpath.course.spec import Exercise
from kernelpath.grading import compare, gate, ground_truth, timing
from kernelpath.grading.submission import Submission
from kernelpath.verdict import Finding, Measurement, Verdict
from kernelpath.work import messages
from kernelpath.work.runner import Runner, SubmissionFailed, Usage
from kernelpath.work.tensors import sample

MOST = 8
"""GPUs that are used; one host has no more."""

_ROUND_SECONDS = 60.0
_PEER_BYTES = 1 << 28
_COLLECTIVES = ("allreduce_", "allgather_", "_allgather_base_", "reduce_scatter_", "_reduce_scatter_base_", "reduce_")


def gpus() -> int:
    return min(torch.cuda.device_count(), MOST)


def not_measured(exercise: Exercise) -> tuple[str, ...]:
    """What needs a second GPU and was not measured."""
    simulated = "messages passed through the grader, and links were simulated"
    if exercise.baseline is None:
        return (f"the share that is hidden on GPUs: {simulated}; week 16's notebook measures it",)
    enough = "kp bench measures it" if gpus() > 1 else f"it needs two GPUs, {gpus()} here"
    return (f"speed beside NCCL: {enough}; {simulated}",)


def measure(
    submission: Submission, seed: int, progress: Callable[[str], None]
) -> tuple[Measurement | None, Finding | None, tuple[str, ...]]:
    """A measurement, a finding, or why there is neither."""
    if gpus() < 2:
        return None, None, ()
    progress(f"starting a rank on each of {gpus()} GPUs")
    ranks = submission.workers.across(gpus())
    try:
        race = _Race(submission.exercise, ranks, seed)
        for rank in ranks:
            rank.prepare()
        for rank in ranks:
            rank.ready()
        return *race.run(progress), ()
    except Usage as error:
        return None, None, (f"speed beside NCCL: {error}",)
    except SubmissionFailed as stopped:
        return None, submission.placed(stopped.finding), ()
    finally:
        for rank in ranks:
            rank.close()


class _Race:
    """Rounds of the bench case on all GPUs."""

    def __init__(self, exercise: Exercise, ranks: Sequence[Runner], seed: int) -> None:
        assert exercise.bench is not None
        self.exercise, self._ranks, self._seed = exercise, ranks, seed
        self.case: Case = {**exercise.bench, "world": len(ranks)}
        self.seconds: list[list[float]] = [[], []]

    def run(self, progress: Callable[[str], None]) -> tuple[Measurement | None, Finding | None]:
        for look in timing.LOOKS:
            while len(self.seconds[0]) < look:
                progress(f"on {len(self._ranks)} GPUs: round {len(self.seconds[0]) + 1} of at most {timing.LOOKS[-1]}")
                if finding := self._round(len(self.seconds[0])):
                    return None, finding
            speedup = timing.ratio(self.seconds[1], self.seconds[0])
            if timing.settled(speedup, [self.exercise.min_speedup]):
                break
        measured = self._measurement()
        capability = torch.cuda.get_device_capability()
        return measured, gate.check_speedup(measured, self.exercise.min_speedup, capability, raced="NCCL")

    def _round(self, index: int) -> Finding | None:
        seeds = [ground_truth.derive(self._seed, "round", index, rank) for rank in range(len(self._ranks))]
        place = ground_truth.derive(self._seed, "sample", index)
        asked = {name: value for name, value in self.case.items() if name != "world"}
        for rank, seed in zip(self._ranks, seeds, strict=True):
            rank.send(messages.TimeRound(seed=seed, order=timing.order(index, 2), sample=place, case=asked))
        timed = [rank.receive(messages.RoundTimes, _ROUND_SECONDS) for rank in self._ranks]
        for contestant in range(2):
            self.seconds[contestant].append(max(one.seconds[contestant] for one in timed))
        return self._judged(timed, seeds, place)

    def _judged(self, timed: Sequence[messages.RoundTimes], seeds: Sequence[int], place: int) -> Finding | None:
        """The samples of every rank's output against the truth, and who made them."""
        rows = [self._row(seed, rank) for rank, seed in enumerate(seeds)]
        total: torch.Tensor = sum(row.double() for row in rows)  # type: ignore[assignment]
        rms = compare.root_mean_square(total)
        magnitude: torch.Tensor = sum(row.double().abs() for row in rows)  # type: ignore[assignment]
        for rank, one in enumerate(timed):
            library = [operator for operator in one.result.operators if operator.name in _COLLECTIVES]
            if library:
                cause = f"rank {rank} calls torch.distributed's {library[0].name.strip('_')} on GPUs"
                return Finding(Verdict.NOT_YOUR_KERNEL, cause, line=library[0].line)
            if one.result.tampered:
                return Finding(Verdict.TAMPERED, one.result.tampered)
            (output,) = one.result.outputs
            if list(output.shape) != list(total.shape) or output.dtype not in self.exercise.tolerance:
                return Finding(Verdict.WRONG_SHAPE, f"rank {rank}'s output has shape {list(output.shape)} on GPUs")
            wanted = sample(total.to(f"cuda:{rank}"), place)
            got = ground_truth.tensor_of(output.dtype, list(wanted.shape), output.content, str(wanted.device))
            terms = sample(magnitude.to(f"cuda:{rank}"), place)
            wrong = compare.mismatches(got, wanted, self.exercise.tolerance[output.dtype], rms, terms)
            if bool(wrong.any()):
                share = float(wrong.float().mean())
                return Finding(Verdict.WRONG_VALUES, f"on GPUs {share:.1%} of rank {rank}'s sampled output is wrong")
        return None

    def _row(self, seed: int, rank: int) -> torch.Tensor:
        rng = torch.Generator(f"cuda:{rank}").manual_seed(seed)
        drawn = torch.randn(self.case["n"], generator=rng, device=rng.device)
        return drawn.to(getattr(torch, self.case["dtype"])).to("cuda:0")

    def _measurement(self) -> Measurement:
        """bus: bytes that have to leave each rank, over the time, beside what a copy to a peer reaches."""
        size, case = len(self._ranks), self.case
        ceiling = _peer_copy()
        moved = int(2 * (size - 1) / size * case["n"] * getattr(torch, case["dtype"]).itemsize)
        own, library = (statistics.median(times) for times in self.seconds)
        return Measurement(
            case=case,
            seconds=own,
            baseline_seconds=library,
            reference_seconds=None,
            speedup=timing.ratio(self.seconds[1], self.seconds[0]),
            of_reference=None,
            compulsory_bytes=moved,
            flops=0,
            light_seconds=moved / ceiling,
            ceilings={"copy to a peer": ceiling},
            rounds=len(self.seconds[0]),
            method=f"paired rounds on {size} GPUs, the slowest rank's time; bytes: those that leave a rank",
        )


def _peer_copy() -> float:
    """Bytes per second of a copy from one GPU's memory to another's."""
    source = torch.empty(_PEER_BYTES, dtype=torch.uint8, device="cuda:0")
    target = torch.empty_like(source, device="cuda:1")
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    target.copy_(source)
    begin.record()
    target.copy_(source)
    end.record()
    torch.cuda.synchronize()
    seconds: float = 1e-3 * begin.elapsed_time(end)
    return _PEER_BYTES / seconds
