"""Ask questions about layouts, with answers in CuTe's notation: a row of ASCII for each.

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

# Modules that implement this algebra.
LIBRARIES = ("cutlass", "pycute")

# The characters of an answer; shorter ones are padded with blanks.
WIDTH = 96

REFUSED = "refused"

Operand = str | list[str]
Question = list[Operand]

_parse = Layout.parse


def _parse_tiler(text: Operand) -> Tiler:
    return _parse(text) if isinstance(text, str) else tuple(map(_parse, text))


_OPERATIONS: Mapping[str, Callable[..., Layout]] = {
    "coalesce": lambda layout: layouts.coalesce(_parse(layout)),
    "composition": lambda a, b: layouts.composition(_parse(a), _parse(b)),
    "complement": lambda layout, size: layouts.complement(_parse(layout), int(size)),
    "logical_divide": lambda layout, tiler: layouts.logical_divide(_parse(layout), _parse_tiler(tiler)),
    "zipped_divide": lambda layout, tiler: layouts.zipped_divide(_parse(layout), _parse_tiler(tiler)),
    "tiled_divide": lambda layout, tiler: layouts.tiled_divide(_parse(layout), _parse_tiler(tiler)),
}


def answer(question: Question) -> Layout:
    """Compute the answer. Raises Refused."""
    operation, *operands = question
    return _OPERATIONS[str(operation)](*operands)


def reference(questions: list[Question], device: str) -> torch.Tensor:
    """Return the answers as uint8, a row of WIDTH characters for each question."""
    answers = []
    for question in questions:
        try:
            answers.append(str(answer(question)))
        except Refused:
            answers.append(REFUSED)
    # Outputs of every exercise are tensors, so texts are rows of characters.
    return torch.tensor([list(text.ljust(WIDTH).encode()) for text in answers], dtype=torch.uint8, device=device)


def _format_tiler(tiler: Tiler) -> Operand:
    return str(tiler) if isinstance(tiler, Layout) else list(map(str, tiler))


def _coalesce(rng: random.Random) -> Question:
    layout = draws.layout(rng, rng.randint(1, 3), broadcasts=rng.random() < 0.3)
    for _ in range(rng.randint(1, 3)):
        # Modes of size 1, which coalescing has to drop.
        layout = draws.with_units(rng, layout)
    # their own strides, which `str` would leave out where a size is 1
    return ["coalesce", f"{layout.shape}:{layout.stride}".replace(" ", "")]


def _composition(rng: random.Random, broadcasts: bool = False) -> Question:
    outer = draws.layout(rng, rng.randint(1, 3), broadcasts=broadcasts)
    return ["composition", str(outer), str(draws.fitting(rng, outer, broadcasts))]


def _any_composition(rng: random.Random) -> Question:
    outer = draws.layout(rng, 2)
    # Most layouts do not compose, so a fifth is drawn to fit: refusing everything must not be the right answer.
    inner = draws.fitting(rng, outer) if rng.random() < 0.2 else draws.any_layout(rng, rng.randint(1, 2))
    return ["composition", str(outer), str(inner)]


def _complement(rng: random.Random, planned: bool = True) -> Question:
    rank = rng.randint(1, 3)
    layout = draws.layout(rng, rank, broadcasts=rng.random() < 0.2) if planned else draws.any_layout(rng, rank)
    end = max(layout.offsets) + 1
    return ["complement", str(layout), str(end + rng.choice((0, rng.randint(1, 50), end)))]


def _divide(rng: random.Random, by_mode: bool, strided: bool) -> Question:
    layout = draws.layout(rng, rng.randint(2, 3), gaps=rng.random() < 0.5, broadcasts=rng.random() < 0.1)
    operation = rng.choice(("logical_divide", "zipped_divide", "tiled_divide"))
    return [operation, str(layout), _format_tiler(draws.tiler(rng, layout, by_mode, strided))]


_GENERATORS: Mapping[str, Callable[[random.Random], Question]] = {
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
    """Return so many questions of a kind, and the device of the answers. No answer is longer than WIDTH."""
    sampled: list[Question] = []
    generator = draws.source(rng)
    while len(sampled) < count:
        question = _GENERATORS[questions](generator)
        # A question that is asked twice would count a mistake twice.
        if question not in sampled:
            sampled.append(question)
    return sampled, rng.device.type


def complaint(inputs: Sequence[Any], outputs: Sequence[torch.Tensor]) -> str | None:
    """Describe the first wrong answer, and its difference from the right one."""
    questions, _ = inputs
    expected = reference(*inputs)
    wrong = (outputs[0] != expected).any(1).nonzero().flatten().tolist()
    if not wrong:
        return None
    submitted = bytes(outputs[0][wrong[0]].tolist()).decode("ascii", "replace").strip()
    summary = (
        f"{len(wrong)} of {words.count(len(questions), 'answer')} are wrong. {_format_question(questions[wrong[0]])}: "
    )
    return summary + _difference(questions[wrong[0]], submitted)


def _format_question(question: Question) -> str:
    operation, *operands = question
    operand_texts = [operand if isinstance(operand, str) else f"<{', '.join(operand)}>" for operand in operands]
    return f"{operation}({', '.join(operand_texts)})"


def _difference(question: Question, submitted: str) -> str:
    try:
        expected = answer(question)
    except Refused as refused:
        return f"{submitted}, expected a ValueError: {refused}"
    expected_text = f"expected {expected}"
    if submitted == REFUSED:
        return f"refused, {expected_text}"
    try:
        layout = Layout.parse(submitted)
        if layout.size != expected.size:
            return f"{submitted} with {words.count(layout.size, 'element')}, {expected_text} with {expected.size:,}"
        offsets = layout.offsets
    except (ValueError, SyntaxError, TypeError):
        return f"{submitted}, which is no layout, {expected_text}"
    # A layout has many notations with the same offsets. The statement asks for one of them.
    if offsets == expected.offsets:
        return f"{submitted}, {expected_text}: the same offsets, in other modes"
    place = next(place for place, offset in enumerate(expected.offsets) if offsets[place] != offset)
    return f"{submitted}, {expected_text}: index {place} is at {offsets[place]}, expected {expected(place)}"


def problem(cases: Sequence[Case]) -> Problem:
    """Return the problem of an exercise with these questions."""
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
