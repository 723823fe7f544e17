"""Call an exercise on ranks that torchrun starts, outside of the grader, over gloo or NCCL.

    torchrun --nproc-per-node 4 -m kernelpath.show.torchrun all_reduce

Each rank calls the exercise's entry in all cases with this number of ranks, and compares its outputs. The learner's
file is used unless `--tree` names another tree. This grades nothing: `kp check` counts messages and bytes, and runs
every number of ranks.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from kernelpath.course import registry
from kernelpath.course.labs.fabric import Layers
from kernelpath.course.problem import Case, arguments
from kernelpath.course.spec import Exercise
from kernelpath.grading import compare, ground_truth


@dataclass(frozen=True)
class Layer:
    """A layer whose backward pass takes time and returns a gradient that is known."""

    gradient: torch.Tensor
    seconds: float

    @property
    def numel(self) -> int:
        return self.gradient.numel()

    def backward(self) -> torch.Tensor:
        time.sleep(self.seconds)
        return self.gradient.clone()


def main(options: Sequence[str] | None = None) -> int:
    """Run the cases and return the number of those in which a rank is wrong."""
    parser = argparse.ArgumentParser(prog="torchrun -m kernelpath.show.torchrun", description=__doc__)
    parser.add_argument("exercise", help="an exercise with ranks, such as all_reduce")
    parser.add_argument("--tree", choices=("phases", "solutions"), default="phases")
    parsed = parser.parse_args(options)
    item = registry.find(parsed.exercise)
    exercise = registry.load(item)
    if exercise.kind != "distributed":
        parser.error(f"{item.name} has no ranks")
    if "RANK" not in os.environ:
        parser.error("start this module with torchrun, which sets RANK, WORLD_SIZE, and the address of rank 0")
    device = _join_group()
    try:
        entry = getattr(registry.import_file(item.submission(parsed.tree), "launched", listed=False), exercise.entry)
        return _run_cases(exercise, entry, device)
    finally:
        dist.destroy_process_group()


def _join_group() -> str:
    """Join the group that the environment describes, and return this rank's device."""
    local_rank = int(os.environ["LOCAL_RANK"])
    if torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"]):
        torch.cuda.set_device(local_rank)
        dist.init_process_group("nccl", device_id=torch.device("cuda", local_rank))
        return "cuda"
    dist.init_process_group("gloo")
    return "cpu"


def _run_cases(exercise: Exercise, entry: Callable[..., Any], device: str) -> int:
    rank, size = dist.get_rank(), dist.get_world_size()
    cases = [case for case in exercise.cases if case["world"] == size]
    if rank == 0:
        print(f"{size} rank{'s' * (size > 1)}, {dist.get_backend()}, {len(cases)} cases", flush=True)
    failures = 0
    for case in cases:
        seconds, fault = _call(exercise, entry, case, device)
        faults: list[str | None] = [None] * size
        dist.all_gather_object(faults, fault)
        first = next(((number, cause) for number, cause in enumerate(faults) if cause), None)
        failures += first is not None
        if rank == 0:
            outcome = f"rank {first[0]}: {first[1]}" if first else f"right on every rank, {1e3 * seconds:.1f} ms"
            print(f"{arguments(case)}: {outcome}", flush=True)
    return failures


def _call(exercise: Exercise, entry: Callable[..., Any], case: Case, device: str) -> tuple[float, str]:
    """Call the entry once. Return the seconds it took and the fault of this rank's outputs, "" if there is none."""
    rank, size = dist.get_rank(), dist.get_world_size()
    # All ranks draw the same inputs, and each takes its row.
    inputs = exercise.inputs(torch.Generator().manual_seed(0), **case)
    own = [value[rank] if isinstance(value, torch.Tensor) else value for value in inputs]
    layers = next((value for value in inputs if isinstance(value, Layers)), None)
    if layers is not None:
        gradients = own[0].to(device).split(list(layers.sizes))
        own = [[Layer(*parts) for parts in zip(gradients, layers.seconds, strict=True)]]
    own = [value.to(device) if isinstance(value, torch.Tensor) else value for value in own]
    dist.barrier()
    start = time.perf_counter()
    result = entry(*own)
    if device == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    outputs = [result] if isinstance(result, torch.Tensor) else list(result)
    expected = ground_truth.expected_outputs(exercise, inputs)
    magnitudes = ground_truth.magnitudes_of(exercise, inputs)
    per_rank = len(expected) // size
    own_outputs = slice(rank * per_rank, (rank + 1) * per_rank)
    if len(outputs) != per_rank:
        return seconds, f"returned {len(outputs)} tensors, expected {per_rank}"
    finding = compare.check_outputs(
        [output.cpu() for output in outputs],
        expected[own_outputs],
        exercise.tolerance,
        names=[f"output {number}" for number in range(per_rank)],
        magnitudes=None if magnitudes is None else lambda: magnitudes()[own_outputs],
    )
    return seconds, "" if finding is None else finding.cause


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
