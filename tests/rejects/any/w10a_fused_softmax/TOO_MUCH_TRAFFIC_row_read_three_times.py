"""An accident that costs time alone: the row is read a second and a third time instead of being kept."""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_row(out, x, columns, CHUNK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * columns
    largest = tl.full((), -float("inf"), tl.float32)
    for first in range(0, columns, CHUNK):
        column = first + tl.arange(0, CHUNK)
        value = tl.load(x + start + column, mask=column < columns, other=-float("inf")).to(tl.float32)
        largest = tl.maximum(largest, tl.max(value, axis=0))
    total = tl.zeros((), tl.float32)
    for first in range(0, columns, CHUNK):
        column = first + tl.arange(0, CHUNK)
        value = tl.load(x + start + column, mask=column < columns, other=-float("inf")).to(tl.float32)
        total += tl.sum(tl.exp(value - largest), axis=0)
    for first in range(0, columns, CHUNK):
        column = first + tl.arange(0, CHUNK)
        value = tl.load(x + start + column, mask=column < columns, other=-float("inf")).to(tl.float32)
        tl.store(out + start + column, tl.exp(value - largest) / total, mask=column < columns)


def fused_softmax(x: torch.Tensor) -> torch.Tensor:
    rows, columns = x.shape
    out = torch.empty_like(x)
    softmax_row[(rows,)](out, x, columns, 256)
    return out
