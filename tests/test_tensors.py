"""Tensors as bytes: fingerprints, samples, and bytes in the order of the elements."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kernelpath.work import tensors


def test_a_fingerprint_changes_with_a_bit_and_with_the_order() -> None:
    tensor = torch.arange(5000, dtype=torch.int32)
    seen = tensors.fingerprint(tensor)
    assert tensors.fingerprint(tensor.clone()) == seen
    flipped = tensor.clone()
    flipped[4321] ^= 1
    assert tensors.fingerprint(flipped) != seen
    swapped = tensor.clone()
    swapped[[0, 1024]] = swapped[[1024, 0]]
    assert tensors.fingerprint(swapped) != seen


def test_a_fingerprint_is_of_the_elements_and_not_of_their_places() -> None:
    matrix = torch.arange(12.0).view(3, 4)
    assert tensors.fingerprint(matrix.t()) == tensors.fingerprint(matrix.t().contiguous())
    assert tensors.fingerprint(torch.tensor([0.0])) != tensors.fingerprint(torch.tensor([-0.0]))


def test_a_sample_takes_the_same_places_of_tensors_of_one_size() -> None:
    index = torch.arange(1000)
    places = tensors.sample(index, seed=7, count=50)
    assert torch.equal(tensors.sample(2 * index, seed=7, count=50), 2 * places)
    assert not torch.equal(tensors.sample(index, seed=8, count=50), places)


def test_the_sample_is_drawn_from_everywhere() -> None:
    values = tensors.sample(torch.arange(100_000), seed=3)
    assert values.min() < 1000
    assert values.max() > 99_000


@pytest.mark.parametrize(
    ("view", "elements"),
    [
        (lambda x: x, [0, 1, 2, 3, 4, 5]),
        (lambda x: x.t(), [0, 3, 1, 4, 2, 5]),
        (lambda x: x[:, 1], [1, 4]),
        (lambda x: x[1:, 2:].as_strided((1,), (7,), 5), [5]),
        (lambda x: x[:0], []),
    ],
)
@pytest.mark.parametrize("dtype", [torch.int16, torch.bfloat16, torch.float64])
def test_the_bytes_of_a_view_are_those_of_its_elements_in_order(
    view: Callable[[torch.Tensor], torch.Tensor], elements: list[int], dtype: torch.dtype
) -> None:
    content = tensors.to_bytes(view(torch.arange(6).to(dtype).view(2, 3)))
    assert len(content) == len(elements) * dtype.itemsize
    assert not content or torch.frombuffer(bytearray(content), dtype=dtype).tolist() == elements
