"""Tensors as bytes: what a submission's process tells of them, and what fills memory that nothing has written."""

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

SMALL = 32 << 20
"""Bytes that malloc may take from what was freed before."""

TOGETHER = 64 << 20
"""Bytes that are gathered for one launch or transfer: three times as many have to fit beside all else."""

_ROW = 4096
"""Bytes of a row of words in a fingerprint."""


def poison_(storage: torch.Tensor) -> torch.Tensor:
    """Fill a uint8 tensor of even length with the poison pattern, in place."""
    storage.view(torch.int16).fill_(POISON)
    return storage


def poison_numpy() -> None:
    """Let numpy.empty and numpy.empty_like give poison in this process, and not what something else left there.

    What is larger than SMALL comes from the system, as zeros.
    """
    for name in ("empty", "empty_like"):
        setattr(np, name, _poisoning(getattr(np, name)))


def _poisoning(make: Callable[..., npt.NDArray[Any]]) -> Callable[..., npt.NDArray[Any]]:
    @functools.wraps(make)
    def poisoned(*args: Any, **kwargs: Any) -> npt.NDArray[Any]:
        made = make(*args, **kwargs)
        if 0 < made.nbytes <= SMALL and not made.dtype.hasobject:
            content = np.asarray(made).ravel(order="K").view(np.uint8)
            content[0::2], content[1::2] = POISON & 0xFF, POISON >> 8
        return made

    return poisoned


def copy_each_(targets: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]) -> None:
    """Copy flat tensors, in place, each to one of its size; small ones in few launches."""
    small = [index for index, source in enumerate(sources) if source.nbytes <= TOGETHER]
    for index in {*range(len(sources))} - {*small}:
        targets[index].copy_(sources[index])
    if small:
        torch._foreach_copy_([targets[index] for index in small], [sources[index] for index in small])


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def raw_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The elements in order as a flat uint8 tensor, a view where that is possible."""
    flat = tensor.detach().reshape(-1)
    if flat.numel() and flat.stride(0) != 1:  # a single element may have any stride
        flat = flat.clone(memory_format=torch.contiguous_format).as_strided(flat.shape, (1,))
    return flat.view(torch.uint8)


def storage_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor's storage as a uint8 tensor, those that are none of its elements among them."""
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


def to_bytes(tensor: torch.Tensor) -> bytes:
    """The elements in order, as bytes of the host."""
    return raw_bytes(tensor).cpu().numpy().tobytes()


def from_bytes(dtype: str, shape: Sequence[int], content: bytes, device: torch.device | str) -> torch.Tensor:
    """The tensor with these elements."""
    if not content:
        return torch.empty(tuple(shape), dtype=getattr(torch, dtype), device=device)
    return torch.frombuffer(bytearray(content), dtype=getattr(torch, dtype)).view(tuple(shape)).to(device)


def to_bytes_each(tensors: Sequence[torch.Tensor]) -> list[bytes]:
    """As `to_bytes` of each; small tensors cross to the host together."""
    found: list[bytes] = []
    for batch in _batches([raw_bytes(tensor) for tensor in tensors]):
        whole = to_bytes(batch[0] if len(batch) == 1 else torch.cat(batch))
        ends = list(itertools.accumulate(raw.numel() for raw in batch))
        found += [whole[start:end] for start, end in itertools.pairwise([0, *ends])]
    return found


def fingerprint(tensor: torch.Tensor) -> list[int]:
    """Two sums over the bytes of a tensor, weighted by position: equal for equal bits, on every device."""
    return fingerprints([tensor])[0]


def fingerprints(tensors: Sequence[torch.Tensor]) -> list[list[int]]:
    """The fingerprint of each: hundreds of small tensors take few launches, and all results one transfer.

    A tensor's bytes are rows of words, the last one filled up with zeros. A word counts in the first sum as often as
    its place within the row says, from 1, and in the second as often as the row's.
    """
    batches = _batches([raw_bytes(tensor) for tensor in tensors])
    if not batches:
        return []
    sums = [_weighted(batch[0]) if len(batch) == 1 else _weighted_rows(batch) for batch in batches]
    both = torch.cat([one.to(sums[0].device) for one in sums], 1).cpu().numpy()
    rows = [1 if len(batch) == 1 else -(-raw.numel() // _ROW) for batch in batches for raw in batch]
    pieces = np.split(both, np.cumsum(rows)[:-1], 1)
    return [[int(first.sum()), int((second * np.arange(1, len(second) + 1)).sum())] for first, second in pieces]


def _batches(raws: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Consecutive tensors of one device that have TOGETHER bytes at most; a larger one is alone."""
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
    """The fingerprint of one tensor's bytes as int64 [2, 1]."""
    if tail := -raw.numel() % _ROW:
        raw = torch.nn.functional.pad(raw, (0, tail))
    words = raw.view(torch.int32).view(-1, _ROW // 4)
    both = words.sum(0, dtype=torch.int64), words.sum(1, dtype=torch.int64)
    return torch.stack([(sums * torch.arange(1, sums.numel() + 1, device=sums.device)).sum() for sums in both])[:, None]


def _weighted_rows(raws: Sequence[torch.Tensor]) -> torch.Tensor:
    """Of each row of words its weighted and its plain sum, as int64 [2, rows of all tensors]."""
    zeros = raws[0].new_zeros(_ROW)
    filled = [piece for raw in raws for piece in (raw, zeros[: -raw.numel() % _ROW])]
    words = torch.cat(filled).view(torch.int32).view(-1, _ROW // 4)
    weights = torch.arange(1, _ROW // 4 + 1, device=words.device)
    return torch.stack([(words * weights).sum(1), words.sum(1, dtype=torch.int64)])


def sample(tensor: torch.Tensor, seed: int, count: int = 4096) -> torch.Tensor:
    """`count` elements at places drawn from the seed: the same places for every tensor of the same size and device."""
    return samples([tensor], seed, count)[0]


def samples(tensors: Sequence[torch.Tensor], seed: int, count: int = 4096) -> list[torch.Tensor]:
    """The sample of each; the places are drawn once for all tensors of a size."""

    @functools.cache
    def places(size: int, device: torch.device) -> torch.Tensor:
        rng = torch.Generator(device).manual_seed(seed)
        return torch.randint(size, (count,), generator=rng, device=device)

    return [tensor.reshape(-1)[places(tensor.numel(), tensor.device)] for tensor in tensors]


def poison_storage(tensor: torch.Tensor) -> None:
    """Fill all of a fresh tensor's storage; an odd last byte stays as it is."""
    storage = tensor.untyped_storage()
    whole = torch.tensor([], dtype=torch.uint8).set_(storage)
    poison_(whole[: storage.nbytes() // 2 * 2])


def seed_random_generators() -> None:
    """Two processes with a submission of their own, which may draw numbers, must launch the same."""
    random.seed(0)
    np.random.seed(0)
    unseeded = np.random.default_rng
    np.random.default_rng = lambda seed=None: unseeded(0 if seed is None else seed)
    torch.manual_seed(0)
