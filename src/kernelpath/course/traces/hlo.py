"""Parse optimized HLO, in which XLA says how it fused a function: its kernels, and the bytes that each moves.

The format is that of `jax.jit(f).lower(...).compile().as_text()`. OpenXLA's "Operation semantics" describes the
instructions; `HloCostAnalysis` in its sources counts bytes by similar rules.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernelpath.course.traces import Facts, Malformed

# Instructions that name, group, or reinterpret values, and for which no kernel is launched.
NO_WORK = frozenset(("parameter", "constant", "tuple", "get-tuple-element", "bitcast"))

# Instructions that read from their first operand only the elements that they return.
SELECTIONS = frozenset(("slice", "dynamic-slice", "gather"))

UPDATE = "dynamic-update-slice"

# Matches `%fused_reduce (param_0: f32[8,4]) -> f32[8] {` and its lines up to the brace.
_COMPUTATION = re.compile(r"^(ENTRY )?%([\w.-]+) [^\n]*\{\n(.*?)^\}", re.M | re.S)

# Matches `  ROOT %add.1 = f32[8,4]{1,0} add(%x, %y), metadata={}`. The type of several results is in parentheses.
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%([\w.-]+) = (\([^()]*\)|\S+) ([a-z][\w-]*)\(([^()]*)\)(.*)$", re.M)
_ARRAY = re.compile(r"(pred|[a-z]+(\d+)\w*)\[([\d,]*)\]")
_NAME = re.compile(r"%([\w.-]+)")
_COMMENT = re.compile(r"/\*.*?\*/")


@dataclass(frozen=True)
class Array:
    """An array's number of elements and the bytes of each."""

    elements: int
    itemsize: int

    @property
    def nbytes(self) -> int:
        return self.elements * self.itemsize


@dataclass(frozen=True)
class HloInstruction:
    """An instruction of a computation.

    Attributes:
        arrays: The results: one, or those of a tuple.
        operands: The names of its operands, each once.
        attributes: The text after the operands.
    """

    name: str
    opcode: str
    arrays: Sequence[Array]
    operands: Sequence[str]
    attributes: str
    is_root: bool

    @property
    def elements(self) -> int:
        return sum(array.elements for array in self.arrays)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)


Computation = Mapping[str, HloInstruction]


@dataclass(frozen=True)
class Kernel:
    """An instruction of the entry that launches kernels.

    Attributes:
        kind: The kind of a fusion, the library of a custom call, or the opcode.
        opcodes: The opcodes inside, each once, in order.
        unfused: The bytes that its instructions would move if each were a kernel.
    """

    name: str
    kind: str
    opcodes: Sequence[str]
    read: int
    written: int
    unfused: int


def of(text: str) -> Facts:
    """Return the facts of the report. Raises Malformed."""
    found = kernels(text)
    return {
        "kernels": [kernel.name for kernel in found],
        "kinds": [kernel.kind for kernel in found],
        "operations": [", ".join(kernel.opcodes) for kernel in found],
        "read": [kernel.read for kernel in found],
        "written": [kernel.written for kernel in found],
        "unfused": [kernel.unfused for kernel in found],
    }


def kernels(text: str) -> list[Kernel]:
    """Return the kernels of the entry, in the order in which they run. Raises Malformed."""
    entry, computations = parse(text)
    return [_kernel(entry, instruction, computations) for instruction in entry.values() if _works(instruction)]


def parse(text: str) -> tuple[Computation, Mapping[str, Computation]]:
    """Return the entry and the computations by name. Raises Malformed."""
    entry: Computation | None = None
    computations: dict[str, Computation] = {}
    for is_entry, name, body in _COMPUTATION.findall(_COMMENT.sub("", text)):
        computations[name] = {instruction.name: instruction for instruction in _instructions(body)}
        if is_entry:
            entry = computations[name]
    if not entry:
        raise Malformed("this is not an HLO module: there is no computation `ENTRY %main (...) -> ... {`")
    return entry, computations


def vary(rng: random.Random, text: str, rows: int, new_rows: int) -> str:
    """Return the same module with other names, and with another number of rows.

    Args:
        rng: The generator.
        text: The module.
        rows: The extent that changes, wherever it appears. It must be an extent of rows that are independent.
        new_rows: The new extent.
    """
    old_names = sorted(set(_NAME.findall(text)))
    numbers = rng.sample(range(3, 10_000), len(old_names))
    names = {name: f"{name.rstrip('.0123456789')}.{number}" for name, number in zip(old_names, numbers, strict=True)}
    # A computation's header names its parameters without a percent sign.
    renamed = re.sub(
        r"(?<=[(, ])([\w.-]+)(?=: \w+\[)|(?<=%)([\w.-]+)",
        lambda match: names.get(match[0], match[0]),
        text,
    )
    return re.sub(rf"(?<=[\[,:]){rows}(?=[\],])", str(new_rows), renamed)


def _instructions(body: str) -> Iterator[HloInstruction]:
    for root, name, result, opcode, operands, attributes in _INSTRUCTION.findall(body):
        arrays = [
            Array(math.prod(int(extent) for extent in extents.split(",") if extent), max(1, int(bits or 8) // 8))
            for _, bits, extents in _ARRAY.findall(result)
        ]
        names = tuple(dict.fromkeys(_NAME.findall(operands)))
        yield HloInstruction(name, opcode, arrays, names, attributes, bool(root))


def _works(instruction: HloInstruction) -> bool:
    return instruction.opcode not in NO_WORK


def _kernel(entry: Computation, instruction: HloInstruction, computations: Mapping[str, Computation]) -> Kernel:
    if instruction.opcode == "fusion":
        kind = _attribute(instruction, r"kind=(\w+)")
        if kind == "kCustom":
            kind = _attribute(instruction, r'"fusion_backend_config":\{"kind":"(\w+)"')
        body = computations[_attribute(instruction, r"calls=%([\w.-]+)")]
        inner = [candidate for candidate in body.values() if _works(candidate)]
        return Kernel(
            instruction.name,
            kind,
            tuple(dict.fromkeys(candidate.opcode for candidate in inner)),
            _read(body),
            _written(body),
            sum(_bytes_alone(body, candidate) for candidate in inner),
        )
    read = sum(entry[name].nbytes for name in instruction.operands)
    if instruction.opcode == "custom-call":
        # The last result of a library's call is its workspace.
        arrays = instruction.arrays if len(instruction.arrays) == 1 else instruction.arrays[:-1]
        written = sum(array.nbytes for array in arrays)
        target = _attribute(instruction, r'custom_call_target="([^"]+)"')
        return Kernel(instruction.name, target, ("custom-call",), read, written, read + written)
    moved = _bytes_alone(entry, instruction)
    return Kernel(
        instruction.name,
        instruction.opcode,
        (instruction.opcode,),
        moved - instruction.nbytes,
        instruction.nbytes,
        moved,
    )


def _attribute(instruction: HloInstruction, pattern: str) -> str:
    match = re.search(pattern, instruction.attributes)
    if match is None:
        raise Malformed(f"the {instruction.opcode} {instruction.name} has no attribute that matches {pattern}")
    return match[1]


def _needed_of(operand: HloInstruction, user: HloInstruction, position: int, elements: int) -> int:
    """Return how many elements of an operand an instruction needs to compute some of its own."""
    if position == 0 and user.opcode == UPDATE:
        return 0  # in place: the elements around the update stay where they are
    if position == 0 and user.opcode in SELECTIONS:
        return elements
    return elements if operand.elements == user.elements else operand.elements


def _read(body: Computation) -> int:
    """Return the bytes that a fusion reads: of each parameter, the elements that the root needs."""
    root = next(instruction for instruction in body.values() if instruction.is_root)
    needed = {root.name: root.elements}
    # An instruction comes after its operands, so all of its users have been visited before it.
    for user in reversed(list(body.values())):
        for position, name in enumerate(user.operands):
            operand = body[name]
            elements = _needed_of(operand, user, position, needed.get(user.name, 0))
            # Users may need different elements, but never more than there are.
            needed[name] = min(operand.elements, needed.get(name, 0) + elements)
    parameters = [instruction for instruction in body.values() if instruction.opcode == "parameter"]
    return sum(needed.get(parameter.name, 0) * parameter.arrays[0].itemsize for parameter in parameters)


def _written(body: Computation) -> int:
    """Return the bytes that a fusion writes: its results, and the update alone where it updates an array in place."""
    root = next(instruction for instruction in body.values() if instruction.is_root)
    results = [body[name] for name in root.operands] if root.opcode == "tuple" else [root]
    return sum(_written_alone(body, result) for result in results)


def _written_alone(body: Computation, instruction: HloInstruction) -> int:
    return body[instruction.operands[1]].nbytes if instruction.opcode == UPDATE else instruction.nbytes


def _bytes_alone(body: Computation, instruction: HloInstruction) -> int:
    """Return the bytes that an instruction reads and writes as a kernel of its own."""
    read = 0
    for position, name in enumerate(instruction.operands):
        operand = body[name]
        elements = _needed_of(operand, instruction, position, instruction.elements)
        read += min(operand.nbytes, elements * operand.nbytes // max(1, operand.elements))
    return read + _written_alone(body, instruction)
