"""Simulate a training step on a cluster, message by message, for w32b_parallel_plan.

GPUs are connected in the order of their numbers, the last one with the first one: by NVLink within a node, and by the
network from the last GPU of a node to the first one of the next. A connection carries one message at a time each way,
which takes its latency and its bytes over its bandwidth. Communication and compute do not overlap, except in a
pipeline, where the stages send while they compute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PLANS = ("data", "sharded", "tensor", "pipeline", "tensor+data")

# Bytes of a parameter: bfloat16 weight and gradient, and in float32 the master weight and both moments of Adam.
STATE = 16

# Bytes of a token and layer that are kept for the backward pass, per element of the width; 24 of them are split by
# tensor parallelism. Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", without the
# scores of attention, which FlashAttention does not keep.
ACTIVATIONS = 34
SPLIT_ACTIVATIONS = 24


@dataclass(frozen=True)
class Job:
    """A model, a machine, and how a step is divided.

    Attributes:
        layers: Layers of 12 width² parameters.
        width: The elements of a token's activation.
        tokens: The tokens of a step.
        microbatches: The parts of a step in a pipeline.
        nodes: The number of nodes.
        gpus: The GPUs of a node.
        memory: The bytes of a GPU.
        operations: The operations per second of a GPU.
        nvlink: Latency in seconds and bandwidth in bytes per second of a connection within a node, each way.
        network: Those of a connection between nodes.
    """

    layers: int
    width: int
    tokens: int
    microbatches: int
    nodes: int
    gpus: int
    memory: float
    operations: float
    nvlink: tuple[float, float]
    network: tuple[float, float]

    @property
    def size(self) -> int:
        return self.nodes * self.gpus

    @property
    def parameters(self) -> int:
        return 12 * self.layers * self.width**2

    @property
    def compute_seconds(self) -> float:
        """Return the time of a GPU's share of all operations."""
        return 6 * self.parameters * self.tokens / self.size / self.operations

    def as_document(self) -> dict[str, Any]:
        """Return the job as the learner's file has it."""
        names = ("latency", "bandwidth")
        return {
            "model": {"layers": self.layers, "width": self.width},
            "step": {"tokens": self.tokens, "microbatches": self.microbatches},
            "machine": {
                "nodes": self.nodes,
                "gpus": self.gpus,
                "memory": self.memory,
                "operations": self.operations,
                "nvlink": dict(zip(names, self.nvlink, strict=True)),
                "network": dict(zip(names, self.network, strict=True)),
            },
        }


def read_job(document: Mapping[str, Any]) -> Job:
    """Return the job of a document as `Job.as_document` writes it."""
    machine = dict(document["machine"])
    links = {name: (machine[name]["latency"], machine[name]["bandwidth"]) for name in ("nvlink", "network")}
    return Job(**document["model"], **document["step"], **(machine | links))


@dataclass
class Connection:
    """One direction of a connection between two GPUs.

    Attributes:
        kind: "nvlink" or "network".
        latency: Seconds of a message, besides its bytes.
        bandwidth: Bytes per second.
        sharers: The connections that share a node's network with this one, itself included, all equally busy.
        bytes: The bytes that it has carried.
    """

    kind: str
    latency: float
    bandwidth: float
    sharers: int = 1
    bytes: float = 0.0

    def carry(self, amount: float) -> float:
        """Count a message and return its seconds."""
        self.bytes += amount
        return self.latency + amount * self.sharers / self.bandwidth


@dataclass
class Outcome:
    """A simulated step: seconds besides the compute, or of the whole pipeline, and the bytes of the connections."""

    seconds: float = 0.0
    connections: list[Connection] = field(default_factory=list)

    def busiest(self, kind: str) -> float:
        """Return the most bytes that go over a connection between two GPUs of a node, or between two nodes."""
        amounts = [link.bytes * link.sharers for link in self.connections if link.kind == kind]
        return max(amounts, default=0.0)


def ring_of(job: Job) -> list[Connection]:
    """Return the connections from each GPU to the next one; none for a single GPU."""
    if job.size == 1:
        return []
    crossing = [rank % job.gpus == job.gpus - 1 and job.nodes > 1 for rank in range(job.size)]
    return [Connection("network", *job.network) if cross else Connection("nvlink", *job.nvlink) for cross in crossing]


def run_ring(connections: Sequence[Connection], rounds: int, amount: float) -> float:
    """Pass a message of `amount` bytes along each connection in every round, and return the seconds until the last one.

    A GPU passes on what it has received in the round before, as soon as its connection is free. It does not wait for
    the other GPUs.
    """
    arrivals = [0.0] * len(connections)
    for _ in range(rounds):
        arrivals = [
            max(arrivals[rank - 1], arrivals[rank]) + connection.carry(amount)
            for rank, connection in enumerate(connections)
        ]
    return max(arrivals, default=0.0)


def all_reduce(connections: Sequence[Connection], amount: float) -> float:
    """Return the seconds of a reduce-scatter and an all-gather of `amount` bytes over a ring."""
    size = max(len(connections), 1)
    return run_ring(connections, 2 * (size - 1), amount / size)


def all_gather(connections: Sequence[Connection], amount: float) -> float:
    """Return the seconds of an all-gather, or of a reduce-scatter, of `amount` bytes over a ring."""
    size = max(len(connections), 1)
    return run_ring(connections, size - 1, amount / size)


def simulate(job: Job, plan: str) -> Outcome:
    """Return the step by one of PLANS. The seconds include the compute."""
    outcome = _SIMULATIONS[plan](job)
    if plan != "pipeline":
        outcome.seconds += job.compute_seconds
    return outcome


def _data(job: Job) -> Outcome:
    ring = ring_of(job)
    return Outcome(all_reduce(ring, 2 * job.parameters), ring)


def _sharded(job: Job) -> Outcome:
    ring = ring_of(job)
    layer = 2 * 12 * job.width**2
    # Weights in the forward and in the backward pass, and the gradients, which are as many bytes.
    return Outcome(sum(all_gather(ring, layer) for _ in range(3 * job.layers)), ring)


def _tensor(job: Job) -> Outcome:
    ring = ring_of(job)
    activations = 2 * job.tokens * job.width
    return Outcome(sum(all_reduce(ring, activations) for _ in range(4 * job.layers)), ring)


def _tensor_and_data(job: Job) -> Outcome:
    node = [Connection("nvlink", *job.nvlink) for _ in range(job.gpus)] if job.gpus > 1 else []
    activations = 2 * (job.tokens // job.nodes) * job.width
    seconds = sum(all_reduce(node, activations) for _ in range(4 * job.layers))
    # The GPUs with the same number in their nodes form a ring. All of these rings share the network.
    across = [Connection("network", *job.network, sharers=job.gpus) for _ in range(job.nodes)] if job.nodes > 1 else []
    return Outcome(seconds + all_reduce(across, 2 * job.parameters / job.gpus), node + across)


def _pipeline(job: Job) -> Outcome:
    forward = ring_of(job)[: job.size - 1]
    backward = ring_of(job)[: job.size - 1]
    message = 2 * (job.tokens // job.microbatches) * job.width
    microbatch = job.compute_seconds / job.microbatches
    seconds = _run_stages(forward, microbatch / 3, job.microbatches, message)
    # The gradients pass the stages in reverse order, from the last one's end of the forward pass on.
    seconds += _run_stages(backward[::-1], 2 * microbatch / 3, job.microbatches, message)
    return Outcome(seconds, forward + backward)


def _run_stages(connections: Sequence[Connection], work: float, microbatches: int, message: float) -> float:
    """Return the seconds until the last stage has finished the last microbatch."""
    stage_free = [0.0] * (len(connections) + 1)
    connection_free = [0.0] * len(connections)
    for _ in range(microbatches):
        arrived = 0.0
        for stage in range(len(stage_free)):
            stage_free[stage] = max(stage_free[stage], arrived) + work
            if stage < len(connections):
                begin = max(stage_free[stage], connection_free[stage])
                connection_free[stage] = arrived = begin + connections[stage].carry(message)
    return stage_free[-1]


_SIMULATIONS = {
    "data": _data,
    "sharded": _sharded,
    "tensor": _tensor,
    "pipeline": _pipeline,
    "tensor+data": _tensor_and_data,
}


def memory(job: Job, plan: str) -> float:
    """Return the bytes that a GPU needs for parameters, gradients, optimizer, and activations."""
    activations = ACTIVATIONS * job.width * job.layers * job.tokens
    replicated = ACTIVATIONS - SPLIT_ACTIVATIONS
    layer = 12 * job.width**2
    return {
        "data": STATE * job.parameters + activations / job.size,
        # The weights and the gradients of one layer at a time are there as a whole.
        "sharded": STATE * job.parameters / job.size + 4 * layer + activations / job.size,
        "tensor": STATE * job.parameters / job.size
        + (replicated + SPLIT_ACTIVATIONS / job.size) * job.width * job.layers * job.tokens,
        "pipeline": STATE * job.parameters / job.size + activations / job.size,
        "tensor+data": STATE * job.parameters / job.gpus
        + (replicated + SPLIT_ACTIVATIONS / job.gpus) * job.width * job.layers * job.tokens / job.nodes,
    }[plan]
