"""Compare the solution of the occupancy exercise with the results of an H200's driver."""

from __future__ import annotations

from kernelpath.course.labs import multiprocessor


def test_agrees_with_the_driver_of_an_h200() -> None:
    assert len(multiprocessor.RECORDED) > 40
    for *kernel, blocks in multiprocessor.RECORDED:
        assert multiprocessor.published("sm_90", *kernel) == blocks, kernel
