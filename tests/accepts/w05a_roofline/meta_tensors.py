"""PyTorch's own way: tensors without memory say how many bytes they have, and torch's counter counts the products."""

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

PER_ELEMENT = {"add": 1, "add_": 1, "gelu": 5, "softmax": 5, "layernorm": 7, "cross_entropy": 4}


def tensors(name, dtype, **s):
    """What is read and what is written."""

    kind = getattr(torch, dtype)

    def t(*shape, dtype=kind):
        return torch.empty(shape, dtype=dtype, device="meta")

    if name in ("add", "add_", "gelu"):
        return [t(s["elements"]) for _ in range(2 if name == "gelu" else 3)]
    if name in ("softmax", "transpose"):
        return [t(s["rows"], s["columns"]), t(s["rows"], s["columns"])]
    if name == "layernorm":
        return [t(s["rows"], s["columns"]), t(s["columns"]), t(s["columns"]), t(s["rows"], s["columns"])]
    if name == "cross_entropy":
        return [t(s["rows"], s["columns"]), t(s["rows"], dtype=torch.int64), t(s["rows"])]
    if name == "embedding":
        return [t(s["distinct"], s["width"]), t(s["tokens"], dtype=torch.int64), t(s["tokens"], s["width"])]
    if name == "matmul":
        return [t(s["m"], s["k"]), t(s["k"], s["n"]), t(s["m"], s["n"])]
    if name == "conv2d":
        image = t(s["batch"], s["in_channels"], s["height"], s["width"])
        weight = t(s["out_channels"], s["in_channels"], s["kernel"], s["kernel"])
        return [image, weight, F.conv2d(image, weight)]
    queries = s["tokens"] if name == "attention_prefill" else 1
    q = t(s["batch"], s["heads"], queries, s["head_dim"])
    kv = t(s["batch"], s["kv_heads"], s["tokens"], s["head_dim"])
    return [q, kv, kv, q]


def counts(operator):
    name, moved = operator["name"], tensors(**operator)
    total = sum(one.numel() * one.element_size() for one in moved)
    if name in ("matmul", "conv2d"):
        with FlopCounterMode(display=False) as counter:
            moved[0] @ moved[1] if name == "matmul" else F.conv2d(*moved[:2])
        return total, counter.get_total_flops()
    if name.startswith("attention"):
        tokens, rest = operator["tokens"], operator["batch"] * operator["heads"] * operator["head_dim"]
        seen = sum(range(1, tokens + 1)) if name == "attention_prefill" else tokens
        return total, 4 * rest * seen
    return total, PER_ELEMENT.get(name, 0) * moved[0].numel()


def roofline(operators, machine, device):
    both = torch.tensor([counts(one) for one in operators], dtype=torch.int64)
    tensor_cores = ("matmul", "attention_prefill", "attention_decode", "conv2d")
    dtypes = [one["dtype"] if one["name"] in tensor_cores else "float32" for one in operators]
    peaks = torch.tensor([machine["peak"][dtype] for dtype in dtypes], dtype=torch.float64)
    moved, done = both.double().unbind(1)
    apart = torch.stack((moved / machine["bandwidth"] / 1e9, done / peaks / 1e12), 1)
    roof, slower = apart.max(1)
    launch = machine["launch"] * 1e-6
    bound = torch.where(roof < launch, 2, slower).double()
    return torch.stack((moved, done, done / moved, bound, roof, roof + launch), 1).to(device)
