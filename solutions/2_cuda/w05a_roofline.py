"""Roofline: the minimum cost of an operator on a machine, before anyone has written the operator.

Count the bytes and the operations of 12 operators, and from them predict their times on machines that you have never
seen. An operator is a dict with its "name", its "dtype" and its sizes. All of its tensors have that dtype, except for
indices and targets, which are int64 and take 8 bytes each. float32 takes 4 bytes; float16 and bfloat16 take 2.

Compulsory bytes are those that no kernel can avoid. Every input element that is needed is read from memory once, and
every element of the output is written once. Intermediate values, such as the maximum of a row, stay on the chip.

Operations: an addition, a subtraction, a multiplication, a division, a maximum and a call of exp or erf count 1 each,
so a multiply-add counts 2. Moves, conversions and index arithmetic count 0, and so do operations that are performed
once per row.

    name               sizes                            computation
    add                elements                         out = x + y
    add_               elements                         x += y, in place: x is read and written
    gelu               elements                         0.5 * x * (1 + erf(c * x)): 5 operations per element
    softmax            rows, columns                    exp(x - max) / sum over a row: 5 per element
    layernorm          rows, columns                    (x - mean) * rstd * weight + bias: 7 per element; weight and
                                                        bias have `columns` elements each
    cross_entropy      rows, columns                    log(sum(exp(x - max))) + max - x[target], the loss of each row:
                                                        4 per element; one target per row
    transpose          rows, columns                    out[j, i] = x[i, j]
    embedding          tokens, vocabulary, width,       copies one row of a vocabulary x width table per token, and
                       distinct                         reads its index. The tokens refer to `distinct` different rows
    matmul             m, n, k                          m x k times k x n
    attention_prefill  batch, heads, kv_heads,          causal: each token has a query, which sees the tokens up to
                       tokens, head_dim                 and including its own
    attention_decode   the same                         one query per sequence and head sees all `tokens` in the cache
    conv2d             batch, in_channels,              kernel x kernel weights per pair of channels, stride 1, no
                       out_channels, height, width,     padding, no bias: the output is smaller than the input by
                       kernel                           kernel - 1 in height and in width

Attention: Q and the output have `heads` heads. K and V have kv_heads heads, and heads / kv_heads query heads share each
of them. As in the literature, only the two GEMMs count as operations, and only for the pairs of a query and a token
that it sees.

A machine is a dict with its "name"; "bandwidth" in GB/s, 10^9 bytes per second; "peak", by dtype, in TFLOP/s, 10^12
operations per second; and "launch" in microseconds. GEMMs, attention and convolutions run at their dtype's peak. All
other operators compute in float32, regardless of the dtype that they store. The minimum time of an operator, its roof,
is the time for its bytes or for its operations, whichever is longer, because the two overlap. A measured time also
includes the launch. Counts and times must match within one part in a billion. If an operator was timed on an H200, the
report shows that time, too.
"""

import torch

BOUNDS = ("memory", "arithmetic", "launch")
INDEX = 8  # bytes of an index or a target


def compulsory_bytes(operator: dict) -> int:
    """Return the number of bytes that every kernel has to move between memory and the chip."""
    size = {"float32": 4, "float16": 2, "bfloat16": 2}[operator["dtype"]]
    match operator:
        case {"name": "add" | "add_", "elements": elements}:
            return 3 * elements * size
        case {"name": "gelu", "elements": elements}:
            return 2 * elements * size
        case {"name": "softmax" | "transpose", "rows": rows, "columns": columns}:
            return 2 * rows * columns * size
        case {"name": "layernorm", "rows": rows, "columns": columns}:
            return (2 * rows * columns + 2 * columns) * size
        case {"name": "cross_entropy", "rows": rows, "columns": columns}:
            return (rows * columns + rows) * size + rows * INDEX
        case {"name": "embedding", "tokens": tokens, "width": width, "distinct": distinct}:
            return (distinct + tokens) * width * size + tokens * INDEX
        case {"name": "matmul", "m": m, "n": n, "k": k}:
            return (m * k + k * n + m * n) * size
        case {"batch": batch, "heads": heads, "kv_heads": kv_heads, "tokens": tokens, "head_dim": head_dim}:
            queries = tokens if operator["name"] == "attention_prefill" else 1
            return 2 * batch * head_dim * (heads * queries + kv_heads * tokens) * size
        case {"name": "conv2d", "batch": batch, "in_channels": c_in, "out_channels": c_out, "kernel": kernel}:
            image = batch * c_in * operator["height"] * operator["width"]
            return (image + c_out * c_in * kernel**2 + batch * c_out * pixels(operator)) * size


def pixels(convolution: dict) -> int:
    """Return the number of output pixels per image and channel."""
    lost = convolution["kernel"] - 1
    return (convolution["height"] - lost) * (convolution["width"] - lost)


def operations(operator: dict) -> int:
    """Return the number of arithmetic operations, as defined above."""
    match operator:
        case {"name": "softmax" | "layernorm" | "cross_entropy" as name, "rows": rows, "columns": columns}:
            return {"softmax": 5, "layernorm": 7, "cross_entropy": 4}[name] * rows * columns
        case {"name": name, "elements": elements}:
            return (5 if name == "gelu" else 1) * elements
        case {"name": "matmul", "m": m, "n": n, "k": k}:
            return 2 * m * n * k
        case {"batch": batch, "heads": heads, "tokens": tokens, "head_dim": head_dim}:
            prefill = operator["name"] == "attention_prefill"
            pairs = tokens * (tokens + 1) // 2 if prefill else tokens  # pairs of a query and a token that it sees
            return 2 * 2 * batch * heads * pairs * head_dim
        case {"name": "conv2d", "batch": batch, "in_channels": c_in, "out_channels": c_out, "kernel": kernel}:
            return 2 * batch * c_out * pixels(operator) * c_in * kernel**2
    return 0


def seconds_apart(operator: dict, machine: dict) -> tuple[float, float]:
    """Return the time for the bytes alone and the time for the operations alone."""
    product = operator["name"] in ("matmul", "attention_prefill", "attention_decode", "conv2d")
    peak = machine["peak"][operator["dtype"] if product else "float32"]
    return compulsory_bytes(operator) / (1e9 * machine["bandwidth"]), operations(operator) / (1e12 * peak)


def roof_seconds(operator: dict, machine: dict) -> float:
    """Return the minimum time on the machine, in seconds: the time for its bytes or for its operations."""
    return max(seconds_apart(operator, machine))


def predicted_seconds(operator: dict, machine: dict) -> float:
    """Return the shortest time that a clock could show, in seconds."""
    return roof_seconds(operator, machine) + 1e-6 * machine["launch"]


def bound(operator: dict, machine: dict) -> str:
    """Return which of "memory", "arithmetic" and "launch" takes longest."""
    memory, arithmetic = seconds_apart(operator, machine)
    if max(memory, arithmetic) < 1e-6 * machine["launch"]:
        return "launch"
    return "memory" if memory > arithmetic else "arithmetic"


def roofline(operators: list[dict], machine: dict, device: str) -> torch.Tensor:
    """Return a row per operator: bytes, operations, operations per byte, index of its bound in BOUNDS, both times."""
    rows = []
    for one in operators:
        moved, done = compulsory_bytes(one), operations(one)
        times = roof_seconds(one, machine), predicted_seconds(one, machine)
        rows.append((moved, done, done / moved, BOUNDS.index(bound(one, machine)), *times))
    return torch.tensor(rows, dtype=torch.float64, device=device)
