"""An accident that costs memory: the probabilities are written, and read again by the kernel of the gradient."""

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["classes", "ignore_index"])
def softmax_row(probabilities, loss, count, logits, labels, classes, ignore_index, CHUNK: tl.constexpr):
    begin = tl.program_id(0).to(tl.int64) * classes
    label = tl.load(labels + tl.program_id(0))
    highest = -3.0e38
    total = 0.0
    for first in range(0, classes, CHUNK):
        column = first + tl.arange(0, CHUNK)
        value = tl.load(logits + begin + column, mask=column < classes, other=-float("inf")).to(tl.float32)
        larger = tl.maximum(highest, tl.max(value, axis=0))
        total = total * tl.exp(highest - larger) + tl.sum(tl.exp(value - larger), axis=0)
        highest = larger
    for first in range(0, classes, CHUNK):
        column = first + tl.arange(0, CHUNK)
        value = tl.load(logits + begin + column, mask=column < classes, other=-float("inf")).to(tl.float32)
        tl.store(probabilities + begin + column, tl.exp(value - highest) / total, mask=column < classes)
    counted = label != ignore_index
    known = counted & (label >= 0) & (label < classes)
    picked = tl.load(logits + begin + label, mask=known, other=0.0).to(tl.float32)
    otherwise = tl.where(counted, float("nan"), 0.0)
    tl.store(loss + tl.program_id(0), tl.where(known, tl.log(total) + highest - picked, otherwise))
    tl.atomic_add(count, tl.where(counted, 1, 0))


@triton.jit(do_not_specialize=["classes", "ignore_index"])
def gradient_row(dlogits, probabilities, count, labels, classes, ignore_index, CHUNK: tl.constexpr):
    begin = tl.program_id(0).to(tl.int64) * classes
    label = tl.load(labels + tl.program_id(0))
    known = (label >= 0) & (label < classes)
    share = tl.where(label == ignore_index, 0.0, tl.where(known, 1.0 / tl.load(count), float("nan")))
    for first in range(0, classes, CHUNK):
        column = first + tl.arange(0, CHUNK)
        value = tl.load(probabilities + begin + column, mask=column < classes, other=0.0).to(tl.float32)
        tl.store(dlogits + begin + column, (value - tl.where(column == label, 1.0, 0.0)) * share, mask=column < classes)


def cross_entropy(logits, labels, ignore_index, gradient):
    rows, classes = logits.shape
    loss = torch.empty(rows, dtype=torch.float32, device=logits.device)
    count = torch.zeros(1, dtype=torch.int32, device=logits.device)
    probabilities = torch.empty(rows, classes, dtype=torch.float32, device=logits.device)
    softmax_row[(rows,)](probabilities, loss, count, logits, labels, classes, ignore_index, 4096, num_warps=8)
    if not gradient:
        return loss
    dlogits = torch.empty_like(logits)
    gradient_row[(rows,)](dlogits, probabilities, count, labels, classes, ignore_index, 4096, num_warps=8)
    return loss, dlogits
