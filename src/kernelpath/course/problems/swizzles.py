"""Questions about swizzles and banks, and their answers: a row of int64 for each, filled up with -1.

A swizzle is [B, M, S]. What is refused is a row of -1.
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

WIDTH = 128
"""Numbers of an answer."""

Question = list[Any]

_LANES = 32


def answer(question: Question) -> list[int]:
    """Raises Refused."""
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
    """int64, a row of WIDTH numbers for each question."""
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
    shift = rng.randint(0, bits - 1) if refused else rng.randint(bits, 5)
    return [bits, rng.randint(0, 4), rng.choice((1, 1, -1)) * shift]


def _offsets(rng: random.Random) -> Question:
    return ["swizzle", _swizzle(rng, rng.random() < 0.15), [rng.randrange(1 << 12) for _ in range(40)]]


def _composed(rng: random.Random) -> Question:
    drawn = draws.layout(rng, rng.randint(1, 3))
    while drawn.size > WIDTH:
        drawn = draws.layout(rng, rng.randint(1, 3))
    return ["compose", _swizzle(rng, rng.random() < 0.1), str(drawn)]


def _request(rng: random.Random) -> Question:
    """One that a kernel makes: lanes down a column or along a row of a padded or swizzled tile, a broadcast, or any.

    Of wider accesses each lane has its own, because neighbors that share theirs are served in a way of their own.
    """
    width = rng.choice((WORD_BYTES, WORD_BYTES, 2 * WORD_BYTES, VECTOR_BYTES))
    pitch = rng.choice((1, 2, 4, 8, 16, 32, 33, 40, 64)) * rng.choice((1, 1, 3))
    swizzle = (rng.randint(0, 3), rng.randint(0, 2), 3)
    most = BANKS * LINE_BYTES // width
    kind = rng.choice(("stride", "swizzled", "any", "tile"))
    if kind == "any":
        places = rng.sample(range(most), _LANES)
    elif kind == "tile":
        down = rng.choice((4, 8, 16))
        places = [lane % down * max(pitch, _LANES // down) + lane // down for lane in range(_LANES)]
    else:
        places = [lane * pitch for lane in range(_LANES)]
    if kind == "swizzled":
        places = [layouts.apply_swizzle(swizzle, place) for place in places]
    if width == WORD_BYTES and rng.random() < 0.3:
        shared = rng.choice((2, 4, 8))
        places = [places[lane // shared * shared] for lane in range(_LANES)]
    return ["wavefronts", [width * place for place in places], width]


def _tile(rng: random.Random) -> Question:
    element_bytes = rng.choice((1, 2, 4, 8))
    return ["choose", VECTOR_BYTES * 2 ** rng.randint(1, 6) // element_bytes, element_bytes]


_DRAWN: Mapping[str, Callable[[random.Random], Question]] = {
    "swizzle": _offsets,
    "compose": _composed,
    "wavefronts": _request,
    "choose": _tile,
}


def inputs(rng: torch.Generator, questions: str, count: int) -> tuple[list[Question], str]:
    """So many questions of a kind, and the device of the answers."""
    generator = draws.source(rng)
    return [_DRAWN[questions](generator) for _ in range(count)], rng.device.type


def complaint(inputs: Sequence[Any], outputs: Sequence[torch.Tensor]) -> str | None:
    """The first question that is answered wrongly, and in what the answer differs."""
    questions, _ = inputs
    expected = reference(*inputs)
    wrong = (outputs[0] != expected).any(1).nonzero().flatten().tolist()
    if not wrong:
        return None
    row = wrong[0]
    place = int((outputs[0][row] != expected[row]).nonzero()[0])
    found, right = (one[row].tolist() for one in (outputs[0], expected))
    return f"{len(wrong)} of {len(questions)} answers are wrong. {_told(questions[row], place, found, right)}"


def _told(question: Question, place: int, found: list[int], right: list[int]) -> str:
    match question:
        case ["swizzle" | "compose", swizzle, operand]:
            name = f"S<{','.join(map(str, swizzle))}>"
            if right[0] < 0:
                return f"{name} returned offsets, expected a ValueError: its bits overlap"
            if found[0] < 0:
                return f"{name} was refused, but its bits do not overlap"
            where = f"{name} of {operand[place]}" if isinstance(operand, list) else f"{name} o {operand} at {place}"
            return f"{where}: {found[place]} ({found[place]:b}), expected {right[place]} ({right[place]:b})"
        case ["wavefronts", addresses, width]:
            return f"{width} bytes at each of {addresses}: {found[0]} wavefronts, expected {right[0]}"
        case [_, columns, element_bytes]:
            tile = f"rows of {columns} elements of {words.count(element_bytes, 'byte')}"
            return f"{tile}: S<{','.join(map(str, found[:3]))}>, expected S<{','.join(map(str, right[:3]))}>"
    raise AssertionError(question)


PROBLEM = Problem(
    inputs=inputs,
    cases=tuple(
        {"questions": questions, "count": count} for questions, count in zip(_DRAWN, (40, 40, 80, 30), strict=True)
    ),
    vary=("count",),
    reference=reference,
    tolerance={"int64": EXACT},
    compulsory_bytes=lambda questions, count: 8 * WIDTH * count,
)
