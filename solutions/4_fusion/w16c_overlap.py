"""Overlap: average gradients during the backward pass.

Every rank is a process with the same model and its own batch. layers[i].backward() computes for a while and returns the
gradient of layer i, a flat float32 tensor of layers[i].numel elements; call it once for each layer, the last layer
first. overlap returns every layer's gradient, averaged over all ranks, the first layer first.

dist.all_reduce(tensor, async_op=True) starts to add the tensors of all ranks, in place, and returns a request; the
compute that follows overlaps with it. Until request.wait() has returned, the tensor must be neither read nor written.
Every rank has to call the same all-reduces in the same order, and they run one after another.

The grader checks the timeline of the largest case, with 4 ranks and 32 layers of 32 KiB and 20 µs each on average. An
all-reduce of S bytes over n ranks takes 2 (n - 1) (5 µs + S / n / 10 GB/s) there. At least 80% of the all-reduces' time
has to overlap with the layers' computation. One all-reduce per layer takes too long, because each costs at least 30 µs,
and a single all-reduce for all layers can't start before the last gradient is available.
"""

import torch
import torch.distributed as dist

BUCKET = 128 << 10  # bytes: an all-reduce takes 30 µs for its steps and 20 for its bytes, less than its layers compute


def overlap(layers: list) -> tuple[torch.Tensor, ...]:
    """Return the gradients of all layers, averaged over the ranks."""
    averaged = [torch.empty(0)] * len(layers)
    bucket, pending = [], []
    for number in reversed(range(len(layers))):
        bucket.append((number, layers[number].backward()))
        if number == 0 or sum(gradient.nbytes for _, gradient in bucket) >= BUCKET:
            flat = torch.cat([gradient for _, gradient in bucket])  # a tensor for each bucket: nothing is reused
            pending.append((dist.all_reduce(flat, async_op=True), flat, [number for number, _ in bucket]))
            bucket = []
    for request, flat, numbers in pending:
        request.wait()
        flat /= dist.get_world_size()
        parts = flat.split([layers[number].numel for number in numbers])
        for number, gradient in zip(numbers, parts, strict=True):
            averaged[number] = gradient
    return tuple(averaged)
