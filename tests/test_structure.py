"""How the package holds together: imports go down only, no module is too long, and nothing names this machine.

What breaks a rule today is listed, and only what is listed may. A violation that has gone must leave its list, so that
it cannot come back: the lists only shrink.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "kernelpath"

LAYERS = (
    ("cli",),
    ("dev",),
    ("show",),
    ("doctor", "school"),
    ("exam",),
    ("grading",),
    ("work",),
    ("lanes",),
    ("device",),
    ("course",),
    ("simt",),
    ("verdict",),
    ("line_counters",),
    ("hooks",),
    ("words", "files", "wire", "packages", "host_info"),
)
"""Packages and modules from top to bottom. A module imports from its own package and from the layers below it."""

UPWARD = {"course.labs.driver -> lanes.nvrtc"}
"""What imports from above, or from beside. Nothing does so for types alone."""

OF_A_MACHINE = re.compile(
    r"(?<![\w.+/])/(home|root|Users|work|opt)/\w+/"
    r"|\b[\w.-]*(artifactory|nexus|devpi|pypi-)[\w-]*\.\w+|--(extra-)?index-url"
)
"""A path of somebody's machine, or the host of a private package registry."""


def modules() -> dict[str, Path]:
    """Every module by its name below the package: "grading.grade", "doctor"; a package by its own name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        if name:
            found[name] = path
    return found


MODULES = modules()


def layer(name: str) -> int:
    """Counted from the top."""
    return next(place for place, names in enumerate(LAYERS) if name.partition(".")[0] in names)


def imports(name: str, path: Path) -> Iterator[tuple[str, bool]]:
    """The modules of the package that a module imports, and whether for type checking alone."""
    tree = ast.parse(path.read_text("utf-8"))
    guarded = [
        node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    ]
    typing = {id(inner) for node in guarded for statement in node.body for inner in ast.walk(statement)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for imported in names:
            if found := longest(imported):
                yield found, id(node) in typing


def longest(imported: str) -> str:
    """The module of the package that `kernelpath.a.b.C` names: a.b; nothing for what is not ours."""
    package, _, rest = imported.partition(".")
    while package == "kernelpath" and rest:
        if rest in MODULES:
            return rest
        rest = rest.rpartition(".")[0]
    return ""


@cache
def all_imports() -> frozenset[tuple[str, str, bool]]:
    """Return who imports whom, and whether for type checking alone. Parsing the package takes a second."""
    return frozenset((name, target, typed) for name, path in MODULES.items() for target, typed in imports(name, path))


def edges(types_alone: bool) -> set[tuple[str, str]]:
    """Who imports whom; for type checking alone, or when run."""
    found = all_imports()
    run = {(name, target) for name, target, typed in found if not typed}
    return {(name, target) for name, target, typed in found if typed} - run if types_alone else run


def upward(found: set[tuple[str, str]]) -> set[str]:
    """The imports among them that do not go down."""
    return {
        f"{name} -> {target}"
        for name, target in found
        if name.partition(".")[0] != target.partition(".")[0] and layer(name) >= layer(target)
    }


def test_every_module_has_its_layer() -> None:
    known = {name for names in LAYERS for name in names}
    assert {name.partition(".")[0] for name in MODULES} <= known


def test_imports_go_down_only() -> None:
    assert upward(edges(types_alone=False)) == UPWARD


def test_imports_for_types_go_down_only() -> None:
    assert upward(edges(types_alone=True)) == set()


def test_no_modules_import_each_other() -> None:
    assert circles(edges(types_alone=False)) == set()


def circles(found: set[tuple[str, str]]) -> set[str]:
    """The modules that reach each other through imports, each circle as its names in order."""
    targets: dict[str, set[str]] = {}
    for name, target in found:
        targets.setdefault(name, set()).add(target)

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            new = targets.get(waiting.pop(), set()) - seen
            seen |= new
            waiting += new
        return seen

    reach = {name: reached(name) for name in targets}
    together = {name: {name, *(other for other in reach[name] if name in reach.get(other, ()))} for name in reach}
    return {" ".join(sorted(names)) for names in together.values() if len(names) > 1}


def test_a_circle_and_an_import_from_above_are_found() -> None:
    names = sorted(MODULES)[:4]
    ring = {(names[0], names[1]), (names[1], names[2]), (names[2], names[0]), (names[2], names[3])}
    assert circles(ring) == {" ".join(names[:3])}
    found = {("simt", "grading.grade"), ("grading.grade", "simt"), ("show.view", "show.plots"), ("exam", "school")}
    assert upward(found) == {"simt -> grading.grade", "exam -> school"}


def test_nothing_names_this_machine() -> None:
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    named = set()
    for name in filter(None, tracked.split("\0")):
        path = ROOT / name
        if path.is_file() and OF_A_MACHINE.search(path.read_text("utf-8", errors="replace")):
            named.add(name)
    assert named == set()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("see /{}/anna/notes.txt".format("home"), True),
        ("/{}/main/.venv".format("work"), True),
        ("https://{}.example.com/simple".format("nexus"), True),
        ("pip install --extra-{}-url https://example.com".format("index"), True),
        ("https://pypi.org/project/torch", False),
        ("src/work/runner.py and course/home/page", False),
    ],
)
def test_a_path_of_a_machine_is_told_from_one_of_the_checkout(text: str, named: bool) -> None:
    assert bool(OF_A_MACHINE.search(text)) == named
