"""Ask questions about swizzles and banks, with a row of int64 for each answer, padded with -1.

A swizzle is [B, M, S]. A refused operation is a row of -1.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kernelpath import words
from kernelpath.course.labs import layout_draws as draws
from kernelpath.course.labs import layouts
from kernelpath.course.labs.layouts import BANKS, LINE_BYTES, VECTOR_BYTES, WORD_BYTES, Layout, Refused, Swizzle
from kernelpath.course.problem import EXACT, Problem

# The numbers of an answer.
WIDTH = 128

Question = list[Any]

_LANES = 32


def answer(question: Question) -> list[int]:
    """Compute the answer. Raises Refused."""
    operation, *operands = question
    return _OPERATIONS[operation](*operands)


def _swizzled(swizzle: Swizzle, offsets: Sequence[int]) -> list[int]:
    return [layouts.apply_swizzle(swizzle, offset) for offset in offsets]


_OPERATIONS: Mapping[str, Callable[..., list[int]]] = {
    "swizzle": _swizzled,
    "compose": lambda swizzle, layout: _swizzled(swizzle, Layout.parse(layout).offsets),
    "wavefronts": lambda addresses, width: [layouts.wavefronts(addresses, width)],
    "choose": lambda columns, element_bytes: list(layouts.without_conflicts(columns, element_bytes)),
}


def reference(questions: list[Question], device: str) -> torch.Tensor:
    """Return the answers as int64, a row of WIDTH numbers for each question."""
    rows = []
    for question in questions:
        try:
            numbers = answer(question)
        except Refused:
            numbers = []
        rows.append([*numbers, *[-1] * (WIDTH - len(numbers))])
    return torch.tensor(rows, device=device)


def _swizzle(rng: random.Random, refused: bool) -> list[int]:
    bits = rng.randint(1, 3)
    # Source and target bits of a swizzle overlap if it shifts by less than its bits. Such a swizzle must be refused.
    shift = rng.randint(0, bits - 1) if refused else rng.randint(bits, 5)
    return [bits, rng.randint(0, 4), rng.choice((1, 1, -1)) * shift]


def _offsets(rng: random.Random) -> Question:
    return ["swizzle", _swizzle(rng, rng.random() < 0.15), [rng.randrange(1 << 12) for _ in range(40)]]


def _composed(rng: random.Random) -> Question:
    layout = draws.layout(rng, rng.randint(1, 3))
    # An answer has WIDTH numbers, one for each offset.
    while layout.size > WIDTH:
        layout = draws.layout(rng, rng.randint(1, 3))
    return ["compose", _swizzle(rng, rng.random() < 0.1), str(layout)]


def _request(rng: random.Random) -> Question:
    """Generate a request of a kernel: lanes along a column or row of a padded or swizzled tile, a broadcast, or any.

    In wider accesses each lane has its own address, because hardware serves neighbors with equal addresses differently.
    """
    width = rng.choice((WORD_BYTES, WORD_BYTES, 2 * WORD_BYTES, VECTOR_BYTES))
    pitch = rng.choice((1, 2, 4, 8, 16, 32, 33, 40, 64)) * rng.choice((1, 1, 3))
    swizzle = (rng.randint(0, 3), rng.randint(0, 2), 3)
    max_words = BANKS * LINE_BYTES // width
    kind = rng.choice(("stride", "swizzled", "any", "tile"))
    if kind == "any":
        places = rng.sample(range(max_words), _LANES)
    elif kind == "tile":
        down = rng.choice((4, 8, 16))
        places = [lane % down * max(pitch, _LANES // down) + lane // down for lane in range(_LANES)]
    else:
        places = [lane * pitch for lane in range(_LANES)]
    if kind == "swizzled":
        places = [layouts.apply_swizzle(swizzle, place) for place in places]
    # Lanes that read the same word are served by one broadcast.
    if width == WORD_BYTES and rng.random() < 0.3:
        shared = rng.choice((2, 4, 8))
        places = [places[lane // shared * shared] for lane in range(_LANES)]
    return ["wavefronts", [width * place for place in places], width]


def _tile(rng: random.Random) -> Question:
    element_bytes = rng.choice((1, 2, 4, 8))
    return ["choose", VECTOR_BYTES * 2 ** rng.randint(1, 6) // element_bytes, element_bytes]


_GENERATORS: Mapping[str, Callable[[random.Random], Question]] = {
    "swizzle": _offsets,
    "compose": _composed,
    "wavefronts": _request,
    "choose": _tile,
}


def inputs(rng: torch.Generator, questions: str, count: int) -> tuple[list[Question], str]:
    """Return so many questions of a kind, and the device of the answers."""
    generator = draws.source(rng)
    return [_GENERATORS[questions](generator) for _ in range(count)], rng.device.type


def complaint(inputs: Sequence[Any], outputs: Sequence[torch.Tensor]) -> str | None:
    """Describe the first wrong answer, and its difference from the right one."""
    questions, _ = inputs
    expected = reference(*inputs)
    wrong = (outputs[0] != expected).any(1).nonzero().flatten().tolist()
    if not wrong:
        return None
    row = wrong[0]
    place = int((outputs[0][row] != expected[row]).nonzero()[0])
    submitted, expected_row = (rows[row].tolist() for rows in (outputs[0], expected))
    difference = _describe_difference(questions[row], place, submitted, expected_row)
    return f"{len(wrong)} of {len(questions)} answers are wrong. {difference}"


def _describe_difference(question: Question, index: int, submitted: list[int], expected: list[int]) -> str:
    match question:
        case ["swizzle" | "compose", swizzle, operand]:
            name = f"S<{','.join(map(str, swizzle))}>"
            if expected[0] < 0:
                return f"{name} returned offsets, expected a ValueError: its bits overlap"
            if submitted[0] < 0:
                return f"{name} was refused, but its bits do not overlap"
            where = f"{name} of {operand[index]}" if isinstance(operand, list) else f"{name} o {operand} at {index}"
            return (
                f"{where}: {submitted[index]} ({submitted[index]:b}), expected {expected[index]} ({expected[index]:b})"
            )
        case ["wavefronts", addresses, width]:
            return f"{width} bytes at each of {addresses}: {submitted[0]} wavefronts, expected {expected[0]}"
        case [_, columns, element_bytes]:
            tile = f"rows of {columns} elements of {words.count(element_bytes, 'byte')}"
            return f"{tile}: S<{','.join(map(str, submitted[:3]))}>, expected S<{','.join(map(str, expected[:3]))}>"
    raise AssertionError(question)


PROBLEM = Problem(
    inputs=inputs,
    cases=tuple(
        {"questions": questions, "count": count} for questions, count in zip(_GENERATORS, (40, 40, 80, 30), strict=True)
    ),
    vary=("count",),
    reference=reference,
    tolerance={"int64": EXACT},
    compulsory_bytes=lambda questions, count: 8 * WIDTH * count,
)
