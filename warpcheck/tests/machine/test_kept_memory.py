"""The memory that launches on several cores keep is zero when a later launch gets it."""

from __future__ import annotations

import numpy as np
import pytest

from warpcheck.runtime import kept_memory
from warpcheck.runtime.arrays import address_of
from warpcheck.runtime.kept_memory import ALIGNMENT, Arena, rounded


@pytest.fixture(autouse=True)
def _no_kept_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_memory, "_kept", [])


def test_pieces_are_aligned_and_do_not_overlap() -> None:
    sizes = [1, 64, 65, 0, 100]
    arena = Arena(sum(map(rounded, sizes)))
    pieces = [arena.take(size) for size in sizes]
    for number, piece in enumerate(pieces):
        piece[:] = number + 1
    for number, piece in enumerate(pieces):
        assert piece.size == sizes[number]
        assert (piece == number + 1).all()
        assert not piece.size or address_of(piece) % ALIGNMENT == 0


@pytest.mark.parametrize("clears_everything", [False, True])
def test_a_later_launch_gets_the_same_memory_which_is_zero(clears_everything: bool) -> None:
    arena = Arena(300)
    first, second = arena.take(100), arena.take(100, is_cleared=True)
    address = address_of(first)
    first[:] = 1
    second[:] = 2
    if not clears_everything:
        second[:] = 0  # by the caller
    arena.release(clears_everything=clears_everything)
    later = Arena(200)
    piece = later.take(200)
    assert address_of(piece) == address
    assert not piece.any()
    assert kept_memory._kept == []


def test_memory_that_is_too_small_is_not_kept() -> None:
    Arena(100).release(clears_everything=True)
    larger = Arena(1000)
    assert larger.take(1000).size == 1000
    assert kept_memory._kept == []


def test_no_more_than_the_limit_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_memory, "MAX_KEPT_BYTES", 250)
    arenas = [Arena(100) for _ in range(3)]
    for arena in arenas:
        arena.release(clears_everything=False)
    assert len(kept_memory._kept) == 2


def test_a_failed_allocation_is_a_memory_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(np, "zeros", fail)
    with pytest.raises(MemoryError):
        Arena(100)
