"""The algebra that the exercises of week 17 are graded by: equal to CuTe's own, or refused where CuTe's is wrong."""

# The DSL's functions are traced, not run.
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


def in_cute(one: Layout) -> Any:
    return cute.make_layout(one.shape, stride=one.stride)


def asked(question: layout_algebra.Question) -> Any:
    """What CuTe answers. Raises whatever it raises."""
    operation, first, *others = question
    if not others:
        return cute.coalesce(in_cute(Layout.parse(str(first))))
    operand: Any = others[0]
    if operation == "complement":
        operand = int(operand)
    elif isinstance(operand, str):
        operand = in_cute(Layout.parse(operand))
    else:
        operand = tuple(in_cute(Layout.parse(one)) for one in operand)
    return getattr(cute, str(operation))(in_cute(Layout.parse(str(first))), operand)


@cute.jit
def trace(function: cutlass.Constexpr) -> None:
    function()


def answers(questions: list[layout_algebra.Question]) -> list[Layout | None]:
    """CuTe's, or None where it refuses."""
    found: list[Layout | None] = []

    def ask() -> None:
        for question in questions:
            try:
                found.append(Layout.parse(str(asked(question))))
            except (cutlass._mlir.ir.MLIRError, ValueError):
                found.append(None)

    trace(ask)
    return found


def alone(question: layout_algebra.Question) -> list[layout_algebra.Question]:
    """A division by modes as a division of each, any other question as it is."""
    _, first, *others = question
    drawn = Layout.parse(str(first))
    if isinstance(others[0], str) or len(others[0]) > drawn.rank:
        return [question]
    return [["logical_divide", str(drawn[mode]), tile] for mode, tile in enumerate(others[0])]


def is_right(question: layout_algebra.Question, found: Layout | None) -> bool:
    """Whether a layout is the function that was asked for, whatever its modes."""
    operation, first, other = question
    outer = Layout.parse(str(first))
    if found is None or 0 in layouts.flatten_numbers(found.shape):
        return False
    if operation == "complement":
        reached = [one + another for one in outer.offsets for another in found.offsets]
        return len(set(reached)) == len(reached) and set(range(int(str(other)))) <= set(reached)
    inner = Layout.parse(str(other))
    if operation != "composition":
        try:
            inner = concatenate([inner, complement(inner, outer.size)])
        except Refused:
            return False
    return found.size == inner.size and all(found(index) == outer(inner(index)) for index in range(inner.size))


KINDS = [case["questions"] for case in (*layout_algebra.COMPOSITION.cases, *layout_algebra.DIVIDE.cases)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_answers_are_those_of_cute_where_these_are_right(kind: str) -> None:
    questions, _ = layout_algebra.inputs(torch.Generator().manual_seed(1), kind, 60)
    agreed, refused = 0, []
    for question, theirs in zip(questions, answers(questions), strict=True):
        try:
            ours = layout_algebra.answer(question)
        except Refused:
            refused.append(question)
        else:
            agreed += 1
            assert str(ours) == str(theirs), question
    for question in refused:
        parts = alone(question)
        assert not all(map(is_right, parts, answers(parts))), question
    assert agreed >= 10


def test_cute_does_not_check_what_it_returns() -> None:
    """What week 17 says of CuTe 4.8.1."""
    steps, sums, repeats = answers(
        [
            ["composition", "(4,6):(1,7)", "8:3"],
            ["composition", "(4,2):(1,10)", "(2,2):(3,1)"],
            ["complement", "(4,2):(1,2)", "24"],
        ]
    )
    assert (str(steps), str(sums), str(repeats)) == ("(2,4):(3,7)", "(2,2):(3,1)", "(0,6):(4,4)")


def test_swizzles_are_those_of_cute() -> None:
    """CuTe's C++ refuses bits that overlap, as we do; its DSL takes them for a function that does not undo itself."""
    questions, _ = swizzles.inputs(torch.Generator().manual_seed(1), "compose", 60)
    found: list[tuple[list[int], list[int]]] = []

    def ask() -> None:
        for _, swizzle, text in questions:
            layout, spread = Layout.parse(text), cute.make_swizzle(*swizzle)
            once = cute.make_composed_layout(spread, 0, in_cute(layout))
            offsets = [int(once(index)) for index in range(layout.size)]
            twice = cute.make_composed_layout(spread, 0, cute.make_layout(1 << 16))
            found.append((offsets, [int(twice(offset)) for offset in offsets]))

    trace(ask)
    refused = 0
    for question, (once, twice) in zip(questions, found, strict=True):
        try:
            assert swizzles.answer(question) == once, question
            assert twice == Layout.parse(question[2]).offsets
        except Refused:
            refused += 1
    assert refused > 0


def test_wavefronts_are_those_of_the_machine() -> None:
    served = np.zeros(32, np.int64)
    count = {
        width: compile_natively(memory_transactions.count_wavefronts, width, 0, served.ctypes.data)
        for width in (4, 8, 16)
    }
    questions, _ = swizzles.inputs(torch.Generator().manual_seed(1), "wavefronts", 300)
    for _, addresses, width in questions:
        placed = np.array(addresses, np.int64)
        assert layouts.wavefronts(addresses, width) == count[width](placed.ctypes.data, (1 << 32) - 1), addresses


@pytest.mark.parametrize("element_bytes", [1, 4])
@pytest.mark.parametrize("vectors", [2, 4, 8, 16])
def test_one_swizzle_alone_is_without_conflicts(vectors: int, element_bytes: int) -> None:
    """Of all with so few bits that keep 16 bytes together."""
    columns, base = 16 * vectors // element_bytes, (16 // element_bytes).bit_length() - 1
    chosen = layouts.without_conflicts(columns, element_bytes)
    tried = [
        (bits, start, shift)
        for bits in range(1, chosen[0] + 1)
        for start in range(base + 3)
        for shift in range(-6, 7)
        if abs(shift) >= bits and start >= base
    ]
    assert [one for one in tried if is_without_conflicts(one, columns, element_bytes)] == [chosen]


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
    ("found", "said"),
    [
        ("4:2", "4:2, expected (2,2):(2,7): index 2 is at 4, expected 7"),
        ("(2,(2,1)):(2,(7,0))", "the same offsets, in other modes"),
        ("9999999999:1", "9999999999:1 with 9,999,999,999 elements, expected (2,2):(2,7) with 4"),
        ("4:'x'", "which is no layout"),
        ("refused", "refused, expected (2,2):(2,7)"),
        ("", "which is no layout"),
    ],
)
def test_a_wrong_answer_is_told_from_the_right_one(found: str, said: str) -> None:
    question: layout_algebra.Question = ["composition", "(4,6):(1,7)", "(2,2):(2,4)"]
    row = torch.tensor([list(found.ljust(layout_algebra.WIDTH).encode())], dtype=torch.uint8)
    cause = layout_algebra.complaint(([question], "cpu"), [row]) or ""
    assert said in cause
