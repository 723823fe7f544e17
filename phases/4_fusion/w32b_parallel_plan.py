"""Parallel plan: bytes, memory and time of a step on many GPUs.

job is a JSON file: "model" has "layers" and "width" d; "step" has the "tokens" T of a training step over all GPUs, and
"microbatches" m; "machine" has "nodes", "gpus" of each node, the "memory" of a GPU in bytes, its "operations" per
second, and of "nvlink" and "network" the "latency" in seconds and the "bandwidth" in bytes per second, each way.

A layer has 12 d^2 parameters, all layers together P. On n GPUs a step computes for 6 P T / n / operations. Weights,
gradients and activations travel in bfloat16. GPU i sends to GPU i + 1, and the last one to the first one: by NVLink
within a node, by the network from one node to the next. A message of S bytes takes latency + S / bandwidth of its
connection, which carries one message at a time each way. All-gather and reduce-scatter of S bytes over k GPUs are rings
of k - 1 rounds, in which each GPU sends S / k bytes; an all-reduce is both. Communication is not hidden behind compute,
except in the pipeline. The plans:

    data         each GPU has all layers and T / n tokens; one all-reduce of all gradients
    sharded      each GPU keeps an n-th of each layer; for each layer an all-gather of its weights in the forward pass,
                 another one in the backward pass, and a reduce-scatter of its gradients
    tensor       each GPU has an n-th of each layer, and all tokens; for each layer four all-reduces of the activations
                 of all tokens, d elements each
    pipeline     GPU i has the i-th n-th of the layers. First all m microbatches go forward, then all backward. A third
                 of the compute is in the forward pass. A stage works on one microbatch at a time, and sends the
                 activations of one microbatch to the next stage while it works on; the backward pass sends as much
    tensor+data  tensor parallelism among the GPUs of each node, which has T / nodes tokens; then GPU j of all nodes
                 all-reduce their gradients, in a ring over the nodes. The rings of all j share a node's network evenly

Memory: 16 bytes of state for each parameter of a GPU (weight, gradient, and in float32 the weight and Adam's moments),
and the activations that the backward pass needs: 34 d bytes for each token and layer. Tensor parallelism over k GPUs
splits 24 d of these; the other 10 d are on each of them. sharded also needs the weights and gradients of one layer.

n, layers and tokens divide evenly. Return a dict of these facts, the first four as dicts by plan:

    memory_bytes    what a GPU needs
    nvlink_bytes    the most bytes that a step sends over a connection between two GPUs of a node in one direction; 0
                    without such a connection
    network_bytes   the same between two nodes, over all rings
    seconds         the time of a step
    fastest         the fastest plan that fits into memory, or None. Of plans that take as many nanoseconds, rounded,
                    the first one in the order above
"""

import json
from pathlib import Path

PLANS = ("data", "sharded", "tensor", "pipeline", "tensor+data")


def plan(job: Path) -> dict:
    """The facts of each plan, by name, and the fastest one."""
    document = json.loads(job.read_text())
    machine = document["machine"]
    layers, d = document["model"]["layers"], document["model"]["width"]
    tokens, microbatches = document["step"]["tokens"], document["step"]["microbatches"]
    nodes, gpus = machine["nodes"], machine["gpus"]
    n = nodes * gpus
    layer = 12 * d * d
    parameters = layers * layer
    compute = 6 * parameters * tokens / n / machine["operations"]
    raise NotImplementedError("TODO: memory, bytes and time of each plan, and the fastest one")
