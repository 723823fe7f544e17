"""Report how XLA fused a function: the kernels of an optimized HLO module, and the bytes that each reads and writes."""

from __future__ import annotations

import random

import torch

from kernelpath.course.problem import Problem, Tolerance
from kernelpath.course.traces import Facts, TraceFile, hlo, recordings

RECORDING = "hlo"

# The functions of results/traces/hlo.py that the notebook shows.
NOTEBOOK_FUNCTIONS = ("norm", "centered", "two_users", "entropy", "mlp")
FURTHER_FUNCTIONS = (
    "softmax",
    "gelu_aux",
    "exact_gelu",
    "swiglu",
    "rope",
    "cache",
    "copied_cache",
    "embed",
    "bias_gradient",
    "flip",
    "adam",
    "layernorm",
    "argmax",
    "attention",
    "quantized",
)

# The number of recordings of each function, with different types and sizes.
VARIANTS = 2

# The extent of independent rows in the recordings.
ROWS = 328


def inputs(rng: torch.Generator, function: str, rows: int) -> tuple[TraceFile]:
    """Return the module of a function.

    Args:
        rng: The generator.
        function: One of the functions of results/traces/hlo.py.
        rows: The number of independent rows; if it isn't ROWS, names differ from the recording, too.
    """
    python_rng = random.Random(int(torch.randint(1 << 31, (), generator=rng, device=rng.device)))
    text = recordings.read(RECORDING, f"{function}{python_rng.randrange(VARIANTS)}.hlo").decode()
    changed = text if rows == ROWS else hlo.vary(python_rng, text, ROWS, rows)
    return (TraceFile("module.hlo", changed.encode()),)


def reference(module: TraceFile) -> Facts:
    return hlo.of(module.content.decode())


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        *({"function": name, "rows": ROWS} for name in NOTEBOOK_FUNCTIONS),
        *({"function": name, "rows": 152 + 48 * number} for number, name in enumerate(FURTHER_FUNCTIONS)),
    ),
    reference=reference,
    tolerance={"float64": Tolerance(rtol=1e-9, atol=0.0)},
    compulsory_bytes=lambda function, rows: 0,
)
