"""The same code with the products of tensor cores negated, to see whether what they make reaches a kernel's output."""

from __future__ import annotations

from dataclasses import replace

from kernelpath.simt.ptx.records import Function, Group, Immediate, Instruction, Module, Operand, Register

__all__ = ["negated"]

B = 2  # the place of the second factor among the operands of mma and wmma.mma: d, a, b, c
WORD, PAIR = 0x80000000, 0x80008000  # the signs of one number of 32 bits, and of two of 16
_NOT_FLOATS = {"f64", "s8", "u8", "s4", "u4", "b1"}


def negated(module: Module) -> Module:
    """``module`` with every d = a b + c of mma and wmma.mma as d = a (-b) + c. Only floats of up to 32 bits."""
    return replace(module, functions={name: _function(function) for name, function in module.functions.items()})


def _function(function: Function) -> Function:
    body: list[Instruction] = []
    registers, places = dict(function.registers), []
    for instruction in function.body:
        places.append(len(body))
        if multiplies(instruction):
            *negations, instruction = _with_opposite(instruction)
            registers |= {_name(at): "b32" for at in range(len(negations))}
            body += negations
        body.append(instruction)
    places.append(len(body))
    labels = {label: places[at] for label, at in function.labels.items()}
    return replace(function, registers=registers, body=tuple(body), labels=labels)


def multiplies(instruction: Instruction) -> bool:
    of_matrices = instruction.opcode == "mma" or (instruction.opcode == "wmma" and instruction.modifiers[0] == "mma")
    return of_matrices and not _NOT_FLOATS.intersection(instruction.modifiers)


def _with_opposite(instruction: Instruction) -> list[Instruction]:
    """The instructions that negate the second factor, and then the product."""
    factor = instruction.operands[B]
    items = factor.items if isinstance(factor, Group) else (factor,)
    sign = Immediate(WORD if "tf32" in instruction.modifiers else PAIR)
    opposite: tuple[Operand, ...] = tuple(Register(_name(at)) for at in range(len(items)))
    negations = [
        Instruction("xor", ("b32",), (target, item, sign), instruction.guard, instruction.line)
        for target, item in zip(opposite, items, strict=True)
    ]
    operands = (*instruction.operands[:B], Group(opposite), *instruction.operands[B + 1 :])
    return [*negations, replace(instruction, operands=operands)]


def _name(at: int) -> str:
    return f"%negated{at}"
