"""What an architecture can do: the limits of a launch, and what an SM holds.

CUDA C++ programming guide, "Technical Specifications per Compute Capability".
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MULTIPROCESSORS", "SM_80", "Multiprocessor", "Target"]

KIB = 1024
Dim = tuple[int, int, int]


@dataclass(frozen=True)
class Multiprocessor:
    """What a multiprocessor has: warps and blocks at once, 32-bit registers, bytes of shared memory.

    shared_unit: bytes of shared memory are handed out in multiples of it. shared_reserved: bytes that the system takes
    of each block's.
    """

    warps: int
    blocks: int
    registers: int
    shared: int
    shared_unit: int = 128
    shared_reserved: int = 1024


PARTITIONS = 4
"""Of a multiprocessor: each has its own scheduler and a quarter of the registers."""

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

    capability: as in sm_80. multiprocessors: of the GPU that it stands for. threads, block: the most threads of a
    thread block, and along each axis of it. grid: the most blocks along each axis. shared_static, shared: the most
    bytes of shared memory of a block, declared in the source and with what a launch adds. cluster: the most blocks of
    a cluster, 0 where there are none.
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

    @property
    def multiprocessor(self) -> Multiprocessor:
        return MULTIPROCESSORS[self.name]

    def refusal(self, grid: Dim, block: Dim, declared: int, dynamic: int) -> str:
        """Why compiler or driver refuse a launch with so many bytes of shared memory; empty where they do not."""
        threads = block[0] * block[1] * block[2]
        if threads > self.threads:
            return f"a block of {threads} threads is larger than {self.threads}"
        for what, extents, most in (("block", block, self.block), ("grid", grid, self.grid)):
            for axis, extent, limit in zip("xyz", extents, most, strict=True):
                if extent > limit:
                    return f"a {what} of {extent} along {axis} is larger than {limit}"
        if declared > self.shared_static:
            allowed = f"more than the {self.shared_static:,} that {self.name} allows"
            return f"{declared:,} bytes of shared memory are declared, {allowed}; take extern __shared__ at the launch"
        if (shared := declared + dynamic) > self.shared:
            return f"{shared} bytes of shared memory exceed the {self.shared} of a block on {self.name}"
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
    shared=163 * KIB,
    cluster=0,
)
