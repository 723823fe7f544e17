"""Test exercises with ranks in a real process group, started by torchrun or in this process with one rank."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from kernelpath.course import registry
from kernelpath.show import torchrun

REDUCE = registry.load(registry.find("all_reduce"))


@pytest.fixture
def single_rank() -> Iterator[None]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def launch(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "localhost", "--nproc-per-node", "2"]
    return subprocess.run(
        [sys.executable, *command, "-m", "kernelpath.show.torchrun", *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=280,
    )


def test_solutions_are_correct_in_a_gloo_group() -> None:
    launched = launch("all_reduce", "--tree", "solutions")
    assert launched.returncode == 0, launched.stderr
    first, *cases = launched.stdout.splitlines()
    assert first == "2 ranks, gloo, 4 cases"
    assert [case.partition(":")[0] for case in cases] == [
        "world=2 n=8 dtype=float32 algorithm=reduce_scatter",
        "world=2 n=7 dtype=float32 algorithm=all_gather",
        "world=2 n=1003 dtype=bfloat16 algorithm=ring",
        "world=2 n=1003 dtype=bfloat16 algorithm=two_shot",
    ]
    assert all("right on every rank" in case for case in cases)


@pytest.mark.usefixtures("single_rank")
def test_wrong_results_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    def double_largest(x: torch.Tensor, algorithm: str) -> torch.Tensor:
        return torch.where(x == x.max(), 2 * x, x) if algorithm == "ring" else x.clone()

    assert torchrun._run_cases(REDUCE, double_largest, "cpu") == 1
    first, *cases = capsys.readouterr().out.splitlines()
    assert first == "1 rank, gloo, 2 cases"
    assert "right on every rank" in cases[0]
    assert "algorithm=ring: rank 0: 1 of 5 elements of the output are wrong" in cases[1]


@pytest.mark.usefixtures("single_rank")
def test_layers_return_the_gradients_of_their_rank() -> None:
    exercise = registry.load(registry.find("overlap"))

    def average(layers: list[torchrun.Layer]) -> tuple[torch.Tensor, ...]:
        return tuple(layer.backward() for layer in layers)

    assert torchrun._run_cases(exercise, average, "cpu") == 0
    assert torchrun._run_cases(exercise, lambda layers: average(layers)[::-1], "cpu") == 1
    assert torchrun._run_cases(exercise, lambda layers: average(layers)[:-1], "cpu") == 1


def test_other_exercises_and_other_starts_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        (["softmax"], "softmax has no ranks"),
        (["all_reduce"], "start this module with torchrun"),
    ):
        with pytest.raises(SystemExit):
            torchrun.main(arguments)
        assert message in capsys.readouterr().err
