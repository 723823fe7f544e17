"""Test the tensor table of week 13's optimizer: the bytes that each step sends, and tensors that move."""

import multiprocessing
from typing import Any

import pytest
import torch

from kernelpath.course import registry
from kernelpath.dev import cards
from kernelpath.grading import devices
from warpcheck import simulated_gpu

LENGTHS = (70_000, 3, 0, 5000)
# The bytes of the table for each tensor.
ROW_BYTES = 64


# For each call, the step of the first tensor and the number of the set of tensors.
STEPS = ((1, 0), (2, 0), (2, 1), (1000, 1))


@pytest.fixture(scope="module")
def calls() -> tuple[list[int], bool]:
    """Return the bytes that each call of STEPS sends, and whether all values are right."""
    receive, send = multiprocessing.get_context("fork").Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_make_steps, args=(send,), daemon=True)
    process.start()
    send.close()
    return receive.recv()  # type: ignore[no-any-return]


def test_a_step_sends_only_what_has_changed(calls: tuple[list[int], bool]) -> None:
    (first, unchanged, moved, repeated), _ = calls
    assert first > moved
    assert (unchanged, moved, repeated) == (0, ROW_BYTES * len(LENGTHS), 0)


def test_tensors_may_move_between_steps(calls: tuple[list[int], bool]) -> None:
    assert calls[1]


def _make_steps(send: Any) -> None:
    torch.set_num_threads(1)
    item = registry.find("adam")
    exercise = registry.load(item)
    simulated_gpu.show({}, devices.choose_target(exercise, "cpu", None))
    adamw = cards.load_entry(item, exercise)
    sent: list[int] = []
    from_numpy = torch.from_numpy

    def count_bytes(array: Any) -> torch.Tensor:
        sent[-1] += array.nbytes
        return from_numpy(array)

    torch.from_numpy = count_bytes  # type: ignore[assignment]
    right = True
    sets = [[[torch.rand(length) for length in LENGTHS] for _ in range(4)] for _ in range(2)]
    for step, index_of_set in STEPS:
        tensors = sets[index_of_set]
        params, grads, moments, squares = ([tensor.double() for tensor in group] for group in tensors)
        steps = [step + 2 * index for index in range(len(LENGTHS))]
        sent.append(0)
        adamw(steps, 0.1, 0.9, 0.999, 1e-8, 0.01, *[tensor for group in tensors for tensor in group])
        for index, tensor_step in enumerate(steps):
            m = 0.9 * moments[index] + 0.1 * grads[index]
            v = 0.999 * squares[index] + 0.001 * grads[index] ** 2
            update = 0.1 / (1 - 0.9**tensor_step) * m / (v.sqrt() / (1 - 0.999**tensor_step) ** 0.5 + 1e-8)
            expected = (1 - 0.1 * 0.01) * params[index] - update
            right &= torch.allclose(tensors[0][index].double(), expected, rtol=1e-5, atol=1e-6)
    send.send((sent, right))
