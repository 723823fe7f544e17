"""Code that instructions of one form share.

A kernel of ten thousand instructions has some fifty forms: an opcode with its modifiers, and registers of the same
types in the same places. Each form is compiled once, as a function that is given a row of numbers: where its registers
are, and what its constants are. A block is a list of such rows, so a kernel costs the compiler what its forms cost that
no kernel before it had.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from llvmlite import ir
from llvmlite.ir.values import FormattedConstant

from warpcheck.layout import RESERVED, Status
from warpcheck.lower.demand import Place
from warpcheck.lower.flow import Flow, Ops
from warpcheck.lower.inflight import HAZARD, hazards
from warpcheck.lower.loads import Loads, Use
from warpcheck.lower.registers import Passed
from warpcheck.lower.slots import CARRY
from warpcheck.lower.vectors import I8, I32, I64, POINTER
from warpcheck.lowered import Form
from warpcheck.ptx import Address, Function, Group, Immediate, Instruction, Module, Not, Operand, Register, Symbol

__all__ = ["Recall", "Shared", "emit_anew"]

FORM = ir.FunctionType(I64, [POINTER, POINTER, POINTER, I32, POINTER])
WORD = 8  # bytes of a number of a row
CODE, BYTES, SITE, BLOCK, POSITION, GIVEN = range(6)  # what a row has before its registers and constants


Recall = Callable[[str, Callable[[], Form]], Form]
"""What was emitted before under a name, else what the function emits now. The name has all that it follows from."""


def emit_anew(name: str, emit: Callable[[], Form]) -> Form:
    return emit()


class Shared(Loads):
    """Emits instructions as rows of numbers, and the functions that are given them."""

    index: int

    def __init__(self, module: Module, kernel: Function, flow: Flow, ops: Ops, recall: Recall) -> None:
        super().__init__(module, kernel, flow, ops)
        self.recall = recall
        self.forms: dict[tuple[Instruction, Use, bool], Form] = {}
        self.kept: dict[Callable[..., ir.Value | None], str] = {}
        self.numbers: list[str] = []
        self.hazards = hazards(flow, ops)
        self.rows = ir.GlobalVariable(self.unit, I64, "rows")

    def emit_shared(self, instructions: Sequence[Instruction]) -> None:
        """Run the first instructions of a block."""
        start = len(self.numbers)
        self.carried = False
        for instruction in self.demands.early if self.index == 0 else ():
            self._append_row(instruction, 0, Use())
        for position, instruction in enumerate(instructions):
            for kind, other in sorted(self.hazards.get(Place(self.index, position), ()), reverse=True):
                row = Instruction(HAZARD, (str(kind),), (Immediate(other, 0),), None, instruction.line)
                self._append_row(row, position, Use())
            for part in self.demands.ahead.get(Place(self.index, position), {}).values():
                for computed in part.instructions:
                    self._append_row(computed, position, Use())
            self._append_row(instruction, position, self.use_of(Place(self.index, position)))
        if start == len(self.numbers):
            return
        ends = [self.at(self.rows, WORD * place) for place in (start, len(self.numbers))]
        status = self.call_kept(I64, [self.launch, self.cta, self.warp, self.mask_bits, *ends], emit_steps)
        with self.b.if_then(self.b.icmp_unsigned("!=", status, I64(Status.READY)), likely=False):
            self.b.ret(status)

    def place_rows(self) -> None:
        """Give the kernel its rows, once all of them are known."""
        self.rows.value_type = ir.ArrayType(I64, len(self.numbers))
        self.rows.initializer = FormattedConstant(self.rows.value_type, "")
        self.rows.initializer.constant = f"[{', '.join(self.numbers)}]"
        self.rows.linkage = "internal"

    def emit(self, instruction: Instruction) -> None:
        """Emit one instruction here."""
        raise NotImplementedError

    def _append_row(self, instruction: Instruction, position: int, use: Use) -> None:
        row = Row(self.registers, self.ops[instruction.opcode].passes)
        operands = tuple(map(row.general, instruction.operands))
        guard = row.general(instruction.guard) if instruction.guard else None
        general = Instruction(instruction.opcode, instruction.modifiers, operands, guard)  # type: ignore[arg-type]
        use = replace(use, wanted=row.general(use.wanted) if use.wanted else None)  # type: ignore[arg-type]
        form = self.forms.get((general, use, self.carried))
        if form is None:
            form = self._form(general, use, row, instruction.line)
            self.forms[general, use, self.carried] = form
        given = [*(self.slots[name] for name in row.names), *row.constants]
        place = (WORD * (GIVEN + len(given)), len(self.out.sites), self.index, position)
        self.numbers.append(f"i64 ptrtoint (ptr @{form.symbol} to i64)")
        self.numbers += [f"i64 {number}" for number in (*place, *given)]
        self.out.sites += [replace(site, line=instruction.line, at=instruction.at) for site in form.sites]
        self.carried = form.carried

    def _form(self, general: Instruction, use: Use, row: Row, line: int) -> Form:
        """The function of a form, for an instruction whose registers and constants are those of ``row``."""
        symbols = [self.symbol_place(name) for name in _symbols(general.operands)]
        name = repr((general, use, self.carried, symbols, self.in_cluster, self.slots[CARRY.name]))
        form = self.recall(name, lambda: self._emit_form(replace(general, line=line), use, row))
        self.out.checks |= form.checks
        self.out.forms |= form.functions
        self._declare(form.symbol, FORM)
        return form

    def _emit_form(self, general: Instruction, use: Use, row: Row) -> Form:
        e, function = self._apart(FORM)
        e.launch, e.cta, e.warp, e.mask_bits, numbers = function.args
        for argument in function.args[:3]:
            argument.add_attribute("noalias")
        words = [
            e.b.load(e.at(numbers, WORD * at), typ=I64) for at in range(GIVEN + len(row.names) + len(row.constants))
        ]
        e.first_site = words[SITE]
        e.here = (e.b.trunc(words[BLOCK], I32), e.b.trunc(words[POSITION], I32))
        e.registers = {_name(at, self.registers[name]): self.registers[name] for at, name in enumerate(row.names)}
        e.slots = dict(zip(e.registers, words[GIVEN:], strict=False)) | {CARRY.name: self.slots[CARRY.name]}
        e.registers[CARRY.name] = "pred"
        e.passed = words[GIVEN + len(row.names) :]
        e.row = e.at(numbers, WORD * GIVEN)
        e.values = {}
        e.written = set()
        e.mask_lanes = e.as_lanes(e.mask_bits)
        e.out = replace(self.out, sites=[], checks=set(), forms={})
        e.use = use
        e.kept = {}
        e.emit(general)
        e.save()
        e.b.ret(I64(Status.READY))
        symbol, text = _named(e.unit)
        sites = [replace(site, line=0) for site in e.out.sites]
        return Form(symbol, {**e.out.forms, symbol: text}, sites, e.out.checks, e.carried)

    def call_kept(self, result: ir.Type, arguments: list[ir.Value], emit: Callable[..., ir.Value | None]) -> ir.Value:
        """Call a function that kernels have in common. ``emit`` depends on nothing but its arguments."""
        kind = ir.FunctionType(result, [value.type for value in arguments])
        if emit not in self.kept:
            e, function = self._apart(kind)
            value = emit(e, *function.args)
            e.b.ret_void() if value is None else e.b.ret(value)
            symbol, self.out.forms[symbol] = _named(e.unit)
            self.kept[emit] = symbol
        return self.b.call(self._declare(self.kept[emit], kind), arguments)

    def _apart(self, kind: ir.FunctionType) -> tuple[Shared, ir.Function]:
        """An emitter of a function in a module of its own."""
        e = copy.copy(self)
        e.unit = ir.Module("apart")
        function = ir.Function(e.unit, kind, "apart")
        e.b = ir.IRBuilder(function.append_basic_block("entry"))
        return e, function

    def _declare(self, symbol: str, kind: ir.FunctionType) -> ir.Function:
        """A function that is kept, in the module that calls it: the kernel's, or that of another form."""
        return self.unit.globals.get(symbol) or ir.Function(self.unit, kind, symbol)


def _named(unit: ir.Module) -> tuple[str, str]:
    """The symbol of the function of a module, and its IR. It has its text for a name: equal ones are compiled once."""
    text = str(unit)
    symbol = f"form_{hashlib.sha256(text.encode()).hexdigest()}"
    return symbol, text.replace('@"apart"', f"@{symbol}")


def _symbols(operands: Iterable[Operand]) -> Iterator[str]:
    """The names of what lies somewhere, in operands: variables, parameters and functions."""
    for operand in operands:
        match operand:
            case Symbol(name) | Address(Symbol(name)):
                yield name
            case Register(name) | Address(Register(name)) if name.lstrip("%") == RESERVED:
                yield RESERVED
            case Group(items):
                yield from _symbols(items)


def emit_steps(e: Shared, *arguments: ir.Value) -> ir.Value:
    """Call the function of each row from the first to the one before ``end``, until one has a status to tell."""
    b = e.b
    *records, first, end = arguments
    start, step, following, done = b.block, *(b.append_basic_block(name) for name in ("step", "following", "done"))
    b.branch(step)
    b.position_at_end(step)
    row = b.phi(POINTER)
    row.add_incoming(first, start)
    status = b.call(b.load(row, typ=ir.PointerType(FORM)), [*records, row])
    b.cbranch(b.icmp_unsigned("==", status, I64(Status.READY)), following, done)
    b.position_at_end(following)
    after = b.gep(row, [b.load(e.at(row, WORD * BYTES), typ=I64)], source_etype=I8)
    row.add_incoming(after, following)
    b.cbranch(b.icmp_unsigned("==", after, end), done, step)
    b.position_at_end(done)
    return status


class Row:
    """What an instruction has beyond its form: the registers that it names and constants, in the order of operands."""

    def __init__(self, kinds: dict[str, str], passes: bool) -> None:
        self.kinds = kinds
        self.passes = passes
        self.names: list[str] = []
        self.constants: list[int] = []

    def general(self, operand: Operand | Passed) -> Operand | Passed:
        """The operand as the form has it: with numbers of the row in place of registers and constants."""
        match operand:
            case Register(name) if name in self.kinds:
                if name not in self.names:
                    self.names.append(name)
                return Register(_name(self.names.index(name), self.kinds[name]))
            case Not(register):
                return Not(self.general(register))  # type: ignore[arg-type]
            case Group(items):
                return Group(tuple(map(self.general, items)))  # type: ignore[arg-type]
            case Address(base, offset):
                return Address(self.general(base), self._pass(offset) if offset else 0)  # type: ignore[arg-type]
            case Immediate(value, width) if self.passes and width <= 32:
                return self._pass(value)
        return operand

    def _pass(self, constant: int) -> Passed:
        self.constants.append(constant - (constant >> 63 << 64))  # as a signed number of 64 bits
        return Passed(len(self.constants) - 1)


def _name(place: int, kind: str) -> str:
    """A register of a form, by its place in the row."""
    return f"%{place}.{kind}"
