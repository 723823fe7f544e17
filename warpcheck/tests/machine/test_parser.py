"""Test the PTX parser with generated instructions in any layout, scopes, and text that is not PTX."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from machine.programs import wrap
from warpcheck import ptx, simt
from warpcheck.isa import is_known
from warpcheck.ptx import Address, Group, Immediate, Instruction, Not, Operand, Register, Symbol

# Strategies that generate parsed instructions. The tests print them with white space and comments between any tokens.

SPACES = st.sampled_from(
    [" ", "\t", "\n", "\r\n", " \n\t ", "// a comment; } {\n", "/* over\n two ; lines */", " /**/ "]
)
NAMES = st.sampled_from(["%r1", "%rd22", "%f0", "%p3", "%tid.x", "_", "%envreg7", "mine"])
REGISTERS = NAMES.map(Register)
PREDICATES = st.sampled_from(["%p3", "mine", "$q"]).map(Register)
SYMBOLS = st.sampled_from(["table", "_ZZ3fooE1s", "$str", "array_1"])
NUMBERS = st.integers(-(2**31), 2**64 - 1)


def tokenize_immediate(value: Immediate) -> list[str]:
    if value.width:
        return [f"0{'f' if value.width == 32 else 'd'}{value.value:0{value.width // 4}X}"]
    return ["-", str(-value.value)] if value.value < 0 else [str(value.value)]


def tokenize(operand: Operand) -> list[str]:
    """Return the tokens of an operand. White space and comments may separate them."""
    match operand:
        case Register(name):
            return [name]
        case Not(register):
            return ["!", register.name]
        case Immediate():
            return tokenize_immediate(operand)
        case Symbol(name, offset):
            return [name, *(["+", str(offset)] if offset else [])]
        case Address(base, offset):
            return ["[", *tokenize(base), *(["+" if offset > 0 else "-", str(abs(offset))] if offset else []), "]"]
        case Group(items):
            return ["{", *join_with_commas([tokenize(item) for item in items]), "}"]
    raise TypeError(operand)


def join_with_commas(items: list[list[str]]) -> list[str]:
    return [word for n, item in enumerate(items) for word in ([","] if n else []) + item]


OPERANDS: st.SearchStrategy[Operand] = st.one_of(
    REGISTERS,
    REGISTERS.map(Not),
    NUMBERS.map(Immediate),
    st.builds(Immediate, st.integers(0, 2**32 - 1), st.just(32)),
    st.builds(Immediate, st.integers(0, 2**64 - 1), st.just(64)),
    st.builds(Symbol, SYMBOLS, st.integers(0, 99)),
    st.builds(Address, st.one_of(REGISTERS, SYMBOLS.map(Symbol)), st.integers(-4096, 4096)),
    st.lists(st.one_of(REGISTERS, NUMBERS.map(Immediate)), min_size=1, max_size=4).map(lambda x: Group(tuple(x))),
)
INSTRUCTIONS = st.builds(
    Instruction,
    opcode=st.sampled_from(["add", "ld", "st", "mma", "cp", "mad24", "bar"]),
    modifiers=st.lists(st.sampled_from(["s32", "L2::128B", "global", "shared::cta", "m16n8k16"]), max_size=4).map(
        tuple
    ),
    operands=st.lists(OPERANDS, max_size=4).map(tuple),
    guard=st.one_of(st.none(), PREDICATES, PREDICATES.map(Not)),
)


@given(INSTRUCTIONS, st.data())
def test_an_instruction_is_parsed_in_any_layout(instruction: Instruction, data: st.DataObject) -> None:
    def draw_separator() -> str:
        return data.draw(st.one_of(st.just(""), SPACES))

    guard = ["@", *tokenize(instruction.guard)] if instruction.guard else []
    text = "".join(word + draw_separator() for word in guard)
    text += " " * bool(guard) + instruction.name
    operands = join_with_commas([tokenize(operand) for operand in instruction.operands])
    text += (
        data.draw(SPACES) * bool(operands)
        + "".join(word + draw_separator() for word in operands)
        + draw_separator()
        + ";"
    )
    try:
        parsed = ptx.parse(wrap(".reg .b32 mine;" + text)).functions["k"].body
    except ptx.PtxSyntaxError as error:
        raise AssertionError(text) from error  # show the text that hypothesis generated
    assert parsed == (instruction,), text


SCRAPS = """[ ] ( ) { } ; , : . @ ! | + - < > = " / * // /* .reg .b32 .param .align .entry .func %r<9> 0x %r1 %p1 @%p1
bra L L: 1.0e 0f3F8 99999999999999999999 é ٣ .visible .file call .branchtargets brx.idx mov.b32 ret; .section
.shared ld.global.u32 .loc 1 2 3 .target ex2.approx.f32 mad.wide.s32 @!%p2 bar.sync 0 L::x } ; ; %tid.x
{%r1,%r2} [%rd1] [%rd1+4] st.global.f32"""


@given(st.lists(st.sampled_from(SCRAPS.split()), max_size=40).map(" ".join), st.booleans())
@example(".reg .b32 %r<999999999999>;", True)
@example(".shared .align 0 .b8 s[4];", True)
@example(".shared .b31 s[4];", True)
@example(".global .u32 s[2] = {1, -};", False)
@example("mov.b32 %r1, " + "!" * 5000 + "%p1;", True)
@example("mov.b32 %r1, " + "{" * 5000 + ";", True)
@example("add.s32 %r1, 089;", True)
@example("add.s32 %r1 %r2 %r3;", True)
@example("@%p1;", True)
@example("ret; }", True)
@example("{", True)
@example("/*" * 3000, False)
def test_arbitrary_text_raises_only_expected_errors(scraps: str, inside: bool) -> None:
    text = wrap(scraps) if inside else scraps
    try:
        module = simt.Module(text, None)
        for name in module.kernels:
            module.compile(name)
    except (ValueError, simt.Unsupported):
        pass


MALFORMED = """add.s32 %r1 %r2, %r3; | add.s32 %r1, %r2,; | mov.b32 %r1, {%r1; | mov.b32 %r1, %r2}; | mov.b32 %r1, [%r2;
mov.b32 %r1, 0xg; | mov.b32 %r1, 08; | @ bra; | mov.b32 %r1, -%r2; | .reg .b33 %x; | .reg .b32 %x<;
L: L: ret; | bra L; | add.s32 %r1, %r2; | ld.global.u32 %r1; | add.s32 5, %r1, %r2; | mov.b32 %r1;
brx.idx %r1, %r2; | bra; | st.global.u32 %r1, %r2;"""


@pytest.mark.parametrize("statement", re.split(r" \| |\n", MALFORMED))
def test_a_malformed_statement_is_an_error(statement: str) -> None:
    with pytest.raises((ValueError, simt.Unsupported), match=r"line|cannot read|label"):
        simt.Module(wrap(statement), None).compile("k")


@pytest.mark.parametrize("space", [" ", "\n", "\t", "\r\n ", " /* f32 */ ", "// f32\n"])
def test_any_white_space_ends_an_opcode(space: str) -> None:
    """CuTe breaks the line after ``mma.sync...f32``. The newline must not become part of the last modifier."""
    name = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    text = f"@%p1{space}{name}{space}{{%f0}},{{%r1}},{{%r2}},{{%f0}};"
    (instruction,) = ptx.parse(wrap(text)).functions["k"].body
    assert instruction.name == name
    assert instruction.guard == Register("%p1")
    assert is_known(instruction)


def test_number_formats() -> None:
    texts = ["017", "0x1fU", "0b101", "-0x10", "1.5", "-2.", "1e3", "0f3F800000", "-0d3FF0000000000000"]
    (instruction,) = ptx.parse(wrap(f"add {', '.join(texts)};")).functions["k"].body
    bits_of_1, bits_of_1000 = 0x3FF0000000000000, 0x408F400000000000
    assert instruction.operands == (
        *map(Immediate, (15, 31, 5, -16)),
        Immediate(0x3FF8000000000000, 64),
        Immediate(0xC000000000000000, 64),
        Immediate(bits_of_1000, 64),
        Immediate(0x3F800000, 32),
        Immediate(bits_of_1 | 1 << 63, 64),
    )


def test_labels_belong_to_their_braces() -> None:
    """CuTe's waits branch forward and backward, to equal names in two blocks and to a label of the function."""
    text = """
    { bra DONE; WAIT: add.s32 %r1, %r1, 1; @%p1 bra WAIT; DONE: }
    { bra.uni DONE; WAIT: add.s32 %r1, %r1, 2; { bra OUT; bra WAIT; } DONE: bra END; }
    OUT: END: ret;"""
    function = ptx.parse(wrap(text)).functions["k"]
    jumps = [i.operands[0] for i in function.body if i.opcode == "bra"]
    targets = [function.labels[jump.name] for jump in jumps if isinstance(jump, Symbol)]
    assert targets == [3, 1, 7, 8, 4, 8]


def test_branch_targets_belong_to_their_braces() -> None:
    text = "{ ts: .branchtargets A, B; brx.idx %r1, ts; A: ret; B: ret; } { ts: .branchtargets A; brx.idx %r1, ts; A: }"
    function = ptx.parse(wrap(text)).functions["k"]
    assert [[function.labels[name] for name in table] for table in function.tables.values()] == [[1, 2], [4]]


def test_elements_of_a_vector_register_are_registers() -> None:
    text = """
    { .reg .v4 .f32 a; mov.f32 a.x, %f1; mov.f32 a.w, a.r; st.global.v4.f32 [%rd1], a; }
    { .reg .v2 .b32 %a<2>; mov.b32 %a1.g, %r1; mov.b64 %rd1, %a1; }"""
    function = ptx.parse(wrap(text)).functions["k"]
    first = [f"a@1.{suffix}" for suffix in "xyzw"]
    second = ["%a1@2.x", "%a1@2.y"]
    assert [i.operands for i in function.body] == [
        (Register(first[0]), Register("%f1")),
        (Register(first[3]), Register(first[0])),
        (Address(Register("%rd1")), Group(tuple(map(Register, first)))),
        (Register(second[1]), Register("%r1")),
        (Register("%rd1"), Group(tuple(map(Register, second)))),
    ]
    assert {function.registers[name] for name in first} == {"f32"}


@pytest.mark.parametrize("name", ["a.z", "a.xy", "a.q"])
def test_an_invalid_vector_element_is_an_error(name: str) -> None:
    with pytest.raises(ptx.PtxSyntaxError, match=f"{name} is no element of a vector of 2"):
        ptx.parse(wrap(f".reg .v2 .b32 a; mov.b32 {name}, %r1;"))


PADDED = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .align 8 .b8 s[16], .param .u64 whole, .param .align 8 .b8 taken[16]) {
.reg .b32 %r<4>; .reg .b64 %rd<4>;
ld.param.u64 %rd1, [s];
ld.param.u32 %r1, [s+8];
mov.b64 %rd2, taken;
ld.u64 %rd3, [%rd2];
ret;
}
"""


def test_bytes_of_a_parameter_that_no_load_reads_are_padding() -> None:
    """If a kernel takes the address of a parameter, it may read any of its bytes."""
    module = ptx.parse(PADDED)
    assert ptx.unread(module.functions["k"]) == [frozenset(range(12, 16)), frozenset(range(8)), frozenset()]


STRUCT_READS = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry f(.param .align 64 .b8 f_param_0[256]) {
.reg .b16 %rs<2>; .reg .b32 %r<4>; .reg .b64 %rd<4>;
mov.b64 %rd1, f_param_0;
add.s64 %rd2, %rd1, 64;
cvta.param.u64 %rd3, %rd2;
ld.param.v2.u32 {%r1, %r2}, [%rd1+8];
ld.param.u8 %rs1, [f_param_0+40];
prefetch.tensormap [%rd3];
ret;
}
"""


def test_reads_of_a_parameter_through_registers_are_found() -> None:
    (unread,) = ptx.unread(ptx.parse(STRUCT_READS).functions["f"])
    assert sorted(set(range(256)) - unread) == [
        *range(8, 16),
        40,
        *range(64, 124),
    ]  # a tensor map has 60 meaningful bytes
    cleared = ptx.clear_bytes(b"\1" * 256, unread)
    assert [offset for offset, byte in enumerate(cleared) if byte] == [*range(8, 16), 40, *range(64, 124)]


JUMPS_BACK = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .align 8 .b8 s[16]) {
.reg .b64 %rd<4>;
bra ASSIGN;
READ:
ld.param.u64 %rd2, [%rd1+8];
ret;
ASSIGN:
mov.b64 %rd1, s;
bra READ;
}
"""


def test_a_read_in_a_loop_before_the_assignment_of_its_address_is_found() -> None:
    assert ptx.unread(ptx.parse(JUMPS_BACK).functions["k"]) == [frozenset(range(8))]


@pytest.mark.parametrize(
    "use",
    [
        "ld.u32 %r3, [%rd3+100]",  # a generic load
        "st.b64 [%rd3], %rd2",
        "add.s64 %rd1, %rd2, 8",  # the register gets a second value, so a load's address depends on the path
    ],
)
def test_a_parameter_whose_address_escapes_counts_as_read_entirely(use: str) -> None:
    module = ptx.parse(STRUCT_READS.replace("prefetch.tensormap [%rd3]", use))
    assert ptx.unread(module.functions["f"]) == [frozenset()]
