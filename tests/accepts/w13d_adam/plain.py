"""A table of int64 on the host, a mask for every chunk, and nothing known of alignment."""

import numpy as np
import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def adamw_kernel(table, chunks, rates, lr_decay, beta1, beta2, eps, HALF: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    tensor = tl.load(chunks + 2 * pid)
    start = tl.load(chunks + 2 * pid + 1) * BLOCK
    kind = tl.bfloat16 if HALF else tl.float32
    p = tl.load(table + 5 * tensor).to(tl.pointer_type(kind))
    g = tl.load(table + 5 * tensor + 1).to(tl.pointer_type(kind))
    m = tl.load(table + 5 * tensor + 2).to(tl.pointer_type(tl.float32))
    v = tl.load(table + 5 * tensor + 3).to(tl.pointer_type(tl.float32))
    numel = tl.load(table + 5 * tensor + 4)
    step_size = tl.load(rates + 2 * tensor)
    correction = tl.load(rates + 2 * tensor + 1)
    offsets = start + tl.arange(0, BLOCK)
    mask = offsets < numel
    param = tl.load(p + offsets, mask=mask).to(tl.float32)
    grad = tl.load(g + offsets, mask=mask).to(tl.float32)
    exp_avg = tl.load(m + offsets, mask=mask)
    exp_avg_sq = tl.load(v + offsets, mask=mask)
    param = param * lr_decay
    exp_avg = exp_avg * beta1 + grad * (1 - beta1)
    exp_avg_sq = exp_avg_sq * beta2 + grad * grad * (1 - beta2)
    param = param - step_size * exp_avg / (tl.sqrt(exp_avg_sq) / correction + eps)
    tl.store(p + offsets, param.to(kind), mask=mask)
    tl.store(m + offsets, exp_avg, mask=mask)
    tl.store(v + offsets, exp_avg_sq, mask=mask)


def adamw(steps, lr, beta1, beta2, eps, weight_decay, *tensors):
    count = len(steps)
    lists = [tensors[index * count : (index + 1) * count] for index in range(4)]
    rows, rates = [], []
    for step, p, g, m, v in zip(steps, *lists, strict=True):
        rows += [p.data_ptr(), g.data_ptr(), m.data_ptr(), v.data_ptr(), p.numel()]
        rates += [lr / (1 - beta1**step), (1 - beta2**step) ** 0.5]
    chunks = [(p.numel() + BLOCK - 1) // BLOCK for p in lists[0]]
    owners = np.repeat(np.arange(count), chunks)
    if len(owners) == 0:
        return
    parts = np.concatenate([np.arange(each) for each in chunks])
    places = to_device(np.stack([owners, parts], axis=1), tensors[0])
    table = to_device(np.array(rows), tensors[0])
    scales = to_device(np.array(rates, np.float32), tensors[0])
    half = tensors[0].dtype == torch.bfloat16
    grid = (len(owners),)
    adamw_kernel[grid](table, places, scales, 1 - lr * weight_decay, beta1, beta2, eps, half, BLOCK)


def to_device(array, like):
    return torch.from_numpy(array).to(like.device, non_blocking=True)
