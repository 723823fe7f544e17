"""Make constant vectors in LLVM IR."""

from __future__ import annotations

from llvmlite import ir
from llvmlite.ir.values import FormattedConstant

__all__ = ["splat"]


def splat(number: ir.Constant, lanes: int) -> ir.Constant:
    """Return a constant vector with one number in all lanes."""
    constant = FormattedConstant(ir.VectorType(number.type, lanes), "")
    constant.constant = f"splat ({number})"  # llvmlite prints this text where it would print the list of elements
    return constant
