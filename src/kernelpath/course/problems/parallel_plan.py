"""A plan for a training step on several GPUs: bytes, memory and time of five kinds of parallelism, and the fastest."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import torch

from kernelpath.course.labs import cluster
from kernelpath.course.labs.cluster import PLANS, Job
from kernelpath.course.problem import Problem, Tolerance
from kernelpath.course.traces import Facts, TraceFile

# Nodes, and GPUs of a node.
SHAPES = ((1, 1), (1, 2), (1, 8), (2, 1), (2, 8), (3, 2), (4, 1), (4, 4), (8, 4))

# The number of jobs of each shape.
DRAWS = 3


def inputs(rng: torch.Generator, nodes: int, gpus: int, draw: int) -> tuple[TraceFile]:
    """Return a job on so many GPUs. draw: only a number, so that cases differ."""
    python_rng = random.Random(int(torch.randint(1 << 31, (), generator=rng, device=rng.device)))
    job = draw_job(python_rng, nodes, gpus)
    if draw == DRAWS - 1 and job.size > 1:
        job = balance_pipeline(python_rng, job)
    # Exactly as much memory as a plan needs is enough. Only divisions by powers of two are exact in any order.
    if draw == 1 and job.size & (job.size - 1) == 0:
        job = replace(job, memory=cluster.memory(job, "pipeline"))
    # A byte less than the fastest plan needs is too little.
    if draw == 0:
        fastest = min(PLANS, key=lambda plan: cluster.simulate(job, plan).seconds)
        job = replace(job, memory=cluster.memory(job, fastest) - 1)
    return (TraceFile("job.json", json.dumps(job.as_document(), indent=1).encode()),)


def draw_job(rng: random.Random, nodes: int, gpus: int) -> Job:
    """Draw a model and the links of a machine. Every plan divides layers and tokens evenly."""
    size = nodes * gpus
    microbatches = rng.choice((1, 2, 5, 16))
    return Job(
        layers=size * rng.randint(1, max(1, 48 // size)),
        width=1024 * rng.choice((1, 2, 4, 5, 8)),
        tokens=size * microbatches * rng.choice((8, 64, 250)),
        microbatches=microbatches,
        nodes=nodes,
        gpus=gpus,
        memory=rng.choice((24e9, 80e9, 288e9)),
        operations=rng.choice((100e12, 400e12, 1000e12)),
        nvlink=(rng.choice((1e-6, 2e-6, 5e-6)), rng.choice((25e9, 150e9, 450e9, 900e9))),
        network=(rng.choice((3e-6, 10e-6, 25e-6)), rng.choice((3e9, 25e9, 100e9, 400e9))),
    )


def balance_pipeline(rng: random.Random, job: Job) -> Job:
    """Let messages take longer than the work of a stage in the forward pass, and less long in the backward pass.

    In most jobs that are drawn, the work takes longer in both passes: a plan that forgets the messages would be right.
    """
    if job.microbatches == 1:
        job = replace(job, microbatches=5, tokens=5 * job.tokens)
    message = 2 * job.tokens // job.microbatches * job.width
    links = [job.network if job.nodes > 1 else job.nvlink, job.nvlink if job.gpus > 1 else job.network]
    travel = max(latency + message / bandwidth for latency, bandwidth in links)
    forward = travel * rng.uniform(0.6, 0.9)
    work = 2 * job.parameters * job.tokens / job.size / job.microbatches
    return replace(job, operations=float(f"{work / forward:.3g}"))


def reference(file: TraceFile) -> Facts:
    """Return the facts from simulated messages."""
    job = cluster.read_job(json.loads(file.content))
    outcomes = {plan: cluster.simulate(job, plan) for plan in PLANS}
    needed = {plan: cluster.memory(job, plan) for plan in PLANS}
    seconds = {plan: outcome.seconds for plan, outcome in outcomes.items()}
    fitting = [plan for plan in PLANS if needed[plan] <= job.memory]
    # Plans that are equal as formulas, such as the two with tensor parallelism on one node, differ by roundings.
    return {
        "memory_bytes": needed,
        "nvlink_bytes": {plan: outcome.busiest("nvlink") for plan, outcome in outcomes.items()},
        "network_bytes": {plan: outcome.busiest("network") for plan, outcome in outcomes.items()},
        "seconds": seconds,
        "fastest": min(fitting, key=lambda plan: round(seconds[plan], 9), default=None),
    }


PROBLEM = Problem(
    inputs=inputs,
    cases=tuple({"nodes": nodes, "gpus": gpus, "draw": draw} for nodes, gpus in SHAPES for draw in range(DRAWS)),
    reference=reference,
    # The simulation adds up what a formula multiplies: at most 100,000 roundings of 2^-53.
    tolerance={"float64": Tolerance(rtol=1e-9, atol=0.0)},
    compulsory_bytes=lambda nodes, gpus, draw: 0,
)
