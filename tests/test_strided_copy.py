"""Test the compulsory bytes of a view: every sector that contains one of its elements counts once."""

from __future__ import annotations

import pytest
import torch

from kernelpath.course.problem import BYTES
from kernelpath.course.problems import strided_copy

SHAPES = [(1, 1, 1), (2, 24, 40), (3, 17, 33), (5, 8, 3)]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("view", strided_copy.EVERYDAY)
def test_the_sector_bytes_of_a_view_equal_a_count_except_for_shared_sectors(view: str, dtype: str) -> None:
    for planes, rows, columns in SHAPES:
        (x,) = strided_copy.inputs(torch.Generator().manual_seed(0), view, planes, rows, columns, dtype)
        element_indices = torch.arange(x.untyped_storage().nbytes() // x.itemsize).as_strided(x.shape, x.stride())
        counted_bytes = 32 * (element_indices * x.itemsize // 32).unique().numel()
        computed_bytes = strided_copy.sector_bytes((planes, rows, columns), x.stride(), BYTES[dtype])
        if view == "slice":  # rows start at any address, so two rows may share a sector
            assert abs(computed_bytes - counted_bytes) <= 32 * planes * rows
        else:
            assert computed_bytes == counted_bytes, (planes, rows, columns)


def test_stored_bytes_are_compulsory_too() -> None:
    assert strided_copy.compulsory_bytes("rows repeated", 1, 1000, 64, "float32") == 4 * 64_000 + 4 * 64
    assert strided_copy.compulsory_bytes("every second column", 1, 8, 64, "float32") == 3 * 4 * 8 * 64


@pytest.mark.parametrize("stride", [1, 2, 7, 8, 9, 12, 16, 40])
def test_sectors_of_strided_elements_are_counted(stride: int) -> None:
    touched = len({4 * stride * place // 32 for place in range(10)})
    assert strided_copy.sector_bytes((10,), (stride,), 4) == 32 * touched
