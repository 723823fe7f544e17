"""Explain a wrong count or time of an operator: each known mistake by the number that it leads to."""

from __future__ import annotations

import math
from collections.abc import Iterator

from kernelpath.course.labs.operators import MachineModel, Operator
from kernelpath.course.problem import BYTES
from kernelpath.course.problems.roofline import PRODUCTS, compulsory_bytes, operations, seconds_apart


def symptom(what: str, op: Operator, machine: MachineModel, answer: float) -> str:
    """Return the known mistake that gives the answer, as the rest of a sentence, or ""."""
    # Each mistake is the right number with one change. An answer that equals none of these gets no explanation.
    known_mistakes = {"compulsory bytes": _bytes(op), "operations": _operations(op)}.get(what) or _seconds(op, machine)
    return next(
        (f": {explanation}" for value, explanation in known_mistakes if math.isclose(value, answer, rel_tol=1e-6)), ""
    )


def _bytes(op: Operator) -> Iterator[tuple[float, str]]:
    name = op["name"]
    right = compulsory_bytes(op)
    size = BYTES[op["dtype"]]
    if name == "add_":
        yield right / 3 * 2, "what is changed in place is read and written"
    if name == "layernorm":
        yield right - 2 * op["columns"] * size, "weight and bias are read, too"
    if name == "matmul":
        yield right - op["k"] * op["n"] * size, "the second matrix is read, too"
    if name == "embedding":
        index = 8 * op["tokens"]
        width = op["width"] * size
        yield right - index, "the indices are read, too"
        yield right - index / 2, "an index is an int64: 8 bytes"
        yield 2 * op["tokens"] * width + index, "a row that several tokens name is read once"
        yield (op["vocabulary"] + op["tokens"]) * width + index, "only the rows that are named are read"
    if name == "cross_entropy":
        yield right - 8 * op["rows"], "the targets are read, too"
        yield right - 4 * op["rows"], "a target is an int64: 8 bytes"
        yield right - size * op["rows"], "the losses are written, too"
        yield right + op["rows"] * op["columns"] * size, "a loss is one value for each row"
    if name.startswith("attention") and op["heads"] != op["kv_heads"]:
        # Grouped-query attention (Ainslie et al., 2023): several query heads use one head of K and V.
        yield compulsory_bytes({**op, "kv_heads": op["heads"]}), "heads share K and V, which are then read once"
    if name == "attention_prefill":
        scores = op["batch"] * op["heads"] * op["tokens"] ** 2 * size
        yield right + scores, "the scores stay on the chip"
        yield right + 2 * scores, "the scores stay on the chip"
    if name == "conv2d":
        window = op["in_channels"] * op["kernel"] ** 2
        weights = op["out_channels"] * window * size
        yield right - weights, "the weights are read, too"
        outputs = op["batch"] * (op["height"] - op["kernel"] + 1) * (op["width"] - op["kernel"] + 1)
        pixels = op["batch"] * op["in_channels"] * op["height"] * op["width"]
        yield right + (outputs * window - pixels) * size, "a pixel that several windows share is read once"
        lost = op["batch"] * op["height"] * op["width"] - outputs
        yield right + op["out_channels"] * lost * size, "without padding the output is smaller than the input"
    yield 8 * right, "these are bits"
    yield 2 * right, "every tensor is moved once"
    for dtype in ("float32", "bfloat16"):
        yield compulsory_bytes({**op, "dtype": dtype}), f"an element of {op['dtype']} has {size} bytes"


def _operations(op: Operator) -> Iterator[tuple[float, str]]:
    right = operations(op)
    if op["name"] in PRODUCTS:
        yield right / 2, "a multiply-add is two operations"
    if op["name"] == "attention_prefill":
        tokens = op["tokens"]
        yield right * 2 * tokens / (tokens + 1), "a token sees those up to its own, and only these pairs count"
        yield right * (tokens - 1) / (tokens + 1), "a token sees itself, too"
        yield right * tokens / (tokens + 1), "a token sees itself, too: half of the pairs is not quite enough"
    if op["name"].startswith("attention"):
        yield right / 2, "there are two products"
        yield right * op["kv_heads"] / op["heads"], "each of the heads computes, whether or not it shares K and V"
    if op["name"] == "conv2d":
        # A convolution without padding loses kernel - 1 rows and columns.
        lost = op["kernel"] - 1
        padded = op["height"] * op["width"] / ((op["height"] - lost) * (op["width"] - lost))
        yield right * padded, "without padding the output is smaller than the input"


def _seconds(op: Operator, machine: MachineModel) -> Iterator[tuple[float, str]]:
    memory, arithmetic, launch = seconds_apart(op, machine)
    own = seconds_apart(op, {**machine, "peak": dict.fromkeys(machine["peak"], machine["peak"][op["dtype"]])})[1]
    in_float32 = seconds_apart({**op, "dtype": "float32"}, machine)[1]
    # A learner may make one of these mistakes and forget the launch as well.
    for extra in (0.0, launch):
        yield memory + arithmetic + extra, "the two overlap: the longer one counts"
        yield memory * 1e9 / 2**30 + extra, "a GB is 10^9 bytes, not 2^30"
        yield max(memory, own) + extra, "only products run at the peak of their dtype; all others compute in float32"
        yield max(memory, in_float32) + extra, "a product runs at the peak of its dtype"
        yield min(memory, arithmetic) + extra, "the longer one counts"
    yield max(memory, arithmetic) + 1e3 * launch, "the launch is given in microseconds"
    yield max(memory, arithmetic) + 1e6 * launch, "the launch is given in microseconds"
    yield max(memory, arithmetic), "the launch comes on top"
    yield max(memory, arithmetic, launch), "the launch comes on top: nothing overlaps with it"
