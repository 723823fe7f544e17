"""Tensors as bytes: what a submission's process tells of them, and what fills memory that nothing has written."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from kernelpath.device.messages import POISON

SMALL = 32 << 20
"""Bytes that malloc may take from what was freed before."""


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


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def raw_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The elements in order as a flat uint8 tensor, a view where that is possible."""
    flat = tensor.detach().reshape(-1)
    if flat.numel() and flat.stride(0) != 1:  # a single element may have any stride
        flat = flat.clone(memory_format=torch.contiguous_format).as_strided(flat.shape, (1,))
    return flat.view(torch.uint8)


def whole_storage(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor's storage as a uint8 tensor, those that are none of its elements among them."""
    return torch.tensor([], dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


def to_bytes(tensor: torch.Tensor) -> bytes:
    """The elements in order, as bytes of the host."""
    return raw_bytes(tensor).cpu().numpy().tobytes()


def from_bytes(dtype: str, shape: Sequence[int], content: bytes, device: torch.device | str) -> torch.Tensor:
    """The tensor with these elements."""
    if not content:
        return torch.empty(tuple(shape), dtype=getattr(torch, dtype), device=device)
    return torch.frombuffer(bytearray(content), dtype=getattr(torch, dtype)).view(tuple(shape)).to(device)


def fingerprint(tensor: torch.Tensor) -> list[int]:
    """Two sums over the bytes of a tensor, weighted by position: equal for equal bits, on every device."""
    raw = raw_bytes(tensor)
    if tail := -raw.numel() % 4096:
        raw = torch.nn.functional.pad(raw, (0, tail))
    words = raw.view(torch.int32).view(-1, 1024)
    columns = words.sum(0, dtype=torch.int64)
    rows = words.sum(1, dtype=torch.int64)
    weighted = [(sums * torch.arange(1, sums.numel() + 1, device=sums.device)).sum() for sums in (columns, rows)]
    return [int(value) for value in weighted]


def sample(tensor: torch.Tensor, seed: int, count: int = 4096) -> torch.Tensor:
    """`count` elements at places drawn from the seed: the same places for every tensor of the same size and device."""
    rng = torch.Generator(tensor.device).manual_seed(seed)
    places = torch.randint(tensor.numel(), (count,), generator=rng, device=tensor.device)
    return tensor.reshape(-1)[places]


def poison_storage(tensor: torch.Tensor) -> None:
    """Fill all of a fresh tensor's storage; an odd last byte stays as it is."""
    storage = tensor.untyped_storage()
    whole = torch.tensor([], dtype=torch.uint8).set_(storage)
    poison_(whole[: storage.nbytes() // 2 * 2])


def same_random_numbers() -> None:
    """Two processes with a submission of their own, which may draw numbers, must launch the same."""
    random.seed(0)
    np.random.seed(0)
    unseeded = np.random.default_rng
    np.random.default_rng = lambda seed=None: unseeded(0 if seed is None else seed)
    torch.manual_seed(0)
