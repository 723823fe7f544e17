"""Cluster launch control: a block cancels the launch of a cluster that has not begun, and does its work.

A request is asynchronous, as a bulk copy is, and ``bulk`` carries it out: then the next cluster of the grid is claimed,
and the response is written to shared memory. Its 16 bytes are opaque in PTX (ISA manual, "clusterlaunchcontrol"); here
they are two words of 64 bits: x and y of the first block of the cluster, and z with SUCCESS, or zeros.
"""

from __future__ import annotations

from warpcheck.native import load64, native
from warpcheck.runtime.records import CtaRecord, LaunchRecord, WarpRecord
from warpcheck.runtime.schedule_order import scheduled_block

__all__ = ["RESPONSE_BYTES", "SUCCESS", "claim_cluster", "grid_index_of", "observe_failure", "response_word"]

RESPONSE_BYTES = 16
SUCCESS = 1 << 32  # beside z, in the upper word of a response


@native
def grid_index_of(launch: LaunchRecord, number: int) -> int:
    """Return the index in the grid of the block that comes at a position of the order."""
    if launch.sampled_blocks:
        return load64(launch.sampled_blocks + 8 * number)
    return scheduled_block(number, launch.block_count, launch.cluster_size, launch.reverse)


@native
def claim_cluster(launch: LaunchRecord) -> int:
    """Take the next cluster from those that have not begun. Return its index plus 1, or 0 if there is none."""
    if launch.block_next >= launch.block_count:
        return 0
    number = launch.block_next
    launch.block_next += launch.cluster_size
    return grid_index_of(launch, number) // launch.cluster_size + 1


@native
def response_word(launch: LaunchRecord, claimed: int, upper: int) -> int:
    """Return a word of the response to a request that got what ``claim_cluster`` has returned."""
    if not claimed:
        return 0
    columns = launch.nctaid_x // launch.cluster_x
    rows = launch.nctaid_y // launch.cluster_y
    cluster = claimed - 1
    if upper:
        return SUCCESS | cluster // (columns * rows) * launch.cluster_z
    return cluster % columns * launch.cluster_x | cluster // columns % rows * launch.cluster_y << 32


@native
def observe_failure(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, argument: int, mask: int) -> int:
    """Record that a thread of the block has seen that a request has failed: the block may issue no other one."""
    if mask:
        cta.cancel_failed = 1
    return 0
