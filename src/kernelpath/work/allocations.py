"""Measure the GPU memory that a call allocates through torch's allocator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelpath.work.tamper_check import SubmissionThread

# References from before the submission is imported, since a submission could replace the functions of torch.cuda.
_reset_peak_memory_stats = torch.cuda.reset_peak_memory_stats
_memory_stats = torch.cuda.memory_stats


def peak_workspace(thread: SubmissionThread, entry: Callable[..., Any], inputs: Sequence[Any]) -> int:
    """Return the bytes that a call holds at its peak besides its inputs and outputs.

    An earlier call must have tuned the entry. Memory that kernels allocate themselves, or from the driver, is not
    counted.
    """
    before = _requested_bytes("current")
    _reset_peak_memory_stats()
    result = thread.call(entry, *inputs)
    peak = _requested_bytes("peak") - before
    if result is None:
        outputs: tuple[Any, ...] = ()
    else:
        outputs = result if isinstance(result, tuple) else (result,)
    # Several outputs may be views of one storage, which counts once.
    bytes_by_address = {
        output.untyped_storage().data_ptr(): int(output.untyped_storage().nbytes()) for output in outputs
    }
    return max(0, peak - sum(bytes_by_address.values()))


def _requested_bytes(when: str) -> int:
    """Return the bytes requested from the allocator, whose blocks may be longer than the requests."""
    return int(_memory_stats().get(f"requested_bytes.all.{when}", 0))
