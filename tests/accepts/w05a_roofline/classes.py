"""A class for each kind of operator, and one for the machine."""

from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch

WIDTH = {"float32": 4, "float16": 2, "bfloat16": 2}


KINDS = {}


class Operator:
    uses_tensor_cores = False
    per_element = 0

    def __init_subclass__(cls, names=(), **more):
        super().__init_subclass__(**more)
        KINDS.update(dict.fromkeys(names, cls))

    def __init__(self, description):
        self.__dict__.update(description)
        self.size = WIDTH[self.dtype]

    @cached_property
    def shapes(self):
        return []

    @property
    def integers(self):
        return 0

    @property
    def bytes(self):
        return self.size * sum(prod(shape) for shape in self.shapes) + 8 * self.integers

    @property
    def flops(self):
        return self.per_element * prod(self.shapes[0])


class Add(Operator, names=("add", "add_")):
    per_element = 1

    @cached_property
    def shapes(self):
        return [(self.elements,)] * 3


class Gelu(Operator, names=("gelu",)):
    per_element = 5

    @cached_property
    def shapes(self):
        return [(self.elements,)] * 2


class Transpose(Operator, names=("transpose",)):
    @cached_property
    def shapes(self):
        return [(self.rows, self.columns)] * 2


class Softmax(Transpose, names=("softmax",)):
    per_element = 5


class LayerNorm(Transpose, names=("layernorm",)):
    per_element = 7

    @cached_property
    def shapes(self):
        return [(self.rows, self.columns)] * 2 + [(self.columns,)] * 2


class CrossEntropy(Operator, names=("cross_entropy",)):
    per_element = 4

    @cached_property
    def shapes(self):
        return [(self.rows, self.columns), (self.rows,)]

    @property
    def integers(self):
        return self.rows


class Embedding(Operator, names=("embedding",)):
    @cached_property
    def shapes(self):
        return [(self.distinct, self.width), (self.tokens, self.width)]

    @property
    def integers(self):
        return self.tokens


class Matmul(Operator, names=("matmul",)):
    uses_tensor_cores = True

    @cached_property
    def shapes(self):
        return [(self.m, self.k), (self.k, self.n), (self.m, self.n)]

    @property
    def flops(self):
        return 2 * self.m * self.n * self.k


class Attention(Operator, names=("attention_prefill", "attention_decode")):
    uses_tensor_cores = True

    @cached_property
    def shapes(self):
        queries = self.tokens if self.name.endswith("prefill") else 1
        q = (self.batch, self.heads, queries, self.head_dim)
        return [q, q] + 2 * [(self.batch, self.kv_heads, self.tokens, self.head_dim)]

    @property
    def flops(self):
        pairs = self.tokens * (self.tokens + 1) / 2 if self.name.endswith("prefill") else self.tokens
        return 4 * self.batch * self.heads * self.head_dim * pairs


class Conv(Operator, names=("conv2d",)):
    uses_tensor_cores = True

    @cached_property
    def shapes(self):
        out = (self.batch, self.out_channels, self.height - self.kernel + 1, self.width - self.kernel + 1)
        window = (self.in_channels, self.kernel, self.kernel)
        return [(self.batch, self.in_channels, self.height, self.width), (self.out_channels, *window), out]

    @property
    def flops(self):
        return 2 * prod(self.shapes[2]) * prod(self.shapes[1][1:])


@dataclass
class Machine:
    name: str
    bandwidth: float
    peak: dict
    launch: float

    def times(self, op):
        peak = self.peak[op.dtype if op.uses_tensor_cores else "float32"]
        return op.bytes / self.bandwidth * 1e-9, op.flops / peak * 1e-12, self.launch * 1e-6


def roofline(operators, machine, device):
    described, on = [KINDS[one["name"]](one) for one in operators], Machine(**machine)
    rows = []
    for one in described:
        *both, launch = on.times(one)
        bound = 2 if max(both) < launch else int(both[1] > both[0])
        rows.append([one.bytes, one.flops, one.flops / one.bytes, bound, max(both), max(both) + launch])
    return torch.tensor(rows, dtype=torch.double, device=device)
