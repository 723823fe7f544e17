"""Find the exercises: every file checks/<phase>/w*.py declares one, and every other path follows from its path id.

Listing imports neither torch nor a declaration: titles are read from the syntax tree, hints from the lesson.
"""

from __future__ import annotations

import ast
import difflib
import importlib.util
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path, PurePath
from types import ModuleType
from typing import Any, Literal, TypeVar

from kernelpath import files
from kernelpath.course import checkpoint
from kernelpath.course.checkpoint import Checkpoint
from kernelpath.course.errors import DeclarationError, SolutionUnavailable
from kernelpath.course.errors import LookupFailed as LookupFailed
from kernelpath.course.places import course as course
from kernelpath.course.places import root as root
from kernelpath.course.spec import Exercise

# Whose kernels: the learner's, the answers to the exercises, or the reference kernels (`ExerciseRef.reference`).
Tree = Literal["phases", "solutions", "expert"]

# The folder in solutions/<phase>/ for reference kernels that are not the answer to their exercise.
EXPERT = "expert"

# The folder in solutions/<phase>/ for the ladders that lead to an answer; see `course.ladder`.
STEPS = "steps"

Lane = Literal["cuda", "triton", "cute", "pallas", "python"]

_Declaration = TypeVar("_Declaration", Exercise, Checkpoint)

# The folder in checks/<phase>/ for the kernels that an exercise of the kind "repair" gives, as the stub has them.
GIVEN = "given"

# The stem of the files of a phase's deliverable.
DELIVERABLE = "deliverable"

# The last week of the core course, which exams, certificates, and totals count. Later weeks are electives.
CORE_WEEKS = 24

_STEM = re.compile(r"w(?P<week>\d\d)(?P<letter>[a-z])_(?P<name>\w+)")


_KERNEL_KINDS = ("kernel", "operator", "library", "repair", "program")


@dataclass(frozen=True)
class ExerciseRef:
    """A reference to an exercise, from which the path of each of its files follows.

    Attributes:
        root: A checkout or a learner's folder.
        path_id: The path below phases/, checks/ and solutions/ without a suffix, such as "2_cuda/w07a_softmax".
    """

    root: Path
    path_id: str

    @cached_property
    def _parts(self) -> re.Match[str]:
        match = _STEM.fullmatch(self.path_id.partition("/")[2])
        if match is None:
            raise DeclarationError(
                f"checks/{self.path_id}.py is not named like w07a_softmax.py (week, letter, name); rename it"
            )
        return match

    @cached_property
    def course(self) -> Path:
        """Return the folder of declaration and solution: root in a checkout, else in the package."""
        return course(self.root)

    @property
    def name(self) -> str:
        return self._parts["name"]

    @property
    def week(self) -> int:
        return int(self._parts["week"])

    @property
    def is_elective(self) -> bool:
        """Return whether the exercise's week is an elective, which no exam, certificate, or total counts."""
        return self.week > CORE_WEEKS

    @property
    def phase(self) -> str:
        """Return the phase's folder, such as "2_cuda"."""
        return self.path_id.partition("/")[0]

    @property
    def declaration(self) -> Path:
        return self.course / "checks" / f"{self.path_id}.py"

    @property
    def grader(self) -> Path:
        """Return the file of the exercise's own grader, which few exercises have; see grading.by_kind."""
        return self.declaration.parent / "graders" / f"{self.name}.py"

    @property
    def given(self) -> tuple[Path, ...]:
        """Return the files with the broken kernels of an exercise of the kind "repair", which few exercises have."""
        return files.submitted(self.declaration.parent / GIVEN / self.declaration.name)

    @property
    def lesson(self) -> Path:
        """Return the file with the exercise's prose, which `lesson.read` parses."""
        return self.declaration.with_suffix(".md")

    @property
    def baseline(self) -> Path:
        """Return the file of the baseline kernel, if the declaration launches one of its own."""
        return self.declaration.with_suffix(".cu")

    @property
    def stub(self) -> Path:
        return self.submission("phases")

    @property
    def solution(self) -> Path:
        """Return the answer to the exercise, which a learner can read in the exercise's week."""
        return self.submission("solutions")

    @property
    def reference(self) -> Path:
        """Return the reference kernel, whose speed is published and which the third star compares with.

        The reference kernel is the expert kernel if there is one, and otherwise the answer.
        """
        return self.submission("expert")

    @property
    def has_expert(self) -> bool:
        """Return whether the exercise has an expert kernel besides its answer."""
        return self.reference != self.solution

    @property
    def ladder(self) -> Path:
        """Return the folder of the exercise's ladder, which few exercises have."""
        return self.solution.parent / STEPS / self.solution.stem

    def submission(self, tree: Tree) -> Path:
        """Return the Python file that defines the entry."""
        if tree == "expert":
            # The expert kernel has the name of the answer, so that either can be copied to phases/ and graded there.
            expert = self.solution.parent / EXPERT / self.solution.name
            return expert if expert.is_file() else self.solution
        return self._tree_of(tree) / f"{self.path_id}.py"

    def _tree_of(self, tree: Tree) -> Path:
        return (self.root if tree == "phases" else self.course) / tree

    def files(self, tree: Tree) -> tuple[Path, ...]:
        """Return the files of the exercise in a tree: the Python file, the .cu file and a project's files, if any."""
        return files.submitted(self.submission(tree))

    @property
    def notebook(self) -> Path | None:
        """Return the notebook of the exercise's week; None if the week has none."""
        notebooks = sorted((self.root / "notebooks" / self.phase).glob(f"week{self.week:02d}_*.ipynb"))
        return notebooks[0] if notebooks else None

    @property
    def lane(self) -> Lane:
        """Return the lane, inferred from the files of the solution, or of the stub if solutions are unavailable."""
        paths = self.files("solutions") or self.files("phases")
        if any(path.suffix == ".cu" for path in paths):
            return "cuda"
        # The files are searched and not imported, since a list of exercises must not load compilers.
        text = "".join(path.read_text(encoding="utf-8") for path in paths)
        packages: dict[str, Lane] = {"triton": "triton", "cutlass": "cute", "jax": "pallas"}
        imported = re.findall(r"^\s*(?:import|from) (triton|cutlass|jax)\b", text, re.MULTILINE)
        return next((lane for package, lane in packages.items() if package in imported), "python")

    @cached_property
    def _tree(self) -> ast.Module:
        try:
            return ast.parse(self.declaration.read_text(encoding="utf-8"), str(self.declaration))
        except (OSError, SyntaxError, UnicodeDecodeError) as error:
            raise DeclarationError(f"{self.declaration} cannot be read: {error}; fix it or restore it") from error

    @property
    def title(self) -> str:
        """Return the first line of the declaration's docstring, without its full stop."""
        text = ast.get_docstring(self._tree)
        if not text:
            raise DeclarationError(f"{self.declaration} has no docstring; write one whose first line is the title")
        return text.splitlines()[0].rstrip(".")

    @cached_property
    def launches(self) -> bool:
        """Return whether the exercise launches kernels: its kind is one of _KERNEL_KINDS, or the default."""
        return all(
            isinstance(kind, ast.Constant) and kind.value in _KERNEL_KINDS for kind in self._keyword_values("kind")
        )

    @cached_property
    def stars(self) -> int:
        """Return the most stars that the exercise gives: one if it is not timed, since it has no baseline."""
        return 3 if any(self._keyword_values("baseline")) else 1

    def _keyword_values(self, keyword: str) -> list[ast.expr]:
        """Return the values of a keyword in all calls of the declaration."""
        calls = (node for node in ast.walk(self._tree) if isinstance(node, ast.Call))
        return [argument.value for call in calls for argument in call.keywords if argument.arg == keyword]


@dataclass(frozen=True)
class Deliverable(ExerciseRef):
    """The work that a learner hands in at the end of a phase: a variant of an exercise, declared by its checkpoint.

    The path id "1_architecture/deliverable:24x24" ends in the name of the variant.
    """

    @property
    def name(self) -> str:
        return DELIVERABLE

    @property
    def week(self) -> int:
        return self._base_exercise.week

    @property
    def lane(self) -> Lane:
        return self._base_exercise.lane

    @property
    def title(self) -> str:
        return f"The deliverable, {self.path_id.partition(':')[2]}"

    @cached_property
    def launches(self) -> bool:
        return self._base_exercise.launches

    @cached_property
    def stars(self) -> int:
        return 1

    @property
    def declaration(self) -> Path:
        return self.course / "checks" / self.phase / "checkpoint.py"

    def submission(self, tree: Tree) -> Path:
        folder = "solutions" if tree == "expert" else tree
        return self._tree_of(folder) / self.phase / f"{DELIVERABLE}.py"

    @property
    def _base_exercise(self) -> ExerciseRef:
        return find(load_checkpoint(self.phase, self.root).deliverable, self.root)


def exercise_ref(root: Path, path_id: str) -> ExerciseRef:
    """Return the exercise or the deliverable with this path id."""
    return Deliverable(root, path_id) if ":" in path_id else ExerciseRef(root, path_id)


def exercises(at: Path | None = None) -> tuple[ExerciseRef, ...]:
    """Return every exercise of a checkout or learner's folder, by default `root()`, in the order of the syllabus."""
    at = at or root()
    # By file name, which begins with week and letter, and not by the folder of the phase.
    paths = sorted(course(at).glob("checks/[0-9]_*/w*.py"), key=lambda path: (path.name, path.parent.name))
    if not paths:
        raise LookupFailed(f"{course(at) / 'checks'} declares no exercise; restore it with: git checkout -- checks")
    return tuple(ExerciseRef(at, f"{path.parent.name}/{path.stem}") for path in paths)


def find(text: str, at: Path | None = None) -> ExerciseRef:
    """Return the exercise that `text` names: its name, its path id, a file, or an unambiguous part of one."""
    items = exercises(at)
    parts = PurePath(text).parts[-2:]  # a file's path, as the shell completes it, ends in the path id
    key = "/".join(parts).removesuffix(".py").removesuffix(".cu").lower()
    for matches in (
        # Exact names come first: the name of one exercise may be a part of another's.
        [item for item in items if key in (item.name, item.path_id, item.path_id.partition("/")[2])],
        [item for item in items if key and key in item.path_id],
    ):
        if len(matches) == 1:
            return matches[0]
        if matches:
            names = ", ".join(item.name for item in matches)
            raise LookupFailed(f"{text!r} matches {len(matches)} exercises: {names}; name one of them")
    similar = difflib.get_close_matches(key, [item.name for item in items], n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(similar)}?" if similar else "kp list shows their names"
    raise LookupFailed(f"there is no exercise {text!r}; {hint}")


def import_file(path: Path, name: str, listed: bool = True) -> ModuleType:
    """Import the file at `path` as the module `name`, without changing sys.path.

    Args:
        listed: Add the module to sys.modules.
    """
    module_spec = importlib.util.spec_from_file_location(name, path)
    if module_spec is None or module_spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(module_spec)
    if listed:
        # The module is listed before it is executed: dataclasses look theirs up by its name while a class is made.
        sys.modules[name] = module
    module_spec.loader.exec_module(module)
    return module


@lru_cache
def load(item: ExerciseRef) -> Exercise:
    """Import a declaration. Raises DeclarationError, which names the file, for any fault in it."""
    if isinstance(item, Deliverable):
        return load_checkpoint(item.phase, item.root).variant(item.path_id.partition(":")[2]).exercise
    return _load_declaration(item.declaration, Exercise, item.name)


def load_checkpoint(phase: str, at: Path | None = None) -> Checkpoint:
    """Import the exam of a phase such as "2_cuda", with the questions of the checkpoint.md beside it.

    Raises LookupFailed if the phase has no exam, and DeclarationError.
    """
    path = course(at) / "checks" / phase / "checkpoint.py"
    if not path.is_file():
        raise LookupFailed(f"phase {phase} has no checkpoint yet: there is no {path}; kp next continues")
    declaration = _load_declaration(path, Checkpoint, f"checkpoint_{phase}")
    return checkpoint.read(path.with_suffix(".md"), declaration)


@dataclass(frozen=True)
class Solution:
    """A callable for the reference kernel of another exercise.

    A process that gives up read access to solutions/ must load it before. `load` and calls raise SolutionUnavailable if
    there are no solutions.
    """

    name: str
    at: Path

    def load(self) -> Callable[..., Any]:
        return _load_solution(self.name, self.at)

    def __call__(self, *arguments: Any) -> Any:
        return self.load()(*arguments)


def solution_of(name: str) -> Solution:
    """Return the reference kernel of another exercise, as a baseline of a declaration.

    It must be the baseline itself. A process that gives up read access to the course loads it before. It would not find
    it in a function that calls it.
    """
    return Solution(
        name, Path(sys._getframe(1).f_globals["__file__"]).parents[2]
    )  # the course, from the caller's checks/<path id>.py


@lru_cache
def _load_solution(name: str, at: Path) -> Callable[..., Any]:
    item = find(name, at)
    if not item.files("solutions"):
        missing = item.solution.relative_to(at)
        raise SolutionUnavailable(f"the reference kernel of {name} is withheld: there is no {missing}")
    entry: Callable[..., Any] = getattr(
        import_file(item.reference, f"kernelpath_solution_{name}", listed=False), load(item).entry
    )
    return entry


def _load_declaration(path: Path, kind: type[_Declaration], name: str) -> _Declaration:
    try:
        module = import_file(path, f"kernelpath_declaration_{name}", listed=False)
    except DeclarationError as error:
        raise DeclarationError(f"{path}: {error}") from error
    except Exception as error:
        raise DeclarationError(f"{path} cannot be imported: {type(error).__name__}: {error}; fix it") from error
    declarations = [value for value in vars(module).values() if isinstance(value, kind)]
    if len(declarations) != 1:
        name = kind.__name__
        raise DeclarationError(f"{path} declares {len(declarations)} {name.lower()}s; it must declare one: {name}(...)")
    return declarations[0]
