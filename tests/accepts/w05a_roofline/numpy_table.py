"""One table of formulas as text, evaluated over the sizes; NumPy for the times."""

import numpy as np
import torch

TABLE = {  # elements, int64 values, operations
    "add": ("3 * elements", "0", "elements"),
    "add_": ("3 * elements", "0", "elements"),
    "gelu": ("2 * elements", "0", "5 * elements"),
    "softmax": ("2 * rows * columns", "0", "5 * rows * columns"),
    "layernorm": ("2 * rows * columns + 2 * columns", "0", "7 * rows * columns"),
    "cross_entropy": ("rows * columns + rows", "rows", "4 * rows * columns"),
    "transpose": ("2 * rows * columns", "0", "0"),
    "embedding": ("width * (distinct + tokens)", "tokens", "0"),
    "matmul": ("m * k + n * k + m * n", "0", "2 * m * n * k"),
    "attention_prefill": (
        "2 * batch * tokens * head_dim * (heads + kv_heads)",
        "0",
        "2 * batch * heads * head_dim * (tokens**2 + tokens)",
    ),
    "attention_decode": (
        "2 * batch * head_dim * (heads + kv_heads * tokens)",
        "0",
        "4 * batch * heads * head_dim * tokens",
    ),
    "conv2d": (
        "batch * in_channels * height * width + out_channels * in_channels * kernel**2"
        " + batch * out_channels * (height - kernel + 1) * (width - kernel + 1)",
        "0",
        "2 * batch * out_channels * (height - kernel + 1) * (width - kernel + 1) * in_channels * kernel**2",
    ),
}
COMPILED = {name: [compile(formula, name, "eval") for formula in row] for name, row in TABLE.items()}


def roofline(operators, machine, device):
    values = np.array([[eval(code, {}, dict(o)) for code in COMPILED[o["name"]]] for o in operators], dtype=np.int64)
    sizes = np.array([torch.empty((), dtype=getattr(torch, o["dtype"])).element_size() for o in operators])
    moved, done = values[:, 0] * sizes + 8 * values[:, 1], values[:, 2]
    special = {"matmul", "attention_prefill", "attention_decode", "conv2d"}
    peaks = np.array([machine["peak"][o["dtype"] if o["name"] in special else "float32"] for o in operators])
    apart = np.stack([moved * 1e-9 / machine["bandwidth"], done * 1e-12 / peaks, 0 * moved + 1e-6 * machine["launch"]])
    roof = apart[:2].max(axis=0)
    table = np.column_stack([moved, done, done / moved, apart.argmax(axis=0), roof, roof + apart[2]])
    return torch.from_numpy(table).to(device)
