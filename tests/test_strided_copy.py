"""The compulsory bytes of a view: every sector that holds one of its elements, once."""

from __future__ import annotations

import pytest
import torch

from kernelpath.course.problem import BYTES
from kernelpath.course.problems import strided_copy

SHAPES = [(1, 1, 1), (2, 24, 40), (3, 17, 33), (5, 8, 3)]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("view", strided_copy.EVERYDAY)
def test_the_sectors_of_a_view_are_counted_but_for_those_that_two_pieces_share(view: str, dtype: str) -> None:
    for planes, rows, columns in SHAPES:
        (x,) = strided_copy.inputs(torch.Generator().manual_seed(0), view, planes, rows, columns, dtype)
        places = torch.arange(x.untyped_storage().nbytes() // x.itemsize).as_strided(x.shape, x.stride())
        found = 32 * (places * x.itemsize // 32).unique().numel()
        told = strided_copy.sector_bytes((planes, rows, columns), x.stride(), BYTES[dtype])
        if view == "slice":  # its rows begin anywhere, and a sector may be of two of them
            assert abs(told - found) <= 32 * planes * rows
        else:
            assert told == found, (planes, rows, columns)


def test_what_is_stored_is_compulsory_too() -> None:
    assert strided_copy.compulsory_bytes("rows repeated", 1, 1000, 64, "float32") == 4 * 64_000 + 4 * 64
    assert strided_copy.compulsory_bytes("every second column", 1, 8, 64, "float32") == 3 * 4 * 8 * 64


@pytest.mark.parametrize("stride", [1, 2, 7, 8, 9, 12, 16, 40])
def test_pieces_with_gaps_of_a_sector_are_counted_alone(stride: int) -> None:
    touched = len({4 * stride * place // 32 for place in range(10)})
    assert strided_copy.sector_bytes((10,), (stride,), 4) == 32 * touched
