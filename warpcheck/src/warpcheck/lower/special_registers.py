"""Read special registers. PTX ISA manual, chapter 10."""

from __future__ import annotations

from llvmlite import ir

from warpcheck.layout import LANES, RESERVED
from warpcheck.lower.frame import Frame
from warpcheck.lower.lane_builder import I32, I64
from warpcheck.lower.memory_layout import MemoryLayout
from warpcheck.runtime.address_spaces import RANK
from warpcheck.runtime.records import CTA, LAUNCH, WARP, field_offset

__all__ = ["read_special", "shared_address"]

_SHARED_SIZES = {"dynamic_smem_size": "dynamic_bytes", "total_smem_size": "shared_bytes"}


def read_special(frame: Frame, layout: MemoryLayout, name: str) -> ir.Value:
    """Return the lanes of a special register. Raises Unsupported if the machine does not have it."""
    b = frame.b
    base_name, _, axis = name.lstrip("%").partition(".")
    axis_number = "xyz".find(axis or "x")
    if base_name == "tid":
        offset = field_offset(WARP, "tid") + 4 * LANES * axis_number
        return b.load(b.at(frame.warp, offset), typ=ir.VectorType(I32, LANES), align=4)
    if base_name in ("ntid", "nctaid", "cluster_nctaid"):
        field = f"{base_name.replace('cluster_nctaid', 'cluster')}_{'xyz'[axis_number]}"
        return b.broadcast(b.load_field(frame.launch, LAUNCH, field, I32))
    if base_name in ("ctaid", "clusterid", "cluster_ctaid"):
        return b.broadcast(b.load_field(frame.cta, CTA, f"{base_name}_{'xyz'[axis_number]}", I32))
    if base_name == "nclusterid":
        blocks, size = (
            b.load_field(frame.launch, LAUNCH, f"{n}_{'xyz'[axis_number]}", I32) for n in ("nctaid", "cluster")
        )
        return b.broadcast(b.udiv(blocks, size))
    if base_name == "cluster_ctarank":
        return b.broadcast(b.load_field(frame.cta, CTA, "rank", I32))
    if base_name == "cluster_nctarank":
        return b.broadcast(b.load_field(frame.launch, LAUNCH, "cluster_size", I32))
    if base_name == "is_explicit_cluster":
        is_explicit = b.load_field(frame.launch, LAUNCH, "explicit_cluster", I32)
        return b.broadcast(b.icmp_unsigned("!=", is_explicit, I32(0)))
    if base_name == "laneid":
        return ir.Constant(ir.VectorType(I32, LANES), list(range(LANES)))
    if base_name.startswith("lanemask_"):
        return ir.Constant(ir.VectorType(I32, LANES), [_lane_mask(base_name[-2:], lane) for lane in range(LANES)])
    if base_name == "warpid":
        return b.broadcast(b.load_field(frame.warp, WARP, "index", I32))
    if base_name in ("clock", "clock64", "globaltimer"):
        # LAUNCH.clock is the time at which the slice would end. A block's instructions are charged when it begins,
        # so the position in it lets the clock advance within the block.
        end, remaining = (b.load_field(frame.launch, LAUNCH, name, I64) for name in ("clock", "budget"))
        return b.broadcast(b.add(b.sub(end, remaining), b.zext(frame.location[1], I64)))
    if base_name in ("smid", "gridid", "nsmid"):
        # One multiprocessor, number 0, since blocks run one after another.
        return b.splat(int(base_name == "nsmid"), 32)
    if base_name == RESERVED:
        return b.resize(shared_address(frame, layout, layout.shared[RESERVED].start), 32)
    if base_name in ("dynamic_smem_size", "total_smem_size"):
        return b.broadcast(b.load_field(frame.launch, LAUNCH, _SHARED_SIZES[base_name], I32))
    # Cooperative groups find the workspace of the grid's barrier here: the upper and the lower half of an address,
    # 0 where the launch is not cooperative.
    if base_name in ("envreg1", "envreg2"):
        workspace = b.load_field(frame.launch, LAUNCH, "workspace", I64)
        half = b.lshr(workspace, I64(32)) if base_name == "envreg1" else workspace
        return b.broadcast(b.trunc(half, I32))
    raise frame.unsupported(name)


def shared_address(frame: Frame, layout: MemoryLayout, offset: int) -> ir.Value:
    """Return the address of a variable in shared memory: an offset, and in a cluster the block's rank above it."""
    b = frame.b
    address = b.splat(offset, 64)
    if not layout.in_cluster:
        return address
    rank = b.zext(b.load_field(frame.cta, CTA, "rank", I32), I64)
    return b.add(address, b.broadcast(b.shl(rank, I64(RANK))))


def _lane_mask(relation: str, lane: int) -> int:
    """Return the lanes that are eq, lt, le, gt or ge a lane, as bits."""
    first_lane = {"gt": lane + 1, "ge": lane, "eq": lane}.get(relation, 0)
    end = {"lt": lane, "le": lane + 1, "eq": lane + 1}.get(relation, LANES)
    return (1 << end) - (1 << first_lane)
