"""Find the memory that an address belongs to."""

from __future__ import annotations

from warpcheck.layout import LANES, Space
from warpcheck.native import load64, native
from warpcheck.runtime.records import BufferRecord, CtaRecord, LaunchRecord, WarpRecord

__all__ = ["RANK", "find_buffer", "is_read_only", "local_base", "owner_of", "space_of"]

RANK = 24  # where the rank of a block begins in an address of its cluster's shared memory


@native
def space_of(launch: LaunchRecord, cta: CtaRecord, address: int) -> int:
    """Return the state space that a generic address belongs to."""
    if cta.shared <= address and address < cta.shared + launch.shared_bytes:
        return Space.SHARED
    if cta.local <= address and address < cta.local + launch.local_total:
        return Space.LOCAL
    if launch.cluster_size > 1 and cta.window <= address and address < cta.window + (launch.cluster_size << RANK):
        return Space.CLUSTER
    return Space.GLOBAL


@native
def is_read_only(launch: LaunchRecord, address: int) -> int:
    """Return whether a generic address is of a constant or of a parameter of the kernel."""
    if launch.const_began <= address and address < launch.const_began + launch.const_bytes:
        return 1
    return launch.params <= address and address < launch.params + launch.param_bytes


@native
def owner_of(launch: LaunchRecord, cta: CtaRecord, address: int) -> int:
    """Return the record of the block whose shared memory holds an address; 0 if there is none, or it has exited."""
    offset = address - cta.shared
    if offset >= 0 and offset < launch.shared_bytes:
        return cta.address
    # The window of the cluster: the rank of the block is in the bits from RANK on.
    offset = address - cta.window
    if launch.cluster_size == 1 or offset < 0 or offset >> RANK >= launch.cluster_size:
        return 0
    peer = CtaRecord(load64(cta.peers + 8 * (offset >> RANK)))
    if peer.block_began == 0 or (offset & (1 << RANK) - 1) >= launch.shared_bytes:
        return 0
    return peer.address


@native
def local_base(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, lane: int) -> int:
    """Return the address of a thread's local memory."""
    return cta.local + (warp.index * LANES + lane) * launch.local_bytes


@native
def find_buffer(launch: LaunchRecord, guess: int, address: int) -> int:
    """Return the record of the last buffer that begins at or before an address; ``guess`` is tried first."""
    record = BufferRecord(guess)
    if record.start <= address and address < record.start + record.bytes:
        return guess
    low = 0
    high = launch.buffer_count
    while high - low > 1:
        middle = low + high >> 1
        record = BufferRecord(launch.buffers + middle * BufferRecord.size)
        if record.start <= address:
            low = middle
        else:
            high = middle
    return launch.buffers + low * BufferRecord.size
