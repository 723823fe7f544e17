"""Read the ladder of an exercise: kernels from the simplest one on, each one idea further than the step before.

solutions/<phase>/steps/<stem>/ holds the steps as 1_naive.cu, 2_tile.cu and so on, with a launch.py that has a function
for each, or as Python files that define the exercise's entry. Notebooks print, count and time the same files.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from kernelpath.course import registry
from kernelpath.course.errors import SolutionUnavailable
from kernelpath.course.registry import ExerciseRef
from kernelpath.files import source_text

# The file that launches the kernels of a ladder in CUDA C++.
LAUNCH = "launch.py"


@dataclass(frozen=True)
class LadderStep:
    """A step of a ladder, which is called like the kernel that it holds.

    Attributes:
        number: Its place, from 1.
        name: The name of its file without the number: "tile" of 2_tile.cu.
        entry: The function to call in its Python file.
    """

    path: Path
    number: int
    name: str
    entry: str

    @property
    def source(self) -> str:
        return source_text(self.path)

    @property
    def idea(self) -> str:
        """Return the first line of its comment or docstring: "A tile in shared memory: ...".

        Raises ValueError if the file does not begin with one.
        """
        if self.path.suffix == ".cu":
            line = self.source.partition("\n")[0].removeprefix("//").strip()
        else:
            line = (ast.get_docstring(ast.parse(self.source)) or "").partition("\n")[0]
        title, colon, _ = line.partition(": ")
        if not (title and colon):
            raise ValueError(f"{self.path} does not begin with its title, a colon and its idea; write them")
        return line

    @property
    def title(self) -> str:
        """Return the part of the idea before the colon."""
        return self.idea.partition(": ")[0]

    @property
    def module(self) -> ModuleType:
        """Return the module of its Python file, in which the kernel is launched."""
        return _import(self.path.with_name(LAUNCH) if self.path.suffix == ".cu" else self.path)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        kernel: Callable[..., Any] = getattr(self.module, self.entry)
        return kernel(*arguments, **options)


def read_ladder(item: ExerciseRef) -> dict[str, LadderStep]:
    """Return the steps of an exercise's ladder by name, in order. Raises SolutionUnavailable if there are none."""
    entry = registry.load(item).entry
    steps = []
    for path in step_files(item):
        number, _, name = path.stem.partition("_")
        if number.isdigit():
            steps.append(LadderStep(path, int(number), name, name if path.suffix == ".cu" else entry))
    if not steps:
        folder = item.ladder.relative_to(item.course)
        raise SolutionUnavailable(f"the ladder of {item.name} is withheld: there are no steps in {folder}")
    return {step.name: step for step in sorted(steps, key=lambda step: step.number)}


def step_files(item: ExerciseRef) -> tuple[Path, ...]:
    """Return the files of an exercise's ladder, of which most exercises have none."""
    return tuple(sorted(path for path in item.ladder.glob("*") if path.suffix in (".cu", ".py")))


@lru_cache
def _import(path: Path) -> ModuleType:
    return registry.import_file(path, f"kernelpath_ladder_{path.parent.name}_{path.stem}", listed=False)
