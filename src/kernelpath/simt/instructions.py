"""The table of all instructions: which function lowers each opcode. Control flow is lowered here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from llvmlite import ir

from kernelpath.simt import arithmetic, bitwise, comparison, conversion
from kernelpath.simt.arithmetic import emit_lanewise
from kernelpath.simt.collectives import COLLECTIVES
from kernelpath.simt.errors import FAULT_KINDS, FaultKind
from kernelpath.simt.flow import SERVICES, argument_register
from kernelpath.simt.layout import WARP, Status
from kernelpath.simt.ptx import Group, Instruction, Operand, Symbol
from kernelpath.simt.tensor import TENSOR
from kernelpath.simt.transfers import TRANSFERS
from kernelpath.simt.wmma import WMMA

if TYPE_CHECKING:
    from kernelpath.simt.lower import Lowering

__all__ = ["EMIT"]

I32 = ir.IntType(32)


def emit_bra(e: Lowering, i: Instruction) -> None:
    target = block_of(e, i.operands[0])
    if i.guard is None:
        e.leave(target)
    else:
        e.branch(e.active, target, e.index + 1)


def emit_brx(e: Lowering, i: Instruction) -> None:
    table = i.operands[1]
    if i.guard is not None:
        raise e.unsupported("predicated " + i.name)
    assert isinstance(table, Symbol)
    targets = [block_of(e, Symbol(name)) for name in e.flow.tables[table.name]]
    e.branch_table(e.read(i.operands[0], 32), targets)


def block_of(e: Lowering, label: Operand) -> int:
    assert isinstance(label, Symbol)
    return e.flow.targets.get(label.name, len(e.heads))


def emit_exit(e: Lowering, i: Instruction) -> None:
    e.exit()


def emit_trap(e: Lowering, i: Instruction) -> None:
    with e.b.if_then(e.b.icmp_unsigned("!=", e.as_bits(e.active), I32(0))):
        e.fault(FAULT_KINDS.index(FaultKind.TRAP))
    e.leave(e.index + 1)


def emit_call(e: Lowering, i: Instruction) -> None:
    """A function of the host, by its number in SERVICES, with up to four arguments in the rows of operands."""
    callee, arguments = i.operands[-2:]
    assert isinstance(arguments, Group)
    assert isinstance(callee, Symbol)
    for number, argument in enumerate(arguments.items[:4]):
        assert isinstance(argument, Symbol)
        register = e.read_register(argument_register(argument.name, 0))
        e.put_row(2 * number, e.resize(register, 64))
    e.store_field(e.warp, WARP, "barrier", I32(SERVICES.index(callee.name)))
    e.store_field(e.warp, WARP, "barrier_block", I32(e.index))
    e.stop(Status.HOST, e.index + 1)


EMIT: dict[str, Callable[[Lowering, Instruction], None]] = dict.fromkeys(arithmetic.LANEWISE, emit_lanewise)
EMIT |= TRANSFERS | COLLECTIVES | TENSOR | WMMA
EMIT |= {
    "shl": bitwise.emit_shift,
    "shr": bitwise.emit_shift,
    "lop3": bitwise.emit_lop3,
    "set": comparison.emit_set,
    "setp": comparison.emit_setp,
    "selp": comparison.emit_selp,
    "slct": comparison.emit_slct,
    "testp": comparison.emit_testp,
    "cvt": conversion.emit_cvt,
    "mov": conversion.emit_mov,
    "bra": emit_bra,
    "brx": emit_brx,
    "ret": emit_exit,
    "exit": emit_exit,
    "trap": emit_trap,
    "call": emit_call,
}
