"""Convert tensors to bytes and back, compute their fingerprints, and poison memory that nothing has written."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from kernelpath.device.messages import POISON

# The largest allocation, in bytes, for which malloc may reuse freed memory.
#
# Source: mallopt(3), M_MMAP_THRESHOLD, whose dynamic value is at most 4 MiB times the size of a long.
SMALL = 32 << 20

# Bytes that are gathered for one launch or transfer: three times as many have to fit beside everything else.
TOGETHER = 64 << 20

# Bytes of a row of words in a fingerprint.
_ROW = 4096


def poison_(storage: torch.Tensor) -> torch.Tensor:
    """Fill a uint8 tensor of even length with the poison pattern, in place."""
    storage.view(torch.int16).fill_(POISON)
    return storage


def poison_numpy() -> None:
    """Make numpy.empty and numpy.empty_like return poison in this process, instead of the contents of freed memory.

    An array larger than SMALL comes from the system, as zeros, and stays as it is.
    """
    # Without this, numpy.empty may return the freed memory of a right result.
    for name in ("empty", "empty_like"):
        setattr(np, name, _poisoning(getattr(np, name)))


def _poisoning(make: Callable[..., npt.NDArray[Any]]) -> Callable[..., npt.NDArray[Any]]:
    @functools.wraps(make)
    def poisoned(*args: Any, **kwargs: Any) -> npt.NDArray[Any]:
        array = make(*args, **kwargs)
        if 0 < array.nbytes <= SMALL and not array.dtype.hasobject:
            # The order "K" follows the memory. With the default order, ravel would copy an array in Fortran order, and
            # the poison would go to the copy.
            content = np.asarray(array).ravel(order="K").view(np.uint8)
            content[0::2] = POISON & 0xFF
            content[1::2] = POISON >> 8
        return array

    return poisoned


def copy_each_(targets: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]) -> None:
    """Copy flat tensors in place, each to a tensor of the same size. Small tensors are copied in few launches."""
    small = [index for index, source in enumerate(sources) if source.nbytes <= TOGETHER]
    for index in {*range(len(sources))} - {*small}:
        targets[index].copy_(sources[index])
    if small:
        torch._foreach_copy_([targets[index] for index in small], [sources[index] for index in small])


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def raw_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements in order as a flat uint8 tensor, a view where that is possible."""
    flat = tensor.detach().reshape(-1)
    # Tensor.view(dtype) requires a last stride of 1. An expanded tensor has a stride of 0. A single element may have
    # any stride, and is contiguous nevertheless.
    if flat.numel() and flat.stride(0) != 1:
        flat = flat.clone(memory_format=torch.contiguous_format).as_strided(flat.shape, (1,))
    return flat.view(torch.uint8)


def storage_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return all bytes of a tensor's storage as a uint8 tensor, including the bytes between and around its elements."""
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


def to_bytes(tensor: torch.Tensor) -> bytes:
    """Return the elements in order, as bytes of the host."""
    return raw_bytes(tensor).cpu().numpy().tobytes()


def from_bytes(dtype: str, shape: Sequence[int], content: bytes, device: torch.device | str) -> torch.Tensor:
    """Return the tensor with these elements."""
    if not content:
        # torch.frombuffer raises ValueError for an empty buffer.
        return torch.empty(tuple(shape), dtype=getattr(torch, dtype), device=device)
    # bytearray copies: a tensor on immutable bytes would let torch write to them.
    return torch.frombuffer(bytearray(content), dtype=getattr(torch, dtype)).view(tuple(shape)).to(device)


def to_bytes_each(tensors: Sequence[torch.Tensor]) -> list[bytes]:
    """Return `to_bytes` of each tensor. Small tensors are transferred to the host together."""
    contents: list[bytes] = []
    for batch in _batches([raw_bytes(tensor) for tensor in tensors]):
        joined = to_bytes(batch[0] if len(batch) == 1 else torch.cat(batch))
        ends = list(itertools.accumulate(raw.numel() for raw in batch))
        contents += [joined[start:end] for start, end in itertools.pairwise([0, *ends])]
    return contents


def fingerprint(tensor: torch.Tensor) -> list[int]:
    """Return two sums over the bytes of a tensor, weighted by position: equal for equal bits, on every device."""
    return fingerprints([tensor])[0]


def fingerprints(tensors: Sequence[torch.Tensor]) -> list[list[int]]:
    """Return the fingerprint of each tensor. Hundreds of small tensors take few launches and one transfer.

    A tensor's bytes are rows of words, the last row filled up with zeros. The first sum weights a word by its position
    within its row, from 1, and the second sum by the number of its row.
    """
    batches = _batches([raw_bytes(tensor) for tensor in tensors])
    if not batches:
        return []
    # A batch of one tensor gives its two sums at once. Otherwise each column has the sums of one row of words.
    sums = [_weighted(batch[0]) if len(batch) == 1 else _weighted_rows(batch) for batch in batches]
    columns = torch.cat([batch_sums.to(sums[0].device) for batch_sums in sums], 1).cpu().numpy()
    columns_per_tensor = [1 if len(batch) == 1 else -(-raw.numel() // _ROW) for batch in batches for raw in batch]
    pieces = np.split(columns, np.cumsum(columns_per_tensor)[:-1], 1)
    return [[int(first.sum()), int((second * np.arange(1, len(second) + 1)).sum())] for first, second in pieces]


def _batches(raws: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Return consecutive tensors of one device in batches of at most TOGETHER bytes. A larger tensor is alone."""
    batches: list[list[torch.Tensor]] = []
    room = 0
    for raw in raws:
        if not batches or raw.numel() > room or raw.device != batches[-1][0].device:
            batches.append([])
            room = TOGETHER
        batches[-1].append(raw)
        room -= raw.numel()
    return batches


def _weighted(raw: torch.Tensor) -> torch.Tensor:
    """Return the fingerprint of one tensor's bytes as int64 [2, 1]."""
    if tail := -raw.numel() % _ROW:
        raw = torch.nn.functional.pad(raw, (0, tail))
    words = raw.view(torch.int32).view(-1, _ROW // 4)
    # A sum of integers does not depend on the order of the additions, which differs between devices.
    column_sums = words.sum(0, dtype=torch.int64)
    row_sums = words.sum(1, dtype=torch.int64)
    return torch.stack(
        [(sums * torch.arange(1, sums.numel() + 1, device=sums.device)).sum() for sums in (column_sums, row_sums)]
    )[:, None]


def _weighted_rows(raws: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the weighted and the plain sum of each row of words, as int64 [2, rows of all tensors]."""
    zeros = raws[0].new_zeros(_ROW)
    filled = [piece for raw in raws for piece in (raw, zeros[: -raw.numel() % _ROW])]
    words = torch.cat(filled).view(torch.int32).view(-1, _ROW // 4)
    weights = torch.arange(1, _ROW // 4 + 1, device=words.device)
    return torch.stack([(words * weights).sum(1), words.sum(1, dtype=torch.int64)])


def sample(tensor: torch.Tensor, seed: int, count: int = 4096) -> torch.Tensor:
    """Return `count` elements at positions drawn from the seed.

    The positions are the same for every tensor of the same size and device.
    """
    return samples([tensor], seed, count)[0]


def samples(tensors: Sequence[torch.Tensor], seed: int, count: int = 4096) -> list[torch.Tensor]:
    """Return the sample of each tensor. The positions are drawn once for all tensors of a size."""

    @functools.cache
    def positions(size: int, device: torch.device) -> torch.Tensor:
        rng = torch.Generator(device).manual_seed(seed)
        return torch.randint(size, (count,), generator=rng, device=device)

    return [tensor.reshape(-1)[positions(tensor.numel(), tensor.device)] for tensor in tensors]


def poison_storage(tensor: torch.Tensor) -> None:
    """Fill all of a fresh tensor's storage. An odd last byte stays as it is."""
    storage = tensor.untyped_storage()
    all_bytes = torch.tensor([], dtype=torch.uint8).set_(storage)
    poison_(all_bytes[: storage.nbytes() // 2 * 2])


def seed_random_generators() -> None:
    """Seed all random generators, so that two processes with the same submission launch the same kernels."""
    random.seed(0)
    np.random.seed(0)
    # np.random.seed does not reach the generators of default_rng, which the system seeds where no seed is given.
    unseeded = np.random.default_rng
    np.random.default_rng = lambda seed=None: unseeded(0 if seed is None else seed)
    torch.manual_seed(0)
