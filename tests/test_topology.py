"""Test that ranks are placed on separate cores near their adapters, and that shared links divide their bandwidth."""

from __future__ import annotations

import random
from collections import Counter
from itertools import chain
from typing import Any

import pytest

from kernelpath.course.problems import affinity
from kernelpath.course.traces import Malformed, topology
from kernelpath.course.traces.topology import Gpu

# The output of `nvidia-smi topo -m` on a virtual machine with two H200s.
H200 = """\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV18\t0-63\t0\t\tN/A
GPU1\tNV18\t X \t0-63\t0\t\tN/A

Legend:

  X    = Self
  NV#  = Connection traversing a bonded set of # NVLinks
"""


def parse_cpu_list(cpus: str) -> list[int]:
    ends = [part.partition("-") for part in cpus.split(",")]
    return list(chain.from_iterable(range(int(first), int(last or first) + 1) for first, _, last in ends))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("case", affinity.PROBLEM.cases, ids=lambda case: "-".join(map(str, case.values())))
def test_ranks_divide_cores_and_links(case: dict[str, Any], seed: int) -> None:
    text = topology.draw(random.Random(seed), **case)
    gpus, devices = topology.parse(text)
    assert (len(gpus), len(devices)) == (case["gpus"], case["adapters"])
    facts = topology.of(text)
    owners = [parse_cpu_list(cpus) for cpus in topology.cpus(gpus)]
    # No CPU has two ranks, none is left, and the two threads of a core have the same rank.
    cores = case["nodes"] * case["cores"]
    assert sorted(chain.from_iterable(owners)) == list(range(case["threads"] * cores))
    for cpus in owners:
        first_threads = {cpu for cpu in cpus if cpu < cores}
        assert set(cpus) == {cpu + thread * cores for cpu in first_threads for thread in range(case["threads"])}
    chosen = topology.adapters(gpus)
    for gpu, adapter in zip(gpus, chosen, strict=True):
        assert topology.CLASSES.index(gpu.classes[adapter]) == min(map(topology.CLASSES.index, gpu.classes.values()))
    # Together, the ranks of an adapter send no more than it can.
    for name in set(chosen):
        rates = [
            rate for rate, adapter in zip(topology.sending_rates(gpus, chosen), chosen, strict=True) if adapter == name
        ]
        assert sum(rates) <= topology.ADAPTER + 1e-9
    assert facts["nics"] == [devices[adapter] for adapter in chosen]
    assert Counter(facts["numa_nodes"]) == Counter(gpu.node for gpu in gpus)  # type: ignore[arg-type]


def test_equal_adapters_are_taken_in_turn() -> None:
    classes = {"NIC0": "SYS", "NIC1": "PXB", "NIC2": "PXB", "NIC3": "NODE"}
    gpus = [Gpu(1, ((4, 7),), classes)] * 3
    assert topology.adapters(gpus) == ["NIC1", "NIC2", "NIC1"]
    assert topology.sending_rates(gpus, topology.adapters(gpus)) == [25.0, 50.0, 25.0]


def test_links_between_sockets_are_shared_by_direction() -> None:
    gpus = [Gpu(node, ((0, 3),), {"NIC0": "SYS", "NIC1": "SYS", "NIC2": "SYS"}) for node in (0, 1, 1, 1)]
    # Three ranks leave node 1 with 80 / 3 GB/s each, and the adapter of two of them gives them 25.
    assert topology.sending_rates(gpus, ["NIC0", "NIC1", "NIC2", "NIC2"]) == [50.0, 80 / 3, 25.0, 25.0]
    assert topology.pinned_rates(gpus) == [55.0, 80 / 3, 80 / 3, 80 / 3]
    assert topology.pinned_rates(gpus[:2]) == [55.0, 55.0]


def test_cpus_that_ranks_do_not_divide() -> None:
    gpus = [Gpu(0, ((0, 6), (14, 20)), {})] * 4
    assert topology.cpus(gpus) == ["0-1,14-15", "2-3,16-17", "4-5,18-19", "6,20"]


def test_output_of_nvidia_smi() -> None:
    gpus, devices = topology.parse(H200)
    assert gpus == [Gpu(0, [(0, 63)], {})] * 2
    assert devices == {}
    with pytest.raises(Malformed):
        topology.parse("No devices were found\n")
