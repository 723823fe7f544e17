"""Emit direct-threaded code: compiled shapes that instructions share, and the rows that call them.

A kernel of ten thousand instructions has some fifty shapes: an opcode with its modifiers, and registers of the same
types in the same operands. Each shape is compiled once, as a function of a row: the slots of its registers, and its
constants. Compiled shapes are cached on disk across kernels. A basic block is a sequence of rows, and ``emit_steps``
runs it: it calls the function of each row in turn (a direct-threaded interpreter, Bell 1973). So the compile time of a
kernel is that of the shapes that no kernel before it had.

A row, in 64-bit words:

    0  CODE          address of the shape's function
    1  BYTES         of the row: the next row begins there
    2  SITE          number of the instruction's first access site
    3  BLOCK         number of the basic block
    4  POSITION      of the instruction in it
    5  HEADER_WORDS  the slot of each register, then each constant that is passed
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from llvmlite import ir
from llvmlite.ir.values import FormattedConstant

from warpcheck.layout import RESERVED, Status
from warpcheck.lower.control_flow import Flow, Ops
from warpcheck.lower.load_liveness import ProgramPoint
from warpcheck.lower.loads import Loads, LoadUse
from warpcheck.lower.register_slots import CARRY
from warpcheck.lower.registers import PassedConstant
from warpcheck.lower.vectors import I8, I32, I64, POINTER
from warpcheck.lower.wgmma_hazards import HAZARD, hazards
from warpcheck.lowered_kernel import CompiledShape
from warpcheck.ptx import Address, Function, Group, Immediate, Instruction, Module, Not, Operand, Register, Symbol

__all__ = ["ShapeLookup", "Shared", "emit_uncached"]

SHAPE_FUNCTION = ir.FunctionType(I64, [POINTER, POINTER, POINTER, I32, POINTER])
WORD = 8  # bytes of a number of a row
CODE, BYTES, SITE, BLOCK, POSITION, HEADER_WORDS = range(6)  # what a row has before its registers and constants


ShapeLookup = Callable[[str, Callable[[], CompiledShape]], CompiledShape]
"""Returns the shape that was cached under a name, or emits it now. The name determines the shape."""


def emit_uncached(name: str, emit: Callable[[], CompiledShape]) -> CompiledShape:
    return emit()


class Shared(Loads):
    """Emits instructions as rows, and the functions that these rows call."""

    index: int

    def __init__(self, module: Module, kernel: Function, flow: Flow, ops: Ops, lookup: ShapeLookup) -> None:
        super().__init__(module, kernel, flow, ops)
        self.look_up = lookup
        self.shapes: dict[tuple[Instruction, LoadUse, bool], CompiledShape] = {}
        self.common_symbols: dict[Callable[..., ir.Value | None], str] = {}
        self.numbers: list[str] = []
        self.hazards = hazards(flow, ops)
        self.rows = ir.GlobalVariable(self.unit, I64, "rows")

    def emit_shared(self, instructions: Sequence[Instruction]) -> None:
        """Emit the rows of the first instructions of a block, and the call that runs them."""
        start = len(self.numbers)
        self.carried = False
        # Constant predicates that loads name are computed once, at the entry of the kernel.
        for instruction in self.demands.early if self.index == 0 else ():
            self._append_row(instruction, 0, LoadUse())
        for position, instruction in enumerate(instructions):
            # The check for a hazard comes before the instruction that may use the register.
            for kind, wgmma_position in sorted(self.hazards.get(ProgramPoint(self.index, position), ()), reverse=True):
                row = Instruction(HAZARD, (str(kind),), (Immediate(wgmma_position, 0),), None, instruction.line)
                self._append_row(row, position, LoadUse())
            for computation in self.demands.ahead.get(ProgramPoint(self.index, position), {}).values():
                for computed in computation.instructions:
                    self._append_row(computed, position, LoadUse())
            self._append_row(instruction, position, self.use_of(ProgramPoint(self.index, position)))
        if start == len(self.numbers):
            return
        ends = [self.at(self.rows, WORD * word) for word in (start, len(self.numbers))]
        status = self.call_common(I64, [self.launch, self.cta, self.warp, self.mask_bits, *ends], emit_steps)
        with self.b.if_then(self.b.icmp_unsigned("!=", status, I64(Status.READY)), likely=False):
            self.b.ret(status)

    def place_rows(self) -> None:
        """Define the kernel's rows, once all of them are known."""
        self.rows.value_type = ir.ArrayType(I64, len(self.numbers))
        # As in constants.splat, llvmlite prints this text as it is, without an object for each number.
        self.rows.initializer = FormattedConstant(self.rows.value_type, "")
        self.rows.initializer.constant = f"[{', '.join(self.numbers)}]"
        self.rows.linkage = "internal"

    def emit(self, instruction: Instruction) -> None:
        """Emit one instruction at the present position."""
        raise NotImplementedError

    def _append_row(self, instruction: Instruction, position: int, use: LoadUse) -> None:
        """Append the row of an instruction, and make sure that its shape is compiled."""
        row = OperandRow(self.registers, self.ops[instruction.opcode].passes)
        operands = tuple(map(row.generalize, instruction.operands))
        guard = row.generalize(instruction.guard) if instruction.guard else None
        generalized = Instruction(instruction.opcode, instruction.modifiers, operands, guard)  # type: ignore[arg-type]
        # The predicates that a load names are registers: their slots are in the row, too.
        use = replace(use, using_lanes=row.generalize(use.using_lanes) if use.using_lanes else None)  # type: ignore[arg-type]
        shape = self.shapes.get((generalized, use, self.carried))
        if shape is None:
            shape = self._look_up_shape(generalized, use, row, instruction.line)
            self.shapes[generalized, use, self.carried] = shape
        operand_words = [*(self.slots[name] for name in row.names), *row.constants]
        header = (WORD * (HEADER_WORDS + len(operand_words)), len(self.out.sites), self.index, position)
        self.numbers.append(f"i64 ptrtoint (ptr @{shape.symbol} to i64)")
        self.numbers += [f"i64 {number}" for number in (*header, *operand_words)]
        self.out.sites += [replace(site, line=instruction.line, ptx_line=instruction.ptx_line) for site in shape.sites]
        self.carried = shape.carried

    def _look_up_shape(self, generalized: Instruction, use: LoadUse, row: OperandRow, line: int) -> CompiledShape:
        """Return the shape of an instruction with the registers and constants of ``row``."""
        symbols = [self.symbol_place(name) for name in _symbols(generalized.operands)]
        # Whatever the code of a shape depends on has to be in its name, or a cached one would be wrong.
        name = repr((generalized, use, self.carried, symbols, self.in_cluster, self.slots[CARRY.name]))
        # The line is for error messages only; the sites of a shape are on line 0 until a row places them.
        shape = self.look_up(name, lambda: self._emit_shape(replace(generalized, line=line), use, row))
        self.out.checks |= shape.checks
        self.out.functions |= shape.functions
        self._declare(shape.symbol, SHAPE_FUNCTION)
        return shape

    def _emit_shape(self, generalized: Instruction, use: LoadUse, row: OperandRow) -> CompiledShape:
        """Emit the function of a shape: it reads slots and constants from its row."""
        e, function = self._new_function(SHAPE_FUNCTION)
        e.launch, e.cta, e.warp, e.mask_bits, numbers = function.args
        # The records do not overlap; the row, which is read only, is no record.
        for argument in function.args[:3]:
            argument.add_attribute("noalias")
        row_words = [
            e.b.load(e.at(numbers, WORD * index), typ=I64)
            for index in range(HEADER_WORDS + len(row.names) + len(row.constants))
        ]
        e.first_site = row_words[SITE]
        e.location = (e.b.trunc(row_words[BLOCK], I32), e.b.trunc(row_words[POSITION], I32))
        e.registers = {_name(index, self.registers[name]): self.registers[name] for index, name in enumerate(row.names)}
        e.slots = dict(zip(e.registers, row_words[HEADER_WORDS:], strict=False)) | {CARRY.name: self.slots[CARRY.name]}
        e.registers[CARRY.name] = "pred"
        e.passed = row_words[HEADER_WORDS + len(row.names) :]
        e.row = e.at(numbers, WORD * HEADER_WORDS)
        e.values = {}
        e.written = set()
        e.mask_lanes = e.as_lanes(e.mask_bits)
        # A shape has sites, checks and functions of its own. The table of symbols stays the kernel's: the numbers in it
        # are part of the shape's name.
        e.out = replace(self.out, sites=[], checks=set(), functions={})
        e.use = use
        e.common_symbols = {}
        e.emit(generalized)
        e.save()
        e.b.ret(I64(Status.READY))
        symbol, text = _named(e.unit)
        sites = [replace(site, line=0) for site in e.out.sites]
        return CompiledShape(symbol, {**e.out.functions, symbol: text}, sites, e.out.checks, e.carried)

    def call_common(self, result: ir.Type, arguments: list[ir.Value], emit: Callable[..., ir.Value | None]) -> ir.Value:
        """Call a function that kernels have in common. ``emit`` depends on nothing but its arguments."""
        kind = ir.FunctionType(result, [value.type for value in arguments])
        # Emitted once for a kernel; equal texts have equal symbols, so kernels share the compiled code.
        if emit not in self.common_symbols:
            e, function = self._new_function(kind)
            value = emit(e, *function.args)
            e.b.ret_void() if value is None else e.b.ret(value)
            symbol, self.out.functions[symbol] = _named(e.unit)
            self.common_symbols[emit] = symbol
        return self.b.call(self._declare(self.common_symbols[emit], kind), arguments)

    def _new_function(self, kind: ir.FunctionType) -> tuple[Shared, ir.Function]:
        """Return an emitter of a function in a module of its own."""
        # A shallow copy shares the kernel's registers and operations, but emits into another module.
        e = copy.copy(self)
        e.unit = ir.Module("apart")
        function = ir.Function(e.unit, kind, "apart")
        e.b = ir.IRBuilder(function.append_basic_block("entry"))
        return e, function

    def _declare(self, symbol: str, kind: ir.FunctionType) -> ir.Function:
        """Declare a compiled function in the module that calls it."""
        return self.unit.globals.get(symbol) or ir.Function(self.unit, kind, symbol)


def _named(unit: ir.Module) -> tuple[str, str]:
    """Return the symbol of a module's function, and its IR. The symbol is a digest of the text, so equal ones
    coincide.
    """
    text = str(unit)
    symbol = f"shape_{hashlib.sha256(text.encode()).hexdigest()}"
    return symbol, text.replace('@"apart"', f"@{symbol}")


def _symbols(operands: Iterable[Operand]) -> Iterator[str]:
    """Yield the names of variables, parameters and functions in operands."""
    for operand in operands:
        match operand:
            case Symbol(name) | Address(Symbol(name)):
                yield name
            case Register(name) | Address(Register(name)) if name.lstrip("%") == RESERVED:
                yield RESERVED
            case Group(items):
                yield from _symbols(items)


def emit_steps(e: Shared, *arguments: ir.Value) -> ir.Value:
    """Call the function of each row from the first one up to ``end``, until one returns another status than READY."""
    b = e.b
    *records, first, end = arguments
    start, step, following, done = b.block, *(b.append_basic_block(name) for name in ("step", "following", "done"))
    # step: status = row->code(records, row); if (status != READY) return status; row += row->bytes; until row == end
    b.branch(step)
    b.position_at_end(step)
    row = b.phi(POINTER)
    row.add_incoming(first, start)
    status = b.call(b.load(row, typ=ir.PointerType(SHAPE_FUNCTION)), [*records, row])
    b.cbranch(b.icmp_unsigned("==", status, I64(Status.READY)), following, done)
    b.position_at_end(following)
    after = b.gep(row, [b.load(e.at(row, WORD * BYTES), typ=I64)], source_etype=I8)
    row.add_incoming(after, following)
    b.cbranch(b.icmp_unsigned("==", after, end), done, step)
    b.position_at_end(done)
    return status


class OperandRow:
    """The registers and constants that an instruction adds to its shape, in the order of its operands."""

    def __init__(self, kinds: dict[str, str], passes: bool) -> None:
        self.kinds = kinds
        self.passes = passes
        self.names: list[str] = []
        self.constants: list[int] = []

    def generalize(self, operand: Operand | PassedConstant) -> Operand | PassedConstant:
        """Return the operand as the shape has it, with numbers of the row in place of registers and constants."""
        match operand:
            case Register(name) if name in self.kinds:
                if name not in self.names:
                    self.names.append(name)
                return Register(_name(self.names.index(name), self.kinds[name]))
            case Not(register):
                return Not(self.generalize(register))  # type: ignore[arg-type]
            case Group(items):
                return Group(tuple(map(self.generalize, items)))  # type: ignore[arg-type]
            case Address(base, offset):
                return Address(self.generalize(base), self._pass(offset) if offset else 0)  # type: ignore[arg-type]
            case Immediate(value, width) if self.passes and width <= 32:
                # A double is converted to the size of its use when the code is emitted (registers._immediate_bits), so
                # it cannot be passed.
                return self._pass(value)
        return operand

    def _pass(self, constant: int) -> PassedConstant:
        self.constants.append(constant - (constant >> 63 << 64))  # as a signed number of 64 bits
        return PassedConstant(len(self.constants) - 1)


def _name(point: int, kind: str) -> str:
    """Return the name of a register of a shape, by its number in the row."""
    return f"%{point}.{kind}"
