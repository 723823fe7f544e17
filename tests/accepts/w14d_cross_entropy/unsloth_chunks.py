"""Unsloth's way: a grid of rows and chunks, partial log-sum-exps that a kernel joins, then a backward kernel."""

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["n_classes", "n_chunks"])
def chunked_forward(partial, logits, n_classes, n_chunks, BLOCK: tl.constexpr):
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    col = chunk * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(logits + row * n_classes + col, mask=col < n_classes, other=-float("inf")).to(tl.float32)
    c = tl.maximum(tl.max(x, 0), -3.4e38)
    tl.store(partial + 2 * (row * n_chunks + chunk), c)
    tl.store(partial + 2 * (row * n_chunks + chunk) + 1, tl.sum(tl.exp(x - c), 0))


@triton.jit(do_not_specialize=["n_classes", "n_chunks", "n_rows", "ignore_index"])
def join(loss, kept, count, partial, logits, labels, n_classes, n_chunks, n_rows, ignore_index, CHUNKS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.arange(0, CHUNKS)
    at = partial + 2 * (row * n_chunks + chunk)
    c = tl.load(at, mask=chunk < n_chunks, other=-3.4e38)
    s = tl.load(at + 1, mask=chunk < n_chunks, other=0.0)
    top = tl.max(c, 0)
    total = tl.sum(s * tl.exp(c - top), 0)
    label = tl.load(labels + row)
    known = (label != ignore_index) & (label >= 0) & (label < n_classes)
    x = tl.load(logits + row * n_classes + label, mask=known, other=0.0).to(tl.float32)
    otherwise = tl.where(label == ignore_index, 0.0, float("nan"))
    tl.store(loss + row, tl.where(known, tl.log(total) + (top - x), otherwise))
    tl.store(kept + 2 * row, top)
    tl.store(kept + 2 * row + 1, total)
    tl.atomic_add(count, tl.where(label == ignore_index, 0, 1))


@triton.jit(do_not_specialize=["n_classes", "ignore_index"])
def chunked_backward(dlogits, kept, count, logits, labels, n_classes, ignore_index, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    label = tl.load(labels + row)
    x = tl.load(logits + row * n_classes + col, mask=col < n_classes, other=-float("inf")).to(tl.float32)
    y = tl.exp(x - tl.load(kept + 2 * row)) / tl.load(kept + 2 * row + 1)
    y = tl.where(col == label, y - 1.0, y) / tl.load(count).to(tl.float32)
    known = (label >= 0) & (label < n_classes)
    y = tl.where(label == ignore_index, 0.0, tl.where(known, y, float("nan")))
    tl.store(dlogits + row * n_classes + col, y, mask=col < n_classes)


def cross_entropy(logits, labels, ignore_index, gradient):
    rows, classes = logits.shape
    block = 4096
    chunks = triton.cdiv(classes, block)
    partial = torch.empty(rows, chunks, 2, dtype=torch.float32, device=logits.device)
    loss, kept = (torch.empty(rows, *more, dtype=torch.float32, device=logits.device) for more in ((), (2,)))
    count = torch.zeros(1, dtype=torch.int32, device=logits.device)
    chunked_forward[(rows, chunks)](partial, logits, classes, chunks, block, num_warps=8)
    join[(rows,)](loss, kept, count, partial, logits, labels, classes, chunks, rows, ignore_index, 64, num_warps=1)
    if not gradient:
        return loss
    dlogits = torch.empty_like(logits)
    chunked_backward[(rows, chunks)](dlogits, kept, count, logits, labels, classes, ignore_index, block, num_warps=8)
    return loss, dlogits
