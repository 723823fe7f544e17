"""The Triton kernels of `selftest`: each has its mistake where `WRONG` is true."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

import warpcheck

__all__ = ["TRITON", "PlantedTritonFault"]

_LENGTH = 1000
_BLOCK = 256


@triton.jit  # type: ignore[untyped-decorator]
def missing_mask(x, out, n, WRONG: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + i, mask=(i < n) | WRONG)  # the fault
    tl.store(out + i, values, mask=i < n)


@triton.jit  # type: ignore[untyped-decorator]
def sum_without_atomic(x, out, n, WRONG: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x + i, mask=i < n, other=0.0))
    if WRONG:
        tl.store(x, tl.load(x) + part)  # the fault
    else:
        tl.atomic_add(x + n, part)


@triton.jit  # type: ignore[untyped-decorator]
def shift_in_place(x, out, n, WRONG: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + i, mask=i < n)  # the fault
    if WRONG:
        tl.store(x + i + 1, values, mask=i + 1 < n)
    else:
        tl.store(out + i + 1, values, mask=i + 1 < n)


@triton.jit  # type: ignore[untyped-decorator]
def unwritten_output(x, out, n, WRONG: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + i, mask=i < n)
    if WRONG:
        values += tl.load(out + i, mask=i < n)  # the fault
    tl.store(out + i, values, mask=i < n)


@dataclass(frozen=True)
class PlantedTritonFault:
    """A kernel of Triton with a fault, and its correction.

    Attributes:
        fault: The name of the exception's class.
        mistake: The mistake, in a few words.
        kernel: The kernel.
    """

    fault: str
    mistake: str
    kernel: Any

    def launch_wrong(self) -> None:
        """Compile and launch the kernel with the mistake."""
        self._launch(is_wrong=True)

    def launch_right(self) -> None:
        """Compile and launch the corrected kernel."""
        self._launch(is_wrong=False)

    def _launch(self, *, is_wrong: bool) -> None:
        with warpcheck.gpu("sm_80"):
            x = torch.ones(_LENGTH + 1)
            out = torch.empty(_LENGTH)
            grid = (triton.cdiv(_LENGTH, _BLOCK),)
            self.kernel[grid](x, out, _LENGTH, WRONG=is_wrong, BLOCK=_BLOCK)

    @property
    def expected_line(self) -> int:
        """Return the number of the line where the machine has to find the fault."""
        lines, first = inspect.getsourcelines(self.kernel.fn)
        return next(number for number, line in enumerate(lines, first) if "# the fault" in line)


# A kernel for each kind of fault that Triton's language can express.
TRITON = (
    PlantedTritonFault("OutOfBounds", "a mask that is missing", missing_mask),
    PlantedTritonFault("Race", "a sum of several programs without an atomic", sum_without_atomic),
    PlantedTritonFault("Race", "a shift in place", shift_in_place),
    PlantedTritonFault("Uninitialized", "an output that is read before it is written", unwritten_output),
)
