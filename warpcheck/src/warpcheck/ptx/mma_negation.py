"""Negate the products of tensor cores, to test whether their results reach a kernel's output."""

from __future__ import annotations

from dataclasses import replace

from warpcheck.errors import Unsupported
from warpcheck.ptx.records import Function, Group, Immediate, Instruction, Module, Operand, Register

__all__ = ["negate_products"]

B, C, SCALE_B = 2, 3, 5  # places among the operands: d, a, b, c of mma and wmma.mma; d, a, b, keep, scales of wgmma
DESCRIPTOR = 3  # of tcgen05.mma: d, a, b, the instruction descriptor
NEGATE_B = 1 << 14  # in that descriptor (PTX ISA, "Instruction descriptor")
WORD = 0x80000000
PAIR = 0x80008000
QUAD = 0x80808080  # the signs of one number of 32 bits, two of 16, four of 8
_FACTORS = {"f16": PAIR, "bf16": PAIR, "tf32": WORD, "e4m3": QUAD, "e5m2": QUAD}


def negate_products(module: Module) -> Module:
    """Return ``module`` with every d = a b + c of mma, wmma.mma, wgmma and tcgen05.mma as d = c - a b.

    Raises:
        Unsupported: A tcgen05.mma multiplies integers, for which the instruction descriptor cannot negate B.
    """
    return replace(module, functions={name: _function(function) for name, function in module.functions.items()})


def _function(function: Function) -> Function:
    body: list[Instruction] = []
    registers = dict(function.registers)
    new_indices = []
    for instruction in function.body:
        # Labels are indices of instructions, which move as instructions are inserted.
        new_indices.append(len(body))
        if multiplies(instruction):
            before, instruction, after = _negate_product(instruction)
            registers |= {
                instruction_before.operands[0].name: instruction_before.modifiers[0]
                for instruction_before in before
                if isinstance(instruction_before.operands[0], Register)
            }
            body += [*before, instruction, *after]
        else:
            body.append(instruction)
    new_indices.append(len(body))
    labels = {label: new_indices[index] for label, index in function.labels.items()}
    return replace(function, registers=registers, body=tuple(body), labels=labels)


def multiplies(instruction: Instruction) -> bool:
    operation = instruction.modifiers[0] if instruction.opcode in ("wmma", "wgmma", "tcgen05") else instruction.opcode
    return operation in ("mma", "mma_async")


def _negate_product(i: Instruction) -> tuple[list[Instruction], Instruction, list[Instruction]]:
    """Return the instructions before a product, the product, and the instructions after it."""
    if i.opcode == "wgmma":
        return [], _negate_scale(i), []
    if i.opcode == "tcgen05":
        if "kind::i8" in i.modifiers:
            raise Unsupported("negated tcgen05.mma of integers", "", i.line)
        return *_transform_operand(i, DESCRIPTOR, "xor", "b32", Immediate(NEGATE_B)), []
    # Integers and float64 have no sign bit to flip in packed factors: negate c and d instead, d = -(a b - c).
    exact_types = {"s32", "f64"}.intersection(i.modifiers)
    if not exact_types:
        before, product = _transform_operand(i, B, "xor", "b32", Immediate(_sign(i)))
        return before, product, []
    kind = exact_types.pop()
    before, product = _transform_operand(i, C, "neg", kind)
    after = [Instruction("neg", (kind,), (item, item), i.guard, i.line) for item in _items(i.operands[0])]
    return before, product, after


def _sign(i: Instruction) -> int:
    """Return the sign bits of the factors of B that a register has."""
    # The types are those of d, a, b and c, and B is negated. wmma.mma without types of its factors, which ends in those
    # of d and c, has float16 factors (PTX ISA, "wmma.mma").
    return _FACTORS.get(i.modifiers[-2], PAIR)


def _negate_scale(i: Instruction) -> Instruction:
    """Return wgmma with the opposite scale of B; integers, which have no scale in PTX, get this one alone."""
    if "s32" in i.modifiers:
        return replace(i, operands=(*i.operands, Immediate(-1)))
    # imm-scale-b is 1 or -1 (PTX ISA, "wgmma.mma_async").
    scale = i.operands[SCALE_B]
    assert isinstance(scale, Immediate)
    return replace(
        i, operands=(*i.operands[:SCALE_B], Immediate(1 if scale.value != 1 else -1), *i.operands[SCALE_B + 1 :])
    )


def _transform_operand(
    i: Instruction, position: int, opcode: str, kind: str, *other_operands: Operand
) -> tuple[list[Instruction], Instruction]:
    """Return instructions that transform the registers of an operand, and the instruction with the new registers."""
    factor = i.operands[position]
    new_registers = [Register(_name(index, kind)) for index in range(len(_items(factor)))]
    changes = [
        Instruction(opcode, (kind,), (target, item, *other_operands), i.guard, i.line)
        for target, item in zip(new_registers, _items(factor), strict=True)
    ]
    transformed = Group(tuple(new_registers)) if isinstance(factor, Group) else new_registers[0]
    return changes, replace(i, operands=(*i.operands[:position], transformed, *i.operands[position + 1 :]))


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Group) else (operand,)


def _name(index: int, kind: str) -> str:
    return f"%negated_{kind}_{index}"
