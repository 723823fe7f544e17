"""Define the limits of an architecture: those of a launch, and those of an SM.

CUDA C++ programming guide, "Technical Specifications per Compute Capability".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

__all__ = [
    "MULTIPROCESSORS",
    "SM_80",
    "SM_90A",
    "SM_100A",
    "TARGETS",
    "Multiprocessor",
    "Target",
    "capability",
    "of_gpu",
]

KIB = 1024
WRAP = 1 << 32  # a negative int32 comes out as this much more where it is read as an unsigned number
Dim = tuple[int, int, int]


@dataclass(frozen=True)
class Multiprocessor:
    """The limits of a multiprocessor: warps and blocks at once, 32-bit registers, bytes of shared memory.

    ``shared_unit`` is the granularity of shared memory in bytes; ``shared_reserved`` the bytes that the system takes of
    each block's.
    """

    warps: int
    blocks: int
    registers: int
    shared: int
    shared_unit: int = 128
    shared_reserved: int = 1024


# Partitions of a multiprocessor: each has its own scheduler and a quarter of the registers.
PARTITIONS = 4

MULTIPROCESSORS = {
    "sm_75": Multiprocessor(32, 16, 65536, 64 * KIB, shared_unit=256, shared_reserved=0),
    "sm_80": Multiprocessor(64, 32, 65536, 164 * KIB),
    "sm_86": Multiprocessor(48, 16, 65536, 100 * KIB),
    "sm_89": Multiprocessor(48, 24, 65536, 100 * KIB),
    "sm_90": Multiprocessor(64, 32, 65536, 228 * KIB),
    "sm_100": Multiprocessor(64, 32, 65536, 228 * KIB),
    "sm_120": Multiprocessor(48, 24, 65536, 100 * KIB),
}


@dataclass(frozen=True)
class Target:
    """An architecture that the PTX machine stands for.

    Args:
        capability: The compute capability, as in sm_80.
        multiprocessors: Those of the GPU that it stands for.
        threads: The most threads of a thread block; ``block``: the most along each axis.
        grid: The most blocks along each axis.
        shared_static: The most bytes of shared memory that the source may declare for a block; ``shared``: with what a
            launch adds.
        cluster: The most blocks of a cluster that every GPU of the architecture supports; ``cluster_most``: that a
            kernel
            may request all the same; both 0 without clusters.
    """

    name: str
    capability: int
    multiprocessors: int
    threads: int
    block: Dim
    grid: Dim
    registers: int
    shared_static: int
    shared: int
    cluster: int
    cluster_most: int

    def __hash__(self) -> int:
        # A target is part of the key of a loaded module, which each launch looks up. The names of targets differ.
        return hash(self.name)

    @property
    def multiprocessor(self) -> Multiprocessor:
        return MULTIPROCESSORS[self.name.rstrip("a")]

    @property
    def virtual(self) -> str:
        """Return its name for NVRTC if only PTX is wanted."""
        return self.name.replace("sm", "compute")

    def loads(self, target: str) -> bool:
        """Return whether the driver loads PTX of a target such as "sm_80": none that is later, or specific to
        another one.
        """
        # "sm_90a" PTX runs on that architecture only; "sm_80" PTX on any later one. "sm_100f" PTX runs on the whole
        # family of sm_100, to which sm_100a belongs (PTX ISA, ".target").
        is_same = target.rstrip("af") == self.name.rstrip("a")
        return capability(target) <= self.capability and (is_same or target[-1].isdigit())

    def refusal(self, grid: Dim, block: Dim, declared: int, dynamic: int, cluster: Dim = (1, 1, 1)) -> str:
        """Return why compiler or driver refuse a launch with this much shared memory; an empty text if they do not."""
        threads = block[0] * block[1] * block[2]
        if threads > self.threads:
            return f"a block of {threads} threads is larger than {self.threads}"
        for extent_name, extents, limits in (("block", block, self.block), ("grid", grid, self.grid)):
            for axis, extent, limit in zip("xyz", extents, limits, strict=True):
                if extent > limit:
                    along_x = extent_name == "grid" and axis != "x"
                    hint = f"; number blocks along x, which has room for {limits[0]}" if along_x else ""
                    overflow = f"; an int32 that overflowed to {extent - WRAP}?" if WRAP // 2 <= extent < WRAP else ""
                    return f"a {extent_name} of {extent} along {axis} is larger than {limit}{hint}{overflow}"
        # ptxas's limit; beyond it shared memory has to be dynamic, and requested at the launch.
        if declared > self.shared_static:
            allowed = f"more than the {self.shared_static:,} that {self.name} allows"
            return f"{declared:,} bytes of shared memory are declared, {allowed}; take extern __shared__ at the launch"
        if (shared := declared + dynamic) > self.shared:
            return f"{shared} bytes of shared memory exceed the {self.shared} of a block on {self.name}"
        return self._refused_cluster(grid, cluster)

    def _refused_cluster(self, grid: Dim, cluster: Dim) -> str:
        blocks = cluster[0] * cluster[1] * cluster[2]
        if blocks == 1:
            return ""
        if not self.cluster:
            return f"a cluster of {blocks} blocks: {self.name} has no clusters, they begin with sm_90"
        if blocks > self.cluster_most:
            return f"invalid cluster size: {blocks} blocks, more than the {self.cluster_most} that {self.name} allows"
        # The grid counts blocks, of which every cluster has to be whole.
        for axis, extent, size in zip("xyz", grid, cluster, strict=True):
            if extent % size:
                return f"invalid argument: a grid of {extent} along {axis} is not a multiple of the cluster's {size}"
        return ""


SM_80 = Target(
    name="sm_80",
    capability=80,
    multiprocessors=108,  # of an A100
    threads=1024,
    block=(1024, 1024, 64),
    grid=(2**31 - 1, 65535, 65535),
    registers=255,
    shared_static=48 * KIB,
    # 1 KiB less than the SM has: the system reserves that much of each block's.
    shared=163 * KIB,
    cluster=0,
    cluster_most=0,
)
SM_90A = replace(
    SM_80,
    name="sm_90a",
    capability=90,
    multiprocessors=132,  # of an H200
    shared=227 * KIB,
    cluster=8,
    cluster_most=16,
)
SM_100A = replace(
    SM_90A,
    name="sm_100a",
    capability=100,
    multiprocessors=148,  # of a B200
)
TARGETS = {target.name: target for target in (SM_80, SM_90A, SM_100A)}


def capability(target: str) -> int:
    """Return the compute capability of a target, such as 90 of "sm_90a". Raises ValueError for an unknown name."""
    match = re.fullmatch(r"(?:sm|compute)_(\d+)[af]?", target)
    if not match:
        raise ValueError(f"Unsupported .target '{target}'")
    return int(match[1])


def gpu_architecture(major: int, minor: int) -> str:
    """Return the name under which compilers know a compute capability, with the features that only this one has.

    Those are named by the suffix a from sm_90 on, such as wgmma. PTX ISA, ".target".
    """
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


def of_gpu(major: int, minor: int) -> Target:
    """Return the target that stands for a GPU of this compute capability: the last one that is not later."""
    return max(
        (target for target in TARGETS.values() if target.capability <= 10 * major + minor),
        key=lambda target: target.capability,
        default=SM_80,
    )
