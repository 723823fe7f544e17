"""Two whole models from their configurations, with random weights: a decoder as GPT-2, and a ResNet (week 15).

`record` times a training step of both and the decoder's generation, replays their traces, and measures one change to
each: a CUDA graph, or batches that are copied ahead of time. benchmarks/models.py calls it on a GPU.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from kernelpath.course.traces import TraceFile, replay

Step = Callable[[], object]


@dataclass(frozen=True)
class DecoderConfig:
    """The sizes of a decoder. The defaults are those of the smallest GPT-2 (Radford et al., 2019)."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    vocabulary: int = 50_257
    context: int = 1024


@dataclass(frozen=True)
class ResNetConfig:
    """The sizes of a ResNet with bottleneck blocks. The defaults are those of ResNet-50 (He et al., 2016)."""

    blocks: tuple[int, ...] = (3, 4, 6, 3)
    width: int = 64
    classes: int = 1000


class DecoderLayer(nn.Module):
    """Norm, attention, norm, and an MLP of four times the width, with residuals."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.norm1, self.norm2 = nn.LayerNorm(config.width), nn.LayerNorm(config.width)
        self.qkv, self.out = nn.Linear(config.width, 3 * config.width), nn.Linear(config.width, config.width)
        self.up, self.down = nn.Linear(config.width, 4 * config.width), nn.Linear(4 * config.width, config.width)

    def forward(self, x: torch.Tensor, cache: torch.Tensor | None, position: torch.Tensor | None) -> torch.Tensor:
        """x: (batch, tokens, width). With a cache (2, batch, heads, context, head), x is one token at `position`."""
        batch, tokens, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if cache is None or position is None:
            attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            cache[0].index_copy_(2, position, k)
            cache[1].index_copy_(2, position, v)
            visible = (torch.arange(cache.shape[3], device=x.device) <= position).view(1, 1, 1, -1)
            attended = F.scaled_dot_product_attention(q, cache[0], cache[1], attn_mask=visible)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, tokens, width))
        gated: torch.Tensor = self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))
        return x + gated


class Decoder(nn.Module):
    """A decoder whose output weights are those of the embedding, as in GPT-2."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.tokens, self.positions = (nn.Embedding(n, config.width) for n in (config.vocabulary, config.context))
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)

    def forward(
        self, tokens: torch.Tensor, caches: list[torch.Tensor] | None = None, position: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the logits of tokens (batch, tokens), or of one token at `position` with a cache for each layer."""
        places = torch.arange(tokens.shape[1], device=tokens.device) if position is None else position
        x = self.tokens(tokens) + self.positions(places)
        for number, layer in enumerate(self.layers):
            x = layer(x, caches[number] if caches else None, position)
        return F.linear(self.norm(x), self.tokens.weight)


class Bottleneck(nn.Module):
    """Convolutions of 1, 3 and 1, each with a batch norm, and a residual."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        sizes = ((channels, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1))
        self.convolutions = nn.ModuleList(
            nn.Conv2d(a, b, size, step, size // 2, bias=False) for a, b, size, step in sizes
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(b) for _, b, _, _ in sizes)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != 4 * width:
            projection = nn.Conv2d(channels, 4 * width, 1, stride, bias=False)
            self.shortcut = nn.Sequential(projection, nn.BatchNorm2d(4 * width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for number, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            y = norm(convolution(y))
            if number < 2:
                y = F.relu(y)
        return F.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    """A stem, four stages of bottleneck blocks, an average over the image, and a classifier."""

    def __init__(self, config: ResNetConfig) -> None:
        super().__init__()
        stem = nn.Conv2d(3, config.width, 7, 2, 3, bias=False)
        self.stem = nn.Sequential(stem, nn.BatchNorm2d(config.width), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        stages: list[nn.Module] = []
        channels = config.width
        for stage, count in enumerate(config.blocks):
            width = config.width << stage
            for number in range(count):
                stages.append(Bottleneck(channels, width, 2 if stage and not number else 1))
                channels = 4 * width
        self.stages = nn.Sequential(*stages)
        self.classifier = nn.Linear(channels, config.classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the scores of images (batch, 3, height, width)."""
        scores: torch.Tensor = self.classifier(self.stages(self.stem(images)).mean((2, 3)))
        return scores


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@dataclass
class Workload:
    """A step of a model to be profiled.

    Attributes:
        unit: What it processes, such as "tokens".
        amount: How many of these in a step.
        step: The step as it is.
        change: One of replay.CHANGES.
        changed: The step after this change; None without a GPU.
    """

    unit: str
    amount: int
    step: Step
    change: str
    changed: Step | None = None


def decoder_training(config: DecoderConfig, batch: int, tokens: int, device: str) -> Workload:
    """A training step with AdamW. The change is a CUDA graph of it."""
    model = Decoder(config).to(device, _dtype(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True, capturable=device == "cuda")
    data = torch.randint(config.vocabulary, (batch, tokens + 1), device=device)

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=False)
        logits = model(data[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), data[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Workload("tokens", batch * tokens, step, "graph", _graph(step) if device == "cuda" else None)


def decoder_generation(config: DecoderConfig, batch: int, device: str) -> Workload:
    """One token of each sequence, with a cache. The change is a CUDA graph of it."""
    model = Decoder(config).to(device, _dtype(device)).requires_grad_(False)
    shape = (2, batch, config.heads, config.context, config.width // config.heads)
    caches = [torch.zeros(shape, device=device, dtype=_dtype(device)) for _ in range(config.layers)]
    token = torch.zeros(batch, 1, dtype=torch.long, device=device)
    position = torch.zeros(1, dtype=torch.long, device=device)

    def step() -> None:
        token.copy_(model(token, caches, position).argmax(-1))
        position.add_(1).remainder_(config.context)

    return Workload("tokens", batch, step, "graph", _graph(step) if device == "cuda" else None)


def resnet_training(config: ResNetConfig, batch: int, size: int, device: str) -> Workload:
    """A training step on images that come from the host. The change: pinned memory, copied one step ahead."""
    model = ResNet(config).to(device)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stub lacks this form
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    images = torch.randn(batch, 3, size, size)
    labels = torch.randint(config.classes, (batch,), device=device)

    def train(inputs: torch.Tensor) -> None:
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16):
            scores = model(inputs.contiguous(memory_format=torch.channels_last))
        F.cross_entropy(scores.float(), labels).backward()
        optimizer.step()

    def step() -> None:
        train(images.to(device))

    if device != "cuda":
        return Workload("images", batch, step, "prefetch")
    pinned, side = images.pin_memory(), torch.cuda.Stream()
    buffers = [torch.empty_like(images, device=device) for _ in range(2)]
    counter = 0

    def ahead() -> None:
        nonlocal counter
        torch.cuda.current_stream().wait_stream(side)  # the copy that the step before has started
        side.wait_stream(torch.cuda.current_stream())  # the other buffer was read by the step before
        with torch.cuda.stream(side):
            buffers[1 - counter % 2].copy_(pinned, non_blocking=True)
        train(buffers[counter % 2])
        counter += 1

    return Workload("images", batch, step, "prefetch", ahead)


def _dtype(device: str) -> torch.dtype:
    return torch.bfloat16 if device == "cuda" else torch.float32


def _graph(step: Step) -> Step:
    """Return the replay of a CUDA graph of a step."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # libraries allocate their workspaces before a capture
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def seconds_of(step: Step, device: str, steps: int) -> float:
    """Return the mean time of a step, launches included, after a few untimed ones."""
    synchronize: Callable[[], object] = torch.cuda.synchronize if device == "cuda" else _return_at_once
    for _ in range(3):
        step()
    synchronize()
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    synchronize()
    return (time.perf_counter() - begin) / steps


def _return_at_once() -> None:
    """Do nothing: on a CPU a step has ended when it returns."""


def profiled(step: Step, device: str) -> tuple[dict[str, float], bytes]:
    """Return the microseconds of each kernel, or on a CPU of each operator, the longest first, and the trace."""
    # Newer versions of the profiler print a line for each start and stop at lower levels.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device == "cuda")
    step()
    with profile(activities=activities, acc_events=True) as profiler:
        step()
        if device == "cuda":
            torch.cuda.synchronize()
    attribute = "self_device_time_total" if device == "cuda" else "self_cpu_time_total"
    times = {event.key: float(getattr(event, attribute)) for event in profiler.key_averages()}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        return dict(sorted(times.items(), key=lambda item: -item[1])), path.read_bytes()


def measure(workload: Workload, device: str, steps: int = 20) -> dict[str, Any]:
    """Return rates, the top three, and what the change was predicted to gain and has gained; see `record`."""
    before = seconds_of(workload.step, device, steps)
    times, trace = profiled(workload.step, device)
    total = sum(times.values())
    result: dict[str, Any] = {
        "unit": workload.unit,
        "rate": workload.amount / before,
        "milliseconds": 1e3 * before,
        "top": {name: time / total for name, time in list(times.items())[:3]},
        "change": workload.change,
    }
    if workload.changed is None:
        return result
    facts = replay.of(TraceFile("trace.json", trace))
    after: Any = facts["after"]
    microseconds: Any = facts["microseconds"]
    changed = seconds_of(workload.changed, device, steps)
    gains = {name: microseconds / after[name] for name in replay.CHANGES}
    evidence = {name: facts[name] for name in ("busy_share", "launches", "fused_away", "pageable_bytes", "waits")}
    return result | {
        "traced_milliseconds": 1e-3 * microseconds,
        "bottlenecks": facts["bottlenecks"],
        "evidence": evidence,
        "gains": gains,
        "predicted": gains[workload.change],
        "reached": before / changed,
        "changed_rate": workload.amount / changed,
    }


def record(
    device: str = "cuda",
    decoder: DecoderConfig = DecoderConfig(),
    resnet: ResNetConfig = ResNetConfig(),
    sizes: Mapping[str, int] | None = None,
    steps: int = 20,
) -> dict[str, dict[str, Any]]:
    """Measure the three workloads, by name: rates, the top three kernels, bottlenecks, and one change to each.

    Args:
        device: "cuda", or "cpu", where nothing is changed.
        decoder: The decoder.
        resnet: The ResNet.
        sizes: "batch" and "tokens" of the decoder's training step, "sequences" of the generation, "images" of a batch
            and the "pixels" of a side.
        steps: The steps that are timed.
    """
    chosen = {"batch": 8, "tokens": 1024, "sequences": 1, "images": 256, "pixels": 224} | dict(sizes or {})
    torch.manual_seed(0)
    return {
        "training, decoder": measure(
            decoder_training(decoder, chosen["batch"], chosen["tokens"], device), device, steps
        ),
        "generation, decoder": measure(decoder_generation(decoder, chosen["sequences"], device), device, steps),
        "training, ResNet": measure(resnet_training(resnet, chosen["images"], chosen["pixels"], device), device, steps),
    }
