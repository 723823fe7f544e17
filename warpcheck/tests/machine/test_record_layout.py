"""Test records and their arrays in one allocation."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from warpcheck.native import load64
from warpcheck.runtime.arrays import RECORD, Place, RecordLayout, Records, address_of

KIND = np.dtype([("first", "i8"), ("count", "i4"), ("flags", "u4"), ("second", "i8"), ("inside", "i8"), ("own", "i8")])


def test_records_of_one_layout_have_its_values_and_their_own_arrays() -> None:
    layout = RecordLayout(
        KIND,
        {"first": (np.int64, 5), "second": (np.uint8, 3, 100), "unnamed": (np.int32, 7)},
        {"count": -3, "flags": 9},
        addresses={"inside": Place("unnamed", 8), "own": Place(RECORD)},
        contents={"first": np.arange(5), "unnamed": np.full(7, 4, np.int32)},
        links={Place("first", 16): Place("second", 40), Place("second", 8): Place(RECORD)},
    )
    first_copy, second_copy = Records(layout), Records(layout)
    for records in (first_copy, second_copy):
        first, second, unnamed = (records.array(name) for name in ("first", "second", "unnamed"))
        assert (records.get("count"), records.get("flags")) == (-3, 9)
        assert (records.get("first"), records.get("second")) == (address_of(first), address_of(second))
        assert records.get("inside") == address_of(unnamed) + 8
        assert records.get("own") == records.address
        assert first.tolist() == [0, 1, address_of(second) + 40, 3, 4]
        assert load64(address_of(second) + 8) == records.address
        assert (unnamed == 4).all()
        assert (address_of(first) % 1024, address_of(second) % 256) == (0, 0)
        assert second.shape == (3, 100)
        assert not second[:, 16:].any()
    first_copy.array("unnamed")[:] = 0
    first_copy.set(count=7)
    assert (second_copy.array("unnamed") == 4).all()
    assert second_copy.get("count") == -3


def test_address_of_returns_the_address_of_the_first_element() -> None:
    arrays: list[npt.NDArray[Any]] = [
        np.zeros(0, np.uint8),
        np.zeros((4, 4))[::2, 1::2],
        np.zeros((3, 5)).T,
        np.frombuffer(b"read-only", np.uint8),
        np.zeros(3, KIND),
        np.zeros(3, KIND)["second"],
        np.zeros(4, np.float16)[1:],
    ]
    for array in arrays:
        assert address_of(array) == array.ctypes.data
