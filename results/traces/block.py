"""A transformer block in bfloat16, one training step, as a first version of it is often written.

`kp profile --record results/traces/block.py` records it. Layer norm and GELU are spelled as formulas, so each of their
operations is a kernel that reads and writes all the activations. Every module opens a named range, in the forward and
in the backward pass, which torch.profiler and NVTX tools (nsys, ncu) both see.
"""

import math
import os

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, HEADS, SEQUENCE, BATCH = 2048, 16, 2048, 4
FUSED = os.environ.get("FUSED", "")
"""Which modules are one operator instead: a subset of "norm gelu"."""


class Range:
    """A named range on the timeline, from construction to close()."""

    def __init__(self, name: str) -> None:
        self._annotation = torch.profiler.record_function(name)
        self._annotation.__enter__()
        torch.cuda.nvtx.range_push(name)

    def close(self) -> None:
        torch.cuda.nvtx.range_pop()
        self._annotation.__exit__(None, None, None)


def annotated(module: nn.Module, name: str) -> nn.Module:
    """The module, with a range of that name around its forward pass and another around its backward pass."""
    opened: list[Range] = []

    def begin(*_: object) -> None:
        opened.append(Range(name))

    def end(*_: object) -> None:
        opened.pop().close()

    module.register_forward_pre_hook(begin)
    module.register_forward_hook(end)
    module.register_full_backward_pre_hook(begin)
    module.register_full_backward_hook(end)
    return module


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if "norm" in FUSED:
            return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, 1e-5)
        centered = x - x.mean(-1, keepdim=True)
        variance = (centered * centered).mean(-1, keepdim=True)
        return centered * torch.rsqrt(variance + 1e-5) * self.weight + self.bias


class Gelu(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if "gelu" in FUSED:
            return F.gelu(x, approximate="tanh")
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


class Attention(nn.Module):
    def forward(self, qkv: torch.Tensor) -> torch.Tensor:
        batch, sequence, width = qkv.shape
        heads = qkv.view(batch, sequence, 3, HEADS, width // 3 // HEADS).permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(*heads.unbind(0), is_causal=True)
        return out.transpose(1, 2).reshape(batch, sequence, width // 3)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = annotated(Norm(WIDTH), "norm1"), annotated(Norm(WIDTH), "norm2")
        self.qkv = annotated(nn.Linear(WIDTH, 3 * WIDTH), "qkv")
        self.attention = annotated(Attention(), "attention")
        self.out = annotated(nn.Linear(WIDTH, WIDTH), "out")
        self.up, self.down = (
            annotated(nn.Linear(WIDTH, 4 * WIDTH), "up"),
            annotated(nn.Linear(4 * WIDTH, WIDTH), "down"),
        )
        self.gelu = annotated(Gelu(), "gelu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.out(self.attention(self.qkv(self.norm1(x))))
        return x + self.down(self.gelu(self.up(self.norm2(x))))


torch.manual_seed(0)
block = Block().to("cuda", torch.bfloat16)
x = torch.randn(BATCH, SEQUENCE, WIDTH, device="cuda", dtype=torch.bfloat16, requires_grad=True)


def step() -> None:
    """One training step, without the optimizer. It looks at the loss, as many training loops do."""
    forward = Range("forward")
    loss = block(x).square().mean()
    forward.close()
    if not math.isfinite(loss.item()):
        raise SystemExit("the loss is not finite")
    backward = Range("backward")
    loss.backward()
    backward.close()
    block.zero_grad(set_to_none=True)
    x.grad = None
