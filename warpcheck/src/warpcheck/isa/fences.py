"""Emit fences. PTX ISA manual, 9.7.13, "membar, fence"."""

from __future__ import annotations

from warpcheck.lower.instruction_emitter import InstructionEmitter
from warpcheck.op import Op
from warpcheck.ptx import Instruction
from warpcheck.runtime.proxies import FENCES_GLOBAL, FENCES_SHARED

__all__ = ["OPS"]


def emit_fence(e: InstructionEmitter, i: Instruction) -> None:
    """Emit a fence of the block, or of wider scope."""
    if "proxy" in i.modifiers:
        emit_proxy_fence(e, i)
    else:
        # Bits 0 and 1: publish to other blocks, and acquire what they have published; see sync.fence.
        e.call_check("fence", 0 if "cta" in i.modifiers else 3)


def emit_proxy_fence(e: InstructionEmitter, i: Instruction) -> None:
    """Emit a fence between the generic and the asynchronous proxy."""
    # Only the asynchronous proxy has checks of its own: fences of other proxies have nothing to do.
    if any(modifier.startswith("async") for modifier in i.modifiers):
        of_shared = any("shared" in modifier for modifier in i.modifiers)
        e.call_check(
            "fence_proxy",
            FENCES_SHARED if of_shared else FENCES_GLOBAL if "global" in i.modifiers else FENCES_SHARED | FENCES_GLOBAL,
        )


OPS = (
    Op("membar", ("cta|gl|sys", "proxy alias|async"), emit_fence, results=0),
    Op(
        "fence",
        (
            "sc|acq_rel|acquire|release? SCOPE",
            "mbarrier_init release cluster",
            "acquire|release sync_restrict::shared::cta|sync_restrict::shared::cluster cluster",
            "proxy alias|async",
            "proxy async global|SHARED|CLUSTER",
            "proxy async::generic acquire|release sync_restrict::shared::cta|sync_restrict::shared::cluster cluster",
            "proxy tensormap::generic acquire|release SCOPE",
        ),
        emit_fence,
        results=0,
    ),
)
