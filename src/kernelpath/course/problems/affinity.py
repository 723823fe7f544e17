"""Place the ranks of a node: the CPUs, the memory, and the network adapter of each, from nvidia-smi's matrix."""

from __future__ import annotations

import random
from typing import Any

import torch

from kernelpath.course.problem import Case, Problem, Tolerance
from kernelpath.course.traces import Facts, TraceFile, topology


def inputs(rng: torch.Generator, **machine: Any) -> tuple[TraceFile]:
    """Return the matrix of a machine, described by the arguments of `topology.draw`."""
    python_rng = random.Random(int(torch.randint(1 << 31, (), generator=rng, device=rng.device)))
    return (TraceFile("topology.txt", topology.draw(python_rng, **machine).encode()),)


def reference(matrix: TraceFile) -> Facts:
    return topology.of(matrix.content.decode())


def case(nodes: int, gpus: int, adapters: int, cores: int, *, threads: int = 2, last_node_first: bool = False) -> Case:
    machine = {"nodes": nodes, "gpus": gpus, "adapters": adapters, "cores": cores}
    return {**machine, "threads": threads, "last_node_first": last_node_first}


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        case(1, 1, 1, 8),
        case(1, 4, 1, 64),
        case(1, 3, 2, 16),
        case(2, 2, 1, 4),
        case(2, 6, 2, 4),  # ranks with a single core
        case(2, 4, 3, 24, last_node_first=True),
        case(2, 8, 8, 56),
        case(2, 12, 12, 48),  # numbers of two digits: NIC10 comes after NIC9
        case(2, 7, 5, 30),
        case(1, 2, 1, 64, threads=1),  # a single range of CPUs
    ),
    reference=reference,
    tolerance={"float64": Tolerance(rtol=1e-6, atol=0.0)},
    compulsory_bytes=lambda **machine: 0,
)
