"""Test the registry of instructions."""

from __future__ import annotations

import pytest

from warpcheck.isa import OPS
from warpcheck.op import Op, registry


def test_every_instruction_has_one_record() -> None:
    assert len(OPS) >= 85
    for opcode, op in OPS.items():
        assert opcode == op.opcode
        assert op.variants
        assert op.since in (0, 90, 100)


def test_registering_an_opcode_twice_is_an_error() -> None:
    def do_nothing(e: object, i: object) -> None:
        pass

    with pytest.raises(ValueError, match="two instructions have the opcode add"):
        registry((Op("add", ("s32",), do_nothing),), (Op("sub", ("s32",), do_nothing), Op("add", ("u32",), do_nothing)))
