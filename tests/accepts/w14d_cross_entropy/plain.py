"""A program for a row: an online sum of exponentials chunk by chunk, then a second look for the gradient."""

import torch
import triton
import triton.language as tl


@triton.jit
def count_kept(count, labels, rows, ignore_index, BLOCK: tl.constexpr):
    total = tl.zeros([BLOCK], tl.int32)
    for first in range(0, rows, BLOCK):
        row = first + tl.arange(0, BLOCK)
        label = tl.load(labels + row, mask=row < rows, other=ignore_index)
        total += tl.where(label != ignore_index, 1, 0)
    tl.store(count, tl.sum(total, axis=0))


@triton.jit(do_not_specialize=["classes", "ignore_index"])
def cross_entropy_row(
    loss, dlogits, logits, labels, count, classes, ignore_index, GRADIENT: tl.constexpr, CHUNK: tl.constexpr
):
    row = tl.program_id(0)
    begin = row.to(tl.int64) * classes
    label = tl.load(labels + row)
    counted = label != ignore_index
    known = counted & (label >= 0) & (label < classes)
    highest = -3.0e38
    total = 0.0
    for first in range(0, classes, CHUNK):
        column = first + tl.arange(0, CHUNK)
        value = tl.load(logits + begin + column, mask=column < classes, other=-float("inf")).to(tl.float32)
        larger = tl.maximum(highest, tl.max(value, axis=0))
        total = total * tl.exp(highest - larger) + tl.sum(tl.exp(value - larger), axis=0)
        highest = larger
    picked = tl.load(logits + begin + label, mask=known, other=0.0).to(tl.float32)
    otherwise = tl.where(counted, float("nan"), 0.0)
    tl.store(loss + row, tl.where(known, tl.log(total) + highest - picked, otherwise))
    if GRADIENT:
        share = tl.where(known, 1.0 / tl.load(count), otherwise)
        for first in range(0, classes, CHUNK):
            column = first + tl.arange(0, CHUNK)
            value = tl.load(logits + begin + column, mask=column < classes, other=-float("inf")).to(tl.float32)
            probability = tl.exp(value - highest) / total
            result = tl.where(column == label, probability - 1.0, probability) * share
            tl.store(dlogits + begin + column, result.to(dlogits.dtype.element_ty), mask=column < classes)


def cross_entropy(logits, labels, ignore_index, gradient):
    rows, classes = logits.shape
    loss = torch.empty(rows, dtype=torch.float32, device=logits.device)
    dlogits = torch.empty_like(logits) if gradient else loss
    count = torch.empty(1, dtype=torch.int32, device=logits.device)
    if gradient:
        count_kept[(1,)](count, labels, rows, ignore_index, 1024)
    chunk = 4096
    cross_entropy_row[(rows,)](
        loss, dlogits, logits, labels, count, classes, ignore_index, gradient, chunk, num_warps=8
    )
    return (loss, dlogits) if gradient else loss
