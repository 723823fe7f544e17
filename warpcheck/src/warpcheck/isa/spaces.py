"""Find the state space and the cache policy of an instruction. PTX ISA manual, 5.1 and 9.7.9."""

from __future__ import annotations

from warpcheck.layout import Space
from warpcheck.ptx import Instruction, Operand

__all__ = ["space_of", "without_hint"]

_SPACES = {"global": Space.GLOBAL, "shared": Space.SHARED, "shared::cta": Space.SHARED, "local": Space.LOCAL}
_SPACES |= {"shared::cluster": Space.CLUSTER, "const": Space.CONST}
_SPACES |= dict.fromkeys(("param", "param::entry", "param::func"), Space.PARAM)


def space_of(i: Instruction) -> Space:
    return next((_SPACES[name] for name in i.modifiers if name in _SPACES), Space.GENERIC)


def without_hint(i: Instruction) -> tuple[Operand, ...]:
    """Return the operands without a cache policy, which is the last one."""
    return i.operands[:-1] if "L2::cache_hint" in i.modifiers else i.operands
