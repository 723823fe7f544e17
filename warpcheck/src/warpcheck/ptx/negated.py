"""The same code with the products of tensor cores negated, to see whether what they make reaches a kernel's output."""

from __future__ import annotations

from dataclasses import replace

from warpcheck.ptx.records import Function, Group, Immediate, Instruction, Module, Operand, Register

__all__ = ["negated"]

B, C, SCALE_B = 2, 3, 5  # places among the operands: d, a, b, c of mma and wmma.mma; d, a, b, keep, scales of wgmma
WORD = 0x80000000
PAIR = 0x80008000
QUAD = 0x80808080  # the signs of one number of 32 bits, two of 16, four of 8
_FACTORS = {"f16": PAIR, "bf16": PAIR, "tf32": WORD, "e4m3": QUAD, "e5m2": QUAD}


def negated(module: Module) -> Module:
    """``module`` with every d = a b + c of mma, wmma.mma and wgmma as d = c - a b."""
    return replace(module, functions={name: _function(function) for name, function in module.functions.items()})


def _function(function: Function) -> Function:
    body: list[Instruction] = []
    registers = dict(function.registers)
    places = []
    for instruction in function.body:
        places.append(len(body))
        if multiplies(instruction):
            before, instruction, after = _with_opposite(instruction)
            registers |= {
                one.operands[0].name: one.modifiers[0] for one in before if isinstance(one.operands[0], Register)
            }
            body += [*before, instruction, *after]
        else:
            body.append(instruction)
    places.append(len(body))
    labels = {label: places[at] for label, at in function.labels.items()}
    return replace(function, registers=registers, body=tuple(body), labels=labels)


def multiplies(instruction: Instruction) -> bool:
    what = instruction.modifiers[0] if instruction.opcode in ("wmma", "wgmma") else instruction.opcode
    return what in ("mma", "mma_async")


def _with_opposite(i: Instruction) -> tuple[list[Instruction], Instruction, list[Instruction]]:
    """What comes before the product, the product, and what comes behind it."""
    if i.opcode == "wgmma":
        return [], _scaled(i), []
    exact = {"s32", "f64"}.intersection(i.modifiers)
    if not exact:
        before, product = _with(i, B, "xor", "b32", Immediate(_sign(i)))
        return before, product, []
    kind = exact.pop()
    before, product = _with(i, C, "neg", kind)
    after = [Instruction("neg", (kind,), (item, item), i.guard, i.line) for item in _items(i.operands[0])]
    return before, product, after


def _sign(i: Instruction) -> int:
    return next((_FACTORS[kind] for kind in reversed(i.modifiers) if kind in _FACTORS), PAIR)


def _scaled(i: Instruction) -> Instruction:
    """wgmma with the opposite scale of B; integers, which PTX gives no scale, get this one alone."""
    if "s32" in i.modifiers:
        return replace(i, operands=(*i.operands, Immediate(-1)))
    scale = i.operands[SCALE_B]
    assert isinstance(scale, Immediate)
    return replace(
        i, operands=(*i.operands[:SCALE_B], Immediate(1 if scale.value != 1 else -1), *i.operands[SCALE_B + 1 :])
    )


def _with(i: Instruction, place: int, opcode: str, kind: str, *more: Operand) -> tuple[list[Instruction], Instruction]:
    """What changes the registers of an operand into others, and the instruction with those."""
    factor = i.operands[place]
    others = [Register(_name(at, kind)) for at in range(len(_items(factor)))]
    changes = [
        Instruction(opcode, (kind,), (target, item, *more), i.guard, i.line)
        for target, item in zip(others, _items(factor), strict=True)
    ]
    return changes, replace(i, operands=(*i.operands[:place], Group(tuple(others)), *i.operands[place + 1 :]))


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Group) else (operand,)


def _name(at: int, kind: str) -> str:
    return f"%negated_{kind}_{at}"
