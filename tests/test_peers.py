"""benchmarks/peers.py: the cases of a race are cases of its exercises, and peers take their inputs.

The races themselves need a GPU.
"""

from __future__ import annotations

import inspect
import sys

import pytest
import torch

from kernelpath.course import registry

sys.path.insert(0, "benchmarks")

import peers

RACES = list(peers.races())
ON_THE_CPU = ("eager", "cublas", "_int_mm")


@pytest.mark.parametrize("race", RACES, ids=lambda race: race.exercises[0])
def test_contestants_take_the_inputs_of_every_case(race: peers.Race) -> None:
    exercises = [registry.load(registry.find(name)) for name in race.exercises]
    assert race.cases
    for exercise in exercises:
        for case in race.cases:
            inspect.signature(exercise.problem.inputs).bind(None, **case)
            assert exercise.problem.compulsory_bytes(**case) > 0
    problem = exercises[0].problem
    inputs = problem.inputs(torch.Generator().manual_seed(1), **problem.cases[0])
    for kernel in filter(inspect.isfunction, race.peers.values()):
        inspect.signature(kernel).bind(*inputs)


@pytest.mark.parametrize(
    ("race", "name"),
    [
        pytest.param(race, name, id=f"{race.exercises[0]}-{name}")
        for race in RACES
        for name in race.peers
        if name in ON_THE_CPU and race.exercises[0] != "fp8_gemm"  # torch._scaled_mm with blocks needs a GPU
    ],
)
def test_an_operator_of_pytorch_computes_the_same(race: peers.Race, name: str) -> None:
    problem = registry.load(registry.find(race.exercises[0])).problem
    inputs = problem.inputs(torch.Generator().manual_seed(1), **problem.cases[0])
    out, expected = (peers.first_output(x).double() for x in (race.peers[name](*inputs), problem.reference(*inputs)))
    if name == "_int_mm":  # the scales are ours alone
        expected = inputs[0].double() @ inputs[1].double().T
    torch.testing.assert_close(out, expected, rtol=0.02, atol=0.02 * expected.square().mean().sqrt().item())
