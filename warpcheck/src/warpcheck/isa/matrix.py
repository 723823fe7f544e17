"""Emit ldmatrix, stmatrix, movmatrix and mma, on matrices distributed over a warp. PTX ISA manual, section 9.7.14.

In all of them lane 4g + t belongs to row or column g and holds its t-th group of adjacent elements. A register of e
elements therefore holds the elements of a row from t * e on; the next register of that row begins 4e elements later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from llvmlite import ir

from warpcheck.isa.collectives import require_lanes
from warpcheck.isa.conversion import interleave, widen_narrow
from warpcheck.isa.memory import space_of
from warpcheck.isa.truncation import LEAST_EXPONENT, Term, add_terms, powers
from warpcheck.isa.values import F32, Kind, Value, constant, from_bits, intrinsic, items, to_bits
from warpcheck.layout import LANES, Access
from warpcheck.lower.instruction_emitter import InstructionEmitter
from warpcheck.lower.lane_builder import I32, LaneBuilder
from warpcheck.op import Op, live_lanes
from warpcheck.ptx import Instruction

__all__ = ["OPS"]

_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4, "u4": 4}


def shuffle(b: LaneBuilder, value: Value, lanes: list[int]) -> Value:
    """Return ``value`` of the lane that ``lanes`` names for each lane; the lanes are constants."""
    order = ir.Constant(ir.VectorType(I32, len(lanes)), lanes)
    return b.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), order)


def row_addresses(e: InstructionEmitter, i: Instruction, operand: int, count: int, access: Access) -> Value:
    """Return the checked addresses of 8 rows of 16 bytes for each of ``count`` matrices, from the first lanes."""
    addresses = e.memory.addresses(i.operands[operand], space_of(i))
    space = space_of(i)
    all_active = e.active
    # PTX ISA, "ldmatrix": lanes 0 to 7 have the rows of the first matrix, 8 to 15 those of the second, and so on.
    address_lanes = ir.Constant(ir.VectorType(ir.IntType(1), LANES), [lane < 8 * count for lane in range(LANES)])
    e.frame.active = e.b.and_(all_active, address_lanes)
    e.memory.check(addresses, space, access, 16)
    e.frame.active = all_active
    return addresses


def emit_ldmatrix(e: InstructionEmitter, i: Instruction) -> None:
    """Load two adjacent elements of a row into each lane; with ``.trans``, of a column."""
    require_lanes(e, i)
    targets = items(i.operands[0])
    addresses = row_addresses(e, i, 1, len(targets), Access.LOAD)
    for matrix, target in enumerate(targets):
        if "trans" in i.modifiers:
            halves = []
            for half_index in range(2):
                rows = shuffle(e.b, addresses, [8 * matrix + 2 * (lane % 4) + half_index for lane in range(LANES)])
                halves.append(
                    e.b.resize(e.memory.gather(at_element(e.b, rows, [lane // 4 for lane in range(LANES)]), 16), 32)
                )
            value = e.b.or_(halves[0], e.b.shl(halves[1], e.b.splat(16, 32)))
        else:
            rows = shuffle(e.b, addresses, [8 * matrix + lane // 4 for lane in range(LANES)])
            value = e.memory.gather(at_element(e.b, rows, [2 * (lane % 4) for lane in range(LANES)]), 32)
        e.write(target, value)


def emit_stmatrix(e: InstructionEmitter, i: Instruction) -> None:
    require_lanes(e, i)
    sources = items(i.operands[1])
    addresses = row_addresses(e, i, 0, len(sources), Access.STORE)
    for matrix, source in enumerate(sources):
        value = e.read(source, 32)
        if "trans" in i.modifiers:
            for half_index in range(2):
                rows = shuffle(e.b, addresses, [8 * matrix + 2 * (lane % 4) + half_index for lane in range(LANES)])
                half = e.b.resize(e.b.lshr(value, e.b.splat(16 * half_index, 32)), 16)
                e.memory.scatter(at_element(e.b, rows, [lane // 4 for lane in range(LANES)]), half)
        else:
            rows = shuffle(e.b, addresses, [8 * matrix + lane // 4 for lane in range(LANES)])
            e.memory.scatter(at_element(e.b, rows, [2 * (lane % 4) for lane in range(LANES)]), value)


def at_element(b: LaneBuilder, rows: Value, elements: list[int]) -> Value:
    """Return the addresses of 16-bit elements within rows."""
    return b.add(rows, ir.Constant(rows.type, [2 * element for element in elements]))


def emit_movmatrix(e: InstructionEmitter, i: Instruction) -> None:
    """Transpose an 8 x 8 matrix of 16-bit elements."""
    require_lanes(e, i)
    value = e.read(i.operands[1], 32)
    result = e.b.splat(0, 32)
    for half_index in range(2):
        row = [2 * (lane % 4) + half_index for lane in range(LANES)]
        # Element (r, c) is half c % 2 of lane 4r + c / 2. This lane takes column lane / 4 of two rows.
        word = shuffle(e.b, value, [4 * row[lane] + lane // 8 for lane in range(LANES)])
        shift = ir.Constant(word.type, [16 * (lane // 4 % 2) for lane in range(LANES)])
        half = e.b.and_(e.b.lshr(word, shift), e.b.splat(0xFFFF, 32))
        result = e.b.or_(result, e.b.shl(half, e.b.splat(16 * half_index, 32)))
    e.write(i.operands[0], result)


def emit_mma(e: InstructionEmitter, i: Instruction) -> None:
    """Emit ``mma.sync.aligned.m16n8kK.row.col.d.a.b.c {d}, {a}, {b}, {c}``: d = a b + c."""
    require_lanes(e, i)
    shape = i.modifiers[2]
    # float64 has a layout and a rounding (fma) of its own.
    if i.modifiers[-1] == "f64":
        multiply_doubles(e, i, int(shape.partition("k")[2]))
        return
    to, a_type, b_type, c_type = i.modifiers[-4:]
    saturates = "satfinite" in i.modifiers
    a, b = ([e.read(item, 32) for item in items(operand)] for operand in i.operands[1:3])
    accumulator_values = accumulators(e.b, [e.read(item, 32) for item in items(i.operands[3])], Kind(c_type))
    sums = (
        [constant(value, 0) for value in accumulator_values] if saturates else accumulator_values
    )  # the product alone cannot overflow

    def product(builder: LaneBuilder, *words: Value) -> Value:
        fragments = Fragment(builder, words[: len(a)], a_type), Fragment(builder, words[len(a) : -4], b_type)
        totals = multiply(builder, *fragments, list(words[-4:]))
        value = ir.Constant(four, ir.Undefined)
        for number, total in enumerate(totals):
            value = builder.insert_value(value, total, number)
        return value

    four = ir.LiteralStructType([value.type for value in sums])
    result = e.b.call_local(f"{shape}.{a_type}.{b_type}.{sums[0].type.element}", four, [*a, *b, *sums], product)
    values = [e.b.extract_value(result, number) for number in range(4)]
    if saturates:
        values = [intrinsic(e.b, "sadd.sat", *pair) for pair in zip(accumulator_values, values, strict=True)]
    for target, value in zip(items(i.operands[0]), pack(e.b, values, Kind(to)), strict=True):
        e.write(target, value)


def multiply_doubles(e: InstructionEmitter, i: Instruction, depth: int) -> None:
    """Emit mma of float64: of every 4 k, lane 4g + t has element t of rows g and g + 8 of a, and of column g of b.

    In m8n8k4 there is no row g + 8. The accumulators are (g, 2t) and (g, 2t + 1), then those of row g + 8.
    """
    a, b, sums = (
        [from_bits(e.b, e.read(item, 64), Kind("f64")) for item in items(operand)] for operand in i.operands[1:4]
    )
    halves = len(sums) // 2
    for k in range(depth):
        of_a = [
            shuffle(e.b, a[k // 4 * halves + n], [lane // 4 * 4 + k % 4 for lane in range(LANES)])
            for n in range(halves)
        ]
        of_b = [shuffle(e.b, b[k // 4], [(2 * (lane % 4) + n) * 4 + k % 4 for lane in range(LANES)]) for n in range(2)]
        sums = [intrinsic(e.b, "fma", of_a[n // 2], of_b[n % 2], total) for n, total in enumerate(sums)]
    for target, value in zip(items(i.operands[0]), sums, strict=True):
        e.write(target, to_bits(e.b, value, Kind("f64")))


def accumulators(b: LaneBuilder, registers: list[Value], kind: Kind) -> list[Value]:
    """Return the four accumulators of a lane: row g, then row g + 8, columns 2t and 2t + 1."""
    # A float16 accumulator has two columns in one register.
    if kind.name != "f16":
        return [from_bits(b, register, kind) for register in registers]
    return [from_bits(b, half(b, register, half_index), kind) for register in registers for half_index in range(2)]


def half(b: LaneBuilder, word: Value, half_index: int) -> Value:
    return b.resize(b.lshr(word, constant(word, 16 * half_index)), 16)


def pack(b: LaneBuilder, values: list[Value], kind: Kind) -> list[Value]:
    bits = [to_bits(b, value, kind) for value in values]
    if kind.name != "f16":
        return bits
    words = [b.resize(value, 32) for value in bits]
    pairs = zip(words[::2], words[1::2], strict=True)
    return [b.or_(low, b.shl(high, constant(high, 16))) for low, high in pairs]


class Fragment:
    """The elements of an operand, as float32 or 32-bit integers: one vector of lanes for each element of a register."""

    def __init__(self, b: LaneBuilder, registers: Sequence[Value], kind: str) -> None:
        self.kind = kind
        self.per_word = 32 // _BITS[kind]
        self.places = [element(b, word, place, kind) for word in registers for place in range(self.per_word)]

    def locate(self, k: int) -> tuple[int, int, int]:
        """Return the register of element k of a row or column, its index there, and t of the lane that holds it."""
        return k // (4 * self.per_word), k % self.per_word, k // self.per_word % 4


def multiply(builder: LaneBuilder, a: Fragment, b: Fragment, sums: list[Value]) -> list[Value]:
    """Compute row after row of the result: the sum over k of one element of a times a row of b."""
    element_type = sums[0].type.element
    # One vector operation for each row and k: an element of a, broadcast, times 8 columns of b.
    # A's registers alternate between rows g and g + 8, then the next elements along k: two registers of `step` numbers
    # for each word of locate. In each, element by element, a vector of lanes 4g + t.
    step = a.per_word * LANES
    matrix = array(builder, a.places)
    result = array(builder, [interleave(builder, *sums[:2]), interleave(builder, *sums[2:])])
    rows = []
    for k in range(len(b.places) * 4):
        word, index, t = b.locate(k)
        # Row k of B: its column n is in lane 4n + t.
        rows.append(shuffle(builder, b.places[word * b.per_word + index], [4 * n + t for n in range(8)]))
    is_float = element_type == F32
    a_powers = array(builder, [powers(builder, x, LEAST_EXPONENT[a.kind]) for x in a.places]) if is_float else matrix
    row_powers = [powers(builder, row, LEAST_EXPONENT[b.kind]) for row in rows] if is_float else []
    with count_loop(builder, 16) as i:
        high, low = builder.lshr(i, I32(3)), builder.and_(i, I32(7))
        a_row_start = builder.add(builder.mul(high, I32(step)), builder.mul(low, I32(4)))
        result_row = builder.gep(result, [builder.mul(i, I32(8))], source_etype=element_type)
        total = builder.load(result_row, typ=rows[0].type, align=4)

        def from_a(values: Value, k: int, vector: ir.VectorType, start: Value = a_row_start) -> Value:
            word, index, t = a.locate(k)
            place = builder.add(start, I32(2 * word * step + index * LANES + t))
            pointer = builder.gep(values, [place], source_etype=vector.element)
            return spread(builder, builder.load(pointer, typ=vector.element), vector)

        if is_float:
            terms = [
                Term((from_a(matrix, k, row.type), row), (from_a(a_powers, k, power.type), power))
                for k, (row, power) in enumerate(zip(rows, row_powers, strict=True))
            ]
            total = add_products(builder, a.kind, total, terms)
        else:
            for k, row in enumerate(rows):
                total = multiply_add(builder, from_a(matrix, k, row.type), row, total)
        builder.store(total, result_row, align=4)
    halves = ir.VectorType(element_type, 2 * LANES)
    upper = builder.gep(result, [I32(2 * LANES)], source_etype=element_type)
    halves_of_result = [builder.load(index, typ=halves, align=4) for index in (result, upper)]
    return [
        shuffle(builder, half, [2 * lane + j for lane in range(LANES)]) for half in halves_of_result for j in range(2)
    ]


def add_products(b: LaneBuilder, kind: str, accumulator: Value, terms: Sequence[Term]) -> Value:
    """Add all products of an instruction to the accumulator as an H200 does, whose tensor cores add up to 16 at once.

    Hopper has no mma.sync for 8-bit floats. ptxas converts the operands to float16, multiplies the lower halves of all
    registers, adds the product of the upper halves, and adds the accumulator last, by FADD (nvdisasm shows this).
    """
    if _BITS[kind] != 8:
        return add_terms(b, accumulator, terms)
    total = constant(accumulator, 0.0)
    for half_index in range(2):
        total = add_terms(b, total, [term for k, term in enumerate(terms) if k % 4 // 2 == half_index])
    return b.fadd(accumulator, total)


def array(b: LaneBuilder, vectors: Sequence[Value]) -> Value:
    """Store vectors one after another on the stack; return the address of the first number."""
    storage = b.alloca(ir.ArrayType(vectors[0].type, len(vectors)))
    storage.align = 64
    memory = b.inttoptr(b.ptrtoint(storage, ir.IntType(64)), ir.PointerType())
    for number, vector in enumerate(vectors):
        b.store(vector, b.gep(memory, [I32(number)], source_etype=vector.type), align=4)
    return memory


def spread(b: LaneBuilder, number: Value, vector: ir.VectorType) -> Value:
    first = b.insert_element(ir.Constant(vector, ir.Undefined), number, I32(0))
    return shuffle(b, first, [0] * vector.count)


@contextmanager
def count_loop(b: LaneBuilder, end: int | Value) -> Iterator[Value]:
    """Emit a loop; yield the number of the iteration, from 0."""
    before = b.block
    body = b.append_basic_block()
    after = b.append_basic_block()
    b.branch(body)
    b.position_at_end(body)
    iteration = b.phi(I32)
    iteration.add_incoming(I32(0), before)
    yield iteration
    following = b.add(iteration, I32(1))
    iteration.add_incoming(following, b.block)
    last = I32(end) if isinstance(end, int) else end
    b.cbranch(b.icmp_unsigned("<", following, last), body, after)
    b.position_at_end(after)


def element(b: LaneBuilder, word: Value, index: int, name: str) -> Value:
    """Return one element of a register, as float32 or a 32-bit integer."""
    # tf32 has the upper 19 bits of its register: sign, exponent, 10 bits of fraction.
    if name == "tf32":
        return b.bitcast(b.and_(word, constant(word, -1 << 13)), ir.VectorType(F32, LANES))
    bits = _BITS[name]
    part = b.resize(b.lshr(word, constant(word, index * bits)), bits)
    if name.startswith("e"):
        return widen_narrow(b, part, name)
    return from_bits(b, part, Kind(name)) if "f" in name else b.resize(part, 32, signed=name.startswith("s"))


def multiply_add(b: LaneBuilder, x: Value, y: Value, z: Value) -> Value:
    if x.type.element == F32:
        return intrinsic(b, "fma", x, y, z)
    return b.add(b.mul(x, y), z)


# The manual's order of modifiers, and the other orders that ptxas accepts.
_MATRICES = (
    "sync aligned m8n8 x1|x2|x4 trans? SHARED? b16",
    "sync aligned x1|x2|x4 trans? m8n8 SHARED? b16",
    "sync aligned x1|x2|x4 m8n8 trans SHARED? b16",
)

OPS = (
    Op("ldmatrix", _MATRICES, emit_ldmatrix, lanes=live_lanes),
    Op("stmatrix", _MATRICES, emit_stmatrix, lanes=live_lanes, results=0),
    Op("movmatrix", ("sync aligned m8n8 trans b16",), emit_movmatrix, lanes=live_lanes),
    Op(
        "mma",
        (
            "sync aligned m8n8k4|m16n8k4|m16n8k8|m16n8k16 row col rn? f64 f64 f64 f64",
            "sync aligned m16n8k8|m16n8k16 row col f16|f32 f16 f16 f16|f32",
            "sync aligned m16n8k8|m16n8k16 row col f32 bf16 bf16 f32",
            "sync aligned m16n8k4|m16n8k8 row col f32 tf32 tf32 f32",
            "sync aligned m16n8k16|m16n8k32 row col f16 e4m3|e5m2 e4m3|e5m2 f16",
            "sync aligned m16n8k16|m16n8k32 row col f32 e4m3|e5m2 e4m3|e5m2 f32",
            "sync aligned m16n8k16|m16n8k32 row col satfinite? s32 s8|u8 s8|u8 s32",
            "sync aligned m16n8k32|m16n8k64 row col satfinite? s32 s4|u4 s4|u4 s32",
        ),
        emit_mma,
        lanes=live_lanes,
    ),
)
