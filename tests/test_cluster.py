"""Test the simulated cluster of `parallel_plan`: rings, pipelines, and the bytes of connections."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelpath.course.labs import cluster
from kernelpath.course.labs.cluster import PLANS, Connection, Job

JOB = Job(16, 1024, 16 * 640, 5, 2, 4, 80e9, 1e14, (2e-6, 100e9), (7e-6, 20e9))


def test_a_ring_moves_at_the_speed_of_its_slowest_connection() -> None:
    links = [Connection("nvlink", 1e-6, 100e9) for _ in range(5)] + [Connection("network", 4e-6, 10e9)]
    # Every step waits for the slowest connection: its latency plus 1 MB at 10 GB/s.
    assert cluster.run_ring(links, 7, 1e6) == pytest.approx(7 * (4e-6 + 1e-4))
    assert {link.bytes for link in links} == {7e6}


def test_the_slowest_connection_depends_on_the_size_of_the_message() -> None:
    def links() -> list[Connection]:
        return [Connection("nvlink", 9e-6, 100e9), Connection("network", 1e-6, 1e9)]

    assert cluster.run_ring(links(), 1, 10) == pytest.approx(9e-6 + 1e-10)
    assert cluster.run_ring(links(), 1, 1e6) == pytest.approx(1e-6 + 1e-3)


def test_a_pipeline_without_messages_has_the_bubble_of_its_stages() -> None:
    job = replace(JOB, nodes=1, nvlink=(0.0, 1e30))
    compute_seconds = job.compute_seconds
    # With 5 microbatches and 4 stages, the pipeline takes 5 + 4 - 1 steps for the work of 5.
    assert cluster.simulate(job, "pipeline").seconds == pytest.approx(compute_seconds * (5 + 4 - 1) / 5)


def test_one_gpu_sends_nothing() -> None:
    job = replace(JOB, nodes=1, gpus=1)
    for plan in PLANS:
        outcome = cluster.simulate(job, plan)
        assert outcome.seconds == pytest.approx(job.compute_seconds)
        assert outcome.busiest("nvlink") == outcome.busiest("network") == 0


def test_every_plan_has_all_parameters_and_activations_of_one_gpu() -> None:
    job = replace(JOB, nodes=1, gpus=1)
    bytes_of_one_gpu = 16 * job.parameters + 34 * job.width * job.layers * job.tokens
    for plan in PLANS:
        gathered = 4 * 12 * job.width**2 if plan == "sharded" else 0
        assert cluster.memory(job, plan) == bytes_of_one_gpu + gathered


def test_bytes_of_collectives() -> None:
    gradients = 2 * JOB.parameters
    activations = 2 * JOB.tokens * JOB.width
    sent = {plan: cluster.simulate(JOB, plan).busiest("nvlink") for plan in PLANS}
    assert sent["data"] == pytest.approx(2 * 7 / 8 * gradients)
    assert sent["sharded"] == pytest.approx(3 * 7 / 8 * gradients)
    assert sent["tensor"] == pytest.approx(4 * 16 * 2 * 7 / 8 * activations)
    assert sent["pipeline"] == pytest.approx(activations)
    assert sent["tensor+data"] == pytest.approx(4 * 16 * 2 * 3 / 4 * activations / 2)
    assert cluster.simulate(JOB, "tensor+data").busiest("network") == pytest.approx(2 * 1 / 2 * gradients)
    assert cluster.read_job(JOB.as_document()) == JOB
