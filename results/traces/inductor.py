"""What torch.compile writes for functions that fuse, and for some that do not.

`python results/traces/inductor.py` writes results/traces/inductor/NAME.py.gz on a machine with a GPU: the Triton code,
which is not run. Each function has two sets of inputs, drawn by `shapes`.
"""

import gzip
import re
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import torch
from torch._inductor.compile_fx import compile_fx
from torch._inductor.graph import GraphLowering
from torch.nn import functional as F

FOLDER = Path(__file__).with_suffix("")
Tensors = tuple[torch.Tensor, ...]


def norm(x, residual, weight):  # type: ignore[no-untyped-def]
    h = x + residual
    return F.gelu(h * torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-6) * weight), h


def mlp(x, up, bias, down):  # type: ignore[no-untyped-def]
    return F.linear(F.gelu(F.linear(x, up, bias)), down)


def centered(x):  # type: ignore[no-untyped-def]
    return torch.softmax(x - x.mean(0), -1)


def guarded(x):  # type: ignore[no-untyped-def]
    y = x * 2
    if y.abs().max() > 8:
        y = y.clamp(-8, 8)
    return y.sigmoid()


def attention(qkv):  # type: ignore[no-untyped-def]
    batch, tokens, width = qkv.shape
    q, k, v = qkv.view(batch, tokens, 3, width // 192, 64).permute(2, 0, 3, 1, 4)
    mixed = torch.softmax(q @ k.transpose(-1, -2) * 0.125, -1) @ v
    return mixed.transpose(1, 2).reshape(batch, tokens, width // 3)


def swiglu(x, gate, up):  # type: ignore[no-untyped-def]
    return F.silu(x @ gate) * (x @ up)


def entropy(logits, labels):  # type: ignore[no-untyped-def]
    return F.cross_entropy(logits, labels)


def ordered(x):  # type: ignore[no-untyped-def]
    return torch.sort(x * 2, -1)[0] + 1


def normed(x, weight, bias):  # type: ignore[no-untyped-def]
    return F.gelu(F.layer_norm(x, x.shape[-1:], weight, bias))


def embedded(ids, table, weight):  # type: ignore[no-untyped-def]
    return F.layer_norm(table[ids], table.shape[-1:], weight)


def joined(x, y):  # type: ignore[no-untyped-def]
    return torch.cat([x.relu(), y * 2], -1) + 1


def total(x):  # type: ignore[no-untyped-def]
    return (x - x.max()).exp().sum()


def both_axes(x):  # type: ignore[no-untyped-def]
    return x.sum(0), x.sum(1)


def told(x):  # type: ignore[no-untyped-def]
    y = x.sin()
    print("half way")
    return y.cos().sum(-1)


def apart(x, y):  # type: ignore[no-untyped-def]
    return x.exp(), y.sin() + 1


def running(x):  # type: ignore[no-untyped-def]
    return torch.cumsum(x.square(), -1).sqrt()


def drawn(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensors:
    return tuple(torch.randn(shape, dtype=dtype) for shape in shapes)


def labelled(rows: int, classes: int) -> Tensors:
    return torch.randn(rows, classes), torch.randint(classes, (rows,))


def looked_up(rows: int, words: int, width: int) -> Tensors:
    return torch.randint(words, (rows,)), torch.randn(words, width), torch.randn(width)


HALF = torch.bfloat16
FUNCTIONS: dict[str, tuple[Callable[..., object], Callable[[], Tensors], Callable[[], Tensors]]] = {
    "norm": (norm, lambda: drawn((2048, 1000), (2048, 1000), (1000,)), lambda: drawn((512, 768), (512, 768), (768,))),
    "mlp": (
        mlp,
        lambda: drawn((512, 1024), (4096, 1024), (4096,), (1024, 4096), dtype=HALF),
        lambda: drawn((384, 768), (3072, 768), (3072,), (768, 3072)),
    ),
    "centered": (centered, lambda: drawn((2048, 1000)), lambda: drawn((4096, 513))),
    "guarded": (guarded, lambda: drawn((512, 1000)), lambda: drawn((1024, 1024), dtype=HALF)),
    "attention": (attention, lambda: drawn((2, 256, 768)), lambda: drawn((1, 128, 2304), dtype=HALF)),
    "swiglu": (
        swiglu,
        lambda: drawn((512, 256), (256, 1024), (256, 1024)),
        lambda: drawn((96, 512), (512, 2048), (512, 2048), dtype=HALF),
    ),
    "entropy": (entropy, lambda: labelled(512, 5000), lambda: labelled(1024, 32_000)),
    "ordered": (ordered, lambda: drawn((512, 1000)), lambda: drawn((64, 20_000))),
    "normed": (
        normed,
        lambda: drawn((512, 1000), (1000,), (1000,), dtype=HALF),
        lambda: drawn((64, 8192), (8192,), (8192,)),
    ),
    "embedded": (embedded, lambda: looked_up(512, 5000, 768), lambda: looked_up(96, 32_000, 5120)),
    "joined": (joined, lambda: drawn((512, 1000), (512, 500)), lambda: drawn((64, 96), (64, 160), dtype=HALF)),
    "total": (total, lambda: drawn((4096, 4096)), lambda: drawn((3000, 1000), dtype=HALF)),
    "both_axes": (both_axes, lambda: drawn((2048, 1024)), lambda: drawn((900, 1100))),
    "told": (told, lambda: drawn((512, 1000)), lambda: drawn((77, 3000), dtype=HALF)),
    "apart": (apart, lambda: drawn((512, 1000), (333, 70)), lambda: drawn((96, 33), (4096, 5), dtype=HALF)),
    "running": (running, lambda: drawn((512, 1000)), lambda: drawn((32, 40_000))),
}


def shapes(name: str) -> list[Tensors]:
    """Two sets of inputs."""
    _, first, second = FUNCTIONS[name]
    torch.manual_seed(0)
    return [first(), second()]


def text(codes: list[str]) -> str:
    """The modules one after another, each behind a line of its own."""
    told = "\n".join(f"# graph {number} of {len(codes)}\n{code}" for number, code in enumerate(codes, 1))
    return re.sub(r"^# kernel path: .*\n", "", told, flags=re.M)


class Enough(Exception):
    """The code is written."""


def written(function: Callable[..., object], inputs: Tensors) -> list[str]:
    """The code for each graph, in order. Graphs run operator by operator."""
    codes: list[str] = []

    def captured(lowering: GraphLowering) -> None:
        code = lowering.codegen()[0]
        codes.append(getattr(code, "value", code))
        raise Enough

    def backend(graph: torch.fx.GraphModule, given: list[torch.Tensor]) -> Callable[..., object]:
        count = len(codes)
        try:
            compile_fx(graph, given)
        except Exception:
            if len(codes) == count:
                raise
        return graph.forward

    torch._dynamo.reset()
    with (
        torch.no_grad(),
        torch._inductor.config.patch(fx_graph_cache=False),
        mock.patch.object(GraphLowering, "compile_to_module", captured),
    ):
        torch.compile(function, backend=backend, dynamic=False)(*(one.cuda() for one in inputs))
    return codes


def record(folder: Path, names: list[str]) -> None:
    """Write the files of these functions."""
    folder.mkdir(exist_ok=True)
    for name in names:
        for place, inputs in enumerate(shapes(name)):
            codes = written(FUNCTIONS[name][0], inputs)
            packed = gzip.compress(text(codes).encode(), mtime=0)
            (folder / f"{name}{place}.py.gz").write_bytes(packed)
            print(f"{name}{place}: {len(codes)} graphs, {len(packed):,} bytes")


if __name__ == "__main__":
    record(FOLDER, sys.argv[1:] or [*FUNCTIONS])
