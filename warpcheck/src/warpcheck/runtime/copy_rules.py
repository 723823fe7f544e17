"""The rules of bulk and tensor copies that the hardware enforces. PTX ISA manual, "Data Movement ... Bulk copy"."""

from __future__ import annotations

from warpcheck.layout import Code

__all__ = ["RULES", "CopyRule"]


class CopyRule(Code):
    """The rule that a copy breaks."""

    NONE = 0
    SIZE = 1
    SHARED_16 = 2
    GLOBAL_16 = 3
    SHARED_128 = 4
    MBARRIER_8 = 5
    MAP_ALIGNED = 6
    NO_MAP = 7
    OTHER_RANK = 8
    INTERLEAVED = 9
    INNER_16 = 10
    INNER_SWIZZLE = 11
    TENSOR_16 = 12
    NO_MBARRIER = 13
    NO_PEER = 14
    NO_REDUCTION = 15
    MBARRIER_ELSEWHERE = 16
    COORDINATE_16 = 17
    COORDINATE_STORE = 18
    COORDINATE_128 = 19
    CANCELED_OUT = 20
    GATHER_BOX = 21
    SWIZZLE_ATOM = 22
    IM2COL_MAP = 23
    TILED_MAP = 24
    COORDINATE_CORNER = 25
    OFFSET_RANGE = 26
    STORE_CORNER = 27


# The message for each rule.
RULES = {
    CopyRule.SIZE: "copies a number of bytes that is not a multiple of 16",
    CopyRule.SHARED_16: "copies to or from an address in shared memory that is not a multiple of 16",
    CopyRule.GLOBAL_16: "copies to or from an address in global memory that is not a multiple of 16",
    CopyRule.SHARED_128: "copies a box to or from an address in shared memory that is not a multiple of 128",
    CopyRule.MBARRIER_8: "names an mbarrier whose address is not a multiple of 8",
    CopyRule.MAP_ALIGNED: "names a tensor map whose address is not a multiple of 64",
    CopyRule.NO_MAP: "names a tensor map that is none: pass one as const __grid_constant__ CUtensorMap, made by "
    "cuTensorMapEncodeTiled",
    CopyRule.OTHER_RANK: "names a tensor map of another number of axes than the instruction has",
    CopyRule.INTERLEAVED: "names an interleaved tensor map, which the PTX machine does not have",
    CopyRule.INNER_16: "copies boxes whose rows are not a multiple of 16 bytes",
    CopyRule.INNER_SWIZZLE: "copies boxes whose rows are longer than the span of their swizzle",
    CopyRule.TENSOR_16: "names a tensor map whose tensor does not begin at a multiple of 16 bytes",
    CopyRule.NO_MBARRIER: "names an mbarrier that is none when the copy has landed: it needs mbarrier.init before, and "
    "may be invalidated only after its phase is over",
    CopyRule.NO_PEER: "copies to shared memory of a block that is not in the cluster, or has exited",
    CopyRule.NO_REDUCTION: "reduces elements of a type that has no such reduction",
    CopyRule.COORDINATE_16: "copies a box whose innermost coordinate is not a multiple of 16 bytes",
    CopyRule.COORDINATE_128: "copies a box of elements of 4 or 6 bits with gaps, whose innermost coordinate is not a "
    "multiple of 128",
    CopyRule.SWIZZLE_ATOM: "names a tensor map whose swizzle has atoms of 64 bytes, or exchanges 8 bytes, which the "
    "PTX machine does not have",
    CopyRule.IM2COL_MAP: "copies a tile with a tensor map of im2col mode, made by cuTensorMapEncodeIm2col",
    CopyRule.TILED_MAP: "copies in im2col mode with a tensor map of tiled mode: make it with cuTensorMapEncodeIm2col",
    CopyRule.COORDINATE_CORNER: "copies in im2col mode from a pixel outside of the map's bounding box: coordinates "
    "along W, H and D are those of the filter's corner, without the im2col offsets",
    CopyRule.OFFSET_RANGE: "copies with an im2col offset that does not fit: it has 16 bits for a tensor of three axes, "
    "8 of four, and 5 of five",
    CopyRule.STORE_CORNER: "stores in im2col mode with a bounding box that exceeds the tensor: its lower corner may "
    "not be negative, and its upper corner not positive",
    CopyRule.GATHER_BOX: "copies four rows with a tensor map whose box does not have one row",
    CopyRule.CANCELED_OUT: "requests to cancel a cluster's launch after a thread of its block has seen such a request "
    "fail: no cluster is left",
    CopyRule.COORDINATE_STORE: "stores a box at a negative coordinate, which only a load may have",
    CopyRule.MBARRIER_ELSEWHERE: "names an mbarrier in the shared memory of another block than the one it copies to",
}
