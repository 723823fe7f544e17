"""Places in shared memory as the source writes them: tile[31][0] for what the machine knows as tile[1023]."""

from __future__ import annotations

import ast
import math
import operator
import re

_PLACE = re.compile(r"\b(\w+)\[\d+\] \(byte (\d+) of (\d+)\)")
_CONSTANT = re.compile(
    r"\b(?:constexpr|const)\s+(?:static\s+)?(?:unsigned\s+)?(?:int|size_t|unsigned)\s+([^;(){}]{1,1000});"
)
_SHARED = re.compile(r"__shared__\s+(?:(?:alignas|__align__)\([^()]*\)\s*)?([^;(){}]{1,1000});")
_ARRAY = re.compile(r"(\w+)\s*((?:\[[^\]]+\]\s*)+)")
_SIZES = (1, 2, 4, 8, 16)
_MOST = 1 << 64
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.LShift: operator.lshift,
}


def in_the_source(sentence: str, source: str, line: int) -> str:
    """A sentence about an access in this line of CUDA C++, its place in shared memory by the array's declared shape.

    A place stays as it is where the source does not say the shape in numbers. Where the line indexes other arrays only,
    the sentence says so.
    """
    found = _PLACE.search(sentence)
    if found is None:
        return sentence
    name, byte, nbytes = found[1], int(found[2]), int(found[3])
    place, of = found[0].partition(" ")[0], f"byte {byte} of {nbytes}"
    arrays = _arrays(source)
    shapes = {shape for one, shape in arrays if one == name and shape and _element(shape, nbytes) in _SIZES}
    if len(shapes) == 1 and len(shape := shapes.pop()) > 1:
        index, rest = divmod(byte, _element(shape, nbytes))
        if not rest:
            place = f"{name}{_subscripts(index, shape)}"
    text = source.splitlines()[line - 1] if 0 < line <= len(source.splitlines()) else ""
    indexed = [one for one in dict.fromkeys(one for one, _ in arrays) if re.search(rf"\b{one}\s*\[", text)]
    if indexed and name not in indexed:
        of += f", outside of {' and '.join(indexed)}, which this line indexes"
    return sentence.replace(found[0], f"{place} ({of})")


def _element(shape: tuple[int, ...], nbytes: int) -> int:
    """Bytes of an element; 0 where they do not come out even."""
    size, rest = divmod(nbytes, math.prod(shape))
    return 0 if rest else size


def _subscripts(index: int, shape: tuple[int, ...]) -> str:
    places = []
    for extent in reversed(shape):
        index, place = divmod(index, extent)
        places.append(place)
    return "".join(f"[{place}]" for place in reversed(places))


def _arrays(source: str) -> list[tuple[str, tuple[int, ...]]]:
    """The arrays in shared memory with their shapes, which are empty where they are not known as numbers."""
    constants: dict[str, int] = {}
    for declared in _CONSTANT.findall(source):
        for name, _, value in (one.partition("=") for one in declared.split(",")):
            if (number := _number(value, constants)) is not None:
                constants[name.strip()] = number
    found = []
    for declared in _SHARED.findall(source):
        for name, extents in _ARRAY.findall(declared):
            sizes = [_number(extent, constants) for extent in re.findall(r"\[([^\]]+)\]", extents)]
            found.append((name, tuple(size for size in sizes if size) if all(sizes) else ()))
    return found


def _number(text: str, constants: dict[str, int]) -> int | None:
    """The value of a constant expression of these names; None where it is something else."""
    try:
        return _value(ast.parse(text.strip(), mode="eval").body, constants)
    except (SyntaxError, ValueError, LookupError, ArithmeticError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr, constants: dict[str, int]) -> int:
    """Raises LookupError and ArithmeticError."""
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return constants[name]
        case ast.BinOp(left=left, op=op, right=right):
            values = _value(left, constants), _value(right, constants)
            if not all(0 <= value < _MOST for value in values) or (isinstance(op, ast.LShift) and values[1] > 64):
                raise ArithmeticError("no extent of an array is as large")
            return int(_OPERATORS[type(op)](*values))
    raise LookupError(ast.dump(node))
