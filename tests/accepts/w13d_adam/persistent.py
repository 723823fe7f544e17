"""As many programs as fit on the GPU; each takes every so many-th chunk. Steps go to the device as float32, as torch
has them, and the correction for bias is computed there, in float64."""

import numpy as np
import torch
import triton
import triton.language as tl


@triton.jit
def persistent_adamw(
    table, owners, steps, chunks, lr, beta1, beta2, log_beta1, log_beta2, eps, weight_decay,
    DTYPE: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    for chunk in tl.range(tl.program_id(0), chunks, tl.num_programs(0)):
        owner = tl.load(owners + chunk)
        row = table + owner * 6
        step = tl.load(steps + owner).to(tl.float64)
        one = tl.full((), 1.0, tl.float64)
        bias1 = (one - tl.exp(step * log_beta1)).to(tl.float32)
        bias2 = (one - tl.exp(step * log_beta2)).to(tl.float32)
        begin = (chunk - tl.load(row + 5)) * CHUNK
        lanes = begin + tl.arange(0, CHUNK)
        active = lanes < tl.load(row + 4)
        p = tl.load(row).to(tl.pointer_type(DTYPE)) + lanes
        g = tl.load(row + 1).to(tl.pointer_type(DTYPE)) + lanes
        m = tl.load(row + 2).to(tl.pointer_type(tl.float32)) + lanes
        v = tl.load(row + 3).to(tl.pointer_type(tl.float32)) + lanes
        gradient = tl.load(g, mask=active, other=0.0).to(tl.float32)
        mean = tl.load(m, mask=active, other=0.0) * beta1 + gradient * (1.0 - beta1)
        tl.store(m, mean, mask=active)
        variance = tl.load(v, mask=active, other=0.0) * beta2 + gradient * gradient * (1.0 - beta2)
        tl.store(v, variance, mask=active)
        update = (mean / bias1) / (tl.sqrt(variance / bias2) + eps)
        old = tl.load(p, mask=active, other=0.0).to(tl.float32)
        tl.store(p, (old - lr * (update + weight_decay * old)).to(DTYPE), mask=active)


def adamw(steps, lr, beta1, beta2, eps, weight_decay, *tensors):
    import math

    count, chunk = len(steps), 1024
    table, sizes, first = [], [], 0
    for index in range(count):
        parts = tensors[index::count]
        table += [part.data_ptr() for part in parts] + [parts[0].numel(), first]
        sizes.append((parts[0].numel() + chunk - 1) // chunk)
        first += sizes[-1]
    owners = torch.from_numpy(np.repeat(np.arange(count, dtype=np.int32), sizes))
    device = tensors[0].device
    programs = min(len(owners), 8 * torch.cuda.get_device_properties(device).multi_processor_count)
    if programs == 0:
        return
    persistent_adamw[(programs,)](
        torch.tensor(table).to(device, non_blocking=True), owners.to(device, non_blocking=True),
        torch.tensor(steps, dtype=torch.float32).to(device, non_blocking=True), len(owners), lr, beta1, beta2,
        math.log(beta1), math.log(beta2), eps, weight_decay,
        DTYPE=tl.bfloat16 if tensors[0].dtype == torch.bfloat16 else tl.float32, CHUNK=chunk,
    )  # fmt: skip
