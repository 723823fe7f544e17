"""Emit addresses of other blocks' shared memory, and the barrier of a cluster. PTX ISA manual, 9.7.9 and 9.7.13."""

from __future__ import annotations

from warpcheck.isa.spaces import space_of
from warpcheck.isa.values import Value
from warpcheck.layout import Space
from warpcheck.lower.instruction_emitter import InstructionEmitter
from warpcheck.op import Op
from warpcheck.ptx import Instruction
from warpcheck.runtime.address_spaces import RANK

__all__ = ["OPS", "emit_cluster_barrier"]


def emit_cluster_barrier(e: InstructionEmitter, i: Instruction) -> None:
    """Emit barrier.cluster: arrive goes on, wait suspends."""
    if "arrive" in i.modifiers:
        # A relaxed arrival carries only what a fence has released.
        e.call_check("cluster_arrive", int("relaxed" in i.modifiers))
        e.control.rejoin()
    else:
        e.call_check("cluster_wait")
        e.control.suspend()


def emit_mapa(e: InstructionEmitter, i: Instruction) -> None:
    """Return the address of a shared variable in another block of the cluster, by its rank."""
    target, source, rank = i.operands
    # A cluster address has the rank of its block from bit RANK on: the new rank replaces it.
    offset = e.b.and_(cluster_address(e, i, e.read(source, 64)), e.b.splat((1 << RANK) - 1, 64))
    mapped = e.b.add(offset, e.b.shl(e.b.resize(e.read(rank, 32), 64), e.b.splat(RANK, 64)))
    e.write(target, e.memory.in_process(mapped, Space.CLUSTER) if space_of(i) == Space.GENERIC else mapped)


def emit_getctarank(e: InstructionEmitter, i: Instruction) -> None:
    """Return the rank of the block whose shared memory holds an address."""
    address = cluster_address(e, i, e.read(i.operands[1], 64))
    e.write(i.operands[0], e.b.lshr(address, e.b.splat(RANK, 64)))


def cluster_address(e: InstructionEmitter, i: Instruction, address: Value) -> Value:
    """Return an address, generic or not, as an offset in the window of the cluster."""
    return e.b.sub(address, e.memory.window(Space.CLUSTER)) if space_of(i) == Space.GENERIC else address


OPS = (
    Op("mapa", ("CLUSTER? u32|u64",), emit_mapa, since=90),
    Op("getctarank", ("CLUSTER? u32|u64",), emit_getctarank, since=90),
)
