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


SIZES = (0, 1, 3, 4096, 4097, 70_001, 12, 8192)


def many(dtype: torch.dtype) -> list[torch.Tensor]:
    rng = torch.Generator().manual_seed(1)
    return [torch.randint(-100, 100, (size,), generator=rng).to(dtype) for size in SIZES]


@pytest.mark.parametrize("together", [1, 10_000, 1 << 26])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_together_each_tensor_has_the_fingerprint_and_the_bytes_that_it_has_alone(
    dtype: torch.dtype, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = many(dtype)
    alone = [(tensors.fingerprint(one), one.numpy().tobytes()) for one in given]
    monkeypatch.setattr(tensors, "TOGETHER", together)
    assert list(zip(tensors.fingerprints(given), tensors.to_bytes_each(given), strict=True)) == alone
    assert tensors.fingerprints(given[::-1]) == [seen for seen, _ in alone[::-1]]
    assert (tensors.fingerprints([]), tensors.to_bytes_each([])) == ([], [])


@pytest.mark.parametrize("place", range(1, len(SIZES)))
def test_together_a_bit_of_one_tensor_changes_its_fingerprint_alone(place: int) -> None:
    given = many(torch.int32)
    before = tensors.fingerprints(given)
    given[place][-1] ^= 1
    changed = [one != other for one, other in zip(tensors.fingerprints(given), before, strict=True)]
    assert [index for index, one in enumerate(changed) if one] == [place]


def test_together_what_moves_from_one_tensor_to_the_next_is_noticed() -> None:
    one, other = torch.ones(2048, dtype=torch.int32), torch.zeros(2048, dtype=torch.int32)
    assert tensors.fingerprints([one, other]) != tensors.fingerprints([other, one])


@pytest.mark.parametrize("together", [1, 1 << 26])
def test_each_is_copied_to_its_own(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "TOGETHER", together)
    given = many(torch.uint8)
    targets = [torch.zeros_like(one) for one in given]
    tensors.copy_each_(targets, given)
    assert all(map(torch.equal, targets, given))


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
