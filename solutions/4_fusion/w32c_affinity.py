"""Affinity: the CPUs, the memory, and the network adapter of each rank of a node.

affinity(topology) reads the output of `nvidia-smi topo -m` of a server with one or two NUMA nodes, and places one rank
per GPU. The columns are separated by tabs. The entry in row GPU2 and column NIC0 says how this GPU reaches this
adapter. The legend at the end explains the entries and gives the adapters' devices (`NIC0: mlx5_3`).

`CPU Affinity` lists the CPUs of the GPU's NUMA node. `0-55,112-167` are 56 cores, each with two hardware threads: the
second thread of core 0 is CPU 112. The report is a dict of lists with an element for each GPU, in order:

    numa_nodes     the GPU's NUMA node, from which its rank gets its memory
    cpus           the rank's CPUs. The ranks of a node divide each range among them, in order, so that a core's two
                   threads have the same rank. If a range doesn't divide evenly, the first ranks get one more CPU.
                   Written as nvidia-smi does, with a single CPU as its number: "0-13,112-125", "4,12"
    nics           the device of the rank's adapter. Ranks choose in order: the nearest adapter (PIX, then PXB, PHB,
                   NODE, and SYS), of these one with the fewest ranks so far, and of these the first
    rates          the GB/s at which each rank sends if all of them send at once
    nic0_rates     the same if all ranks use NIC0
    pinned_rates   the GB/s at which each GPU copies from pinned memory on the host, all GPUs at once, if a process
                   allocated all of it in NUMA node 0

The ranks that use a link share its rate equally, and a rank is as fast as its slowest link:

    55 GB/s        the PCIe link of a GPU
    50 GB/s        an adapter
    80 GB/s        from one NUMA node to the other in each direction, for all ranks together whose data leaves this node
                   (the entry SYS, or memory in the other node)
"""

import re
from collections import Counter
from pathlib import Path

PCIE, ADAPTER, SOCKETS = 55.0, 50.0, 80.0
CLASSES = ("PIX", "PXB", "PHB", "NODE", "SYS")


def share(ranges, position, count):
    """Return part `position` of `count` of each range, as nvidia-smi writes CPUs."""
    parts = []
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        size = int(last or first) - int(first) + 1
        # The first size % count parts have one CPU more.
        begin, end = (index * (size // count) + min(index, size % count) for index in (position, position + 1))
        begin, end = int(first) + begin, int(first) + end - 1
        parts.append(str(begin) if begin == end else f"{begin}-{end}")
    return ",".join(parts)


def sending_rates(nodes, classes, chosen):
    """Return the rate of each rank if all send at once through the chosen adapters."""
    ranks = Counter(chosen)
    leaving = Counter(node for node, row, name in zip(nodes, classes, chosen, strict=True) if row[name] == "SYS")
    rates = []
    for node, row, name in zip(nodes, classes, chosen, strict=True):
        between = SOCKETS / leaving[node] if row[name] == "SYS" else PCIE
        rates.append(min(PCIE, ADAPTER / ranks[name], between))
    return rates


def affinity(topology: Path) -> dict:
    """Return the place of each rank, and the rates that follow from it."""
    text = topology.read_text()
    header, *lines = ([cell.strip() for cell in line.split("\t")] for line in text.splitlines())
    gpus = [dict(zip(header, cells, strict=False)) for cells in lines if re.fullmatch(r"GPU\d+", cells[0])]
    devices = dict(re.findall(r"(NIC\d+): (\S+)", text))
    nodes = [int(gpu["NUMA Affinity"]) for gpu in gpus]
    classes = [{name: gpu[name] for name in devices} for gpu in gpus]
    chosen = []
    for row in classes:
        chosen.append(min(devices, key=lambda name: (CLASSES.index(row[name]), chosen.count(name))))
    far = len(gpus) - nodes.count(0)
    return {
        "numa_nodes": nodes,
        "cpus": [
            share(gpu["CPU Affinity"], nodes[:index].count(node), nodes.count(node))
            for index, (gpu, node) in enumerate(zip(gpus, nodes, strict=True))
        ],
        "nics": [devices[name] for name in chosen],
        "rates": sending_rates(nodes, classes, chosen),
        "nic0_rates": sending_rates(nodes, classes, ["NIC0"] * len(gpus)),
        "pinned_rates": [min(PCIE, SOCKETS / far) if node else PCIE for node in nodes],
    }
