"""The scale factors of tcgen05.mma in tensor memory. PTX ISA manual, 9.7.16.10.7, "Scale Factor".

Row r of A, or column r of B, has its factors in lane r % 32 of column r / 32 after the address, and the same in the
lanes 32, 64, and 96 further: one, two, or four bytes of the cell, from the scale factor ID in the instruction
descriptor on. Each block of a pair has the factors of its rows of A and of all columns of B. With M = 128 (layout B)
the upper 64 lanes have the factors of the second half of B's columns. CUTLASS: tmem_sf_frg in mma_traits_sm100.hpp.
"""

from __future__ import annotations

from warpcheck.native import load8, native, store8
from warpcheck.runtime.records import CtaRecord
from warpcheck.runtime.tensor_cells import memory_address
from warpcheck.runtime.tensor_records import TensorJobRecord
from warpcheck.runtime.tensor_rules import TensorRule

__all__ = ["BLOCKS", "MXF4", "MXF4NVF4", "MXF8F6F4", "decode_scales", "fill_scales", "scale_columns"]

MXF8F6F4, MXF4, MXF4NVF4 = 4, 5, 6  # see tensor_jobs.KINDS
BLOCKS = 4  # of 16 elements of 4 bits, each of which gets a code


@native
def decode_scales(job: TensorJobRecord, descriptor: int, kind: int) -> int:
    """Take over what an instruction descriptor says of the scale factors. Return a TensorRule."""
    job.scale_kind = descriptor >> 23 & 1
    job.a_scale_id = descriptor >> 29 & 3
    job.b_scale_id = descriptor >> 4 & 3
    # Only mxf4nvf4 has ue4m3, and that with four factors.
    if not job.scale_kind and (kind != MXF4NVF4 or job.groups != BLOCKS):
        return TensorRule.SCALE_TYPE
    if (job.a_scale_id | job.b_scale_id) & job.groups - 1:
        return TensorRule.SCALE_ID
    return TensorRule.NONE


@native
def scale_columns(rows: int) -> int:
    """Return the columns that the factors of so many rows of A, or columns of B, take."""
    return (rows + 31) // 32


@native
def fill_scales(owner: CtaRecord, job: TensorJobRecord, rows: int) -> None:
    """Copy the codes of the factors: four bytes for each row of A, and for each column of B."""
    for row in range(rows):
        copy_codes(owner, job, job.a_codes + BLOCKS * row, job.a_scales, job.a_scale_id, row, 0)
    half = job.n // 2 if job.pairs and job.m == 128 else job.n
    for row in range(job.n):
        first_lane = 64 if row >= half else 0
        copy_codes(owner, job, job.b_codes + BLOCKS * row, job.b_scales, job.b_scale_id, row % half, first_lane)


@native
def copy_codes(
    owner: CtaRecord, job: TensorJobRecord, target: int, column: int, first: int, row: int, first_lane: int
) -> None:
    """Copy the codes of one row: a factor counts for as many blocks as there are for each of them."""
    source = memory_address(owner, column + row // 32, first_lane + row % 32) + first
    for block in range(BLOCKS):
        store8(target + block, load8(source + block * job.groups // BLOCKS))
