"""The records that generated code, checks and scheduler share, as numpy dtypes.

``LAUNCH`` exists once per launch; ``CTA`` once for each resident thread block; ``WARP`` once for each of its warps,
followed by the warp's registers; ``COUNTS`` and ``SAMPLE`` once for each instruction that touches memory. Generated
code accesses a field at its offset. Fields that hold an address say of what.

They are in one file because several layers name their fields.
"""

from __future__ import annotations

import numpy as np

from warpcheck.layout import LANES, ROWS
from warpcheck.native import View

__all__ = [
    "ACCESS_COUNTS",
    "BARRIER",
    "BUFFER",
    "COPY",
    "COUNTED",
    "COUNTS",
    "CTA",
    "LAUNCH",
    "MBARRIER",
    "MERGE",
    "READ",
    "SAMPLE",
    "WARP",
    "BarrierRecord",
    "BufferRecord",
    "CopyRecord",
    "CountsRecord",
    "CtaRecord",
    "LaunchRecord",
    "MbarrierRecord",
    "ReadRecord",
    "SampleRecord",
    "WarpRecord",
    "field_offset",
]

# The first request of an access site, kept for pictures. is_speculative: whether the site's plain reads are the first
# step of a compare-and-swap loop, which checks them itself; see races. has_block_scope: whether the site's accesses are
# BLOCK_STRONG. has_device_scope: in a launch of several ranks, whether their scope leaves out other GPUs.
SAMPLE = np.dtype(
    [
        ("mask", "i8"),
        ("is_speculative", "i8"),
        ("has_block_scope", "i8"),
        ("has_device_scope", "i8"),
        ("addresses", "i8", LANES),
    ]
)

# One row of counters for each access site. Sites in shared memory count wavefronts and least (wavefronts without bank
# conflicts), other sites count sectors and scattered. Atomics count same_address too, and the wavefronts of the loads
# in a loop that ptxas makes of them. Sites in constant memory count their accesses as least. Bulk and tensor copies
# count requests and the three columns behind same_address.
_ACCESSES = ("requests", "lanes", "sectors", "wavefronts", "least", "scattered", "same_address")
ACCESS_COUNTS = len(_ACCESSES)
COUNTED = (*_ACCESSES, "bulk_bytes", "bulk_sectors", "multicast_sectors", "loop_wavefronts")
# How the hardware executes a site. width: bytes of a lane, where ptxas merged neighboring accesses. chunks, chunk_mask:
# the ring in which such a group remembers the bytes that it has in registers. atomic_strategy: see AtomicStrategy.
COUNTS = np.dtype(
    [(name, "i8") for name in (*COUNTED, "width", "chunks", "chunk_mask", "atomic_strategy", "is_cp_async")]
)

# One cp.async of a warp. tracker: the address of the mbarrier that tracks it, or 0, with the number of its phase. site,
# issued_at: by which instruction and when. addresses, sources: what each lane writes and reads; see cp_async_sources.
_COPY = ("group", "mask", "bytes", "tracker", "phase", "site", "issued_at")
COPY = np.dtype([*((name, "i8") for name in _COPY), ("addresses", "i8", LANES), ("sources", "i8", LANES)])

# One operand of wgmma that a warp reads from shared memory: its commit group, its instruction's position in the block
# and its site; the window of its bytes, as offsets in shared memory; the fields of its descriptor; and the time at
# which a warp of the warpgroup waited for it, or 0. per_chunk: elements of 16 bytes; halves: chunks of a row, 2 but for
# a tcgen05.cp of 128 bits; atom: 1 if pairs of chunks are swizzled together, else 0. See reads. An operand of
# tcgen05.mma or cp has one, too, in the record of its job.
_DESCRIPTOR = (
    "low",
    "high",
    "start",
    "lead",
    "stride",
    "span",
    "base",
    "major",
    "per_chunk",
    "first",
    "rows",
    "halves",
    "atom",
)
_READ = ("group", "position", "site", *_DESCRIPTOR, "waited_at")
READ = np.dtype([(name, "i8") for name in _READ])

# A named barrier of a block (bar.sync, bar.arrive): the warps that have arrived without waiting, as bits, how many
# such arrivals there were, and the time of each.
# threads: how many the phases need that warps come to, 0 for none yet. opened_at: when a phase was last complete,
# opened_by: the warps that waited for it, as bits. other_...: the same of the last phase that needed another number.
_PHASE = ("threads", "opened_at", "opened_by")
_BARRIER = ("arrived_warps", "arrivals", *_PHASE, *(f"other_{name}" for name in _PHASE))
BARRIER = np.dtype([*((name, "i8") for name in _BARRIER), ("arrival_times", "i8", LANES)])
# What is remembered of an mbarrier beside its object. object_address: 0 for a free record; find_mbarrier relies on it
# being the first field. init_id, init_time: the access id and the time of mbarrier.init. expected_bytes: all bytes that
# the current phase was told to expect, expect_site: the last instruction that did so, counted from 1. last_arrival_id:
# the access id of the last arrival by a thread of the barrier's own block.
_MBARRIER = ("object_address", "completed_phases", "init_id", "init_time", "expected_bytes", "expect_site")
# A warp of which only some lanes have arrived in this phase, those that have not, and when; see elected.
_PARTIAL_ARRIVAL = ("partial_warp", "unreleased_lanes", "unreleased_since", "partial_time", "partial_phase")
MBARRIER = np.dtype([(name, "i8") for name in (*_MBARRIER, "last_arrival_id", *_PARTIAL_ARRIVAL)])

BUFFER = np.dtype(
    [
        ("start", "i8"),
        ("bytes", "i8"),
        ("state", "i8"),  # address of one byte for each byte: 1 nothing wrote it, 2 a kernel wrote it
        ("history", "i8"),  # address of an entry for each granule; see races
        ("granule", "i8"),  # log2 of the bytes that share one entry of the history
        ("reached", "i8"),  # the offset behind the farthest byte that a sample of the blocks has accessed
        ("written", "i8"),  # whether a thread of this launch has stored to it, as `access` finds
        ("read_only", "i8"),  # whether a store to it is a fault; see block_workers
    ],
    align=True,
)

# The histories of a buffer in the launch and in the workers of block_workers. launch_began: accesses before this time
# are of earlier launches. began: when the workers began. Part p of the blocks began p << part_shift later in the time
# of a worker, and delays[p] later than that in the time of the launch.
_MERGE = ("history", "histories", "worker_count", "launch_began", "began", "part_shift", "delays")
MERGE = np.dtype([(name, "i8") for name in _MERGE])

LAUNCH = np.dtype(
    [
        *((f"{name}_{axis}", "u4") for name in ("ntid", "nctaid", "cluster") for axis in "xyz"),
        ("shared_bytes", "u4"),  # of a block, its dynamic ones among them
        ("dynamic_bytes", "u4"),
        ("shared_fill", "i4"),  # the byte that shared memory is filled with and counts as written, or -1
        ("reserved", "u4"),  # offset of the system's own shared memory
        ("reserved_bytes", "u4"),
        ("compiler_scratch", "u4"),  # whether only Triton's compiler lays out and writes shared memory
        ("requires_tensor_fences", "u4"),  # whether tcgen05.fence and wait::ld are the author's; see tensor_cells
        ("tensor_scratch", "i8"),  # memory for the operands of the product that the tensor core executes
        ("local_bytes", "i8"),  # of a thread, and of a whole block
        ("local_total", "i8"),
        ("params", "i8"),
        ("param_bytes", "i8"),
        ("const_began", "i8"),  # the module's variables in constant memory
        ("const_bytes", "i8"),
        ("blocks", "i8"),  # three counters for each basic block: executions, active lanes, divergent branches
        ("counts", "i8"),
        ("samples", "i8"),
        ("buffers", "i8"),
        ("buffer_count", "i8"),
        ("symbols", "i8"),  # addresses of module-level variables
        ("shared_granule", "i8"),  # as of a buffer
        ("cleared_bytes", "i8"),  # of the registers of a warp, which are 0 when it begins; see clears_registers
        ("time", "i8"),  # the logical clock: counts synchronisations; see happens_before
        ("launch_began", "i8"),  # the time at which this launch began
        # Programmatic dependent launch; see happens_before. overlap_began: when the earliest launch that may still run
        # began; launch_began if none may. griddepcontrol.wait does not order accesses before unawaited_end.
        ("overlap_began", "i8"),
        ("unawaited_end", "i8"),
        ("grids_awaited", "i8"),  # whether a thread has executed griddepcontrol.wait
        ("wait_published_at", "i8"),  # when a block first issued a fence after such a wait, or 0
        ("waits_before_trigger", "i8"),  # whether a block has waited before it let dependent grids begin
        ("sectors_before_wait", "i8"),  # those that warps loaded or stored before griddepcontrol.wait
        # Lane-instructions of all blocks up to griddepcontrol.launch_dependents, and up to their exit.
        ("clock_before_trigger", "i8"),
        ("clock_before_exit", "i8"),
        ("block_next", "i8"),  # the next block of the grid to become resident, and how many there are
        ("block_count", "i8"),
        ("block_stop", "i8"),  # blocks from this number on do not begin; see block_workers
        ("is_worker", "i8"),  # whether it is the record of a worker
        ("pause_clock", "i8"),  # the clock from which on run_grid returns to the host after each block
        ("cluster_size", "i8"),  # blocks of a cluster
        ("explicit_cluster", "u4"),  # whether the launch, or the kernel, asks for clusters, even of one block
        ("registers", "i4"),  # of each thread, as it begins; see setmaxnreg
        ("timeouts_expire", "i8"),  # whether all blocks wait for each other, so that suspended waits time out
        ("sampled_blocks", "i8"),  # the numbers in the grid of the blocks of a sample; 0 where all blocks run
        ("stretch_began", "i8"),  # of a sample: the time at which its last run of neighboring blocks began
        ("reverse", "i8"),  # the order of blocks, and of the warps of each; see order
        ("converges", "i8"),  # whether the compiler keeps the lanes of a warp converged, as Triton's does
        ("turns", "i8"),  # the start of each turn, in order; turn_blocks: its block
        ("turn_blocks", "i8"),
        ("turn_count", "i8"),
        ("published_at", "i8"),  # for each block: the time of its last fence of device scope
        ("first_published_at", "i8"),  # for each block: the time of its first fence of device scope, or 0
        ("acquired_at_exit", "i8"),  # for each block that has exited: its acquired_at
        ("bulk", "i8"),  # a ring of BULKS records; bulk_begun copies were issued, bulk_ended of them are done
        ("bulk_begun", "i8"),
        ("bulk_ended", "i8"),
        ("cooperative", "i8"),  # whether all blocks are resident, and take turns
        ("workspace", "i8"),  # of the barrier of a cooperative grid
        ("chunks", "i8"),  # CHUNK records of the merged sites, chunk_count of them; see memory_transactions
        ("chunk_count", "i8"),
        ("budget", "i8"),  # lane-instructions left of the running warp's slice
        ("host_budget", "i8"),  # lane-instructions until control returns to the host
        ("limits_slices", "i8"),  # whether a slice ends when host_budget is used up, as the limit of the launch is near
        ("signals", "i8"),  # strong accesses, without those that only wait; see polling
        ("unused_budget", "i8"),  # lane-instructions of its slice that a polling warp gave up
        ("clock", "i8"),  # lane-instructions of the launch so far; while a warp runs, as at the end of its slice
        ("running", "i8"),  # whether a warp runs
        ("events", "i8"),  # EVENTS records, or 0 where events are not recorded; event_count may exceed EVENTS
        ("event_count", "i8"),
        ("fault_kind", "i4"),
        ("fault_site", "i4"),  # an access site; or, below 0, ~(number of an instruction in basic block fault_block)
        ("fault_lane", "i4"),
        ("fault_warp", "i4"),
        ("fault_block", "i4"),
        ("fault_address", "i8"),
        ("fault_detail", "i8"),  # depends on fault_kind
        ("fault_value", "i8"),  # an operand that tcgen05 does not take
        ("lanes_needed", "u4"),  # the mask of an instruction of several lanes; lanes_here: the lanes that execute it
        ("lanes_here", "u4"),
        ("conflict_id", "i8"),  # access id and time of the access that the last race was with; see history
        ("conflict_time", "i8"),
    ],
    align=True,
)

CTA = np.dtype(
    [
        *((f"{name}_{axis}", "u4") for name in ("ctaid", "clusterid", "cluster_ctaid") for axis in "xyz"),
        ("rank", "u4"),  # in its cluster
        ("registers_left", "i4"),  # of the block's pool: those that no warp has, in registers of a thread
        ("peers", "i8"),  # the addresses of the records of its cluster's blocks, by rank
        ("window", "i8"),  # where the shared memory of its cluster's first block begins, or would
        ("barriers", "i8"),  # BARRIERS records
        ("mbarriers", "i8"),  # MBARRIERS records; see mbarriers
        ("barrier_clocks", "i8"),
        ("block_number", "i8"),  # in the grid
        ("block_began", "i8"),  # the time at which this block began; 0 before that
        ("clock_began", "i8"),  # launch.clock when this block began
        ("turn_began", "i8"),  # the time at which its present turn began
        ("grids_awaited_at", "i8"),  # when a thread of this block first executed griddepcontrol.wait, or 0
        ("dependents_launched", "i8"),  # whether one has executed griddepcontrol.launch_dependents
        ("acquired_at", "i8"),  # when this block last used an atomic, and so acquired what other blocks published; or 0
        ("shared", "i8"),
        ("shared_state", "i8"),
        ("shared_history", "i8"),
        ("local", "i8"),
        ("local_state", "i8"),
        ("warps", "i8"),  # their records, how many, and the bytes from one to the next
        ("warp_count", "i8"),
        ("warp_stride", "i8"),
        ("copies", "i8"),  # a ring of COPIES records for each warp
        ("copies_in_flight", "i8"),  # those that no thread has waited for; source_low, source_high: bounds
        ("source_low", "i8"),
        ("source_high", "i8"),
        ("operand_reads", "i8"),  # a ring of READS records for each warp, and scratch memory for the products of wgmma
        ("products", "i8"),
        ("reads_in_flight", "i8"),  # how many of those reads no warp has waited for
        ("tensor_memory", "i8"),  # 512 columns of 128 lanes, and CELLS records of who accessed them; see tensor_cells
        ("tensor_cells", "i8"),
        ("tensor_clock", "i8"),  # vector clocks of each warp at its last tcgen05.fence::after_thread_sync
        ("relaxed_clock", "i8"),  # vector clocks of relaxed waits, which order tcgen05 alone
        ("tensor_accesses", "i8"),  # ACCESSES records for each warp; see tensor_access
        ("tensor_slices", "i8"),  # the parts of tensor memory that are allocated, as bits; see tensor_allocation
        ("tensor_allocations", "i8"),  # for each part: the columns of the allocation that begins there, or 0
        ("tensor_relinquished", "i8"),
        ("tensor_alloc_site", "i8"),  # the last instruction that allocated, and its thread
        ("tensor_alloc_thread", "i8"),
        ("tensor_jobs", "i8"),  # a ring of JOBS records, begun and ended as the copies of a launch are
        ("tensor_jobs_begun", "i8"),
        ("tensor_jobs_ended", "i8"),
        ("tensor_pending", "i8"),  # products that have yet to be executed, of its pair if they are of two blocks
        ("cancel_failed", "i8"),  # whether a thread has seen a request fail; see launch_control
        ("tensor_peer", "i8"),  # the record of the other block of its pair in the cluster, or 0
        # vector_clock[0][w][v]: accesses of warp v before this time happen before what warp w does now; plane p has the
        # same for the warps of the block whose number is p further, around the cluster. See happens_before.
        ("vector_clock", "i8"),
        ("vc_released", "i8"),  # vector clocks, too: of each warp at its last fence (release)
        ("vc_observed", "i8"),  # and those that its strong reads have found since, which its next fence acquires
        ("fence_ring", "i8"),  # FENCES records for each warp; see proxies
        ("last_barrier_time", "i8"),  # of the whole block
        ("poll_timeouts", "i8"),  # how often a warp has given up its slice because a poll did not succeed
        ("spin_timeouts", "i8"),  # how many of these were in a loop that ends by the value of the poll alone
        ("idle_rounds", "i8"),  # in a worker: rounds without progress up to the last stop for the host; see run_block
        ("deferred_kind", "i4"),  # the first race, or the first read of unwritten memory; see suspects
        ("deferred_site", "i4"),
        ("deferred_thread", "i4"),
        ("deferred_bytes", "i4"),
        ("deferred_address", "i8"),  # 0 while no fault is deferred
        ("deferred_time", "i8"),
        ("deferred_conflict_id", "i8"),
        ("deferred_conflict_time", "i8"),
    ],
    align=True,
)

WARP = np.dtype(
    [
        ("pcs", "i4", LANES),
        ("addresses", "i8", LANES),
        ("bank_words", "i8", LANES),  # the word that each bank of shared memory serves while wavefronts are counted
        ("polled_addresses", "i8", LANES),  # of its last strong load; poll_site: that instruction, counted from 1
        ("poll_site", "i8"),
        ("tid", "u4", (3, LANES)),
        ("mask", "u4"),
        ("threads", "u4"),  # lanes that exist; live: those of them that have not left the kernel
        ("live", "u4"),
        ("index", "u4"),
        ("polls", "u4"),  # how often in a row the warp has polled polled_address
        ("polled_address", "i8"),
        ("status", "i4"),
        ("lanes_using_load", "u4"),  # the lanes that use the value they load; see demand
        ("blocked_lanes", "u4"),  # the lanes that have to wait in the instruction that is being executed
        ("expired", "i4"),  # whether blocked lanes are to go on as if their try_wait had timed out
        ("suspended_at", "i8"),  # launch.time when they had to wait
        ("awaited_mbarrier", "i8"),  # the address of the mbarrier that they wait for, or 0
        (
            "grid_wait_lanes",
            "u4",
        ),  # the lanes that have executed griddepcontrol.wait; grid_waited_at: when one first did
        ("grid_waited_at", "i8"),
        ("cluster_arrived", "u4"),  # the lanes that have arrived at the barrier of the cluster
        ("registers", "i4"),  # of each of its threads; see setmaxnreg
        ("only_waiting", "i4"),  # not 0 when every live lane waits for another lane of the warp
        ("exited_after_barrier", "i4"),  # whether lanes have left the kernel after a barrier of the block
        ("copy_group", "i4"),  # groups of asynchronous copies that the warp has committed
        ("copies_begun", "i4"),
        ("copies_ended", "i4"),
        ("fence_count", "i8"),  # fences of the asynchronous proxy that the warp has issued
        ("wgmma_position", "i8"),  # of the wgmma that it issues: basic block << POSITION | number in the block
        ("wgmma_time", "i8"),  # when it last committed a group of wgmma
        ("wgmma_groups", "i4"),  # those groups: committed, waited for by itself, and by a warp of its warpgroup
        *((name, "i4") for name in ("wgmma_waited", "wgmma_released", "reads_begun", "reads_ended")),
        ("tensor_accesses", "i8"),  # tcgen05.ld and st that it has not waited for, or not fenced since
        ("partial_mbarrier", "i8"),  # the record of an mbarrier at which not all lanes of a warp arrived; see elected
        ("bulk_groups", "i4", LANES),  # groups of bulk copies that each lane has committed
        ("barrier", "i4"),  # the number of the barrier it waits at, or of the host's service that it calls
        ("barrier_threads", "i4"),
        ("barrier_block", "i4"),
        ("barrier_reduces", "i4"),
        ("barrier_value", "u4"),
        ("operands", "u4", (ROWS, LANES)),  # of warp-level functions: a row has 32 bits of each lane
    ],
    align=True,
)


class LaunchRecord(View):
    """A view of LAUNCH."""

    record = LAUNCH


class CtaRecord(View):
    """A view of CTA."""

    record = CTA


class WarpRecord(View):
    """A view of WARP."""

    record = WARP


class BarrierRecord(View):
    """A view of BARRIER."""

    record = BARRIER


class MbarrierRecord(View):
    """A view of MBARRIER."""

    record = MBARRIER


class CountsRecord(View):
    """A view of COUNTS."""

    record = COUNTS


class ReadRecord(View):
    """A view of READ."""

    record = READ


class SampleRecord(View):
    """A view of SAMPLE."""

    record = SAMPLE


class BufferRecord(View):
    """A view of BUFFER."""

    record = BUFFER


class CopyRecord(View):
    """A view of COPY."""

    record = COPY


def field_offset(record: np.dtype[np.void], name: str) -> int:
    """Return the offset in bytes of a field of a record."""
    fields = record.fields
    assert fields is not None
    return int(fields[name][1])
