"""Name elements of shared memory as the source does: tile[31][0] for the machine's tile[1023]."""

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
# The limit of a constant expression's values, so that `1 << n` in a source cannot exhaust the memory.
_MAX_VALUE = 1 << 64

_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.LShift: operator.lshift,
}


def name_shared_element(sentence: str, source: str, line: int) -> str:
    """Rewrite the element in a sentence about a shared memory access with the array's declared subscripts.

    The element keeps its flat index if the source does not declare the shape in constants. If the line indexes other
    arrays only, the sentence says so.

    Args:
        sentence: The message of the machine, with an element such as "tile[1023] (byte 4092 of 4096)".
        source: The text of the CUDA C++ source.
        line: The line of the access.
    """
    match = _PLACE.search(sentence)
    if match is None:
        return sentence
    name = match[1]
    byte = int(match[2])
    nbytes = int(match[3])
    place = match[0].partition(" ")[0]
    extent = f"byte {byte} of {nbytes}"
    arrays = _arrays(source)
    shapes = {shape for array, shape in arrays if array == name and shape and _element(shape, nbytes) in _SIZES}
    if len(shapes) == 1 and len(shape := shapes.pop()) > 1:
        index, remainder = divmod(byte, _element(shape, nbytes))
        if not remainder:
            place = f"{name}{_subscripts(index, shape)}"
    text = source.splitlines()[line - 1] if 0 < line <= len(source.splitlines()) else ""
    indexed = [array for array in dict.fromkeys(array for array, _ in arrays) if re.search(rf"\b{array}\s*\[", text)]
    if indexed and name not in indexed:
        extent += f", outside of {' and '.join(indexed)}, which this line indexes"
    return sentence.replace(match[0], f"{place} ({extent})")


def _element(shape: tuple[int, ...], nbytes: int) -> int:
    """Return the bytes of an element; 0 if the array's bytes are no multiple of its number of elements."""
    size, remainder = divmod(nbytes, math.prod(shape))
    return 0 if remainder else size


def _subscripts(index: int, shape: tuple[int, ...]) -> str:
    places = []
    for extent in reversed(shape):
        index, place = divmod(index, extent)
        places.append(place)
    return "".join(f"[{place}]" for place in reversed(places))


def _arrays(source: str) -> list[tuple[str, tuple[int, ...]]]:
    """Return the shared arrays with their shapes; a shape that is not constant is empty."""
    constants: dict[str, int] = {}
    for declared in _CONSTANT.findall(source):
        for name, _, value in (declarator.partition("=") for declarator in declared.split(",")):
            if (number := _number(value, constants)) is not None:
                constants[name.strip()] = number
    arrays = []
    for declared in _SHARED.findall(source):
        for name, extents in _ARRAY.findall(declared):
            sizes = [_number(extent, constants) for extent in re.findall(r"\[([^\]]+)\]", extents)]
            arrays.append((name, tuple(size for size in sizes if size) if all(sizes) else ()))
    return arrays


def _number(text: str, constants: dict[str, int]) -> int | None:
    """Evaluate a constant expression of integers and these names; return None for any other text."""
    try:
        # The source is a submission's or a stranger's, so its expressions are interpreted here and never passed to
        # eval.
        return _value(ast.parse(text.strip(), mode="eval").body, constants)
    except (SyntaxError, ValueError, LookupError, ArithmeticError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr, constants: dict[str, int]) -> int:
    """Evaluate a node of an expression. Raises LookupError or ArithmeticError for an unsupported expression."""
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return constants[name]
        case ast.BinOp(left=left, op=op, right=right):
            values = _value(left, constants), _value(right, constants)
            if not all(0 <= value < _MAX_VALUE for value in values) or (isinstance(op, ast.LShift) and values[1] > 64):
                raise ArithmeticError("no extent of an array is as large")
            return int(_OPERATORS[type(op)](*values))
    raise LookupError(ast.dump(node))
