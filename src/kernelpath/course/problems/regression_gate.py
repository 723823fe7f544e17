"""A regression gate: which changes made a kernel slower, judged from times of a machine that disturbs them.

A gate may err, so its decisions are not compared one by one: the declaration counts false alarms and missed slowdowns,
and compares the counts with the rates of the statement.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from kernelpath.course.labs.ci_machine import SYMPTOMS, Change, CiMachine
from kernelpath.course.problem import EXACT, Case, Problem

# The slowdown that a gate has to catch.
SLOWER = 1.02

# The ratio of a quarter of the harmless changes. The others change nothing.
FASTER = 0.98

# The machine of a case whose every change is judged on another machine, with all troubles or one of them.
MIXED = "mixed"
ALL = "all"


def inputs(rng: torch.Generator, troubles: str, harmless: int, slower: int) -> tuple[CiMachine, int, str]:
    """Return what a gate gets: the machine, the number of changes, harmless and slower in any order, and a device.

    Args:
        rng: The generator.
        troubles: A key of SYMPTOMS, "none", "all", or "mixed".
        harmless: The number of changes that are not slower. A quarter of them are faster.
        slower: The number of changes that are slower by 2%.
    """
    seed = int(torch.randint(1 << 31, (), generator=rng, device=rng.device))
    draws = np.random.default_rng(seed)
    ratios = [FASTER if index % 4 == 3 else 1.0 for index in range(harmless)] + [SLOWER] * slower
    changes = [
        Change(float(10 ** draws.uniform(-5, -2)), ratio, _troubles(draws, troubles))
        for ratio in draws.permutation(ratios).tolist()
    ]
    return CiMachine(rng.device.type, seed, changes), len(changes), rng.device.type


def _troubles(draws: np.random.Generator, name: str) -> tuple[str, ...]:
    if name == MIXED:
        name = str(draws.choice(["none", ALL, *SYMPTOMS]))
    return {"none": (), ALL: tuple(SYMPTOMS)}.get(name, (name,))


def reference(machine: CiMachine, changes: int, device: str) -> torch.Tensor:
    slower = [int(change.ratio > 1) for change in machine.changes]
    return torch.tensor(slower, dtype=torch.int64, device=device)


def settled(expected: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Accept each decision, right or wrong; numbers other than 0 and 1 aren't decisions."""
    return [output.to(truth.dtype).clamp(0, 1) for truth, output in zip(expected, outputs, strict=True)]


def case(troubles: str, harmless: int = 300, slower: int = 150) -> Case:
    return {"troubles": troubles, "harmless": harmless, "slower": slower}


PROBLEM = Problem(
    inputs=inputs,
    # A machine for each trouble names the mistake. The mixed case has so many changes that 5% false alarms differ from
    # 1%.
    cases=(case("none"), *map(case, SYMPTOMS), case(ALL), case(MIXED, harmless=3000, slower=500)),
    reference=reference,
    settled=settled,
    tolerance={"int64": EXACT},
    compulsory_bytes=lambda troubles, harmless, slower: 8 * (harmless + slower),
)
