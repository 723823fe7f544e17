"""Parse declarations of variables, parameters and registers. PTX ISA manual, chapter 5."""

from __future__ import annotations

import re
from collections.abc import Iterator

from warpcheck.ptx.operands import number
from warpcheck.ptx.records import SIZES, PtxSyntaxError, Variable

__all__ = ["parameters", "registers", "variables"]

_MAX_REGISTERS = 1 << 20
"""The most registers in one directive: a hundred times what compilers declare, and little enough to hold."""

_SPACES = (".global", ".const", ".shared", ".local", ".param", ".visible", ".extern", ".weak", ".common", ".reg")
_VARIABLE = re.compile(
    r"(?:\.(?:visible|extern|weak|common)\s+)*\.(?P<space>global|const|shared|local|param|reg)\s*"
    r"(?:\.align\s+(?P<align>\d+)\s*)?(?:\.attribute\([^)]*\)\s*)?(?:\.v(?P<vector>[24])\s*)?\.(?P<type>\w+)\s+"
    r"(?:\.ptr\s*(?:\.(?:global|const|shared|local)\s*)?(?:\.align\s+\d+\s*)?)?(?P<rest>.*)",
    re.DOTALL | re.ASCII,
)
_REGISTER = re.compile(r"([%\w$]+)\s*(?:<\s*(\d+)\s*>)?", re.ASCII)


def registers(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield the (name, type, elements) of each register in a ``.reg`` directive; a scalar has 0 elements.

    ``%r<3>`` stands for %r0, %r1 and %r2. Raises PtxSyntaxError.
    """
    match = re.match(r"\.reg\s*(?:\.v([24])\s*)?\.(\w+)\s+(.*)", text, re.DOTALL)
    if not match or (match[2] != "pred" and match[2] not in SIZES):
        raise PtxSyntaxError(f"cannot read {text!r}")
    elements = int(match[1] or 0)
    for item in match[3].split(","):
        declaration = _REGISTER.fullmatch(item.strip())
        if not declaration or int(declaration[2] or 0) > _MAX_REGISTERS:
            raise PtxSyntaxError(f"cannot read {item!r} in {text!r}")
        name, count = declaration.groups()
        if count:
            yield from ((f"{name}{index}", match[2], elements) for index in range(int(count)))
        else:
            yield name, match[2], elements


def parameters(text: str | None) -> Iterator[Variable]:
    """Return the variables of a list of parameters, which may be empty."""
    return variables(text) if text and text.strip() else iter(())


def variables(text: str) -> Iterator[Variable]:
    """Yield the variables of one or several comma-separated declarations, each perhaps with an initial value.

    Directives that declare nothing yield none. Raises PtxSyntaxError.
    """
    text = text.strip()
    if not text.startswith(_SPACES):
        return
    # A comma before .param or .reg separates parameters; others separate names, extents or initial values.
    for declaration in re.split(r",\s*(?=\.(?:param|reg)\b)", text):
        match = _VARIABLE.match(declaration.strip())
        if not match or match["type"] not in SIZES:
            raise PtxSyntaxError(f"cannot read {declaration!r}")
        names, _, value = match["rest"].partition("=")
        # A vector variable is aligned to all of its elements.
        step = SIZES[match["type"]] * int(match["vector"] or 1)
        align = int(match["align"] or step)
        if align < 1 or align & (align - 1):
            raise PtxSyntaxError(f"an alignment of {align} in {declaration!r}")
        for name, dimensions in re.findall(r"([%\w$]+)((?:\s*\[\s*(?:\w+\s*)?\])*)", names):
            size = step
            for extent in re.findall(r"\[\s*(\w*)\s*\]", dimensions):
                # extern .shared arrays have no extent: size 0 marks dynamic shared memory.
                size *= number(extent or "0").value
            initial, pointers = _initial(value, step, size) if value else (None, ())
            yield Variable(name, match["space"], match["type"], size, align, initial, pointers)


def _initial(text: str, step: int, size: int) -> tuple[bytes, tuple[tuple[int, str], ...]]:
    """Return the bytes of an initial value, and the (offset, symbol) of each address in it."""
    data = bytearray()
    pointers: list[tuple[int, str]] = []
    for item in re.findall(r"[^\s,{}]+", text):
        value = 0
        if re.match(r"[-\d]", item):
            value = number(item).value
        else:
            # A generic address of global memory is the address itself (PTX ISA, 6.4.1.1), so generic() changes nothing.
            generic = re.fullmatch(r"generic\(([\w$]+)\)", item)
            pointers.append((len(data), generic[1] if generic else item))
        data += (value % (1 << 8 * step)).to_bytes(step, "little")
    return bytes(data.ljust(size, b"\0")), tuple(pointers)
