"""How much of a GPU's memory a call takes: what torch's allocator hands out while it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelpath.work.tamper_check import SubmissionThread

_reset, _stats = torch.cuda.reset_peak_memory_stats, torch.cuda.memory_stats


def peak_workspace(thread: SubmissionThread, entry: Callable[..., Any], inputs: Sequence[Any]) -> int:
    """Bytes that a call holds at its peak beside its inputs and outputs. An earlier call has tuned it.

    Memory that kernels take by themselves, or from the driver, is not seen.
    """
    before = _requested("current")
    _reset()
    result = thread.call(entry, *inputs)
    peak = _requested("peak") - before
    outputs = result if isinstance(result, tuple) else (result,) * (result is not None)
    storages = {one.untyped_storage().data_ptr(): int(one.untyped_storage().nbytes()) for one in outputs}
    return max(0, peak - sum(storages.values()))


def _requested(when: str) -> int:
    """Bytes, not those of the allocator's blocks, which may be longer."""
    return int(_stats().get(f"requested_bytes.all.{when}", 0))
