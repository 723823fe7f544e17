"""Random straight-line programs of all the forms that ``exact`` models: the machine against exact arithmetic.

HYPOTHESIS_PROFILE=long tries more of them. A failure prints the program.
"""

from __future__ import annotations

import itertools
import math
import random
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import triton
from hypothesis import given, settings
from hypothesis import strategies as st

from machine.exact import Rule, rule
from machine.hypothesis_profiles import share_of_examples
from machine.launching import aligned, buffer
from machine.programs import wrap
from warpcheck import simt
from warpcheck.isa import OPS
from warpcheck.variants import CHOICES

PTXAS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
LANES = 32
EACH = 3  # registers of each kind
KINDS = {"b16": "h", "b32": "i", "b64": "l", "f32": "x", "f64": "y", "pred": "q"}
ROWS = [f"%{letter}{n}" for letter in KINDS.values() for n in range(EACH)]
INTEGERS = [0, 1, 2, -1, -2, 7, 31, 32, 33, 63, 64, 127, 128, 255, 256, 0x7FFF, 0x8000, 0x7FFFFFFF, 1 << 31, 1 << 63]
INTEGERS += [(1 << 63) - 1, 0x3210, 0x55555555]
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.0, 1e-40, -1e-45, 2.0**-126, 3.4e38, 1e10, -1e19, 2147483648.0]
FLOATS += [math.inf, -math.inf, math.nan, 255.5, 65535.5, 0.1, 1 + 2.0**-23]


@dataclass(frozen=True)
class Step:
    """One instruction; sources are registers, or the values of immediates."""

    name: str
    rule: Rule
    target: str
    sources: tuple[Any, ...]
    guard: str

    @property
    def text(self) -> str:
        kinds = zip(self.sources, self.rule.sources, strict=True)
        operands = ", ".join([self.target, *(s if isinstance(s, str) else literal(s, kind) for s, kind in kinds)])
        return f"{'@' * bool(self.guard)}{self.guard} {self.name} {operands};".strip()


def names() -> Iterator[tuple[str, str]]:
    """Opcode and name of every form that is modelled."""
    for op in OPS.values():
        for form in op.variants:
            for modifiers in itertools.product(*map(choices, form.split())):
                present = tuple(filter(None, modifiers))
                if rule(op.opcode, present):
                    yield op.opcode, ".".join((op.opcode, *present))


def choices(slot: str) -> list[str]:
    """The words that may stand in one place of a form."""
    found = [name for part in slot.removesuffix("?").split("|") for name in CHOICES.get(part, part).split("|")]
    return [name for name in found if re.fullmatch(r"\w+", name)] + [""] * slot.endswith("?")


FORMS: dict[str, list[str]] = {}
for opcode_, name_ in names():
    FORMS.setdefault(opcode_, []).append(name_)


def literal(value: Any, kind: str) -> str:
    if kind in ("f32", "f64"):
        return f"0{'f' if kind == 'f32' else 'd'}{bits_of(value, kind):0{8 if kind == 'f32' else 16}X}"
    return str(value)


def bits_of(value: Any, kind: str) -> int:
    """A register's value as it lies in memory."""
    if kind == "f32":
        return int(struct.unpack("<I", struct.pack("<f", value))[0])
    return int(struct.unpack("<Q", struct.pack("<d", value))[0]) if kind == "f64" else int(value)


def value_of(bits: int, kind: str) -> Any:
    if kind in ("f32", "f64"):
        size, codes = (4, "<I<f") if kind == "f32" else (8, "<Q<d")
        return struct.unpack(codes[2:], struct.pack(codes[:2], bits & (1 << 8 * size) - 1))[0]
    return bool(bits & 1) if kind == "pred" else bits & (1 << int(kind[1:])) - 1


def drawn(source: random.Random, kind: str) -> Any:
    """A number that is special, small or any."""
    if kind in ("f32", "f64") and source.random() < 0.5:
        return value_of(bits_of(np.float32(source.choice(FLOATS)), "f32"), "f32")
    if kind in ("f32", "f64") and source.random() < 0.5:
        return value_of(bits_of(source.uniform(-300, 300), kind), kind)
    return value_of(source.choice(INTEGERS) if source.random() < 0.5 else source.getrandbits(64), kind)


@st.composite
def steps(draw: st.DrawFn) -> Step:
    name = draw(st.sampled_from(FORMS[draw(st.sampled_from(sorted(FORMS)))]))
    opcode, *modifiers = name.split(".")
    found = rule(opcode, tuple(modifiers))
    assert found is not None

    def register(kind: str) -> str:
        return f"%{KINDS[kind]}{draw(st.integers(0, EACH - 1))}"

    sources = [
        drawn(random.Random(draw(st.integers(0, 999))), kind) if kind != "pred" and draw(st.integers(0, 4)) == 0
        else register(kind)
        for kind in found.sources
    ]  # fmt: skip
    guard = draw(st.sampled_from(["", "", "", register("pred"), "!" + register("pred")]))
    return Step(name, found, register(found.target), tuple(sources), guard)


State = dict[str, list[Any]]


def initial(seed: int) -> State:
    source = random.Random(seed)
    return {f"%{KINDS[kind]}{n}": [drawn(source, kind) for _ in range(LANES)] for kind in KINDS for n in range(EACH)}


def modelled(program: list[Step], state: State) -> list[list[Any]]:
    """Return what each step leaves in its target."""
    state = {name: list(values) for name, values in state.items()}
    left = []
    for step in program:
        for lane in range(LANES):
            guard = state[step.guard.lstrip("!")][lane] if step.guard else True
            if guard != step.guard.startswith("!"):
                sources = (state[s][lane] if isinstance(s, str) else s for s in step.sources)
                state[step.target][lane] = step.rule.apply(*sources)
        left.append(list(state[step.target]))
    return left


def kind_of(register: str) -> str:
    return next(kind for kind, letter in KINDS.items() if letter == register[1])


def program_text(program: list[Step]) -> str:
    """PTX that loads all registers and stores each step's target: rows of 32 x 8 bytes."""
    lines = [f".reg .{kind} %{letter}<{EACH}>;" for kind, letter in KINDS.items()]
    lines += ["ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];", "mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 8;"]
    lines += ["add.s64 %rd1, %rd1, %rd3; add.s64 %rd2, %rd2, %rd3;"]
    for row, name in enumerate(ROWS):
        if kind_of(name) == "pred":
            lines.append(f"ld.global.b32 %r2, [%rd1+{256 * row}]; setp.ne.s32 {name}, %r2, 0;")
        else:
            lines.append(f"ld.global.{kind_of(name)} {name}, [%rd1+{256 * row}];")
    for row, step in enumerate(program):
        if kind_of(step.target) == "pred":
            store = f"selp.u32 %r2, 1, 0, {step.target}; st.global.b32 [%rd2+{256 * row}], %r2;"
        else:
            store = f"st.global.{kind_of(step.target)} [%rd2+{256 * row}], {step.target};"
        lines.append(f"{step.text:50} {store}")
    return wrap("\n".join([*lines, "ret;"]), ".param .u64 in, .param .u64 out")


def executed(program: list[Step], text: str, state: State) -> list[list[Any]]:
    """Return what each step leaves in its target when the machine runs the program."""
    given, out = aligned((len(ROWS), LANES), np.uint64), aligned((len(program), LANES), np.uint64)
    for row, name in enumerate(ROWS):
        given[row] = [bits_of(value, kind_of(name)) for value in state[name]]
    arrays = {"in": given, "out": out}
    simt.Module(text, None).launch(
        "k",
        grid=(1,),
        block=(LANES,),
        args=[array.ctypes.data for array in arrays.values()],
        buffers=[buffer(name, array) for name, array in arrays.items()],
    )
    return [[value_of(int(n), kind_of(step.target)) for n in row] for step, row in zip(program, out, strict=True)]


def same(got: Any, want: Any) -> bool:
    """Bit for bit, but for the payload of NaN."""
    if isinstance(got, float):
        return (math.isnan(got) and math.isnan(want)) or struct.pack("<d", got) == struct.pack("<d", want)
    return bool(got == want)


def compare(program: list[Step], seed: int) -> None:
    state = initial(seed)
    text = program_text(program)
    wrong = [
        f"{step.text} gives lane {lane} {got[lane]!r}, not {want[lane]!r}"
        for step, got, want in zip(program, executed(program, text, state), modelled(program, state), strict=True)
        for lane in range(LANES)
        if not same(got[lane], want[lane])
    ]
    assert not wrong, "\n".join([text, *wrong[:5]])


@settings(max_examples=share_of_examples(1 / 6))
@given(st.lists(steps(), min_size=1, max_size=24), st.integers(0, 1 << 30))
def test_random_programs(program: list[Step], seed: int) -> None:
    compare(program, seed)


def plain(name: str, target: int, source: int) -> Step:
    """An instruction on registers of its own kinds: those numbered ``target``, and from ``source`` on."""
    opcode, *modifiers = name.split(".")
    found = rule(opcode, tuple(modifiers))
    assert found is not None
    sources = tuple(f"%{KINDS[kind]}{(source + n) % EACH}" for n, kind in enumerate(found.sources))
    return Step(name, found, f"%{KINDS[found.target]}{target}", sources, "")


@pytest.mark.parametrize("opcode", FORMS)
def test_every_form(opcode: str) -> None:
    """Three programs of each opcode at most."""
    names = FORMS[opcode]
    step = -(-len(names) // 3)
    for first in range(0, len(names), step):
        compare([plain(name, n % EACH, n // EACH) for n, name in enumerate(names[first : first + step])], first)


def test_what_the_machine_accepts_ptxas_accepts(tmp_path: Path) -> None:
    """Every form that the random programs are made of, in one program."""
    ptxas = shutil.which("ptxas") or (PTXAS if PTXAS.is_file() else None)
    if ptxas is None:
        pytest.skip("no ptxas")
    program = [plain(name, 0, 1) for name in itertools.chain(*FORMS.values())]
    (tmp_path / "all.ptx").write_text(program_text(program))
    command = [ptxas, "-O0", "-arch=sm_90a", "all.ptx", "-o", "all.cubin"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("statement", ["mad.f32 %f1, %f1, %f1, %f1;", "cvt.sat.u32.u8 %r1, %rs1;"])
def test_what_ptxas_refuses_is_refused(statement: str) -> None:
    with pytest.raises(simt.Unsupported):
        simt.Module(wrap(statement), None).compile("k")


def test_the_programs_have_all_that_is_asked_of_them() -> None:
    asked = "add sub mul mad fma min max and or xor not shl shr setp selp cvt div neg abs bfe bfi shf prmt popc clz"
    assert FORMS.keys() >= set(asked.split())
    assert sum(map(len, FORMS.values())) > 900
