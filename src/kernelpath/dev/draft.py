"""Draft a new exercise: every file that it needs, from a problem, with a TODO wherever the author must write.

A draft violates two invariants only: `nothing_is_left_to_write` and `no_cell_is_left_to_write` name what is still to be
written.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import string
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kernelpath.course import places, problems, registry
from kernelpath.course.problem import Problem
from kernelpath.course.registry import ExerciseRef, Lane
from kernelpath.show import docs

# The phase's folder by its first week, latest first.
PHASES: Mapping[int, str] = {17: "5_cute", 13: "4_fusion", 9: "3_triton", 5: "2_cuda", 0: "1_architecture"}

# The phase's folder of each elective week.
ELECTIVES: Mapping[int, str] = {
    25: "2_cuda",
    26: "4_fusion",
    27: "4_fusion",
    28: "3_triton",
    29: "4_fusion",
    30: "3_triton",
    31: "5_cute",
    32: "4_fusion",
    33: "4_fusion",
}

_LINE_WIDTH = 120
_KNOWN_TYPES = ("torch.Tensor", "int", "float", "str", "bool")


class DraftError(Exception):
    """No exercise was drafted. The message says why and what to type."""


def draft(
    name: str, problem: str, lane: Lane, week: int | None = None, letter: str | None = None, root: Path | None = None
) -> list[Path]:
    """Write the files of a new exercise and return their paths.

    Args:
        problem: A module of course/problems.
        week: The week of the last exercise by default.
        letter: The next free letter by default.

    Raises DraftError, before anything is written, for an invalid name or an existing file.
    """
    root = root or places.checkout()
    items = registry.exercises(root)
    operator = _find_problem(problem)
    if not name.isidentifier() or name != name.lower():
        raise DraftError(f"{name!r} is not the name of an exercise; name it like gelu_triton")
    if name in [item.name for item in items]:
        raise DraftError(f"exercise {name} already exists; choose another name")
    week = items[-1].week if week is None else week
    phase = _phase_of_week(week)
    item = ExerciseRef(root, f"{phase}/w{week:02d}{_choose_letter(items, week, letter)}_{name}")
    texts = dict(_files(item, problem, operator, lane))
    if existing := [path for path in texts if path.exists()]:
        raise DraftError(f"{existing[0]} already exists; remove it or choose another name")
    # Added after the check for existing files: the notebook of the week may exist.
    texts[_notebook(item)] = _add_cells(item)
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return [*texts, *(root / document for document in docs.rewrite(root))]


def _phase_of_week(week: int) -> str:
    """Return the folder of the phase that a week belongs to. Raises DraftError."""
    if week in ELECTIVES:
        return ELECTIVES[week]
    if not 0 <= week <= registry.CORE_WEEKS:
        electives = ", ".join(map(str, ELECTIVES))
        raise DraftError(
            f"there is no week {week}; give --week 0 to {registry.CORE_WEEKS}, or an elective week: {electives}"
        )
    return next(folder for first, folder in PHASES.items() if week >= first)


def _find_problem(name: str) -> Problem:
    """Return the problem of a module. Some modules of course/problems hold what problems share instead."""
    modules = {module.name: f"{problems.__name__}.{module.name}" for module in pkgutil.iter_modules(problems.__path__)}
    problem = getattr(importlib.import_module(modules[name]), "PROBLEM", None) if name in modules else None
    if not isinstance(problem, Problem):
        names = [
            module_name for module_name, path in modules.items() if hasattr(importlib.import_module(path), "PROBLEM")
        ]
        available = ", ".join(names)
        raise DraftError(f"there is no problem {name!r}; write course/problems/{name}.py, or name one of {available}")
    return problem


def _choose_letter(items: tuple[ExerciseRef, ...], week: int, letter: str | None) -> str:
    """Return the letter if it is free, or the next free letter of a week."""
    used = {item.path_id.partition("/")[2][3] for item in items if item.week == week}
    free = [candidate for candidate in string.ascii_lowercase if candidate > max(used, default="")]
    if letter is not None and (letter in used or letter not in string.ascii_lowercase or len(letter) != 1):
        raise DraftError(f"{letter!r} is not a free letter of week {week}; the next one is {free[0]}")
    return letter or free[0]


def _files(item: ExerciseRef, problem: str, operator: Problem, lane: Lane) -> Iterator[tuple[Path, str]]:
    """Yield the declaration, the lesson, and a stub that is also the solution until the solution is written."""
    module = importlib.import_module(f"{problems.__name__}.{problem}")
    summary = (module.__doc__ or "").strip().splitlines()[0]
    entry = item.name.removesuffix(f"_{lane}")
    arguments, result = _signature(operator)
    names = [argument.partition(":")[0] for argument in arguments]
    fields = {
        "title": f"{item.name.replace('_', ' ').capitalize()}: TODO, what is learned",
        "about": textwrap.fill(f"Week {item.week}. {summary}", _LINE_WIDTH),
        "summary": summary,
        "problem": problem,
        "entry": entry,
        "kind": "" if lane in ("cuda", "triton", "cute") else '    kind="python",\n',
        "signature": f"{entry}({', '.join(arguments)}) -> {result}",
        "parameters": ", ".join([*names, "out"]),
        "kernel": f"{item.path_id.partition('/')[2]}.cu",
    }
    yield item.declaration, _DECLARATION.substitute(fields)
    yield item.lesson, _LESSON
    for tree in (item.stub, item.solution):
        yield tree, _STUBS[lane].substitute(fields)
        if lane == "cuda":
            yield tree.with_suffix(".cu"), _KERNEL.substitute(fields)


def _signature(operator: Problem) -> tuple[list[str], str]:
    """Return the arguments and the result of the entry, as in the signature of the problem's reference."""
    signature = inspect.signature(operator.reference)
    arguments = [
        f"{name}: {parameter.annotation}" if str(parameter.annotation) in _KNOWN_TYPES else name
        for name, parameter in signature.parameters.items()
    ]
    return arguments, str(signature.return_annotation)


def _notebook(item: ExerciseRef) -> Path:
    """Return the path of the week's notebook, which may not exist yet."""
    return item.notebook or item.root / "notebooks" / item.phase / f"week{item.week:02d}_{item.name}.ipynb"


def _add_cells(item: ExerciseRef) -> str:
    """Return the week's notebook with two more cells, before the reading list or at the end."""
    path = _notebook(item)
    book = json.loads(path.read_text(encoding="utf-8")) if path.exists() else _new_notebook(item)
    cells: list[dict[str, Any]] = book["cells"]
    reading = (position for position, cell in enumerate(cells) if "## Further reading" in "".join(cell["source"]))
    position = next(reading, len(cells))
    text = f"## Your turn: `{item.name}`\n\nTODO: introduce `phases/{item.path_id}.py` and what it is for."
    cells[position:position] = [
        _cell("markdown", f"{item.name}-00", text),
        _cell("code", f"{item.name}-01", f'report = notebook.check("{item.name}")'),
    ]
    return json.dumps(book, indent=1, ensure_ascii=False) + "\n"


def _new_notebook(item: ExerciseRef) -> dict[str, Any]:
    text = f"# Week {item.week}\n\nTODO: the question of this week."
    setup = "from kernelpath.show import notebook\n\nnotebook.setup()"
    return {
        "cells": [_cell("markdown", "intro-00", text), _cell("code", "intro-01", setup)],
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _cell(kind: str, name: str, source: str) -> dict[str, Any]:
    execution: dict[str, Any] = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "id": name, "metadata": {}, "source": source.splitlines(keepends=True), **execution}


_DECLARATION = string.Template('''\
"""$title.

$about
"""

from kernelpath.course.problems import $problem
from kernelpath.course.spec import Exercise

EXERCISE = Exercise(
    entry="$entry",
    problem=$problem.PROBLEM,
$kind    # TODO: bench, sweep, baseline and min_speedup with the number that was measured, limits on traffic
)
''')

_LESSON = """\
## Hint 1

TODO: a nudge. Which question leads there?

## Hint 2

TODO: the idea.

## Hint 3

TODO: nearly the answer, with code.

## Prediction

TODO: what is predicted before it is measured, and in which unit?

Answer: 0

Why: TODO: the reason, in a sentence or two.

## Explanation

TODO: what an expert would do next, and why.
"""

_KERNEL = string.Template("""\
// $summary
//
// TODO: what a thread, a warp and a block do.

__global__ void $entry(/* TODO: the parameters */) {
    // TODO: the kernel
}
""")

_DOCSTRING = '''\
"""$title.

TODO: what ${entry} computes, what its inputs may be, what is graded, what bounds it.
"""
'''

_STUBS: Mapping[Lane, string.Template] = {
    "cuda": string.Template(
        _DOCSTRING
        + """
import torch

from kernelpath.lanes import cuda

KERNEL = cuda.kernel("$kernel", "$entry")


def $signature:
    raise NotImplementedError("TODO: allocate the output, launch KERNEL[blocks, threads](...) and return the output")
"""
    ),
    "triton": string.Template(
        _DOCSTRING
        + """
import torch
import triton
import triton.language as tl


@triton.jit
def ${entry}_kernel($parameters, BLOCK: tl.constexpr):
    \"\"\"TODO: what one program does.\"\"\"


def $signature:
    raise NotImplementedError("TODO: allocate the output, launch ${entry}_kernel and return the output")
"""
    ),
    "cute": string.Template(
        _DOCSTRING
        + """
import cutlass.cute as cute
import torch


@cute.kernel
def ${entry}_kernel($parameters):
    \"\"\"TODO: what one block does.\"\"\"


def $signature:
    raise NotImplementedError("TODO: allocate the output, launch ${entry}_kernel and return the output")
"""
    ),
    "python": string.Template(
        _DOCSTRING
        + """
import torch


def $signature:
    raise NotImplementedError("TODO: compute the result and return it")
"""
    ),
}
