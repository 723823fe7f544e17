"""Finds the exercises: every file checks/<phase>/w*.py declares one, and every other path follows from its stem.

Listing imports neither torch nor a declaration: titles are read from the syntax tree, hints from the lesson.

Longer than 300 lines because all paths and facts of an exercise follow from one stem.
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
from kernelpath.course.errors import DeclarationError, Withheld
from kernelpath.course.errors import LookupFailed as LookupFailed
from kernelpath.course.places import course as course
from kernelpath.course.places import root as root
from kernelpath.course.spec import Exercise

Tree = Literal["phases", "solutions"]
Lane = Literal["cuda", "triton", "cute", "pallas", "python"]

_Declaration = TypeVar("_Declaration", Exercise, Checkpoint)

DELIVERABLE = "deliverable"
"""The stem of the files of a phase's deliverable."""

_STEM = re.compile(r"w(?P<week>\d\d)(?P<letter>[a-z])_(?P<name>\w+)")


_OF_KERNELS = ("kernel", "operator", "library")


@dataclass(frozen=True)
class Item:
    """An exercise by its place, such as stem "2_cuda/w07a_softmax". root: a checkout or a learner's folder."""

    root: Path
    stem: str

    @cached_property
    def _parts(self) -> re.Match[str]:
        match = _STEM.fullmatch(self.stem.partition("/")[2])
        if match is None:
            raise DeclarationError(
                f"checks/{self.stem}.py is not named like w07a_softmax.py (week, letter, name); rename it"
            )
        return match

    @cached_property
    def course(self) -> Path:
        """Where the declaration and the solution are: root in a checkout, else in the package."""
        return course(self.root)

    @property
    def name(self) -> str:
        return self._parts["name"]

    @property
    def week(self) -> int:
        return int(self._parts["week"])

    @property
    def phase(self) -> str:
        """The phase's folder, such as "2_cuda"."""
        return self.stem.partition("/")[0]

    @property
    def declaration(self) -> Path:
        return self.course / "checks" / f"{self.stem}.py"

    @property
    def lesson(self) -> Path:
        """What the exercise says in prose; `lesson.read` reads it."""
        return self.declaration.with_suffix(".md")

    @property
    def baseline(self) -> Path:
        """The kernel that a submission races, where the declaration launches one of its own."""
        return self.declaration.with_suffix(".cu")

    @property
    def stub(self) -> Path:
        return self.submission("phases")

    @property
    def solution(self) -> Path:
        return self.submission("solutions")

    def submission(self, tree: Tree) -> Path:
        """The Python file that defines the entry."""
        return self._tree_of(tree) / f"{self.stem}.py"

    def _tree_of(self, tree: Tree) -> Path:
        return (self.root if tree == "phases" else self.course) / tree

    def files(self, tree: Tree) -> tuple[Path, ...]:
        """Every file of the exercise in a tree: the Python file, the .cu file of a CUDA exercise, and a project's."""
        return files.submitted(self.submission(tree))

    @property
    def notebook(self) -> Path | None:
        """The notebook of the exercise's week; None if the week has none."""
        found = sorted((self.root / "notebooks" / self.phase).glob(f"week{self.week:02d}_*.ipynb"))
        return found[0] if found else None

    @property
    def lane(self) -> Lane:
        """Follows from the reference, or the stub where solutions are withheld: a .cu file, or what is imported."""
        found = self.files("solutions") or self.files("phases")
        if any(path.suffix == ".cu" for path in found):
            return "cuda"
        text = "".join(path.read_text(encoding="utf-8") for path in found)
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
        """The first line of the declaration's docstring, without its full stop."""
        text = ast.get_docstring(self._tree)
        if not text:
            raise DeclarationError(f"{self.declaration} has no docstring; write one whose first line is the title")
        return text.splitlines()[0].rstrip(".")

    @cached_property
    def launches(self) -> bool:
        """Whether it launches kernels: it is declared as a kernel, which is the default, an operator or a library."""
        return all(isinstance(kind, ast.Constant) and kind.value in _OF_KERNELS for kind in self._declared("kind"))

    @cached_property
    def stars(self) -> int:
        """The most that it gives: one alone if it is not timed, as there is no baseline to race."""
        return 3 if any(self._declared("baseline")) else 1

    def _declared(self, keyword: str) -> list[ast.expr]:
        """The values of a keyword in all calls of the declaration."""
        calls = (node for node in ast.walk(self._tree) if isinstance(node, ast.Call))
        return [given.value for call in calls for given in call.keywords if given.arg == keyword]


@dataclass(frozen=True)
class Deliverable(Item):
    """What a learner hands in at the end of a phase: a twist of one of its exercises, declared by its checkpoint.

    stem: "1_architecture/deliverable:24x24", the file's own and the name of the twist.
    """

    @property
    def name(self) -> str:
        return DELIVERABLE

    @property
    def week(self) -> int:
        return self._untwisted.week

    @property
    def lane(self) -> Lane:
        return self._untwisted.lane

    @property
    def title(self) -> str:
        return f"The deliverable, {self.stem.partition(':')[2]}"

    @cached_property
    def launches(self) -> bool:
        return self._untwisted.launches

    @cached_property
    def stars(self) -> int:
        return 1

    @property
    def declaration(self) -> Path:
        return self.course / "checks" / self.phase / "checkpoint.py"

    def submission(self, tree: Tree) -> Path:
        return self._tree_of(tree) / self.phase / f"{DELIVERABLE}.py"

    @property
    def _untwisted(self) -> Item:
        return find(load_checkpoint(self.phase, self.root).deliverable, self.root)


def item(at: Path, stem: str) -> Item:
    """The exercise or the deliverable of this stem."""
    return Deliverable(at, stem) if ":" in stem else Item(at, stem)


def exercises(at: Path | None = None) -> tuple[Item, ...]:
    """Every exercise of the checkout or learner's folder `at` (default: `root()`), in the order of the syllabus."""
    at = at or root()
    found = sorted(course(at).glob("checks/[0-9]_*/w*.py"), key=lambda path: (path.name, path.parent.name))
    if not found:
        raise LookupFailed(f"{course(at) / 'checks'} declares no exercise; restore it with: git checkout -- checks")
    return tuple(Item(at, f"{path.parent.name}/{path.stem}") for path in found)


def find(text: str, at: Path | None = None) -> Item:
    """The exercise that `text` names: its name, its stem, one of its files, or an unambiguous part of name or stem."""
    items = exercises(at)
    parts = PurePath(text).parts[-2:]  # a file's path, as the shell completes it, ends in the stem
    wanted = "/".join(parts).removesuffix(".py").removesuffix(".cu").lower()
    for matches in (
        [item for item in items if wanted in (item.name, item.stem, item.stem.partition("/")[2])],
        [item for item in items if wanted and wanted in item.stem],
    ):
        if len(matches) == 1:
            return matches[0]
        if matches:
            names = ", ".join(item.name for item in matches)
            raise LookupFailed(f"{text!r} matches {len(matches)} exercises: {names}; name one of them")
    near = difflib.get_close_matches(wanted, [item.name for item in items], n=3, cutoff=0.5)
    meant = f"did you mean {' or '.join(near)}?" if near else "kp list shows their names"
    raise LookupFailed(f"there is no exercise {text!r}; {meant}")


def import_file(path: Path, name: str, listed: bool = True) -> ModuleType:
    """Import the file at `path` as the module `name`, without touching sys.path; not in sys.modules unless listed."""
    module_spec = importlib.util.spec_from_file_location(name, path)
    if module_spec is None or module_spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(module_spec)
    if listed:
        sys.modules[name] = module
    module_spec.loader.exec_module(module)
    return module


@lru_cache
def load(item: Item) -> Exercise:
    """Import a declaration. Raises DeclarationError, which names the file, for whatever is wrong with it."""
    if isinstance(item, Deliverable):
        return load_checkpoint(item.phase, item.root).variant(item.stem.partition(":")[2]).exercise
    return _declared(item.declaration, Exercise, item.name)


def load_checkpoint(phase: str, at: Path | None = None) -> Checkpoint:
    """Import the exam of a phase such as "2_cuda", with the questions that checkpoint.md beside it asks.

    Raises LookupFailed if the phase has no exam, and DeclarationError.
    """
    path = course(at) / "checks" / phase / "checkpoint.py"
    if not path.is_file():
        raise LookupFailed(f"phase {phase} has no checkpoint yet: there is no {path}; kp next continues")
    declared = _declared(path, Checkpoint, f"checkpoint_{phase}")
    return checkpoint.read(path.with_suffix(".md"), declared)


@dataclass(frozen=True)
class Solution:
    """The reference kernel of another exercise, to be called; it is loaded by then.

    A process that is about to give up reading solutions/ loads it before. Both raise Withheld where there are none.
    """

    name: str
    at: Path

    def load(self) -> Callable[..., Any]:
        return _solution(self.name, self.at)

    def __call__(self, *arguments: Any) -> Any:
        return self.load()(*arguments)


def solution_of(name: str) -> Solution:
    """The reference kernel of another exercise, for a declaration to race against."""
    return Solution(name, Path(sys._getframe(1).f_globals["__file__"]).parents[2])  # of checks/<phase>/<stem>.py


@lru_cache
def _solution(name: str, at: Path) -> Callable[..., Any]:
    item = find(name, at)
    if not item.files("solutions"):
        missing = item.solution.relative_to(at)
        raise Withheld(f"the reference kernel of {name} is withheld: there is no {missing}")
    entry: Callable[..., Any] = getattr(
        import_file(item.solution, f"kernelpath_solution_{name}", listed=False), load(item).entry
    )
    return entry


def _declared(path: Path, kind: type[_Declaration], name: str) -> _Declaration:
    try:
        module = import_file(path, f"kernelpath_declaration_{name}", listed=False)
    except DeclarationError as error:
        raise DeclarationError(f"{path}: {error}") from error
    except Exception as error:
        raise DeclarationError(f"{path} cannot be imported: {type(error).__name__}: {error}; fix it") from error
    declared = [value for value in vars(module).values() if isinstance(value, kind)]
    if len(declared) != 1:
        name = kind.__name__
        raise DeclarationError(f"{path} declares {len(declared)} {name.lower()}s; it must declare one: {name}(...)")
    return declared[0]
