"""Parallel plan: bytes, memory and time of a step on many GPUs.

job is a JSON file. "model" has "layers" and "width" d. "step" has "tokens" T, the tokens of a training step over all
GPUs, and "microbatches" m. "machine" has "nodes", "gpus" per node, a GPU's "memory" in bytes, its "operations" per
second, and "nvlink" and "network", each with its "latency" in seconds and its "bandwidth" in bytes per second in each
direction.

A layer has 12 d^2 parameters, and all layers together have P. On n GPUs, the compute of a step takes 6 P T / n /
operations seconds. Weights, gradients, and activations are sent in bfloat16. GPU i sends to GPU i + 1, and the last GPU
sends to the first, over NVLink within a node and over the network from one node to the next. A message of S bytes takes
latency + S / bandwidth of its connection, which carries one message at a time in each direction. All-gather and
reduce-scatter of S bytes over k GPUs are rings of k - 1 rounds, in which each GPU sends S / k bytes. An all-reduce is a
reduce-scatter and an all-gather. Communication doesn't overlap with compute, except in the pipeline. The plans:

    data         each GPU has all layers and T / n tokens; one all-reduce for all gradients
    sharded      each GPU keeps 1 / n of each layer; for each layer an all-gather of its weights in the forward pass,
                 another in the backward pass, and a reduce-scatter of its gradients
    tensor       each GPU has 1 / n of each layer, and all tokens; for each layer four all-reduces of the activations
                 of all tokens, d elements each
    pipeline     GPU i has the i-th group of layers / n layers. First all m microbatches go forward, then all backward.
                 A third of the compute is in the forward pass. A stage works on one microbatch at a time, and sends the
                 activations of one microbatch to the next stage while it works on the next microbatch. The backward
                 pass sends the same number of bytes
    tensor+data  tensor parallelism among the GPUs of each node, which has T / nodes tokens. Then the j-th GPUs of all
                 nodes all-reduce their gradients in a ring over the nodes. The rings for all j share a node's network
                 evenly

A GPU's memory holds 16 bytes of state per parameter (weight, gradient, and in float32 the weight and Adam's moments),
and the activations that the backward pass needs, 34 d bytes per token and layer. Tensor parallelism over k GPUs splits
24 d of these bytes; each GPU holds the other 10 d. sharded also holds the weights and gradients of one layer.

All divisions of layers and tokens are exact. Return a dict of these facts; each of the
first four is itself a dict, keyed by plan:

    memory_bytes    the memory that a GPU needs
    nvlink_bytes    the most bytes that a step sends in one direction over any connection between two GPUs of a node,
                    or 0 without such a connection
    network_bytes   the same between two nodes, summed over all rings
    seconds         the time that a step takes
    fastest         the fastest plan that fits into memory, or None. If several plans take the same time, rounded to
                    nanoseconds, the first of them in the order above
"""

import json
from pathlib import Path

PLANS = ("data", "sharded", "tensor", "pipeline", "tensor+data")


def ring(link: dict, k: int, size: float, sharers: int = 1) -> tuple[float, float]:
    """Return the seconds that an all-gather of `size` bytes over k GPUs takes, and the bytes per connection."""
    seconds = (k - 1) * (link["latency"] + size / k * sharers / link["bandwidth"])
    return seconds, (k - 1) * size / k


def plan(job: Path) -> dict:
    """Return the facts of each plan, by name, and the fastest plan."""
    document = json.loads(job.read_text())
    machine = document["machine"]
    layers, d = document["model"]["layers"], document["model"]["width"]
    tokens, microbatches = document["step"]["tokens"], document["step"]["microbatches"]
    nodes, gpus = machine["nodes"], machine["gpus"]
    nvlink, network = machine["nvlink"], machine["network"]
    n = nodes * gpus
    layer = 12 * d * d
    parameters = layers * layer
    compute = 6 * parameters * tokens / n / machine["operations"]
    links = [link for link, used in ((nvlink, gpus > 1), (network, nodes > 1)) if used]

    def slowest(size: float) -> dict:
        """Return the connection of the ring over all GPUs on which a message of `size` bytes takes longest."""
        return max(links, key=lambda link: link["latency"] + size / link["bandwidth"], default=nvlink)

    def around(size: float) -> tuple[float, float]:
        return ring(slowest(size / n), n, size)

    seconds, sent = dict.fromkeys(PLANS, compute), {}
    rings = {"data": (2, 2 * parameters), "sharded": (3 * layers, 2 * layer), "tensor": (8 * layers, 2 * tokens * d)}
    for name, (times, size) in rings.items():
        seconds[name] += times * around(size)[0]
        sent[name] = times * around(size)[1]

    message = 2 * tokens // microbatches * d
    sent["pipeline"] = microbatches * message if n > 1 else 0
    hops = [nvlink] * (nodes * (gpus - 1)) + [network] * (nodes - 1)
    travel = [link["latency"] + message / link["bandwidth"] for link in hops]
    seconds["pipeline"] = sum(travel) * 2
    for part in (1 / 3, 2 / 3):
        stage = part * compute / microbatches
        seconds["pipeline"] += n * stage + (microbatches - 1) * max(stage, *travel, 0)

    inside, inside_bytes = ring(nvlink, gpus, 2 * tokens // nodes * d)
    across, across_bytes = ring(network, nodes, 2 * parameters / gpus, sharers=gpus)
    seconds["tensor+data"] += 8 * layers * inside + 2 * across

    kept = d * layers * tokens
    memory = {
        "data": 16 * parameters + 34 * kept / n,
        "sharded": 16 * parameters / n + 4 * layer + 34 * kept / n,
        "tensor": 16 * parameters / n + (10 + 24 / n) * kept,
        "pipeline": 16 * parameters / n + 34 * kept / n,
        "tensor+data": 16 * parameters / gpus + (10 + 24 / gpus) * kept / nodes,
    }
    fitting = [name for name in PLANS if memory[name] <= machine["memory"]]
    return {
        "memory_bytes": memory,
        "nvlink_bytes": {**{name: sent[name] * (gpus > 1) for name in sent}, "tensor+data": 8 * layers * inside_bytes},
        "network_bytes": {**{name: sent[name] * (nodes > 1) for name in sent}, "tensor+data": 2 * across_bytes * gpus},
        "seconds": seconds,
        "fastest": min(fitting, key=lambda name: round(seconds[name], 9), default=None),
    }
