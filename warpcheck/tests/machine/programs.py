"""Wrap PTX statements in a kernel."""

from __future__ import annotations

__all__ = ["wrap"]

HEAD = ".version 8.6\n.target sm_90a\n.address_size 64\n"
REGISTERS = ".reg .pred %p<9>; .reg .b16 %rs<9>; .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .f64 %fd<9>; .reg .b64 %rd<9>;"


def wrap(statements: str, parameters: str = "") -> str:
    """Return PTX with a kernel ``k`` that executes these statements and returns at its end."""
    return f"{HEAD}.visible .entry k({parameters})\n{{\n{REGISTERS}\n{statements}\n}}\n"
