"""The table of week 13's optimizer: what the host prepares in each step, and that it follows tensors that move."""

import multiprocessing
from typing import Any

import pytest
import torch

from kernelpath.course import registry
from kernelpath.dev import cards
from kernelpath.grading import devices
from warpcheck import simulated_gpu

LENGTHS = (70_000, 3, 0, 5000)
ROW_BYTES = 64
"""Of the table, for each tensor."""


@pytest.fixture(scope="module")
def two_steps() -> tuple[list[int], bool]:
    """The bytes that each of two steps sends, and whether the values are right. Each step has tensors of its own."""
    receive, send = multiprocessing.get_context("fork").Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_make_two_steps, args=(send,), daemon=True)
    process.start()
    send.close()
    return receive.recv()  # type: ignore[no-any-return]


def test_a_second_step_sends_only_what_has_changed(two_steps: tuple[list[int], bool]) -> None:
    (first, second), _ = two_steps
    assert first > second
    assert second == ROW_BYTES * len(LENGTHS)


def test_tensors_may_move_between_steps(two_steps: tuple[list[int], bool]) -> None:
    assert two_steps[1]


def _make_two_steps(send: Any) -> None:
    torch.set_num_threads(1)
    item = registry.find("adam")
    exercise = registry.load(item)
    simulated_gpu.show({}, devices.choose_target(exercise, "cpu", None))
    adamw = cards.load_entry(item, exercise)
    sent: list[int] = []
    from_numpy = torch.from_numpy

    def counted(array: Any) -> torch.Tensor:
        sent[-1] += array.nbytes
        return from_numpy(array)

    torch.from_numpy = counted  # type: ignore[assignment]
    right = True
    kept = []
    for step in (1, 2):
        tensors = [[torch.rand(length) for length in LENGTHS] for _ in range(4)]
        kept.append(tensors)  # so that the second step's have other addresses
        params, grads, moments, squares = ([tensor.double() for tensor in group] for group in tensors)
        sent.append(0)
        adamw([step] * len(LENGTHS), 0.1, 0.9, 0.99, 1e-8, 0.01, *[tensor for group in tensors for tensor in group])
        for index in range(len(LENGTHS)):
            m = 0.9 * moments[index] + 0.1 * grads[index]
            v = 0.99 * squares[index] + 0.01 * grads[index] ** 2
            update = 0.1 / (1 - 0.9**step) * m / (v.sqrt() / (1 - 0.99**step) ** 0.5 + 1e-8)
            expected = (1 - 0.1 * 0.01) * params[index] - update
            right &= torch.allclose(tensors[0][index].double(), expected, rtol=1e-5, atol=1e-6)
    send.send((sent, right))
