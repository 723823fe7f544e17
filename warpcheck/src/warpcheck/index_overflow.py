"""Find loops that cannot end: their index has 32 bits, and their bound is a larger parameter.

``for (int i = …; i < n; i += stride)`` with 64 bits in n compiles to a comparison of the index, widened in every
iteration, with n. In a sample of the blocks the index never gets far enough to overflow, if each thread has thousands
of elements. The overflow is certain all the same, if the comparison is the only exit of the loop.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from warpcheck.errors import Fault, FaultKind
from warpcheck.ptx import Address, Function, Instruction, Register, Symbol

__all__ = ["Loop", "narrow_loops", "require_reach"]

# By the conversion that widens the index: the index stays below two to this power.
_WIDENED: dict[tuple[str, ...], int] = {("s64", "s32"): 31, ("u64", "u32"): 32}
_LEAVES = ("ret", "exit", "trap")


@dataclass(frozen=True)
class Loop:
    """A loop that goes on while its index is below a parameter.

    ``bits``: the index stays below this power of two. ``line`` is that of its branch.
    """

    parameter: str
    bits: int
    line: int


def require_reach(function: Function, args: Sequence[object], branched_lines: Container[int], file: str) -> None:
    """Raise the Fault of a loop whose index overflows before its end. ``branched_lines``: the lines that branched."""
    arguments = dict(zip((parameter.name for parameter in function.params), args, strict=True))
    for loop in narrow_loops(function):
        bound = arguments[loop.parameter]
        # Only of a loop that a block has been in is it certain that its index gets there.
        if isinstance(bound, int) and bound >= 1 << loop.bits and loop.line in branched_lines:
            text = f"the index of this loop has 32 bits, and its end is {bound:,}: it overflows before it gets there"
            raise Fault(FaultKind.OUT_OF_BOUNDS, text, function.name, file, loop.line, (0, 0, 0), (0, 0, 0))


def narrow_loops(function: Function) -> Iterator[Loop]:
    """Yield the loops of a function with an index of 32 bits, a parameter of 64 as its bound, and no other exit."""
    params = dict(_loaded(function))
    for end, branch in enumerate(function.body):
        target = branch.operands[0] if branch.opcode == "bra" else None
        start = function.labels.get(target.name, end + 1) if isinstance(target, Symbol) else end + 1
        # A backward branch under a positive guard closes a loop: its body is the code in between.
        if start <= end and isinstance(branch.guard, Register) and not _leaves(function, start, end):
            body = {name: i for i in function.body[start:end] for name in _written(i)}
            if bound_and_bits := _find_bound(body, branch.guard.name, params):
                yield Loop(*bound_and_bits, branch.line)


def _find_bound(body: Mapping[str, Instruction], guard: str, params: Mapping[str, str]) -> tuple[str, int] | None:
    """Return the parameter, and the bits of the index that is compared with it."""
    test = body.get(guard)
    if test is None or test.opcode != "setp" or test.modifiers not in (("lt", "s64"), ("lt", "u64")):
        return None
    widened, bound = (operand.name if isinstance(operand, Register) else "" for operand in test.operands[1:3])
    conversion = body.get(widened)
    # The bound must not change in the loop.
    if bound in body or bound not in params or conversion is None or conversion.opcode != "cvt":
        return None
    bits = _WIDENED.get(conversion.modifiers)
    index = conversion.operands[1]
    return (params[bound], bits) if bits and isinstance(index, Register) and _is_incremented(body, index.name) else None


def _is_incremented(body: Mapping[str, Instruction], index: str) -> bool:
    """Return whether the next index is computed from the last one by additions only."""
    # Follow the definitions backward from the index: additions and moves have to lead around to the index again.
    name = index
    visited = set[str]()
    while name not in visited:
        visited.add(name)
        step = body.get(name)
        if step is None or step.opcode not in ("add", "mov"):
            return False
        sources = [o.name for o in step.operands[1:] if isinstance(o, Register) and o.name in body]
        if len(sources) != 1:
            return False
        (name,) = sources
    return name == index


def _leaves(function: Function, start: int, end: int) -> bool:
    """Return whether another instruction than its last branch leaves a loop."""
    for instruction in function.body[start:end]:
        targets = [o.name for o in instruction.operands if isinstance(o, Symbol)] if instruction.opcode == "bra" else []
        if instruction.opcode in _LEAVES or any(not start <= function.labels[name] <= end for name in targets):
            return True
    return False


def _loaded(function: Function) -> Iterator[tuple[str, str]]:
    """Yield the registers that hold a parameter of 64 bits, with its name."""
    for i in function.body:
        if i.opcode == "ld" and i.modifiers[0] == "param" and i.modifiers[-1][1:] == "64":
            source = i.operands[1]
            if isinstance(source, Address) and isinstance(source.base, Symbol) and not source.offset:
                yield from ((name, source.base.name) for name in _written(i))


def _written(instruction: Instruction) -> list[str]:
    first = instruction.operands[:1]
    return [operand.name for operand in first if isinstance(operand, Register)]
