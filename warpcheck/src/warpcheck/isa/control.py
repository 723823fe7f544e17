"""Emit control flow: branches, calls of the host, leaving the kernel. PTX ISA manual, 9.7.12."""

from __future__ import annotations

from llvmlite import ir

from warpcheck.errors import FAULT_KINDS, FaultKind
from warpcheck.layout import LANES, SERVICES, Status
from warpcheck.lower.inlining import argument_register, call_parts
from warpcheck.lower.instruction_emitter import InstructionEmitter
from warpcheck.lower.lane_builder import I32, I64
from warpcheck.op import Op, Placement, live_lanes
from warpcheck.ptx import Group, Immediate, Instruction, Operand, Register, Symbol
from warpcheck.runtime.records import WARP, field_offset

__all__ = ["OPS"]


def emit_bra(e: InstructionEmitter, i: Instruction) -> None:
    target = block_of(e, i.operands[0])
    if i.guard is None:
        e.control.jump(target)
    else:
        e.control.branch(e.active, target, e.control.index + 1)


def emit_brx(e: InstructionEmitter, i: Instruction) -> None:
    table = i.operands[1]
    if i.guard is not None:
        raise e.unsupported("predicated " + i.name)
    assert isinstance(table, Symbol)
    targets = [block_of(e, Symbol(name)) for name in e.control.flow.tables[table.name]]
    e.control.branch_table(e.read(i.operands[0], 32), targets)


def block_of(e: InstructionEmitter, label: Operand) -> int:
    assert isinstance(label, Symbol)
    # A label at the end of the code is no block: lanes that go there leave the kernel.
    return e.control.flow.targets.get(label.name, len(e.control.heads))


def emit_exit(e: InstructionEmitter, i: Instruction) -> None:
    e.control.exit()


def emit_trap(e: InstructionEmitter, i: Instruction) -> None:
    # A guarded trap faults only where a lane executes it.
    with e.b.if_then(e.b.icmp_unsigned("!=", e.b.as_bits(e.active), I32(0))):
        e.frame.fault(FAULT_KINDS.index(FaultKind.TRAP))
    e.control.jump(e.control.index + 1)


def emit_call(e: InstructionEmitter, i: Instruction) -> None:
    """Call a function of the host, by its number in SERVICES, with up to four arguments in the rows of operands."""
    callee, arguments = i.operands[-2:]
    assert isinstance(arguments, Group)
    assert isinstance(callee, Symbol)
    for number, argument in enumerate(arguments.items[:4]):
        assert isinstance(argument, Symbol)
        register = e.operands.read_register(argument_register(argument.name, 0))
        e.frame.store_row(2 * number, e.b.resize(register, 64))
    # The warp stops as at a barrier, whose fields have the number of the function here.
    e.b.store_field(e.warp, WARP, "barrier", I32(SERVICES.index(callee.name)))
    e.b.store_field(e.warp, WARP, "barrier_block", I32(e.control.index))
    e.control.stop(Status.HOST, e.control.index + 1)


def emit_service_result(e: InstructionEmitter, i: Instruction) -> None:
    """Return what a function of the host has left in the first row of operands."""
    row = e.b.at(e.warp, field_offset(WARP, "operands"))
    e.write(i.operands[0], e.b.load(row, typ=ir.VectorType(I64, LANES), align=4))


def emit_setmaxnreg(e: InstructionEmitter, i: Instruction) -> None:
    """Release registers to the block, or wait until it has the requested number."""
    (count,) = i.operands
    assert isinstance(count, Immediate)
    # The limits are those of the PTX ISA manual, "setmaxnreg".
    if count.value % 8 or not 24 <= count.value <= 256:
        raise ValueError(f"line {i.line}: {i.name} takes a multiple of 8 from 24 to 256, not {count.value}")
    e.call_check("set_registers", count.value, ("inc" in i.modifiers,))
    e.control.suspend()


def emit_griddepcontrol(e: InstructionEmitter, i: Instruction) -> None:
    """Wait for the launches that this one may overlap, or let the next launch begin."""
    e.call_check("wait_for_grids" if "wait" in i.modifiers else "launch_dependents")
    e.control.jump(e.control.index + 1)


def arguments_read(i: Instruction) -> list[Operand]:
    """Return the registers that hold the arguments of a call."""
    return [Register(argument_register(argument, 0)) for argument in call_parts(i)[1]]


OPS = (
    Op("bra", ("uni?",), emit_bra, placement=Placement.LAST, results=0),
    Op("brx", ("idx uni?",), emit_brx, placement=Placement.LAST, results=0),
    Op("call", ("uni?",), emit_call, placement=Placement.ALONE, results=0, reads=arguments_read),
    Op("service_result", ("b64",), emit_service_result),
    Op("ret", ("uni?",), emit_exit, placement=Placement.LAST, results=0),
    Op("exit", ("",), emit_exit, placement=Placement.LAST, results=0),
    Op("trap", ("",), emit_trap, placement=Placement.LAST, results=0),
    Op("brkpt", ("",), emit_trap, placement=Placement.LAST, results=0),  # no debugger is there to continue
    Op(
        "setmaxnreg",
        ("inc|dec sync aligned u32",),
        emit_setmaxnreg,
        lanes=live_lanes,
        placement=Placement.ALONE,
        results=0,
        since=90,
    ),
    Op(
        "griddepcontrol",
        ("launch_dependents|wait",),
        emit_griddepcontrol,
        placement=Placement.ALONE,  # the clock advances at the ends of blocks
        results=0,
        since=90,
    ),
)
