"""Test the layout algebra that grades the exercises of week 17: it equals CuTe's, or refuses where CuTe is wrong."""

# The DSL traces these functions instead of running them.
# mypy: disable-error-code="name-defined, attr-defined"

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
import numpy as np
import pytest
import torch

from kernelpath.course.labs import layouts
from kernelpath.course.labs.layouts import Layout, Refused, complement, concatenate
from kernelpath.course.problems import layout_algebra, swizzles
from machine.test_native import compile_natively
from warpcheck.runtime import memory_transactions


def to_cute(layout: Layout) -> Any:
    return cute.make_layout(layout.shape, stride=layout.stride)


def ask_cute(question: layout_algebra.Question) -> Any:
    """Return the layout that CuTe computes. Exceptions of CuTe propagate."""
    operation, first, *operands = question
    if not operands:
        return cute.coalesce(to_cute(Layout.parse(str(first))))
    operand: Any = operands[0]
    if operation == "complement":
        operand = int(operand)
    elif isinstance(operand, str):
        operand = to_cute(Layout.parse(operand))
    else:
        operand = tuple(to_cute(Layout.parse(mode)) for mode in operand)
    return getattr(cute, str(operation))(to_cute(Layout.parse(str(first))), operand)


@cute.jit
def trace(function: cutlass.Constexpr) -> None:
    function()


def ask_cute_all(questions: list[layout_algebra.Question]) -> list[Layout | None]:
    """Return CuTe's answer to each question, or None where CuTe refuses it."""
    results: list[Layout | None] = []

    def trace_questions() -> None:
        for question in questions:
            try:
                results.append(Layout.parse(str(ask_cute(question))))
            except (cutlass._mlir.ir.MLIRError, ValueError):
                results.append(None)

    trace(trace_questions)
    return results


def split_by_modes(question: layout_algebra.Question) -> list[layout_algebra.Question]:
    """Split a division by modes into one division per mode; return any other question unchanged."""
    _, first, *operands = question
    layout = Layout.parse(str(first))
    if isinstance(operands[0], str) or len(operands[0]) > layout.rank:
        return [question]
    return [["logical_divide", str(layout[mode]), tile] for mode, tile in enumerate(operands[0])]


def is_right(question: layout_algebra.Question, result: Layout | None) -> bool:
    """Return whether a layout is the requested function of its index, regardless of how its modes are grouped."""
    operation, first, operand = question
    outer = Layout.parse(str(first))
    if result is None or 0 in layouts.flatten_numbers(result.shape):
        return False
    if operation == "complement":
        offsets = [offset + shift for offset in outer.offsets for shift in result.offsets]
        return len(set(offsets)) == len(offsets) and set(range(int(str(operand)))) <= set(offsets)
    inner = Layout.parse(str(operand))
    if operation != "composition":
        try:
            inner = concatenate([inner, complement(inner, outer.size)])
        except Refused:
            return False
    return result.size == inner.size and all(result(index) == outer(inner(index)) for index in range(inner.size))


KINDS = [case["questions"] for case in (*layout_algebra.COMPOSITION.cases, *layout_algebra.DIVIDE.cases)]


@pytest.mark.parametrize("kind", KINDS)
def test_answers_equal_those_of_cute_unless_cute_is_wrong(kind: str) -> None:
    questions, _ = layout_algebra.inputs(torch.Generator().manual_seed(1), kind, 60)
    agreed = 0
    refused = []
    for question, theirs in zip(questions, ask_cute_all(questions), strict=True):
        try:
            ours = layout_algebra.answer(question)
        except Refused:
            refused.append(question)
        else:
            agreed += 1
            assert str(ours) == str(theirs), question
    for question in refused:
        parts = split_by_modes(question)
        assert not all(map(is_right, parts, ask_cute_all(parts))), question
    assert agreed >= 10


def test_cute_returns_unchecked_results() -> None:
    """The notebook of week 17 states these wrong results of CuTe 4.8.1."""
    steps, sums, repeats = ask_cute_all(
        [
            ["composition", "(4,6):(1,7)", "8:3"],
            ["composition", "(4,2):(1,10)", "(2,2):(3,1)"],
            ["complement", "(4,2):(1,2)", "24"],
        ]
    )
    assert (str(steps), str(sums), str(repeats)) == ("(2,4):(3,7)", "(2,2):(3,1)", "(0,6):(4,4)")


def test_swizzles_equal_those_of_cute() -> None:
    """Overlapping bits are refused, as in CuTe's C++. The DSL accepts them, but such a swizzle is not an involution."""
    questions, _ = swizzles.inputs(torch.Generator().manual_seed(1), "compose", 60)
    results: list[tuple[list[int], list[int]]] = []

    def trace_swizzles() -> None:
        for _, swizzle, text in questions:
            layout = Layout.parse(text)
            cute_swizzle = cute.make_swizzle(*swizzle)
            swizzled_offsets = cute.make_composed_layout(cute_swizzle, 0, to_cute(layout))
            offsets = [int(swizzled_offsets(index)) for index in range(layout.size)]
            restored_offsets = cute.make_composed_layout(cute_swizzle, 0, cute.make_layout(1 << 16))
            results.append((offsets, [int(restored_offsets(offset)) for offset in offsets]))

    trace(trace_swizzles)
    refused = 0
    for question, (swizzled_offsets, restored_offsets) in zip(questions, results, strict=True):
        try:
            assert swizzles.answer(question) == swizzled_offsets, question
            assert restored_offsets == Layout.parse(question[2]).offsets
        except Refused:
            refused += 1
    assert refused > 0


def test_wavefronts_equal_those_of_the_ptx_machine() -> None:
    banks = np.zeros(32, np.int64)
    count_by_width = {
        width: compile_natively(memory_transactions.count_wavefronts, width, 0, banks.ctypes.data)
        for width in (4, 8, 16)
    }
    questions, _ = swizzles.inputs(torch.Generator().manual_seed(1), "wavefronts", 300)
    for _, addresses, width in questions:
        address_array = np.array(addresses, np.int64)
        assert layouts.wavefronts(addresses, width) == count_by_width[width](
            address_array.ctypes.data, (1 << 32) - 1
        ), addresses


@pytest.mark.parametrize("element_bytes", [1, 4])
@pytest.mark.parametrize("vectors", [2, 4, 8, 16])
def test_exactly_one_smallest_swizzle_avoids_bank_conflicts(vectors: int, element_bytes: int) -> None:
    """Compare with every swizzle that has no more bits and keeps 16 bytes contiguous."""
    columns = 16 * vectors // element_bytes
    base = (16 // element_bytes).bit_length() - 1
    chosen = layouts.without_conflicts(columns, element_bytes)
    candidates = [
        (bits, start, shift)
        for bits in range(1, chosen[0] + 1)
        for start in range(base + 3)
        for shift in range(-6, 7)
        if abs(shift) >= bits and start >= base
    ]
    assert [candidate for candidate in candidates if is_without_conflicts(candidate, columns, element_bytes)] == [
        chosen
    ]


def is_without_conflicts(swizzle: layouts.Swizzle, columns: int, element_bytes: int) -> bool:
    return all(
        layouts.wavefronts(
            [element_bytes * layouts.apply_swizzle(swizzle, (first + row) * columns + column) for row in range(8)], 16
        )
        == 1
        for first in (0, 8, 16)
        for column in range(0, columns, 16 // element_bytes)
    )


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("4:2", "4:2, expected (2,2):(2,7): index 2 is at 4, expected 7"),
        ("(2,(2,1)):(2,(7,0))", "the same offsets, in other modes"),
        ("9999999999:1", "9999999999:1 with 9,999,999,999 elements, expected (2,2):(2,7) with 4"),
        ("4:'x'", "which is no layout"),
        ("refused", "refused, expected (2,2):(2,7)"),
        ("", "which is no layout"),
    ],
)
def test_the_finding_explains_a_wrong_layout(answer: str, message: str) -> None:
    question: layout_algebra.Question = ["composition", "(4,6):(1,7)", "(2,2):(2,4)"]
    row = torch.tensor([list(answer.ljust(layout_algebra.WIDTH).encode())], dtype=torch.uint8)
    cause = layout_algebra.complaint(([question], "cpu"), [row]) or ""
    assert message in cause
