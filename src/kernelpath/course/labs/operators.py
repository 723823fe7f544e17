"""Operators as a roofline sees them: names and sizes, the machines that run them, and torch's own calls.

An operator is a dict as the learner gets it: its "name", its "dtype" and its sizes. A machine is one, too: its "name",
its "bandwidth" in bytes per second, the "peak" by dtype in operations per second, and the "launch" in seconds.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F

Operator = dict[str, Any]
MachineModel = dict[str, Any]

DTYPES = ("float32", "float16", "bfloat16")

_ROWS = {"rows": (1, 1 << 15), "columns": (64, 1 << 15)}
_HEADS = {"batch": (1, 64), "kv_heads": (1, 8), "group": (1, 8), "tokens": (64, 1 << 14), "head_dim": (32, 256)}

SIZES: Mapping[str, Mapping[str, tuple[int, int]]] = {
    "add": {"elements": (1 << 10, 1 << 28)},
    "add_": {"elements": (1 << 10, 1 << 28)},
    "gelu": {"elements": (1 << 10, 1 << 28)},
    "softmax": _ROWS,
    "layernorm": _ROWS,
    "cross_entropy": _ROWS,
    "transpose": _ROWS,
    "embedding": {"tokens": (16, 1 << 16), "vocabulary": (1 << 10, 1 << 18), "width": (64, 1 << 13)},
    "matmul": {"m": (1, 1 << 13), "n": (64, 1 << 13), "k": (64, 1 << 13)},
    "attention_prefill": _HEADS,
    "attention_decode": _HEADS,
    "conv2d": {
        "batch": (1, 128),
        "in_channels": (3, 512),
        "out_channels": (16, 512),
        "height": (14, 224),
        "width": (14, 224),
        "kernel": (1, 7),
    },
}
"""By operator: its sizes, and between what they are drawn, both included, evenly in their logarithm."""


def operator(name: str, dtype: str, **sizes: int) -> Operator:
    return {"name": name, "dtype": dtype, **sizes}


def told(op: Operator) -> str:
    """ "matmul m=16 n=8192 k=8192 bfloat16"."""
    sizes = [f"{name}={value}" for name, value in op.items() if name not in ("name", "dtype")]
    return " ".join([op["name"], *sizes, op["dtype"]])


RECORDED = (
    operator("add", "float32", elements=1 << 12),
    operator("add", "float32", elements=1 << 26),
    operator("add", "bfloat16", elements=1 << 27),
    operator("add_", "bfloat16", elements=1 << 27),
    operator("gelu", "float32", elements=1 << 26),
    operator("gelu", "bfloat16", elements=1 << 27),
    operator("softmax", "bfloat16", rows=1 << 15, columns=1 << 10),
    operator("softmax", "bfloat16", rows=1 << 14, columns=1 << 13),
    operator("softmax", "float32", rows=1 << 15, columns=1 << 10),
    operator("layernorm", "bfloat16", rows=1 << 14, columns=1 << 13),
    operator("layernorm", "float32", rows=1 << 15, columns=1 << 10),
    operator("cross_entropy", "bfloat16", rows=1 << 13, columns=32000),
    operator("cross_entropy", "float32", rows=1 << 13, columns=32000),
    operator("transpose", "float32", rows=1 << 13, columns=1 << 13),
    operator("transpose", "bfloat16", rows=1 << 13, columns=1 << 13),
    operator("embedding", "bfloat16", tokens=1 << 16, vocabulary=1 << 17, width=1 << 12, distinct=1 << 16),
    operator("embedding", "bfloat16", tokens=1 << 16, vocabulary=1 << 17, width=1 << 12, distinct=1000),
    operator("matmul", "bfloat16", m=1 << 13, n=1 << 13, k=1 << 13),
    operator("matmul", "float32", m=1 << 12, n=1 << 12, k=1 << 12),
    operator("matmul", "bfloat16", m=16, n=1 << 13, k=1 << 13),
    operator("matmul", "bfloat16", m=1, n=1 << 14, k=1 << 13),
    operator("attention_prefill", "bfloat16", batch=4, heads=16, kv_heads=16, tokens=1 << 12, head_dim=128),
    operator("attention_prefill", "bfloat16", batch=2, heads=32, kv_heads=8, tokens=1 << 13, head_dim=128),
    operator("attention_decode", "bfloat16", batch=32, heads=32, kv_heads=32, tokens=1 << 12, head_dim=128),
    operator("attention_decode", "bfloat16", batch=64, heads=32, kv_heads=8, tokens=1 << 13, head_dim=128),
    operator("conv2d", "bfloat16", batch=64, in_channels=64, out_channels=64, height=112, width=112, kernel=3),
    operator("conv2d", "bfloat16", batch=64, in_channels=256, out_channels=256, height=56, width=56, kernel=3),
    operator("conv2d", "bfloat16", batch=64, in_channels=256, out_channels=64, height=56, width=56, kernel=1),
)
"""What was timed on an H200. Each but the first works on more than the L2 holds."""


def call(op: Operator, device: torch.device | str) -> tuple[Callable[[], torch.Tensor], tuple[torch.Tensor, ...]]:
    """torch's own operator on random data, and the tensors that it reads."""
    random = functools.partial(torch.randn, device=device, dtype=getattr(torch, op["dtype"]))
    name = op["name"]
    if name in ("add", "add_", "gelu"):
        x, y = random(op["elements"]), random(op["elements"] if name != "gelu" else 0)
        function = {"add": lambda: x + y, "add_": lambda: x.add_(y), "gelu": lambda: F.gelu(x)}[name]
        return function, (x, y)
    if name in ("softmax", "layernorm", "transpose", "cross_entropy"):
        return _rows(op, random(op["rows"], op["columns"]))
    if name == "embedding":
        table, rows = random(op["vocabulary"], op["width"]), torch.randperm(op["vocabulary"], device=device)
        index = rows[torch.arange(op["tokens"], device=device) % op["distinct"]]
        index = index[torch.randperm(op["tokens"], device=device)]
        return lambda: F.embedding(index, table), (index, table)
    if name == "matmul":
        x, weight = random(op["m"], op["k"]), random(op["n"], op["k"])
        return lambda: F.linear(x, weight), (x, weight)
    if name == "conv2d":
        image = random(op["batch"], op["in_channels"], op["height"], op["width"])
        taps = random(op["out_channels"], op["in_channels"], op["kernel"], op["kernel"])
        image, taps = (one.to(memory_format=torch.channels_last) for one in (image, taps))
        return lambda: F.conv2d(image, taps), (image, taps)
    queries = op["tokens"] if name == "attention_prefill" else 1
    q = random(op["batch"], op["heads"], queries, op["head_dim"])
    k, v = (random(op["batch"], op["kv_heads"], op["tokens"], op["head_dim"]) for _ in range(2))
    options = {"is_causal": name == "attention_prefill", "enable_gqa": op["heads"] != op["kv_heads"]}
    return lambda: F.scaled_dot_product_attention(q, k, v, **options), (q, k, v)


def _rows(op: Operator, x: torch.Tensor) -> tuple[Callable[[], torch.Tensor], tuple[torch.Tensor, ...]]:
    """The operators that work on the rows of a matrix."""
    rows, columns = x.shape
    if op["name"] == "layernorm":
        weight, bias = torch.randn(2, columns, device=x.device, dtype=x.dtype)
        return lambda: F.layer_norm(x, (columns,), weight, bias), (x, weight, bias)
    if op["name"] == "cross_entropy":
        targets = torch.randint(columns, (rows,), device=x.device)
        return lambda: F.cross_entropy(x, targets, reduction="none"), (x, targets)
    return {"softmax": lambda: torch.softmax(x, 1), "transpose": lambda: x.t().contiguous()}[op["name"]], (x,)


MACHINES: Mapping[str, MachineModel] = {
    "H200": {
        "name": "H200, measured",
        "bandwidth": 4.35e12,
        "peak": {"float32": 51e12, "float16": 719e12, "bfloat16": 719e12},
        "launch": 3.5e-6,
    },
}
