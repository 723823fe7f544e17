"""Define a job, the submission that a grading is about, and locate findings in its files."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernelpath.course import registry, stubs
from kernelpath.course.registry import ExerciseRef
from kernelpath.course.spec import Exercise
from kernelpath.files import source_named, source_text
from kernelpath.grading import devices
from kernelpath.grading.devices import Device, OneDevice
from kernelpath.verdict import Finding, Verdict
from kernelpath.work.runner import Usage
from warpcheck.target import Target

# Verdicts on what a kernel does, rather than on its launch.
KERNEL_VERDICTS = (Verdict.WRONG_VALUES, Verdict.NOT_WRITTEN, Verdict.MUTATED_INPUT, Verdict.OUT_OF_BOUNDS)

# Verdicts on what the entry returns.
RETURN_VERDICTS = (Verdict.WRONG_TYPE, Verdict.WRONG_SHAPE, Verdict.WRONG_DTYPE)


def return_line(text: str, entry: str) -> int:
    """Return the line of the last `return` of a module's function, or of its `def` where it has no `return`.

    0 where the module does not define the function.
    """
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # from a parser whose stack is full
        return 0
    functions = [node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == entry]
    if not functions:
        return 0
    returns = [node.lineno for statement in functions[-1].body for node in _returns_of_function(statement)]
    return max(returns, default=functions[-1].lineno)


def _returns_of_function(node: ast.AST) -> Iterator[ast.Return]:
    """Yield the `return` statements below a node, except for those of nested functions."""
    if isinstance(node, ast.Return):
        yield node
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
        for child in ast.iter_child_nodes(node):
            yield from _returns_of_function(child)


@dataclass(frozen=True)
class Job:
    """A submission that is to be graded as an exercise, and where.

    Attributes:
        item: The exercise by name.
        exercise: Its declaration, adapted to the device.
        submission: The submission's Python file.
        device: Where it is graded.
        target: The architecture that the PTX machine simulates.
        home: The folder that paths in reports are relative to.
        command: The command that grades the submission again, for the next step of a report.
        hidden: Folders that the submission must not use, besides solutions/ and ready-made solutions.
        keep: Whether compilers' output is kept for the next grading of the same file.
        substitutions: Sentences about what the device lacks, and what replaces it.
    """

    item: ExerciseRef
    exercise: Exercise
    submission: Path
    device: OneDevice
    target: Target
    home: Path
    command: str = ""
    hidden: tuple[Path, ...] = ()
    keep: bool = True
    substitutions: tuple[str, ...] = ()

    @classmethod
    def create(
        cls,
        item: ExerciseRef,
        submission: Path,
        *,
        device: Device = "auto",
        arch: str | None = None,
        recording: Path | None = None,
        home: Path | None = None,
        command: str | None = None,
        hidden: Sequence[Path] = (),
        keep: bool = True,
    ) -> Job:
        """Return the job to grade the Python file `submission` as the exercise `item`.

        Args:
            item: The exercise.
            submission: The file.
            device: "cpu", "cuda", or "auto" for a GPU where there is one.
            arch: The architecture that the PTX machine simulates, one of simt.TARGETS. None stands for the exercise's.
            recording: A folder with a recording of the learner's, for an exercise about recordings.
            home: The folder that the report's paths are relative to, instead of the checkout.
            command: The command that grades the file again, where options are needed.
            hidden: Folders whose files the submission must not use, besides solutions/.
            keep: Whether to keep compilers' output for the next grading of the same file.

        Raises:
            Usage: The device, the architecture or the recording does not fit.
            spec.DeclarationError: The exercise's declaration is wrong.
        """
        declaration = registry.load(item)
        if recording is not None:
            declaration = _with_recording(declaration, recording)
        # A GPU does not report the faults of the kernels to be repaired, and may hang on some of them.
        resolved = devices.resolve("cpu" if declaration.kind == "repair" else device)
        target = devices.choose_target(declaration, resolved, arch)
        exercise, substitutions = devices.adapt_exercise(declaration, resolved, target)
        return cls(
            item,
            exercise,
            submission.absolute(),
            resolved,
            target,
            home=home.absolute() if home else item.root,
            command=command or f"kp check {item.name}",
            hidden=tuple(hidden),
            keep=keep,
            substitutions=substitutions,
        )

    def locate(self, finding: Finding | None) -> Finding | None:
        """Return the finding with the whole path to its file, and with the line of the `return` that it is about."""
        if finding is None:
            return None
        if finding.verdict in RETURN_VERDICTS and not finding.line:
            line = return_line(source_text(self.submission), self.exercise.entry)
            return replace(finding, file=str(self.submission), line=line) if line else finding
        if finding.file:
            # The finding names a file of the graded copy. The learner's own file has the same name.
            return replace(finding, file=str(source_named(self.submission, Path(finding.file).name)))
        return replace(finding, file=str(self.submission)) if finding.line else finding

    def check_empty_kernel(self) -> Finding | None:
        """Return a finding where a kernel in the CUDA C++ source is still the stub's."""
        source = self.submission.with_suffix(".cu")
        line = stubs.empty_kernel(source_text(source)) if source.is_file() else 0
        if not line:
            return None
        return Finding(Verdict.NOT_STARTED, "the kernel is launched, but writes nothing yet", str(source), line)

    def file_to_fix(self, verdict: Verdict) -> str:
        """Return the file that a learner should fix where the finding names none."""
        source = self.submission.with_suffix(".cu")
        if verdict in KERNEL_VERDICTS and source.is_file():
            return f"{self.display_path(str(source))}, or its launch in the .py"
        return self.display_path(str(self.submission))

    def display_path(self, file: str) -> str:
        """Return a path as the learner would type it: relative to `home` where it is inside."""
        if not file:
            return ""
        path = Path(file)
        return str(path.relative_to(self.home)) if path.is_relative_to(self.home) else file


def _with_recording(exercise: Exercise, folder: Path) -> Exercise:
    """Return the exercise with the cases of a learner's recording instead of its own.

    Raises:
        Usage: The exercise accepts no recording.
    """
    if any("recording" not in case for case in exercise.cases):
        raise Usage("--trace is for exercises that report on a whole recording, as `kp check profile --trace` does")
    return replace(exercise, cases=[{**case, "recording": str(folder.resolve())} for case in exercise.cases])
