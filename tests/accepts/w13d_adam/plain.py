"""A table of int64 on the host, a mask for every chunk, and nothing known of alignment."""

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
    rows, chunks, rates = [], [], []
    for index, (step, p, g, m, v) in enumerate(zip(steps, *lists, strict=True)):
        rows += [p.data_ptr(), g.data_ptr(), m.data_ptr(), v.data_ptr(), p.numel()]
        for chunk in range(triton.cdiv(p.numel(), BLOCK)):
            chunks += [index, chunk]
        rates += [lr / (1 - beta1**step), (1 - beta2**step) ** 0.5]
    if not chunks:
        return
    device = tensors[0].device
    table = torch.tensor(rows, dtype=torch.int64, device=device)
    places = torch.tensor(chunks, dtype=torch.int64, device=device)
    scales = torch.tensor(rates, dtype=torch.float32, device=device)
    half = tensors[0].dtype == torch.bfloat16
    grid = (len(chunks) // 2,)
    adamw_kernel[grid](table, places, scales, 1 - lr * weight_decay, beta1, beta2, eps, half, BLOCK)
