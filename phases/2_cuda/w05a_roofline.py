"""Roofline: the minimum cost of an operator on a machine, before anyone has written it.

Count the bytes and the operations of 12 operators, and from them predict their times on machines that you have never
seen. An operator is a dict: its "name", its "dtype" and its sizes. All of its tensors have that dtype, except for
indices and targets, which are int64: 8 bytes each. float32 has 4 bytes, float16 and bfloat16 have 2.

Compulsory bytes are those that no kernel can avoid. Every input element that is needed is read from memory once, and
every element of the output is written once. Intermediate values, such as the maximum of a row, stay on the chip.

Operations: an addition, a subtraction, a multiplication, a division, a maximum and a call of exp or erf count 1 each,
so a multiply-add counts 2. Moves, conversions and index arithmetic count 0, and so does what is done once per row.

    name               sizes                            what it computes
    add                elements                         out = x + y
    add_               elements                         x += y, in place: x is read and written
    gelu               elements                         0.5 * x * (1 + erf(c * x)): 5 operations per element
    softmax            rows, columns                    exp(x - max) / sum over a row: 5 per element
    layernorm          rows, columns                    (x - mean) * rstd * weight + bias: 7 per element; weight and
                                                        bias have `columns` elements each
    cross_entropy      rows, columns                    log(sum(exp(x - max))) + max - x[target], the loss of each row:
                                                        4 per element; one target per row
    transpose          rows, columns                    out[j, i] = x[i, j]
    embedding          tokens, vocabulary, width,       one row of a table of vocabulary x width for each token; its
                       distinct                         index is read. The tokens name `distinct` different rows
    matmul             m, n, k                          m x k times k x n
    attention_prefill  batch, heads, kv_heads,          causal: a query for each token, and it sees the tokens up to
                       tokens, head_dim                 and including its own
    attention_decode   the same                         one query per sequence and head sees all `tokens` of the cache
    conv2d             batch, in_channels,              kernel x kernel weights for each pair of channels, stride 1, no
                       out_channels, height, width,     padding, no bias: the output is smaller than the input by
                       kernel                           kernel - 1 in height and in width

Attention: Q and the output have `heads` heads, K and V have kv_heads, each read by heads / kv_heads heads. Only its two
GEMMs count as operations, as in the literature, and only for the pairs of a query and a token that it sees.

A machine is a dict: its "name"; "bandwidth" in GB/s, 10^9 bytes per second; "peak", by dtype, in TFLOP/s, 10^12
operations per second; and "launch" in microseconds. GEMMs, attention and convolutions run at the peak of their dtype.
All others compute in float32, regardless of the dtype that they store. The minimum time of an operator, its roof, is
the time for its bytes or for its operations, whichever is longer, because the two overlap. A measured time also
includes the launch. Counts and times are compared within one part in a billion. If an operator was timed on an H200,
the report shows that time, too.
"""

import torch

BOUNDS = ("memory", "arithmetic", "launch")


def compulsory_bytes(operator: dict) -> int:
    """The bytes that every kernel has to move between memory and the chip."""
    raise NotImplementedError("TODO: how many bytes must be moved?")


def operations(operator: dict) -> int:
    """The arithmetic operations, as counted above."""
    raise NotImplementedError("TODO: how many operations?")


def roof_seconds(operator: dict, machine: dict) -> float:
    """The least time on the machine, in seconds: that of its bytes or of its operations."""
    raise NotImplementedError("TODO: the least time of the bytes and the operations")


def predicted_seconds(operator: dict, machine: dict) -> float:
    """What a clock shows at best, in seconds."""
    raise NotImplementedError("TODO: the least time with its launch")


def bound(operator: dict, machine: dict) -> str:
    """What takes longest: "memory", "arithmetic" or "launch"."""
    raise NotImplementedError("TODO: what takes longest?")


def roofline(operators: list[dict], machine: dict, device: str) -> torch.Tensor:
    """A row for each operator: bytes, operations, operations per byte, number of its bound in BOUNDS, both times."""
    rows = []
    for one in operators:
        moved, done = compulsory_bytes(one), operations(one)
        times = roof_seconds(one, machine), predicted_seconds(one, machine)
        rows.append((moved, done, done / moved, BOUNDS.index(bound(one, machine)), *times))
    return torch.tensor(rows, dtype=torch.float64, device=device)
