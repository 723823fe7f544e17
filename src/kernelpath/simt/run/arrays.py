"""Records and other memory of a launch, as numpy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Dim", "Records", "aligned"]

Dim = tuple[int, int, int]


class Records:
    """One record, and the arrays that it points to."""

    def __init__(self, kind: np.dtype[np.void]) -> None:
        self.record = np.zeros(1, kind)
        self.arrays: dict[str, npt.NDArray[Any]] = {}

    @property
    def address(self) -> int:
        return int(self.record.ctypes.data)

    def get(self, name: str) -> int:
        return int(self.record[name][0])

    def set(self, **values: int) -> None:
        for name, value in values.items():
            self.record[name] = value

    def point(self, **arrays: npt.NDArray[Any]) -> None:
        """Keep arrays, and set the fields of their names to their addresses."""
        for name, array in arrays.items():
            self.arrays[name] = array
            self.record[name] = array.ctypes.data


def aligned(size: int) -> npt.NDArray[np.uint8]:
    """Zeroed bytes that begin at a multiple of 256."""
    memory = np.zeros(size + 512, np.uint8)
    return memory[-memory.ctypes.data % 256 :]
