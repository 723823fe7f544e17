"""The layers of the PTX machine and its table of instructions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelpath import simt
from kernelpath.simt.isa import OPS
from kernelpath.simt.op import Op, registry

ROOT = Path(simt.__file__).parent
PREFIX = "kernelpath.simt"


def imports(path: Path) -> Iterator[str]:
    """The modules of the machine that a file imports anywhere, those for type checkers too; relative to simt."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module.startswith(PREFIX):
                inside = module.removeprefix(PREFIX).lstrip(".")
                for alias in names:
                    name = f"{inside}.{alias.name}".lstrip(".")
                    yield name if is_module(name) else inside
            case ast.Import(names=names):
                yield from (a.name.removeprefix(PREFIX + ".") for a in names if a.name.startswith(PREFIX))


def is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").is_file()


def modules() -> dict[str, Path]:
    found = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in ROOT.rglob("*.py")}
    found.pop("picture", None)  # draws what a launch did: a user of the machine, not a part of it
    return found


def layers() -> list[str]:
    listed = re.findall(r"^    (\w+)  +\S.*$", simt.__doc__ or "", re.MULTILINE)
    assert {name.split(".")[0] for name in modules()} - {"__init__"} == set(listed)
    return listed


def test_imports_go_up_the_list_of_layers_only() -> None:
    order = layers()
    for name, path in modules().items():
        layer = name.split(".")[0]
        for imported in imports(path) if layer != "__init__" else ():
            below = imported.split(".")[0]
            assert below == layer or order.index(below) < order.index(layer), f"{name} imports {imported}"


def test_no_module_imports_itself_in_a_circle() -> None:
    """Packages count by their modules: their __init__ files import all of them."""
    graph = {name: {found for found in imports(path) if found != name} for name, path in modules().items()}
    done: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, " imports ".join((*above, name))
        if name not in done:
            for imported in graph.get(name, ()):
                visit(imported, (*above, name))
            done.add(name)

    for name in graph:
        if not name.endswith("__init__"):
            visit(name, ())


def test_the_machine_imports_nothing_of_kernelpath_but_files() -> None:
    for path in modules().values():
        found = set(re.findall(r"^\s*(?:from|import) (kernelpath[\w.]*)", path.read_text(), re.MULTILINE))
        assert {name for name in found if not name.startswith(PREFIX)} <= {"kernelpath.files", "kernelpath"}, path


def test_every_instruction_has_one_record() -> None:
    assert len(OPS) >= 85
    for opcode, op in OPS.items():
        assert opcode == op.opcode
        assert op.forms
        assert op.since in (0, 90)


def test_two_records_of_one_opcode_are_an_error() -> None:
    def nothing(e: object, i: object) -> None:
        pass

    with pytest.raises(ValueError, match="two instructions have the opcode add"):
        registry((Op("add", ("s32",), nothing),), (Op("sub", ("s32",), nothing), Op("add", ("u32",), nothing)))
