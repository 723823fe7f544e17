"""Philox written out: 64-bit products, the seven rounds that pass BigCrush, programs that take many blocks."""

import torch
import triton
import triton.language as tl


@triton.jit
def philox(low, high, seed, ROUNDS: tl.constexpr):
    a, b, c, d = low, high, low * 0, low * 0
    key, other = seed.to(tl.uint32), (seed >> 32).to(tl.uint32)
    for _ in tl.static_range(ROUNDS):
        left = a.to(tl.uint64) * 0xD2511F53
        right = c.to(tl.uint64) * 0xCD9E8D57
        a = (right >> 32).to(tl.uint32) ^ b ^ key
        c = (left >> 32).to(tl.uint32) ^ d ^ other
        b, d = right.to(tl.uint32), left.to(tl.uint32)
        key = (key.to(tl.uint64) + 0x9E3779B9).to(tl.uint32)
        other = (other.to(tl.uint64) + 0xBB67AE85).to(tl.uint32)
    return a, b, c, d


@triton.jit
def walk(x, out, n, p, seed, offset, BLOCK: tl.constexpr):
    limit = (p * 16777216.0).to(tl.uint32)
    for start in tl.range(tl.program_id(0).to(tl.int64) * BLOCK, n, tl.num_programs(0).to(tl.int64) * BLOCK):
        counter = (offset + start) // 4 + tl.arange(0, BLOCK // 4)
        a, b, c, d = philox(counter.to(tl.uint32), (counter >> 32).to(tl.uint32), seed, 7)
        words = tl.join(tl.join(a, b), tl.join(c, d)).reshape(BLOCK)
        i = start + tl.arange(0, BLOCK)
        value = tl.load(x + i, mask=i < n).to(tl.float32)
        tl.store(out + i, tl.where(words >> 8 < limit, 0.0, value / (1 - p)), mask=i < n)


def dropout(x, p, seed, offset):
    out = torch.empty_like(x)
    walk[(min(4096, triton.cdiv(x.numel(), 1024)),)](x, out, x.numel(), p, seed, offset, 1024)
    return out


def two_layers(x, dout, p, seed, offset, next_seed, next_offset):
    out = dropout(x[0], p, seed, offset)
    next_out = dropout(x[1], p, next_seed, next_offset)
    next_dx = dropout(dout[1], p, next_seed, next_offset)
    return out, next_out, dropout(dout[0], p, seed, offset), next_dx
