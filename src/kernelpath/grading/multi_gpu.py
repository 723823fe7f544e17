"""Time an entry on ranks with a GPU each, over NCCL, against the library's own all-reduce."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import torch

from kernelpath.course.problem import Case
from kernelpath.course.spec import Exercise
from kernelpath.grading import compare, gate, ground_truth, timing
from kernelpath.grading.job import Job
from kernelpath.grading.workers import Workers
from kernelpath.verdict import Finding, Interval, Measurement, Verdict
from kernelpath.work import messages
from kernelpath.work.runner import Runner, SubmissionFailed, Usage
from kernelpath.work.tensors import sample

# The GPUs that are used, at most: the GPUs of one host.
MAX_GPUS = 8

_ROUND_SECONDS = 60.0
_PEER_BYTES = 1 << 28
_COLLECTIVES = ("allreduce_", "allgather_", "_allgather_base_", "reduce_scatter_", "_reduce_scatter_base_", "reduce_")
_SUBMISSION, _LIBRARY = range(2)


def gpu_count() -> int:
    """Return the number of GPUs that are used."""
    return min(torch.cuda.device_count(), MAX_GPUS)


def not_measured(exercise: Exercise) -> tuple[str, ...]:
    """Say what was not measured because it needs a second GPU."""
    simulated = "messages passed through the grader, and links were simulated"
    if exercise.baseline is None:
        return (f"the share that is hidden on GPUs: {simulated}; week 16's notebook measures it",)
    advice = "kp bench measures it" if gpu_count() > 1 else f"it needs two GPUs, {gpu_count()} here"
    return (f"speed beside NCCL: {advice}; {simulated}",)


def measure(
    job: Job, workers: Workers, seed: int, progress: Callable[[str], None]
) -> tuple[Measurement | None, Finding | None, tuple[str, ...]]:
    """Return a measurement, a finding about it, and sentences about why there is neither."""
    if gpu_count() < 2:
        return None, None, ()
    progress(f"starting a rank on each of {gpu_count()} GPUs")
    ranks = workers.gpu_ranks(gpu_count())
    try:
        rank_timing = _RankTiming(job.exercise, ranks, seed)
        # All ranks are started before one is awaited: a rank is ready when NCCL has connected it with all others.
        for rank in ranks:
            rank.prepare()
        for rank in ranks:
            rank.ready()
        return *rank_timing.run(progress), ()
    except Usage as error:
        return None, None, (f"speed beside NCCL: {error}",)
    except SubmissionFailed as error:
        return None, job.locate(error.finding), ()
    finally:
        for rank in ranks:
            rank.close()


class _RankTiming:
    """The paired rounds of the bench case, on all GPUs."""

    def __init__(self, exercise: Exercise, ranks: Sequence[Runner], seed: int) -> None:
        assert exercise.bench is not None
        self.exercise = exercise
        self._ranks = ranks
        self._seed = seed
        self.case: Case = {**exercise.bench, "world": len(ranks)}
        # The times of the submission and of the library, one of each for a round.
        self.seconds: list[list[float]] = [[], []]

    def run(self, progress: Callable[[str], None]) -> tuple[Measurement | None, Finding | None]:
        """Time rounds until the ratio is settled. Return a measurement and a finding about it."""
        for look in timing.LOOKS:
            while len(self.seconds[_SUBMISSION]) < look:
                number = len(self.seconds[_SUBMISSION]) + 1
                progress(f"on {len(self._ranks)} GPUs: round {number} of at most {timing.LOOKS[-1]}")
                if finding := self._time_round(len(self.seconds[_SUBMISSION])):
                    return None, finding
            if timing.is_settled(self._speedup(), [self.exercise.min_speedup]):
                break
        measurement = self._measurement()
        capability = torch.cuda.get_device_capability()
        return measurement, gate.check_speedup(measurement, self.exercise.min_speedup, capability, baseline="NCCL")

    def _speedup(self) -> Interval:
        return timing.paired_ratio(self.seconds[_LIBRARY], self.seconds[_SUBMISSION])

    def _time_round(self, index: int) -> Finding | None:
        # New values in each round, so that the results of an earlier round are wrong (T7 in docs/attacks.md).
        seeds = [ground_truth.derive_seed(self._seed, "round", index, rank) for rank in range(len(self._ranks))]
        sample_seed = ground_truth.derive_seed(self._seed, "sample", index)
        order = timing.implementation_order(index, 2)
        # A rank knows the number of ranks from its group.
        case = {name: value for name, value in self.case.items() if name != "world"}
        # All requests are sent before any response is received, because a collective returns when all ranks have called
        # it.
        for rank, seed in zip(self._ranks, seeds, strict=True):
            rank.send(messages.TimeRound(seed=seed, order=order, sample=sample_seed, case=case))
        times = [rank.receive(messages.RoundTimes, _ROUND_SECONDS) for rank in self._ranks]
        # A collective ends when its slowest rank has ended.
        for implementation in (_SUBMISSION, _LIBRARY):
            self.seconds[implementation].append(max(rank_times.seconds[implementation] for rank_times in times))
        return self._check_outputs(times, seeds, sample_seed)

    def _check_outputs(
        self, times: Sequence[messages.RoundTimes], seeds: Sequence[int], sample_seed: int
    ) -> Finding | None:
        """Compare the sample of every rank's output with the truth, and check who computed it."""
        rows = [self._row(seed, rank) for rank, seed in enumerate(seeds)]
        total: torch.Tensor = sum(row.double() for row in rows)  # type: ignore[assignment]
        rms = compare.root_mean_square(total)
        magnitude: torch.Tensor = sum(row.double().abs() for row in rows)  # type: ignore[assignment]
        for rank, rank_times in enumerate(times):
            result = rank_times.result
            collectives = [operator for operator in result.operators if operator.name in _COLLECTIVES]
            if collectives:
                cause = f"rank {rank} calls torch.distributed's {collectives[0].name.strip('_')} on GPUs"
                return Finding(Verdict.NOT_YOUR_KERNEL, cause, line=collectives[0].line)
            if result.tampered:
                return Finding(Verdict.TAMPERED, result.tampered)
            (output,) = result.outputs
            if list(output.shape) != list(total.shape) or output.dtype not in self.exercise.tolerance:
                return Finding(Verdict.WRONG_SHAPE, f"rank {rank}'s output has shape {list(output.shape)} on GPUs")
            truth = sample(total.to(f"cuda:{rank}"), sample_seed)
            values = ground_truth.decode_tensor(output.dtype, list(truth.shape), output.content, str(truth.device))
            magnitudes = sample(magnitude.to(f"cuda:{rank}"), sample_seed)
            wrong = compare.mismatches(values, truth, self.exercise.tolerance[output.dtype], rms, magnitudes)
            if bool(wrong.any()):
                share = float(wrong.float().mean())
                return Finding(Verdict.WRONG_VALUES, f"on GPUs {share:.1%} of rank {rank}'s sampled output is wrong")
        return None

    def _row(self, seed: int, rank: int) -> torch.Tensor:
        """Return the vector of a rank, generated as the rank does."""
        rng = torch.Generator(f"cuda:{rank}").manual_seed(seed)
        row = torch.randn(self.case["n"], generator=rng, device=rng.device)
        return row.to(getattr(torch, self.case["dtype"])).to("cuda:0")

    def _measurement(self) -> Measurement:
        """Return the measurement. Its bytes are those that have to leave each rank ("bus bandwidth" of nccl-tests).

        Their ceiling is the bandwidth of a copy to a peer.
        """
        size = len(self._ranks)
        ceiling = _peer_bandwidth()
        bytes_sent = int(2 * (size - 1) / size * self.case["n"] * getattr(torch, self.case["dtype"]).itemsize)
        own_seconds, library_seconds = (statistics.median(seconds) for seconds in self.seconds)
        return Measurement(
            case=self.case,
            seconds=own_seconds,
            baseline_seconds=library_seconds,
            reference_seconds=None,
            speedup=self._speedup(),
            of_reference=None,
            compulsory_bytes=bytes_sent,
            flops=0,
            light_seconds=bytes_sent / ceiling,
            ceilings={"copy to a peer": ceiling},
            rounds=len(self.seconds[_SUBMISSION]),
            method=f"paired rounds on {size} GPUs, the slowest rank's time; bytes: those that leave a rank",
        )


def _peer_bandwidth() -> float:
    """Return the bytes per second of a copy from one GPU's memory to another's."""
    source = torch.empty(_PEER_BYTES, dtype=torch.uint8, device="cuda:0")
    target = torch.empty_like(source, device="cuda:1")
    # The first copy between two GPUs makes PyTorch enable the access to the peer, so it is not timed.
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    target.copy_(source)
    begin.record()
    target.copy_(source)
    end.record()
    torch.cuda.synchronize()
    seconds: float = 1e-3 * begin.elapsed_time(end)
    return _PEER_BYTES / seconds
