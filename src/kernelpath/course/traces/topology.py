"""Parse the matrix of `nvidia-smi topo -m`, place one rank per GPU, and draw the matrices of other machines.

The entries are those of nvidia-smi's legend. The rates are round numbers for PCIe 5.0 and adapters of 400 Gbit/s.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelpath.course.traces import Facts, Malformed

# How a GPU reaches an adapter, from near to far.
CLASSES = ("PIX", "PXB", "PHB", "NODE", "SYS")

# GB/s in each direction: a GPU's PCIe link, an adapter's port, and the links between the NUMA nodes together.
PCIE = 55.0
ADAPTER = 50.0
SOCKETS = 80.0

_LEGEND_ENTRY = re.compile(r"^\s*(NIC\d+): (\S+)\s*$", re.M)


@dataclass(frozen=True)
class Gpu:
    """A GPU's row of the matrix.

    Attributes:
        node: Its NUMA node.
        ranges: The first and the last of each range of CPUs in its node.
        classes: How it reaches each adapter, by the adapter's name in the matrix.
    """

    node: int
    ranges: Sequence[tuple[int, int]]
    classes: Mapping[str, str]


def of(text: str) -> Facts:
    """Return the facts of the report. Raises Malformed."""
    gpus, names = parse(text)
    chosen = adapters(gpus)
    return {
        "numa_nodes": [gpu.node for gpu in gpus],
        "cpus": cpus(gpus),
        "nics": [names[adapter] for adapter in chosen],
        "rates": sending_rates(gpus, chosen),
        "nic0_rates": sending_rates(gpus, ["NIC0"] * len(gpus)),
        "pinned_rates": pinned_rates(gpus),
    }


def parse(text: str) -> tuple[list[Gpu], dict[str, str]]:
    """Return the GPUs in order, and the devices of the adapters by their names in the matrix. Raises Malformed."""
    header, *rows = text.splitlines() or [""]
    columns = [name.strip() for name in header.split("\t")]
    if "CPU Affinity" not in columns:
        raise Malformed("this is not the matrix of `nvidia-smi topo -m`: its first line has no column CPU Affinity")
    # The first column, of the rows' names, has no heading of its own.
    start = columns.index("GPU0")
    gpus = []
    for row in rows:
        cells = [cell.strip() for cell in row.split("\t")]
        if not re.fullmatch(r"GPU\d+", cells[0]):
            continue
        named = dict(zip(columns[start:], cells[1:], strict=False))
        ranges = [
            (int(first), int(last or first))
            for first, _, last in (part.partition("-") for part in named["CPU Affinity"].split(","))
        ]
        classes = {name: entry for name, entry in named.items() if name.startswith("NIC")}
        gpus.append(Gpu(int(named["NUMA Affinity"]), ranges, classes))
    return gpus, dict(_LEGEND_ENTRY.findall(text))


def cpus(gpus: Sequence[Gpu]) -> list[str]:
    """Return the CPUs of each rank: of every range of its node, the rank's share."""
    of_node = Counter(gpu.node for gpu in gpus)
    before: Counter[int] = Counter()
    shares = []
    for gpu in gpus:
        parts = []
        for first, last in gpu.ranges:
            share, remainder = divmod(last - first + 1, of_node[gpu.node])
            # The first ranks get the CPUs that are left over.
            begin = first + before[gpu.node] * share + min(before[gpu.node], remainder)
            end = begin + share + (before[gpu.node] < remainder) - 1
            parts.append(f"{begin}-{end}" if end > begin else str(begin))
        before[gpu.node] += 1
        shares.append(",".join(parts))
    return shares


def adapters(gpus: Sequence[Gpu]) -> list[str]:
    """Return the adapter of each rank: the nearest, of these the one with the fewest ranks, of these the first."""
    ranks: Counter[str] = Counter()
    chosen = []
    for gpu in gpus:
        adapter = min(gpu.classes, key=lambda name: (CLASSES.index(gpu.classes[name]), ranks[name]))
        ranks[adapter] += 1
        chosen.append(adapter)
    return chosen


def sending_rates(gpus: Sequence[Gpu], chosen: Sequence[str]) -> list[float]:
    """Return the GB/s at which each rank sends through its adapter, while all ranks send."""
    ranks = Counter(chosen)
    crosses = [gpu.classes[adapter] == "SYS" for gpu, adapter in zip(gpus, chosen, strict=True)]
    # Each direction between the nodes has its own wires, so only ranks that leave the same node share them.
    leaving = Counter(gpu.node for gpu, cross in zip(gpus, crosses, strict=True) if cross)
    return [
        min(PCIE, ADAPTER / ranks[adapter], SOCKETS / leaving[gpu.node] if cross else PCIE)
        for gpu, adapter, cross in zip(gpus, chosen, crosses, strict=True)
    ]


def pinned_rates(gpus: Sequence[Gpu]) -> list[float]:
    """Return the GB/s of copies to all GPUs at once from pinned memory, all of which is in NUMA node 0."""
    remote_gpus = sum(gpu.node != 0 for gpu in gpus)
    return [PCIE if gpu.node == 0 else min(PCIE, SOCKETS / remote_gpus) for gpu in gpus]


def draw(
    rng: random.Random,
    nodes: int,
    gpus: int,
    adapters: int,
    cores: int,
    threads: int = 2,
    last_node_first: bool = False,
) -> str:
    """Return the matrix of a machine, as nvidia-smi prints it.

    Args:
        rng: Which adapters are near which GPUs, and the bridges between them, are drawn from it.
        nodes: The NUMA nodes, of a socket each.
        gpus: All GPUs. Each node has at least one.
        adapters: All adapters, at least one.
        cores: The cores of each node.
        threads: The threads of each core.
        last_node_first: Whether the first GPUs are in the last node.
    """
    # A place is a node and a PCIe switch of this node.
    gpu_nodes = [gpu * nodes // gpus for gpu in range(gpus)]
    if last_node_first:
        gpu_nodes = [nodes - 1 - node for node in gpu_nodes]
    gpu_places = [(node, rng.randrange(4)) for node in gpu_nodes]
    adapter_places = [(rng.randrange(nodes), rng.randrange(5)) for _ in range(adapters)]
    bridges = {(node, switch): rng.choice(("PIX", "PXB")) for node in range(nodes) for switch in range(5)}

    def entry(place: tuple[int, int], peer: tuple[int, int]) -> str:
        if place == peer:
            return bridges[place]
        if place[0] != peer[0]:
            return "SYS"
        return "PHB" if 4 in (place[1], peer[1]) else "NODE"  # a device on the CPU's own lanes

    def described(place: tuple[int, int]) -> str:
        starts = [(thread * nodes + place[0]) * cores for thread in range(threads)]
        cpus = ",".join(f"{start}-{start + cores - 1}" for start in starts)
        return f"{cpus}\t{place[0]}\t\tN/A"

    names = [f"GPU{gpu}" for gpu in range(gpus)] + [f"NIC{adapter}" for adapter in range(adapters)]
    places = gpu_places + adapter_places
    lines = ["\t" + "\t".join((*names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"))]
    for row, (name, place) in enumerate(zip(names, places, strict=True)):
        cells = []
        for column, peer in enumerate(places):
            linked = row < gpus and column < gpus
            cells.append(" X " if row == column else "NV18" if linked else entry(place, peer))
        lines.append("\t".join((name, *cells, described(place) if row < gpus else "\t\t")))
    devices = rng.sample(range(12), adapters)
    legend = "\n".join(f"  NIC{adapter}: mlx5_{device}" for adapter, device in enumerate(sorted(devices)))
    return "\n".join(lines) + f"\n\nLegend:\n\n{_MEANINGS}\n\nNIC Legend:\n\n{legend}\n"


_MEANINGS = """  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks"""
