"""The record of an operation that waits for the tensor core: a product, a commit, a copy, or a shift."""

from __future__ import annotations

import numpy as np

from warpcheck.native import View, native
from warpcheck.runtime.records import READ, CtaRecord, field_offset

__all__ = [
    "A_OPERAND",
    "B_OPERAND",
    "COMMIT",
    "COPY",
    "DONE",
    "JOB",
    "JOBS",
    "MULTIPLY",
    "QUEUED",
    "SHIFT",
    "TensorJobRecord",
    "job_slot",
]

JOBS = 256  # operations of a block that are queued; one more executes the oldest
MULTIPLY, COMMIT, COPY, SHIFT = range(4)
DONE, QUEUED = range(2)

# operation, state: as above. warp: the record of the issuing warp; lane, site, access_id: of its instruction. code: the
# address of the machine code that multiplies. column, tensor_lane: of D. m, n: its shape; a_kind, b_kind, d_kind: types
# as the instruction descriptor has them; negates: bits 0 and 1 for A and B. accumulates: whether D is added to, times
# 2**-scale. a_column, a_lane: of A in tensor memory, or -1. disabled_low, disabled_high: lanes that are not written;
# peer_disabled_low, peer_disabled_high: those of the odd block of a pair.
# pairs: whether it is a product of two blocks; lane_step: lanes from 16 rows of D to the next 16.
# memory: where tensor memory begins; a_image, b_image, numbers: scratch memory. owner, barrier, targets: of a commit.
# groups: scale factors of a row of A, or 0; scale_kind: 0 for ue4m3, 1 for ue8m0; a_scales, b_scales: their columns;
# a_scale_id, b_scale_id: the first byte; a_codes, b_codes, factors: scratch memory for them. A copy has its rows in m
# and its columns in n, which a shift has, too; spread: see tensor_copies. width, a_width, b_width: bits of the elements
# in shared memory that become bytes, of a copy, of A, and of B; else 0.
_OPERATION = ("operation", "state", "warp", "lane", "site", "access_id", "code", "column", "tensor_lane", "m", "n")
_TYPES = (
    "a_kind",
    "b_kind",
    "d_kind",
    "negates",
    "accumulates",
    "scale",
    "a_column",
    "a_lane",
    "shape",
    "pairs",
    "lane_step",
)
_DISABLED = ("disabled_low", "disabled_high", "peer_disabled_low", "peer_disabled_high")
_SCALES = ("groups", "scale_kind", "a_scales", "b_scales", "a_scale_id", "b_scale_id", "a_codes", "b_codes", "factors")
_COPY = ("spread", "width", "a_width", "b_width")
_MEMORY = (*_DISABLED, "memory", "a_image", "b_image", "numbers", "owner", "barrier", "targets")
JOB = np.dtype(
    [*((name, "i8") for name in (*_OPERATION, *_TYPES, *_MEMORY, *_SCALES, *_COPY)), ("a", READ), ("b", READ)]
)
A_OPERAND = field_offset(JOB, "a")
B_OPERAND = field_offset(JOB, "b")


class TensorJobRecord(View):
    """A view of JOB."""

    record = JOB


@native
def job_slot(cta: CtaRecord, number: int) -> int:
    """Return the address of a block's record of its operation of that number."""
    return cta.tensor_jobs + number % JOBS * TensorJobRecord.size
