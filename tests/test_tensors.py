"""Test fingerprints, samples, and bytes of tensors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kernelpath.work import tensors


def test_a_fingerprint_changes_with_a_bit_and_with_the_order() -> None:
    tensor = torch.arange(5000, dtype=torch.int32)
    fingerprint = tensors.fingerprint(tensor)
    assert tensors.fingerprint(tensor.clone()) == fingerprint
    flipped = tensor.clone()
    flipped[4321] ^= 1
    assert tensors.fingerprint(flipped) != fingerprint
    swapped = tensor.clone()
    swapped[[0, 1024]] = swapped[[1024, 0]]
    assert tensors.fingerprint(swapped) != fingerprint


def test_a_fingerprint_depends_on_the_elements_and_not_on_the_strides() -> None:
    matrix = torch.arange(12.0).view(3, 4)
    assert tensors.fingerprint(matrix.t()) == tensors.fingerprint(matrix.t().contiguous())
    assert tensors.fingerprint(torch.tensor([0.0])) != tensors.fingerprint(torch.tensor([-0.0]))


SIZES = (0, 1, 3, 4096, 4097, 70_001, 12, 8192)


def create_tensors(dtype: torch.dtype) -> list[torch.Tensor]:
    rng = torch.Generator().manual_seed(1)
    return [torch.randint(-100, 100, (size,), generator=rng).to(dtype) for size in SIZES]


@pytest.mark.parametrize("batch_bytes", [1, 10_000, 1 << 26])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_batched_fingerprints_and_bytes_equal_individual_ones(
    dtype: torch.dtype, batch_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors_of_sizes = create_tensors(dtype)
    individually = [(tensors.fingerprint(tensor), tensor.numpy().tobytes()) for tensor in tensors_of_sizes]
    monkeypatch.setattr(tensors, "TOGETHER", batch_bytes)
    assert (
        list(zip(tensors.fingerprints(tensors_of_sizes), tensors.to_bytes_each(tensors_of_sizes), strict=True))
        == individually
    )
    assert tensors.fingerprints(tensors_of_sizes[::-1]) == [fingerprint for fingerprint, _ in individually[::-1]]
    assert (tensors.fingerprints([]), tensors.to_bytes_each([])) == ([], [])


@pytest.mark.parametrize("flipped", range(1, len(SIZES)))
def test_in_a_batch_a_flipped_bit_changes_only_the_fingerprint_of_its_tensor(flipped: int) -> None:
    tensors_of_sizes = create_tensors(torch.int32)
    before = tensors.fingerprints(tensors_of_sizes)
    tensors_of_sizes[flipped][-1] ^= 1
    changed = [
        after != fingerprint for after, fingerprint in zip(tensors.fingerprints(tensors_of_sizes), before, strict=True)
    ]
    assert [index for index, is_changed in enumerate(changed) if is_changed] == [flipped]


def test_in_a_batch_exchanging_two_tensors_changes_the_fingerprints() -> None:
    ones = torch.ones(2048, dtype=torch.int32)
    zeros = torch.zeros(2048, dtype=torch.int32)
    assert tensors.fingerprints([ones, zeros]) != tensors.fingerprints([zeros, ones])


@pytest.mark.parametrize("batch_bytes", [1, 1 << 26])
def test_each_tensor_of_a_batch_is_copied_to_its_target(batch_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "TOGETHER", batch_bytes)
    sources = create_tensors(torch.uint8)
    targets = [torch.zeros_like(source) for source in sources]
    tensors.copy_each_(targets, sources)
    assert all(map(torch.equal, targets, sources))


def test_a_seed_samples_the_same_indices_of_tensors_of_one_size() -> None:
    index = torch.arange(1000)
    sampled = tensors.sample(index, seed=7, count=50)
    assert torch.equal(tensors.sample(2 * index, seed=7, count=50), 2 * sampled)
    assert not torch.equal(tensors.sample(index, seed=8, count=50), sampled)


def test_a_sample_covers_the_whole_tensor() -> None:
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
def test_the_bytes_of_a_view_are_its_elements_in_order(
    view: Callable[[torch.Tensor], torch.Tensor], elements: list[int], dtype: torch.dtype
) -> None:
    content = tensors.to_bytes(view(torch.arange(6).to(dtype).view(2, 3)))
    assert len(content) == len(elements) * dtype.itemsize
    assert not content or torch.frombuffer(bytearray(content), dtype=dtype).tolist() == elements
