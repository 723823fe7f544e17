"""What is graded: one file as an exercise, and how a finding names its places."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from kernelpath.course import stubs
from kernelpath.course.registry import Item
from kernelpath.course.spec import Exercise
from kernelpath.files import source_text, submitted
from kernelpath.grading.workers import OneDevice, Workers
from kernelpath.verdict import Finding, Verdict
from warpcheck.frontends import triton_advice
from warpcheck.frontends.shared_arrays import in_the_source
from warpcheck.simt import Target

BY_A_KERNEL = (Verdict.WRONG_VALUES, Verdict.NOT_WRITTEN, Verdict.MUTATED_INPUT, Verdict.OUT_OF_BOUNDS)
"""What a kernel does rather than its launch."""

ABOUT_WHAT_IS_RETURNED = (Verdict.WRONG_TYPE, Verdict.WRONG_SHAPE, Verdict.WRONG_DTYPE)


def return_line(text: str, entry: str) -> int:
    """Return the line of the last `return` of a function of a module, or of its head where it returns nothing.

    0 where the module does not define the function.
    """
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # of a parser whose stack is full
        return 0
    functions = [node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == entry]
    if not functions:
        return 0
    returns = [node.lineno for statement in functions[-1].body for node in _outside_of_functions(statement)]
    return max(returns, default=functions[-1].lineno)


def _outside_of_functions(node: ast.AST) -> Iterator[ast.Return]:
    """Yield the `return` statements below a node, but for those of functions that are defined there."""
    if isinstance(node, ast.Return):
        yield node
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
        for child in ast.iter_child_nodes(node):
            yield from _outside_of_functions(child)


@dataclass(frozen=True)
class Submission:
    """A submission, with the processes that it runs in.

    device: where it is graded. target: what the PTX machine stands for. home: the folder that paths are told from.
    instead: what of the exercise the device does not have, and what was put in its place.
    """

    item: Item
    exercise: Exercise
    path: Path
    device: OneDevice
    target: Target
    workers: Workers
    home: Path
    instead: tuple[str, ...] = ()

    def placed(self, finding: Finding | None) -> Finding | None:
        """The finding about a file beside the submission, with the whole path to it, in the words of its source."""
        if finding is None:
            return None
        if finding.verdict in ABOUT_WHAT_IS_RETURNED and not finding.line:
            line = return_line(source_text(self.path), self.exercise.entry)
            return replace(finding, file=str(self.path), line=line) if line else finding
        if finding.file:
            name = Path(finding.file).name
            own = (file for file in submitted(self.path) if file.name == name)
            path = next(own, self.path.with_name(name))
            cause = finding.cause
            with suppress(Exception):  # a source that Python or we cannot read costs the advice alone
                if path.suffix == ".cu" and path.is_file():
                    cause = in_the_source(cause, source_text(path), finding.line)
                elif self.item.lane == "triton" and path.is_file():
                    cause = triton_advice.in_the_source(cause, source_text(path), finding.line)
            return replace(finding, file=str(path), cause=cause)
        return replace(finding, file=str(self.path)) if finding.line else finding

    def empty_kernel(self) -> Finding | None:
        """A launch of a kernel that is still the stub's."""
        source = self.path.with_suffix(".cu")
        line = stubs.empty_kernel(source_text(source)) if source.is_file() else 0
        if not line:
            return None
        return Finding(Verdict.NOT_STARTED, "the kernel is launched, but writes nothing yet", str(source), line)

    def suspect(self, verdict: Verdict) -> str:
        """What to fix where the finding names no file."""
        source = self.path.with_suffix(".cu")
        if verdict in BY_A_KERNEL and source.is_file():
            return f"{self.shown(str(source))}, or its launch in the .py"
        return self.shown(str(self.path))

    def shown(self, file: str) -> str:
        """A path as the learner would type it: relative to `home` where it lies inside."""
        if not file:
            return ""
        path = Path(file)
        return str(path.relative_to(self.home)) if path.is_relative_to(self.home) else file
