"""The table of instructions."""

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


def test_two_records_of_one_opcode_are_an_error() -> None:
    def nothing(e: object, i: object) -> None:
        pass

    with pytest.raises(ValueError, match="two instructions have the opcode add"):
        registry((Op("add", ("s32",), nothing),), (Op("sub", ("s32",), nothing), Op("add", ("u32",), nothing)))
