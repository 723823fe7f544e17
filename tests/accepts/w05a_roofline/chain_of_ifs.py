"""A chain of ifs, and the ridge of Williams, Waterman and Patterson: memory binds below it, arithmetic above."""

import torch


def count(o):
    name, e = o["name"], 4 if o["dtype"] == "float32" else 2
    if name == "add" or name == "add_":
        return 3 * e * o["elements"], o["elements"]
    elif name == "gelu":
        return 2 * e * o["elements"], 5 * o["elements"]
    elif name == "softmax":
        n = o["rows"] * o["columns"]
        return e * n + e * n, 5 * n
    elif name == "layernorm":
        n = o["rows"] * o["columns"]
        return e * (n + n + o["columns"] + o["columns"]), 7 * n
    elif name == "cross_entropy":
        n = o["rows"] * o["columns"]
        return e * n + 8 * o["rows"] + e * o["rows"], 4 * n
    elif name == "transpose":
        return 2 * e * o["rows"] * o["columns"], 0
    elif name == "embedding":
        return 8 * o["tokens"] + e * o["width"] * o["distinct"] + e * o["width"] * o["tokens"], 0
    elif name == "matmul":
        m, n, k = o["m"], o["n"], o["k"]
        return e * (m * k + k * n + m * n), m * n * (k + k)
    elif name == "conv2d":
        height, width = o["height"] + 1 - o["kernel"], o["width"] + 1 - o["kernel"]
        m, n, k = o["batch"] * height * width, o["out_channels"], o["in_channels"] * o["kernel"] * o["kernel"]
        image = o["batch"] * o["in_channels"] * o["height"] * o["width"]
        return e * (image + k * n + m * n), 2 * m * n * k
    cache = 2 * o["batch"] * o["kv_heads"] * o["tokens"] * o["head_dim"]
    if name == "attention_decode":
        query = o["batch"] * o["heads"] * o["head_dim"]
        return e * (query + cache + query), 2 * (2 * query * o["tokens"])
    queries = o["batch"] * o["heads"] * o["tokens"] * o["head_dim"]
    return e * (queries + cache + queries), 2 * queries * (o["tokens"] + 1)


def peak(o, machine):
    product = o["name"] in {"matmul", "conv2d", "attention_prefill", "attention_decode"}
    return 1e12 * machine["peak"][o["dtype"] if product else "float32"]


def roofline(operators, machine, device):
    table = torch.empty(len(operators), 6, dtype=torch.float64, device=device)
    launch = machine["launch"] / 1_000_000
    for row, o in enumerate(operators):
        moved, done = count(o)
        intensity = done / moved
        rate = min(peak(o, machine), intensity * 1e9 * machine["bandwidth"])
        roof = done / rate if done else moved / (1e9 * machine["bandwidth"])
        ridge = peak(o, machine) / (1e9 * machine["bandwidth"])
        bound = 2 if roof < launch else 0 if intensity < ridge else 1
        table[row] = torch.tensor([moved, done, intensity, bound, roof, roof + launch], dtype=torch.float64)
    return table
