"""The roofline: bytes and operations of operators, and their times on a machine, with what binds them.

The counts are closed formulas of the sizes. tests/test_roofline_exercise.py holds them against torch's tensors and
its own counter of operations, against what kernels ask for on the PTX machine, and against times of an H200.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from kernelpath.course.labs import operators
from kernelpath.course.labs.operators import MachineModel, Operator
from kernelpath.course.problem import BYTES, Problem, Tolerance

# Operators that run at the peak of their dtype, on an H200 on tensor cores; all others compute in float32.
PRODUCTS = ("matmul", "attention_prefill", "attention_decode", "conv2d")

BOUNDS = ("memory", "arithmetic", "launch")
COLUMNS = (
    "compulsory bytes",
    "operations",
    "operations per byte",
    "bound",
    "seconds under the roof",
    "seconds predicted",
)

_Count = Callable[[Operator], int]

# Elements read and written, each once; indices and targets are added.
_ELEMENTS: Mapping[str, _Count] = {
    "add": lambda o: 3 * o["elements"],
    "add_": lambda o: 3 * o["elements"],
    "gelu": lambda o: 2 * o["elements"],
    "softmax": lambda o: 2 * o["rows"] * o["columns"],
    "layernorm": lambda o: 2 * (o["rows"] + 1) * o["columns"],
    "cross_entropy": lambda o: o["rows"] * (o["columns"] + 1),
    "transpose": lambda o: 2 * o["rows"] * o["columns"],
    "embedding": lambda o: (o["distinct"] + o["tokens"]) * o["width"],
    "matmul": lambda o: o["m"] * o["k"] + o["k"] * o["n"] + o["m"] * o["n"],
    "attention_prefill": lambda o: 2 * o["batch"] * o["tokens"] * (o["heads"] + o["kv_heads"]) * o["head_dim"],
    "attention_decode": lambda o: 2 * o["batch"] * (o["heads"] + o["tokens"] * o["kv_heads"]) * o["head_dim"],
    "conv2d": lambda o: (
        o["batch"] * o["in_channels"] * o["height"] * o["width"]
        + o["out_channels"] * o["in_channels"] * o["kernel"] ** 2
        + o["batch"] * o["out_channels"] * outputs_of_a_channel(o)
    ),
}

_INDICES: Mapping[str, str] = {"embedding": "tokens", "cross_entropy": "rows"}

_OPERATIONS: Mapping[str, _Count] = {
    "add": lambda o: o["elements"],
    "add_": lambda o: o["elements"],
    "gelu": lambda o: 5 * o["elements"],
    "softmax": lambda o: 5 * o["rows"] * o["columns"],
    "layernorm": lambda o: 7 * o["rows"] * o["columns"],
    "cross_entropy": lambda o: 4 * o["rows"] * o["columns"],
    "matmul": lambda o: 2 * o["m"] * o["n"] * o["k"],
    "attention_prefill": lambda o: 4 * o["batch"] * o["heads"] * o["head_dim"] * (o["tokens"] * (o["tokens"] + 1) // 2),
    "attention_decode": lambda o: 4 * o["batch"] * o["heads"] * o["head_dim"] * o["tokens"],
    "conv2d": lambda o: (
        2 * o["batch"] * o["out_channels"] * outputs_of_a_channel(o) * o["in_channels"] * o["kernel"] ** 2
    ),
}


def outputs_of_a_channel(o: Operator) -> int:
    return int((o["height"] - o["kernel"] + 1) * (o["width"] - o["kernel"] + 1))


def compulsory_bytes(op: Operator) -> int:
    indices: int = op.get(_INDICES.get(op["name"], ""), 0)
    return _ELEMENTS[op["name"]](op) * BYTES[op["dtype"]] + BYTES["int64"] * indices


def operations(op: Operator) -> int:
    return _OPERATIONS[op["name"]](op) if op["name"] in _OPERATIONS else 0


def seconds_apart(op: Operator, machine: MachineModel) -> tuple[float, float, float]:
    """Return the seconds of memory, arithmetic and the launch, each alone."""
    peak = machine["peak"][op["dtype"] if op["name"] in PRODUCTS else "float32"]
    return (
        compulsory_bytes(op) / (1e9 * machine["bandwidth"]),
        operations(op) / (1e12 * peak),
        1e-6 * machine["launch"],
    )


def roof_seconds(op: Operator, machine: MachineModel) -> float:
    return max(seconds_apart(op, machine)[:2])


def inputs(rng: torch.Generator, machine: str, count: int) -> tuple[list[Operator], MachineModel, str]:
    """Return operators of all kinds and sizes, or those that were timed on an H200; a machine; a device."""
    recorded = machine == operators.TIMED
    sampled = list(operators.RECORDED) if recorded else operators.draw(rng, count)
    return sampled, operators.machine(rng, machine), rng.device.type


def reference(ops: list[Operator], machine: MachineModel, device: str) -> torch.Tensor:
    """Return a row for each operator, with the columns of COLUMNS."""
    return torch.tensor([_row(op, machine) for op in ops], dtype=torch.float64, device=device)


def _row(op: Operator, machine: MachineModel) -> tuple[float, ...]:
    byte_count = compulsory_bytes(op)
    operation_count = operations(op)
    seconds = seconds_apart(op, machine)
    roof = max(seconds[:2])
    return (
        byte_count,
        operation_count,
        operation_count / byte_count,
        seconds.index(max(seconds)),
        roof,
        roof + seconds[2],
    )


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        {"machine": operators.TIMED, "count": len(operators.RECORDED)},
        *({"machine": name, "count": 60} for name in (*operators.MACHINES, *operators.RANDOM_MACHINES)),
    ),
    reference=reference,
    # A few float64 operations in another order differ by 1e-15. The least that anyone can forget, the weights of a
    # small convolution on large images, is more than 1e-8 of its bytes.
    tolerance={"float64": Tolerance(rtol=1e-9, atol=0.0)},
    compulsory_bytes=lambda machine, count: 8 * len(COLUMNS) * count,
)
