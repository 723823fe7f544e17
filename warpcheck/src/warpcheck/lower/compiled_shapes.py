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

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from llvmlite import ir
from llvmlite.ir.values import FormattedConstant

from warpcheck.layout import RESERVED, Status
from warpcheck.lower.code_unit import CodeUnit, name_by_content, new_function
from warpcheck.lower.control_flow import Flow, Ops
from warpcheck.lower.frame import Frame
from warpcheck.lower.instruction_emitter import InstructionEmitter
from warpcheck.lower.lane_builder import I8, I32, I64, POINTER, LaneBuilder
from warpcheck.lower.load_liveness import ProgramPoint
from warpcheck.lower.load_uses import LoadUse, LoadUses
from warpcheck.lower.operands import PassedConstant
from warpcheck.lower.register_file import RegisterFile
from warpcheck.lower.register_slots import CARRY
from warpcheck.lower.wgmma_hazards import HAZARD, hazards
from warpcheck.lowered_kernel import CompiledShape
from warpcheck.ptx import Address, Group, Immediate, Instruction, Not, Operand, Register, Symbol

__all__ = ["RowTable", "ShapeLookup", "emit_uncached"]

SHAPE_FUNCTION = ir.FunctionType(I64, [POINTER, POINTER, POINTER, I32, POINTER])
WORD = 8  # bytes of a number of a row
CODE, BYTES, SITE, BLOCK, POSITION, HEADER_WORDS = range(6)  # what a row has before its registers and constants


# Returns the shape that was cached under a name, or emits it now. The name determines the shape.
ShapeLookup = Callable[[str, Callable[[], CompiledShape]], CompiledShape]


def emit_uncached(name: str, emit: Callable[[], CompiledShape]) -> CompiledShape:
    return emit()


class RowTable:
    """The rows of a kernel, and the compiled shapes that they call.

    Args:
        e: Emits the kernel's own function.
        loads: How the results of its loads are used.
        slots: The offsets of its registers in the warp's record.
        look_up: Finds a shape that was compiled before.
    """

    def __init__(
        self,
        e: InstructionEmitter,
        flow: Flow,
        ops: Ops,
        loads: LoadUses,
        slots: Mapping[str, int],
        look_up: ShapeLookup,
    ) -> None:
        self._e = e
        self._ops = ops
        self._loads = loads
        self._slots = slots
        self._look_up = look_up
        self._hazards = hazards(flow, ops)
        self._shapes: dict[tuple[Instruction, LoadUse, bool], CompiledShape] = {}
        self._words: list[str] = []
        self._carried = False  # whether the row before has left a carry
        self._rows = ir.GlobalVariable(e.unit.module, I64, "rows")

    def emit_rows(self, index: int, instructions: Sequence[Instruction]) -> None:
        """Emit the rows of the first instructions of block ``index``, and the call that runs them."""
        start = len(self._words)
        self._carried = False
        # Constant predicates that loads name are computed once, at the entry of the kernel.
        for instruction in self._loads.demands.early if index == 0 else ():
            self._append(instruction, ProgramPoint(index, 0), LoadUse())
        for position, instruction in enumerate(instructions):
            point = ProgramPoint(index, position)
            # The check for a hazard comes before the instruction that may use the register.
            for kind, wgmma_position in sorted(self._hazards.get(point, ()), reverse=True):
                check = Instruction(HAZARD, (str(kind),), (Immediate(wgmma_position, 0),), None, instruction.line)
                self._append(check, point, LoadUse())
            for computation in self._loads.demands.ahead.get(point, {}).values():
                for computed in computation.instructions:
                    self._append(computed, point, LoadUse())
            self._append(instruction, point, self._loads.use_of(point))
        if start == len(self._words):
            return
        frame = self._e.frame
        b = frame.b
        ends = [b.at(self._rows, WORD * word) for word in (start, len(self._words))]
        arguments = [frame.launch, frame.cta, frame.warp, frame.mask_bits, *ends]
        status = self._e.unit.call_common(b, I64, arguments, emit_steps)
        with b.if_then(b.icmp_unsigned("!=", status, I64(Status.READY)), likely=False):
            b.ret(status)

    def define(self) -> str:
        """Define the kernel's rows, once all of them are known. Return IR that declares the shapes that they call."""
        self._rows.value_type = ir.ArrayType(I64, len(self._words))
        # As in constants.splat, llvmlite prints this text as it is, without an object for each number.
        self._rows.initializer = FormattedConstant(self._rows.value_type, "")
        self._rows.initializer.constant = f"[{', '.join(self._words)}]"
        self._rows.linkage = "internal"
        # As for the rows, an object of llvmlite for each shape would take longer than the text.
        parameters = ", ".join(map(str, SHAPE_FUNCTION.args))
        symbols = {shape.symbol for shape in self._shapes.values()}
        return "".join(f"declare {SHAPE_FUNCTION.return_type} @{symbol}({parameters})\n" for symbol in sorted(symbols))

    def _append(self, instruction: Instruction, point: ProgramPoint, use: LoadUse) -> None:
        """Append the row of an instruction, and make sure that its shape is compiled."""
        row = OperandRow(self._e.registers.kinds, self._ops[instruction.opcode].passes)
        operands = tuple(map(row.generalize, instruction.operands))
        guard = row.generalize(instruction.guard) if instruction.guard else None
        generalized = Instruction(instruction.opcode, instruction.modifiers, operands, guard)  # type: ignore[arg-type]
        # The predicates that a load names are registers: their slots are in the row, too.
        if use.using_lanes is not None:
            use = replace(use, using_lanes=row.generalize(use.using_lanes))  # type: ignore[arg-type]
        key = generalized, use, self._carried
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = self._find_shape(generalized, use, row, instruction.line)
        unit = self._e.unit
        operand_words = [*(self._slots[name] for name in row.names), *row.constants]
        header = (WORD * (HEADER_WORDS + len(operand_words)), len(unit.sites), point.block, point.position)
        self._words.append(f"i64 ptrtoint (ptr @{shape.symbol} to i64)")
        self._words += [f"i64 {number}" for number in (*header, *operand_words)]
        unit.sites += [replace(site, line=instruction.line, ptx_line=instruction.ptx_line) for site in shape.sites]
        self._carried = shape.carried

    def _find_shape(self, generalized: Instruction, use: LoadUse, row: OperandRow, line: int) -> CompiledShape:
        """Return the shape of an instruction with the registers and constants of ``row``."""
        layout = self._e.layout
        symbols = [layout.locate(name) for name in _symbols(generalized.operands)]
        # Whatever the code of a shape depends on has to be in its name, or a cached one would be wrong.
        name = repr((generalized, use, self._carried, symbols, layout.in_cluster, self._slots[CARRY.name]))
        # The line is for error messages only; the sites of a shape are on line 0 until a row places them.
        shape = self._look_up(name, lambda: self._emit_shape(replace(generalized, line=line), use, row))
        self._e.unit.checks |= shape.checks
        self._e.unit.functions |= shape.functions
        return shape

    def _emit_shape(self, generalized: Instruction, use: LoadUse, row: OperandRow) -> CompiledShape:
        """Emit the function of a shape: it reads slots and constants from its row."""
        function = new_function(SHAPE_FUNCTION)
        b = LaneBuilder(function.append_basic_block("entry"))
        # The row, which is read only, is no record.
        *records, mask_bits, words = function.args
        frame = Frame(b, tuple(records), self._e.frame.file)
        row_words = [
            b.load(b.at(words, WORD * index), typ=I64)
            for index in range(HEADER_WORDS + len(row.names) + len(row.constants))
        ]
        frame.location = (b.trunc(row_words[BLOCK], I32), b.trunc(row_words[POSITION], I32))
        slots = row_words[HEADER_WORDS : HEADER_WORDS + len(row.names)]
        kinds = {_name(index, row.kinds[name]): row.kinds[name] for index, name in enumerate(row.names)}
        registers = RegisterFile(
            frame,
            kinds | {CARRY.name: "pred"},
            dict(zip(kinds, slots, strict=True)) | {CARRY.name: self._slots[CARRY.name]},
        )
        e = InstructionEmitter(
            frame,
            CodeUnit(function.module, row_words[SITE]),
            registers,
            self._e.layout,
            self._ops,
            passed=row_words[HEADER_WORDS + len(row.names) :],
            row=b.at(words, WORD * HEADER_WORDS),
            use=use,
            carried=self._carried,
        )
        frame.set_mask(mask_bits)
        e.emit(generalized)
        registers.save()
        b.ret(I64(Status.READY))
        symbol, text = name_by_content(function.module)
        sites = [replace(site, line=0) for site in e.unit.sites]
        return CompiledShape(symbol, {**e.unit.functions, symbol: text}, sites, e.unit.checks, e.carried)


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


def emit_steps(b: LaneBuilder, *arguments: ir.Value) -> ir.Value:
    """Call the function of each row from the first one up to ``end``, until one returns another status than READY."""
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
    after = b.gep(row, [b.load(b.at(row, WORD * BYTES), typ=I64)], source_etype=I8)
    row.add_incoming(after, following)
    b.cbranch(b.icmp_unsigned("==", after, end), done, step)
    b.position_at_end(done)
    return status


class OperandRow:
    """The registers and constants that an instruction adds to its shape, in the order of its operands."""

    def __init__(self, kinds: Mapping[str, str], passes: bool) -> None:
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
