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

from pathlib import Path

PCIE, ADAPTER, SOCKETS = 55.0, 50.0, 80.0
CLASSES = ("PIX", "PXB", "PHB", "NODE", "SYS")


def affinity(topology: Path) -> dict:
    """Return the place of each rank, and the rates that follow from it."""
    raise NotImplementedError("TODO: read the matrix, and place the ranks")
