"""Questions about layouts, and their answers in CuTe's notation: a row of ASCII for each.

A question is an operation and its operands as text, a tiler by modes as a list of texts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kernelpath import words
from kernelpath.course.labs import layout_draws as draws
from kernelpath.course.labs import layouts
from kernelpath.course.labs.layouts import Layout, Refused, Tiler
from kernelpath.course.problem import EXACT, Case, Problem

LIBRARIES = ("cutlass", "pycute")
"""Modules that have this algebra."""

WIDTH = 96
"""Characters of an answer; shorter ones are filled up with blanks."""

REFUSED = "refused"

Operand = str | list[str]
Question = list[Operand]

_parse = Layout.parse


def _tiler(told: Operand) -> Tiler:
    return _parse(told) if isinstance(told, str) else tuple(map(_parse, told))


_OPERATIONS: Mapping[str, Callable[..., Layout]] = {
    "coalesce": lambda layout: layouts.coalesce(_parse(layout)),
    "composition": lambda a, b: layouts.composition(_parse(a), _parse(b)),
    "complement": lambda layout, size: layouts.complement(_parse(layout), int(size)),
    "logical_divide": lambda layout, tiler: layouts.logical_divide(_parse(layout), _tiler(tiler)),
    "zipped_divide": lambda layout, tiler: layouts.zipped_divide(_parse(layout), _tiler(tiler)),
    "tiled_divide": lambda layout, tiler: layouts.tiled_divide(_parse(layout), _tiler(tiler)),
}


def answer(question: Question) -> Layout:
    """Raises Refused."""
    operation, *operands = question
    return _OPERATIONS[str(operation)](*operands)


def reference(questions: list[Question], device: str) -> torch.Tensor:
    """uint8, a row of WIDTH characters for each question."""
    answers = []
    for question in questions:
        try:
            answers.append(str(answer(question)))
        except Refused:
            answers.append(REFUSED)
    return torch.tensor([list(told.ljust(WIDTH).encode()) for told in answers], dtype=torch.uint8, device=device)


def _told(tiler: Tiler) -> Operand:
    return str(tiler) if isinstance(tiler, Layout) else list(map(str, tiler))


def _coalesce(rng: random.Random) -> Question:
    drawn = draws.layout(rng, rng.randint(1, 3), broadcasts=rng.random() < 0.3)
    for _ in range(rng.randint(1, 3)):
        drawn = draws.with_units(rng, drawn)
    # their own strides, which `str` would leave out where a size is 1
    return ["coalesce", f"{drawn.shape}:{drawn.stride}".replace(" ", "")]


def _composition(rng: random.Random, broadcasts: bool = False) -> Question:
    outer = draws.layout(rng, rng.randint(1, 3), broadcasts=broadcasts)
    return ["composition", str(outer), str(draws.fitting(rng, outer, broadcasts))]


def _any_composition(rng: random.Random) -> Question:
    outer = draws.layout(rng, 2)
    inner = draws.fitting(rng, outer) if rng.random() < 0.2 else draws.any_layout(rng, rng.randint(1, 2))
    return ["composition", str(outer), str(inner)]


def _complement(rng: random.Random, planned: bool = True) -> Question:
    rank = rng.randint(1, 3)
    drawn = draws.layout(rng, rank, broadcasts=rng.random() < 0.2) if planned else draws.any_layout(rng, rank)
    end = max(drawn.offsets) + 1
    return ["complement", str(drawn), str(end + rng.choice((0, rng.randint(1, 50), end)))]


def _divide(rng: random.Random, by_mode: bool, strided: bool) -> Question:
    drawn = draws.layout(rng, rng.randint(2, 3), gaps=rng.random() < 0.5, broadcasts=rng.random() < 0.1)
    operation = rng.choice(("logical_divide", "zipped_divide", "tiled_divide"))
    return [operation, str(drawn), _told(draws.tiler(rng, drawn, by_mode, strided))]


_DRAWN: Mapping[str, Callable[[random.Random], Question]] = {
    "coalesce": _coalesce,
    "composition": _composition,
    "composition with broadcasts": lambda rng: _composition(rng, broadcasts=True),
    "composition of any two": _any_composition,
    "complement": _complement,
    "complement of any": lambda rng: _complement(rng, planned=False),
    "division by a shape": lambda rng: _divide(rng, by_mode=True, strided=False),
    "division by layouts": lambda rng: _divide(rng, by_mode=True, strided=True),
    "division of the whole": lambda rng: _divide(rng, by_mode=False, strided=True),
}


def inputs(rng: torch.Generator, questions: str, count: int) -> tuple[list[Question], str]:
    """So many questions of a kind, and the device of the answers. No answer is longer than WIDTH."""
    drawn: list[Question] = []
    generator = draws.source(rng)
    while len(drawn) < count:
        question = _DRAWN[questions](generator)
        if question not in drawn:
            drawn.append(question)
    return drawn, rng.device.type


def complaint(inputs: Sequence[Any], outputs: Sequence[torch.Tensor]) -> str | None:
    """The first question that is answered wrongly, and in what the answer differs."""
    questions, _ = inputs
    expected = reference(*inputs)
    wrong = (outputs[0] != expected).any(1).nonzero().flatten().tolist()
    if not wrong:
        return None
    found = bytes(outputs[0][wrong[0]].tolist()).decode("ascii", "replace").strip()
    told = f"{len(wrong)} of {words.count(len(questions), 'answer')} are wrong. {_asked(questions[wrong[0]])}: "
    return told + _difference(questions[wrong[0]], found)


def _asked(question: Question) -> str:
    operation, *operands = question
    told = [one if isinstance(one, str) else f"<{', '.join(one)}>" for one in operands]
    return f"{operation}({', '.join(told)})"


def _difference(question: Question, found: str) -> str:
    try:
        right = answer(question)
    except Refused as refused:
        return f"{found}, expected a ValueError: {refused}"
    expected = f"expected {right}"
    if found == REFUSED:
        return f"refused, {expected}"
    try:
        layout = Layout.parse(found)
        if layout.size != right.size:
            return f"{found} with {words.count(layout.size, 'element')}, {expected} with {right.size:,}"
        offsets = layout.offsets
    except (ValueError, SyntaxError, TypeError):
        return f"{found}, which is no layout, {expected}"
    if offsets == right.offsets:
        return f"{found}, {expected}: the same offsets, in other modes"
    place = next(place for place, offset in enumerate(right.offsets) if offsets[place] != offset)
    return f"{found}, {expected}: index {place} is at {offsets[place]}, expected {right(place)}"


def problem(cases: Sequence[Case]) -> Problem:
    """The questions of an exercise."""
    return Problem(
        inputs=inputs,
        cases=cases,
        vary=("count",),
        reference=reference,
        tolerance={"uint8": EXACT},
        compulsory_bytes=lambda questions, count: WIDTH * count,
    )


COMPOSITION = problem(
    [
        {"questions": questions, "count": 60}
        for questions in (
            "coalesce",
            "composition",
            "composition with broadcasts",
            "composition of any two",
            "complement",
            "complement of any",
        )
    ]
)

DIVIDE = problem(
    [
        {"questions": questions, "count": 60}
        for questions in ("division by a shape", "division by layouts", "division of the whole")
    ]
)
