"""The records that generated code, the memory checks and the scheduler share, as numpy dtypes.

``LAUNCH`` exists once per launch; ``CTA`` once for each thread block that is resident; ``WARP`` once for each of its
warps, followed by the warp's registers; ``COUNTS`` and ``SAMPLE`` once for each instruction that touches memory. A
record is one span of bytes; generated code reads a field at its offset. Fields that hold an address say of what.

One file: a table of fields that several layers name.
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

# The first request of a site, and whether it reads what an atomic operation then begins with; see races.
SAMPLE = np.dtype([("mask", "i8"), ("guesses", "i8"), ("addresses", "i8", LANES)])

# One row of counters for each site. Shared-memory rows use wavefronts and least; the others sectors and scattered;
# atomics same_address, too, and the wavefronts of a loop's loads; bulk and tensor copies requests and three others.
_ACCESSES = ("requests", "lanes", "sectors", "wavefronts", "least", "scattered", "same_address")
ACCESS_COUNTS = len(_ACCESSES)
COUNTED = (*_ACCESSES, "bulk_bytes", "bulk_sectors", "multicast_sectors", "loop_wavefronts")
# How the hardware serves a site. Neighbors together: the bytes of such an access, where the group keeps the chunks that
# it has in registers, and the mask of their numbers. Atomic operations: their way. copies: it is a cp.async.
COUNTS = np.dtype([(name, "i8") for name in (*COUNTED, "width", "chunks", "chunk_mask", "way", "copies")])

# tracker: the address of the mbarrier that tracks it, or 0, with the number of its phase. site, issued: by which
# instruction and when. sources: what each lane reads; see sources.
_COPY = ("group", "mask", "bytes", "tracker", "phase", "site", "issued")
COPY = np.dtype([*((name, "i8") for name in _COPY), ("addresses", "i8", LANES), ("sources", "i8", LANES)])

# An operand of wgmma that a warp reads from shared memory: its group, place and site; the window of its bytes, as
# offsets in shared memory; what its descriptor says; and the time of the wait behind it, or 0. See reads.
_PLACE = ("low", "high", "start", "lead", "stride", "span", "base", "major", "first", "rows")
_READ = ("group", "place", "site", *_PLACE, "until")
READ = np.dtype([(name, "i8") for name in _READ])

# A named barrier of a block: the warps that have arrived without waiting, as bits, how often, and when.
BARRIER = np.dtype([("arrived", "i8"), ("arrivals", "i8"), ("times", "i8", LANES)])
# A barrier in shared memory: its address, or 0; how many of its phases are over; who initialized it, and when; the
# bytes that its phase was told to expect, and the number of the last instruction that did, counted from 1; the trace of
# the last arrival by a thread of its own block; see elected.
_LOOSE = tuple(f"loose_{name}" for name in ("warp", "lanes", "since", "time", "phase"))
_PHASE = ("place", "phases", "trace", "began", "promised", "promise", "arrival")
MBARRIER = np.dtype([(name, "i8") for name in (*_PHASE, *_LOOSE)])

BUFFER = np.dtype(
    [
        ("start", "i8"),
        ("bytes", "i8"),
        ("state", "i8"),  # address of one byte for each byte: 1 nothing wrote it, 2 a kernel wrote it
        ("history", "i8"),  # address of an entry for each granule; see races
        ("granule", "i8"),  # log2 of the bytes that share one entry of the history
        ("reached", "i8"),  # the offset behind the farthest byte that a sample of the blocks has accessed
    ],
    align=True,
)

LAUNCH = np.dtype(
    [
        *((f"{name}_{axis}", "u4") for name in ("ntid", "nctaid", "cluster") for axis in "xyz"),
        ("shared_bytes", "u4"),  # of a block, its dynamic ones among them
        ("dynamic_bytes", "u4"),
        ("reserved", "u4"),  # where the system's own shared memory begins, and its bytes
        ("reserved_bytes", "u4"),
        ("scratch", "u4"),  # whether the compiler alone writes shared memory
        ("local_bytes", "i8"),  # of a thread, and of a whole block
        ("local_total", "i8"),
        ("params", "i8"),
        ("param_bytes", "i8"),
        ("blocks", "i8"),  # three counters for each basic block: executions, active lanes, divergent branches
        ("counts", "i8"),
        ("samples", "i8"),
        ("buffers", "i8"),
        ("buffer_count", "i8"),
        ("symbols", "i8"),  # addresses of module-level variables
        ("shared_granule", "i8"),  # as of a buffer
        ("time", "i8"),  # counts synchronisations
        ("launch_began", "i8"),  # the time at which this launch began
        ("block_next", "i8"),  # the next block of the grid to become resident, and how many there are
        ("block_count", "i8"),
        ("cluster_size", "i8"),  # blocks of a cluster
        ("explicit", "u4"),  # whether the launch, or the kernel, asks for clusters
        ("registers", "i4"),  # of each thread, as it begins; see setmaxnreg
        ("expires", "i8"),  # whether all blocks wait for each other: time is up for whoever asks again and again
        ("places", "i8"),  # which blocks of the grid these are, where they are a sample; 0 where they are all
        ("stretch_began", "i8"),  # of a sample: the time at which its last run of neighboring blocks began
        ("reverse", "i8"),  # the order of blocks, and of the warps of each; see order
        ("converges", "i8"),  # whether the lanes of a warp stay together, for the compiler sees to it
        ("turns", "i8"),  # when each turn of a block began, and whose it was: as many as turn_count
        ("turn_blocks", "i8"),
        ("turn_count", "i8"),
        ("published", "i8"),  # for each block: when it last published its writes
        ("bulk", "i8"),  # a ring of BULKS records: copies that were issued, and how many of them are done
        ("bulk_begun", "i8"),
        ("bulk_ended", "i8"),
        ("cooperative", "i8"),  # whether all blocks are resident, and take turns
        ("workspace", "i8"),  # of the barrier of a cooperative grid
        ("budget", "i8"),  # lane-instructions left of a warp's slice, and until the host wants to look
        ("left", "i8"),
        ("spared", "i8"),  # lane-instructions of its slice that a warp gave up, for it polls
        ("clock", "i8"),  # lane-instructions of the launch so far; while a warp runs, as at the end of its slice
        ("running", "i8"),  # whether a warp runs
        ("events", "i8"),  # EVENTS records, or 0 where nobody asks for them, and how many there would be
        ("event_count", "i8"),
        ("fault_kind", "i4"),
        ("fault_site", "i4"),  # below 0 where it is no access: -1 less the instruction's place in fault_block
        ("fault_lane", "i4"),
        ("fault_warp", "i4"),
        ("fault_block", "i4"),
        ("fault_address", "i8"),
        ("fault_detail", "i8"),  # what else the complaint has to say, by kind
        ("lanes_needed", "u4"),  # by an instruction whose mask is wrong, and those that run it
        ("lanes_here", "u4"),
        ("other", "i8"),  # trace and time of the access that the last race was with; see races
        ("other_time", "i8"),
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
        ("clocks", "i8"),
        ("block_number", "i8"),  # in the grid
        ("block_began", "i8"),  # the time at which this block began; 0 before that
        ("clock_began", "i8"),  # launch.clock when this block began
        ("turn_began", "i8"),  # the time at which its present turn began
        ("acquired", "i8"),  # when this block last used an atomic, and so may have seen what others published; or 0
        ("shared", "i8"),
        ("shared_state", "i8"),
        ("shared_history", "i8"),
        ("local", "i8"),
        ("local_state", "i8"),
        ("warps", "i8"),  # their records, how many, and the bytes from one to the next
        ("warp_count", "i8"),
        ("warp_stride", "i8"),
        ("copies", "i8"),  # a ring of COPIES records for each warp
        ("in_flight", "i8"),  # how many of those copies nobody has waited for, and what encloses their sources
        ("source_low", "i8"),
        ("source_high", "i8"),
        ("reads", "i8"),  # a ring of READS records for each warp, and room for the products of wgmma
        ("products", "i8"),
        ("unwaited", "i8"),  # how many of those reads no warp has waited for
        # known[0][w][v]: accesses of warp v before this time happen before what warp w does now; known[p]: those of the
        # block whose number is p further in the cluster
        ("known", "i8"),
        ("released", "i8"),  # like known: what each warp knew at its last fence, and has seen of others since its own
        ("seen", "i8"),
        ("fences", "i8"),  # a ring of FENCES for each warp, see proxies
        ("met", "i8"),  # the time of the last barrier of the whole block
        ("vain_polls", "i8"),  # how often a warp has lost patience with an address that it polls
        ("suspect_kind", "i4"),  # the first race, or the first read of shared memory that nothing had written
        ("suspect_site", "i4"),
        ("suspect_thread", "i4"),
        ("suspect_bytes", "i4"),
        ("suspect_address", "i8"),  # 0 while there is none
        ("suspect_time", "i8"),
        ("suspect_other", "i8"),
        ("suspect_other_time", "i8"),
    ],
    align=True,
)

WARP = np.dtype(
    [
        ("pcs", "i4", LANES),
        ("addresses", "i8", LANES),
        ("served", "i8", LANES),  # what each bank of shared memory serves while wavefronts are counted
        ("asked", "i8", LANES),  # the addresses of its last strong load, and the number of that instruction
        ("asking", "i8"),
        ("tid", "u4", (3, LANES)),
        ("mask", "u4"),
        ("threads", "u4"),  # lanes that exist, and those that have not left the kernel
        ("live", "u4"),
        ("index", "u4"),
        ("polls", "u4"),  # how often in a row it has polled this address
        ("polled", "i8"),
        ("status", "i4"),
        ("wanted", "u4"),  # the lanes that use what they load
        ("failing", "u4"),  # the lanes that an instruction cannot let go on yet
        ("expired", "i4"),  # whether such lanes let the others run first, and then go on as if they had waited long
        ("suspended_at", "i8"),  # the time at which they had to wait
        ("waits_at", "i8"),  # the address of the barrier that they wait for; 0 where it is none
        ("cluster_arrived", "u4"),  # the lanes that have arrived at the barrier of the cluster
        ("registers", "i4"),  # that each of its threads has
        ("only_waiting", "i4"),  # not 0 when every live lane waits for another one
        ("left_behind", "i4"),  # whether lanes have left the kernel behind a barrier
        ("group", "i4"),  # groups of asynchronous copies that the warp has committed
        ("copies_begun", "i4"),
        ("copies_ended", "i4"),
        ("fences", "i8"),  # of the asynchronous proxy
        ("wgmma_place", "i8"),  # of the wgmma that it issues: its block and its number there
        ("wgmma_time", "i8"),  # when it last committed a group of wgmma
        ("wgmma_groups", "i4"),  # those groups: committed, waited for by itself, and by a warp of its warpgroup
        *((name, "i4") for name in ("wgmma_waited", "wgmma_released", "reads_begun", "reads_ended")),
        ("loose", "i8"),  # the record of the mbarrier that it last waited for, if lanes have not arrived; see elected
        ("bulk_groups", "i4", LANES),  # groups of bulk copies that each lane has committed
        ("barrier", "i4"),  # or the number of the host's service
        ("barrier_threads", "i4"),
        ("barrier_block", "i4"),
        ("barrier_reduces", "i4"),
        ("barrier_value", "u4"),
        ("operands", "u4", (ROWS, LANES)),  # what warp-level functions take and give, a row for 32 bits of each lane
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
    """Offset in bytes of a field of one of the records."""
    fields = record.fields
    assert fields is not None
    return int(fields[name][1])
