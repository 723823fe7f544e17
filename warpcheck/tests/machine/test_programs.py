"""Compare random straight-line programs of all instructions that ``exact`` models with exact arithmetic.

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
REGISTERS_PER_KIND = 3  # the number of registers of each kind
KINDS = {"b16": "h", "b32": "i", "b64": "l", "f32": "x", "f64": "y", "pred": "q"}
# The register whose initial values each row of the input holds.
ROWS = [f"%{letter}{n}" for letter in KINDS.values() for n in range(REGISTERS_PER_KIND)]
INTEGERS = [0, 1, 2, -1, -2, 7, 31, 32, 33, 63, 64, 127, 128, 255, 256, 0x7FFF, 0x8000, 0x7FFFFFFF, 1 << 31, 1 << 63]
INTEGERS += [(1 << 63) - 1, 0x3210, 0x55555555]
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.0, 1e-40, -1e-45, 2.0**-126, 3.4e38, 1e10, -1e19, 2147483648.0]
FLOATS += [math.inf, -math.inf, math.nan, 255.5, 65535.5, 0.1, 1 + 2.0**-23]


@dataclass(frozen=True)
class Step:
    """One instruction. Its sources are registers, or the values of immediates."""

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


def list_variants() -> Iterator[tuple[str, str]]:
    """Yield the opcode and the name of every modeled variant."""
    for op in OPS.values():
        for variant in op.variants:
            for modifiers in itertools.product(*map(list_words, variant.split())):
                present = tuple(filter(None, modifiers))
                if rule(op.opcode, present):
                    yield op.opcode, ".".join((op.opcode, *present))


def list_words(slot: str) -> list[str]:
    """Return the words that a slot of a variant allows."""
    words = [name for part in slot.removesuffix("?").split("|") for name in CHOICES.get(part, part).split("|")]
    return [name for name in words if re.fullmatch(r"\w+", name)] + [""] * slot.endswith("?")


VARIANTS: dict[str, list[str]] = {}
for variant_opcode, variant_name in list_variants():
    VARIANTS.setdefault(variant_opcode, []).append(variant_name)


def literal(value: Any, kind: str) -> str:
    if kind in ("f32", "f64"):
        return f"0{'f' if kind == 'f32' else 'd'}{bits_of(value, kind):0{8 if kind == 'f32' else 16}X}"
    return str(value)


def bits_of(value: Any, kind: str) -> int:
    """Return the bits of a register's value in memory."""
    if kind == "f32":
        return int(struct.unpack("<I", struct.pack("<f", value))[0])
    return int(struct.unpack("<Q", struct.pack("<d", value))[0]) if kind == "f64" else int(value)


def value_of(bits: int, kind: str) -> Any:
    if kind in ("f32", "f64"):
        size, codes = (4, "<I<f") if kind == "f32" else (8, "<Q<d")
        return struct.unpack(codes[2:], struct.pack(codes[:2], bits & (1 << 8 * size) - 1))[0]
    return bool(bits & 1) if kind == "pred" else bits & (1 << int(kind[1:])) - 1


def random_value(source: random.Random, kind: str) -> Any:
    """Return a special, a small, or an arbitrary number."""
    if kind in ("f32", "f64") and source.random() < 0.5:
        return value_of(bits_of(np.float32(source.choice(FLOATS)), "f32"), "f32")
    if kind in ("f32", "f64") and source.random() < 0.5:
        return value_of(bits_of(source.uniform(-300, 300), kind), kind)
    return value_of(source.choice(INTEGERS) if source.random() < 0.5 else source.getrandbits(64), kind)


@st.composite
def steps(draw: st.DrawFn) -> Step:
    name = draw(st.sampled_from(VARIANTS[draw(st.sampled_from(sorted(VARIANTS)))]))
    opcode, *modifiers = name.split(".")
    model = rule(opcode, tuple(modifiers))
    assert model is not None

    def register(kind: str) -> str:
        return f"%{KINDS[kind]}{draw(st.integers(0, REGISTERS_PER_KIND - 1))}"

    sources = [
        random_value(random.Random(draw(st.integers(0, 999))), kind) if kind != "pred" and draw(st.integers(0, 4)) == 0
        else register(kind)
        for kind in model.sources
    ]  # fmt: skip
    guard = draw(st.sampled_from(["", "", "", register("pred"), "!" + register("pred")]))
    return Step(name, model, register(model.target), tuple(sources), guard)


State = dict[str, list[Any]]


def initialize_registers(seed: int) -> State:
    source = random.Random(seed)
    return {
        f"%{KINDS[kind]}{n}": [random_value(source, kind) for _ in range(LANES)]
        for kind in KINDS
        for n in range(REGISTERS_PER_KIND)
    }


def run_model(program: list[Step], state: State) -> list[list[Any]]:
    """Return the value of each step's target after the step, according to the model."""
    state = {name: list(values) for name, values in state.items()}
    results = []
    for step in program:
        for lane in range(LANES):
            guard = state[step.guard.lstrip("!")][lane] if step.guard else True
            if guard != step.guard.startswith("!"):
                sources = (state[s][lane] if isinstance(s, str) else s for s in step.sources)
                state[step.target][lane] = step.rule.apply(*sources)
        results.append(list(state[step.target]))
    return results


def kind_of(register: str) -> str:
    return next(kind for kind, letter in KINDS.items() if letter == register[1])


def program_text(program: list[Step]) -> str:
    """Return PTX that loads all registers, and stores the target of each step in a row of 32 x 8 bytes."""
    lines = [f".reg .{kind} %{letter}<{REGISTERS_PER_KIND}>;" for kind, letter in KINDS.items()]
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


def run_on_machine(program: list[Step], text: str, state: State) -> list[list[Any]]:
    """Return the value of each step's target after the step, on the machine."""
    inputs = aligned((len(ROWS), LANES), np.uint64)
    out = aligned((len(program), LANES), np.uint64)
    for row, name in enumerate(ROWS):
        inputs[row] = [bits_of(value, kind_of(name)) for value in state[name]]
    arrays = {"in": inputs, "out": out}
    simt.Module(text, None).launch(
        "k",
        grid=(1,),
        block=(LANES,),
        args=[array.ctypes.data for array in arrays.values()],
        buffers=[buffer(name, array) for name, array in arrays.items()],
    )
    return [[value_of(int(n), kind_of(step.target)) for n in row] for step, row in zip(program, out, strict=True)]


def equal_bits(got: Any, want: Any) -> bool:
    """Return whether all bits are equal, except for the payload of a NaN."""
    if isinstance(got, float):
        return (math.isnan(got) and math.isnan(want)) or struct.pack("<d", got) == struct.pack("<d", want)
    return bool(got == want)


def compare(program: list[Step], seed: int) -> None:
    state = initialize_registers(seed)
    text = program_text(program)
    wrong = [
        f"{step.text} gives lane {lane} {got[lane]!r}, not {want[lane]!r}"
        for step, got, want in zip(
            program, run_on_machine(program, text, state), run_model(program, state), strict=True
        )
        for lane in range(LANES)
        if not equal_bits(got[lane], want[lane])
    ]
    assert not wrong, "\n".join([text, *wrong[:5]])


@settings(max_examples=share_of_examples(1 / 6))
@given(st.lists(steps(), min_size=1, max_size=24), st.integers(0, 1 << 30))
def test_random_programs_equal_the_model(program: list[Step], seed: int) -> None:
    compare(program, seed)


def make_step(name: str, target: int, source: int) -> Step:
    """Return an instruction on registers of its kinds, with these numbers of the target and of the first source."""
    opcode, *modifiers = name.split(".")
    model = rule(opcode, tuple(modifiers))
    assert model is not None
    sources = tuple(f"%{KINDS[kind]}{(source + n) % REGISTERS_PER_KIND}" for n, kind in enumerate(model.sources))
    return Step(name, model, f"%{KINDS[model.target]}{target}", sources, "")


@pytest.mark.parametrize("opcode", VARIANTS)
def test_every_variant_equals_the_model(opcode: str) -> None:
    """Each opcode has three programs at most."""
    names = VARIANTS[opcode]
    step = -(-len(names) // 3)
    for first in range(0, len(names), step):
        compare(
            [
                make_step(name, n % REGISTERS_PER_KIND, n // REGISTERS_PER_KIND)
                for n, name in enumerate(names[first : first + step])
            ],
            first,
        )


def test_ptxas_accepts_every_variant_of_the_machine(tmp_path: Path) -> None:
    """One program has every variant from which random programs are made."""
    ptxas = shutil.which("ptxas") or (PTXAS if PTXAS.is_file() else None)
    if ptxas is None:
        pytest.skip("no ptxas")
    program = [make_step(name, 0, 1) for name in itertools.chain(*VARIANTS.values())]
    (tmp_path / "all.ptx").write_text(program_text(program))
    command = [ptxas, "-O0", "-arch=sm_90a", "all.ptx", "-o", "all.cubin"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("statement", ["mad.f32 %f1, %f1, %f1, %f1;", "cvt.sat.u32.u8 %r1, %rs1;"])
def test_the_machine_rejects_variants_that_ptxas_rejects(statement: str) -> None:
    with pytest.raises(simt.Unsupported):
        simt.Module(wrap(statement), None).compile("k")


def test_the_model_covers_the_common_instructions() -> None:
    required = "add sub mul mad fma min max and or xor not shl shr setp selp cvt div neg abs bfe bfi shf prmt popc clz"
    assert VARIANTS.keys() >= set(required.split())
    assert sum(map(len, VARIANTS.values())) > 900
