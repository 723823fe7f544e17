"""Describe operators as a roofline sees them: names and sizes, the machines that run them, and torch's own calls.

An operator is a dict as the learner gets it: its "name", its "dtype" and its sizes. A machine is a dict, too: its
"name", its "bandwidth" in bytes per second, the "peak" by dtype in operations per second, and the "launch" in seconds.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F

Operator = dict[str, Any]
MachineModel = dict[str, Any]

DTYPES = ("float32", "float16", "bfloat16")

_ROWS = {"rows": (1 << 8, 1 << 15), "columns": (1 << 8, 1 << 15)}
_HEADS = {"batch": (1, 64), "kv_heads": (1, 8), "group": (1, 8), "tokens": (1 << 8, 1 << 14), "head_dim": (32, 256)}

# The inclusive ranges of each operator's sizes, which are sampled uniformly in their logarithm.
SIZES: Mapping[str, Mapping[str, tuple[int, int]]] = {
    "add": {"elements": (1 << 18, 1 << 28)},
    "add_": {"elements": (1 << 18, 1 << 28)},
    "gelu": {"elements": (1 << 18, 1 << 28)},
    "softmax": _ROWS,
    "layernorm": _ROWS,
    "cross_entropy": _ROWS,
    "transpose": _ROWS,
    "embedding": {"tokens": (1 << 10, 1 << 16), "vocabulary": (1 << 12, 1 << 18), "width": (1 << 8, 1 << 13)},
    "matmul": {"m": (1, 1 << 13), "n": (1 << 9, 1 << 13), "k": (1 << 9, 1 << 13)},
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


def operator(name: str, dtype: str, **sizes: int) -> Operator:
    return {"name": name, "dtype": dtype, **sizes}


def told(op: Operator) -> str:
    """Describe an operator: "matmul m=16 n=8192 k=8192 bfloat16"."""
    sizes = [f"{name}={value}" for name, value in op.items() if name not in ("name", "dtype")]
    return " ".join([op["name"], *sizes, op["dtype"]])


# The operators that were timed on an H200. All but the first use more memory than the L2 holds.
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


def call(op: Operator, device: torch.device | str) -> tuple[Callable[[], torch.Tensor], tuple[torch.Tensor, ...]]:
    """Return torch's own operator on random data, and the tensors that it reads."""
    random = functools.partial(torch.randn, device=device, dtype=getattr(torch, op["dtype"]))
    name = op["name"]
    if name in ("add", "add_", "gelu"):
        x = random(op["elements"])
        y = random(op["elements"] if name != "gelu" else 0)
        function = {"add": lambda: x + y, "add_": lambda: x.add_(y), "gelu": lambda: F.gelu(x)}[name]
        return function, (x, y)
    if name in ("softmax", "layernorm", "transpose", "cross_entropy"):
        return _rows(op, random(op["rows"], op["columns"]))
    if name == "embedding":
        table = random(op["vocabulary"], op["width"])
        # The index names exactly `distinct` rows of the table, in random order.
        rows = torch.randperm(op["vocabulary"], device=device)
        index = rows[torch.arange(op["tokens"], device=device) % op["distinct"]]
        index = index[torch.randperm(op["tokens"], device=device)]
        return lambda: F.embedding(index, table), (index, table)
    if name == "matmul":
        x = random(op["m"], op["k"])
        weight = random(op["n"], op["k"])
        return lambda: F.linear(x, weight), (x, weight)
    if name == "conv2d":
        image = random(op["batch"], op["in_channels"], op["height"], op["width"])
        taps = random(op["out_channels"], op["in_channels"], op["kernel"], op["kernel"])
        # cuDNN's kernels for tensor cores take channels last. For another layout it may transpose the tensors first.
        image, taps = (tensor.to(memory_format=torch.channels_last) for tensor in (image, taps))
        return lambda: F.conv2d(image, taps), (image, taps)
    queries = op["tokens"] if name == "attention_prefill" else 1
    q = random(op["batch"], op["heads"], queries, op["head_dim"])
    k, v = (random(op["batch"], op["kv_heads"], op["tokens"], op["head_dim"]) for _ in range(2))
    options = {"is_causal": name == "attention_prefill", "enable_gqa": op["heads"] != op["kv_heads"]}
    return lambda: F.scaled_dot_product_attention(q, k, v, **options), (q, k, v)


def _rows(op: Operator, x: torch.Tensor) -> tuple[Callable[[], torch.Tensor], tuple[torch.Tensor, ...]]:
    """Return the call of an operator on the rows of a matrix."""
    rows, columns = x.shape
    if op["name"] == "layernorm":
        weight, bias = torch.randn(2, columns, device=x.device, dtype=x.dtype)
        return lambda: F.layer_norm(x, (columns,), weight, bias), (x, weight, bias)
    if op["name"] == "cross_entropy":
        targets = torch.randint(columns, (rows,), device=x.device)
        return lambda: F.cross_entropy(x, targets, reduction="none"), (x, targets)
    return {"softmax": lambda: torch.softmax(x, 1), "transpose": lambda: x.t().contiguous()}[op["name"]], (x,)


# The case of the operators that were timed; its machine is the H200 with the ceilings of the same run.
TIMED = "H200 as timed"

_H200: MachineModel = {
    "name": "H200",
    "bandwidth": 4510.0,
    "peak": {"float32": 51.4, "float16": 749.0, "bfloat16": 780.0},
    "launch": 2.9,
}

# The H200 by what was measured on one, in the run that timed RECORDED: the read-only sweep, the largest products of the
# library, an empty kernel. The others by NVIDIA's data sheets, with dense tensor-core rates.
#
# H100 and A100: "NVIDIA H100 Tensor Core GPU" and "NVIDIA A100 Tensor Core GPU" (data sheets; the H100's rates are
# given there with sparsity, twice these). The laptop: NVIDIA lists 3072 cores, a boost clock of up to 2.37 GHz and 128
# bits of memory at 16 Gbit/s; its tensor cores do twice the float32 rate with float32 accumulation, as the Ada
# whitepaper gives it for the RTX 4090. No data sheet tells a launch: that of the H200 stands for all.
MACHINES: Mapping[str, MachineModel] = {
    "H200": _H200,
    "H100": {
        "name": "H100 SXM",
        "bandwidth": 3350.0,
        "peak": {"float32": 67.0, "float16": 989.4, "bfloat16": 989.4},
        "launch": 2.9,
    },
    "A100": {
        "name": "A100 SXM 80 GB",
        "bandwidth": 2039.0,
        "peak": {"float32": 19.5, "float16": 312.0, "bfloat16": 312.0},
        "launch": 2.9,
    },
    "laptop": {
        "name": "GeForce RTX 4060 Laptop",
        "bandwidth": 256.0,
        "peak": {"float32": 14.6, "float16": 29.1, "bfloat16": 29.1},
        "launch": 2.9,
    },
}


# Unknown machines, by the operations per byte at which float32 turns from memory-bound to compute-bound.
RANDOM_MACHINES: Mapping[str, tuple[float, float]] = {"slow arithmetic": (0.2, 0.6), "slow memory": (4.0, 40.0)}


def machine(rng: torch.Generator, name: str) -> MachineModel:
    """Return one of MACHINES, or an unknown machine."""
    if name == TIMED:
        return _H200
    if name in MACHINES:
        return MACHINES[name]
    bandwidth, (low, high) = _log_uniform(rng, 500, 20_000), RANDOM_MACHINES[name]
    ridges = {dtype: _log_uniform(rng, low, high) * (1 if dtype == "float32" else 20) for dtype in DTYPES}
    peak = {dtype: bandwidth * 1e-3 * ridge for dtype, ridge in ridges.items()}
    return {"name": "a drawn machine", "bandwidth": bandwidth, "peak": peak, "launch": _log_uniform(rng, 5, 50)}


def draw(rng: torch.Generator, count: int) -> list[Operator]:
    """Generate operators of each kind in turn, with random dtypes and sizes."""
    return [_random_operator(rng, name) for name, _ in zip(itertools.cycle(SIZES), range(count), strict=False)]


def _random_operator(rng: torch.Generator, name: str) -> Operator:
    dtype = DTYPES[int(torch.randint(len(DTYPES), (), generator=rng, device=rng.device))]
    sizes = {size: round(_log_uniform(rng, low, high)) for size, (low, high) in SIZES[name].items()}
    if name == "embedding":
        sizes["distinct"] = round(_log_uniform(rng, 1, min(sizes["tokens"], sizes["vocabulary"])))
    if group := sizes.pop("group", 0):
        sizes["heads"] = group * sizes["kv_heads"]
    return operator(name, dtype, **sizes)


def _log_uniform(rng: torch.Generator, low: float, high: float) -> float:
    """Sample uniformly in the logarithm."""
    share = float(torch.rand((), generator=rng, device=rng.device, dtype=torch.float64))
    return float(low * (high / low) ** share)
