"""The instructions of PTX, one family in a file. Each opcode has one ``Op``.

values       types, registers as numbers, lane-wise rules
rounding     directed rounding
arithmetic, functions, bitwise, comparison, conversion
             instructions of a single lane
spaces, mbarrier, memory, atomics, bulk, copies, launch_control, fences, cluster
             loads and stores, mbarriers, asynchronous copies, requests to cancel launches, the shared memory of other
             blocks
collectives, matrix, wmma, sums, products, wgmma
             instructions of several lanes of a warp, or of several warps of a block
tensor_products, tensor
             tensor memory and the products in it (tcgen05)
control      branches
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from warpcheck.isa import (
    arithmetic,
    atomics,
    bitwise,
    bulk,
    cluster,
    collectives,
    comparison,
    control,
    conversion,
    copies,
    fences,
    functions,
    launch_control,
    matrix,
    mbarrier,
    memory,
    tensor,
    wgmma,
    wmma,
)
from warpcheck.lower.instruction_emitter import InstructionEmitter
from warpcheck.op import Op, registry
from warpcheck.ptx import Instruction

__all__ = ["OPS", "is_known"]


def _pure(family: Iterable[Op[InstructionEmitter]]) -> list[Op[InstructionEmitter]]:
    return [replace(op, pure=True) for op in family]


OPS: Mapping[str, Op[InstructionEmitter]] = registry(
    # Instructions of a single lane without other effects: lower.def_use may compute them earlier.
    _pure(arithmetic.OPS),
    _pure(functions.OPS),
    _pure(bitwise.OPS),
    _pure(comparison.OPS),
    _pure(conversion.OPS),
    memory.OPS,
    atomics.OPS,
    mbarrier.OPS,
    copies.OPS,
    bulk.OPS,
    launch_control.OPS,
    fences.OPS,
    cluster.OPS,
    collectives.OPS,
    matrix.OPS,
    wgmma.OPS,
    wmma.OPS,
    tensor.OPS,
    control.OPS,
)


def is_known(instruction: Instruction) -> bool:
    """Return whether the machine has an instruction with exactly these modifiers."""
    op = OPS.get(instruction.opcode)
    return op is not None and op.accepts(instruction)
