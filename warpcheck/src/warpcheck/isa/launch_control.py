"""Emit clusterlaunchcontrol: requests to cancel the launch of a cluster. PTX ISA manual, "clusterlaunchcontrol"."""

from __future__ import annotations

from warpcheck.isa.bulk import issue_request
from warpcheck.isa.values import Value, items
from warpcheck.lower.instruction_emitter import InstructionEmitter
from warpcheck.op import Op
from warpcheck.ptx import Instruction
from warpcheck.runtime.launch_control import SUCCESS

__all__ = ["OPS"]


def emit_launch_control(e: InstructionEmitter, i: Instruction) -> None:
    if i.modifiers[0] == "try_cancel":
        issue_request(e, i)
        return
    response = e.read(i.operands[1], 128)
    is_canceled = e.b.icmp_unsigned("!=", _part(e, response, 64 + SUCCESS.bit_length() - 1), e.b.splat(0, 32))
    if i.modifiers[1] == "is_canceled":
        e.write(i.operands[0], is_canceled)
        active = e.frame.active
        e.frame.active = e.b.and_(active, e.b.not_(is_canceled))
        e.call_check("observe_failure")
        e.frame.active = active
        return
    parts = [_part(e, response, 32 * axis) for axis in range(3)]
    # Of a request that has failed the coordinates are undefined: these are in no grid.
    parts = [e.b.select(is_canceled, part, e.b.splat(-1, 32)) for part in parts]
    if i.modifiers[1] == "get_first_ctaid":
        for target, part in zip(items(i.operands[0]), [*parts, e.b.splat(0, 32)], strict=True):
            e.write(target, part)
    else:
        e.write(i.operands[0], parts["xyz".index(i.modifiers[1][-1])])


def _part(e: InstructionEmitter, response: Value, bit: int) -> Value:
    return e.b.resize(e.b.lshr(response, e.b.splat(bit, 128)), 32)


OPS = (
    Op(
        "clusterlaunchcontrol",
        (
            "try_cancel async SHARED? mbarrier::complete_tx::bytes multicast::cluster::all? b128",
            "query_cancel is_canceled pred b128",
            "query_cancel get_first_ctaid v4 b32 b128",
            "query_cancel get_first_ctaid::x|get_first_ctaid::y|get_first_ctaid::z b32 b128",
        ),
        emit_launch_control,
        since=100,
    ),
)
