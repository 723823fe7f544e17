"""No table of chunks: a program searches for the tensor whose first chunk is the last at or before its own."""

import numpy as np
import torch
import triton
import triton.language as tl

SIZE = 1024


@triton.jit
def load_as(addresses, tensor, DTYPE: tl.constexpr):
    return tl.load(addresses + tensor).to(tl.pointer_type(DTYPE))


@triton.jit
def multi_tensor_adamw(
    p_addresses, g_addresses, m_addresses, v_addresses, numels, begins, lr_ts, roots,
    count, lr, decay, beta1, beta2, eps, T: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    low = 0
    high = count
    while high - low > 1:
        middle = (low + high) // 2
        if tl.load(begins + middle) <= program:
            low = middle
        else:
            high = middle
    at = (program - tl.load(begins + low)).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    inside = at < tl.load(numels + low)
    p = load_as(p_addresses, low, T) + at
    m = load_as(m_addresses, low, tl.float32) + at
    v = load_as(v_addresses, low, tl.float32) + at
    g = tl.load(load_as(g_addresses, low, T) + at, inside).to(tl.float32)
    w = tl.load(p, inside).to(tl.float32)
    w -= lr * decay * w
    first = tl.load(m, inside)
    first += (1.0 - beta1) * (g - first)
    second = beta2 * tl.load(v, inside) + (1.0 - beta2) * g * g
    w -= tl.load(lr_ts + low) * first / (tl.sqrt_rn(second) * tl.load(roots + low) + eps)
    tl.store(p, w.to(T), inside)
    tl.store(m, first, inside)
    tl.store(v, second, inside)


def adamw(steps, lr, beta1, beta2, eps, weight_decay, *tensors):
    # empty tensors have no chunk, and the search needs strictly growing begins
    kept = [index for index in range(len(steps)) if tensors[index].numel()]
    if not kept:
        return
    device = tensors[0].device
    n = len(steps)
    addresses = np.array([[tensors[k * n + index].data_ptr() for index in kept] for k in range(4)])
    tables = torch.from_numpy(addresses).to(device, non_blocking=True)
    numels = np.array([tensors[index].numel() for index in kept])
    blocks = -(-numels // SIZE)
    begins = torch.from_numpy((np.cumsum(blocks) - blocks).astype(np.int32)).to(device, non_blocking=True)
    t = np.array([steps[index] for index in kept], dtype=np.float64)
    scales = np.stack([lr / (1 - beta1**t), 1 / np.sqrt(1 - beta2**t)]).astype(np.float32)
    lr_ts, roots = torch.from_numpy(scales).to(device, non_blocking=True)
    multi_tensor_adamw[(int(blocks.sum()),)](
        *tables, torch.from_numpy(numels).to(device, non_blocking=True), begins, lr_ts, roots,
        len(kept), lr, weight_decay, beta1, beta2, eps,
        T=tl.bfloat16 if tensors[0].dtype is torch.bfloat16 else tl.float32, SIZE=SIZE, num_warps=4,
    )  # fmt: skip
