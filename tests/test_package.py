"""Test that a package of operators is built, installed, and checked; see course/problems/kernel_library.py."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch

from kernelpath.course.library import Fault, Library, Promise, Refusal
from kernelpath.verdict import Verdict
from kernelpath.work import package
from kernelpath.work.exception_findings import EntryError, WrongOperator, classify_exception

FILES = {
    "pyproject.toml": """
        [build-system]
        requires = ["setuptools"]
        build-backend = "setuptools.build_meta"

        [project]
        name = "halves"
        version = "1"
        dependencies = ["torch"]

        [tool.setuptools.packages.find]
        where = ["src"]
    """,
    "src/halves/__init__.py": """
        def half(x):
            if x.ndim != 1:
                raise ValueError("x is not a vector")
            return x / 2
    """,
    "src/halves/benchmark.py": """
        import time


        def measure(function, n):
            begin = time.perf_counter()
            sum(range(20_000))  # so long that no two times are equal
            return {"seconds": time.perf_counter() - begin, "baseline_seconds": 1e-9, "bytes": 8 * n}
    """,
    "tests/test_half.py": """
        import halves
        import torch


        def test_half():
            assert halves.half(torch.ones(3))[2] == 0.5
    """,
}


def double_result(real: Any) -> Any:
    return lambda x: 2 * real(x)


LIBRARY = Library(
    name="halves",
    requires=("torch",),
    refusals=(Refusal("half", "a matrix", ValueError, "x", lambda device: (torch.ones(2, 2, device=device),)),),
    promises=(Promise("half", "four elements", lambda device: (torch.ones(4, device=device),), lambda x: (x / 2,)),),
    faults={"values are doubled": Fault("half", double_result)},
    benchmark={"half": ({"n": 5}, 40)},
)


@pytest.fixture(autouse=True)
def leaves_no_trace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = list(sys.path)
    yield
    sys.path[:] = path
    for name in [name for name in sys.modules if name.partition(".")[0] in ("halves", "src", "tests_half")]:
        del sys.modules[name]


def examine_package(folder: Path, *changes: tuple[str, str, str]) -> None:
    """Install and examine the project with changes, each a file, the old text, and the new text."""
    for name, text in FILES.items():
        text = dedent(text).lstrip()
        for file, old, new in changes:
            if file == name:
                assert old in text
                text = text.replace(old, new)
        place = folder / "project" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    package.build_and_install(LIBRARY, folder / "project")
    package.check_contract(LIBRARY, torch.device("cpu"))


def test_a_package_is_imported_from_its_wheel(tmp_path: Path) -> None:
    examine_package(tmp_path)
    halves = importlib.import_module("halves")
    assert halves.half(torch.ones(1)) == 0.5, "the injected fault is removed"
    assert "site-" in str(halves.__file__)
    assert not (tmp_path / "project" / "build").exists(), "the submitted folder is unchanged"


def test_options_of_pytest_above_the_project_do_not_apply(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\npython_files = no_such_file.py\n")
    examine_package(tmp_path)


TOML = "pyproject.toml"
INIT = "src/halves/__init__.py"
TESTS = "tests/test_half.py"
BENCHMARK = "src/halves/benchmark.py"
WRAPPED = "test_half():\n    assert not hasattr(halves.half, '__wrapped__')"
WORN = "your test test_half fails: .*, where a function that calls half replaces it; test what it does"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ((TOML, 'where = ["src"]', 'where = ["."]'), EntryError, "installs src, tests, not halves"),
        ((TOML, 'version = "1"', 'version = "one"'), EntryError, "the wheel cannot be built"),
        ((TOML, "setuptools.build_meta", "own.backend"), EntryError, "the build-backend is 'own.backend'"),
        ((TOML, 'dependencies = ["torch"]', ""), WrongOperator, "does not require torch"),
        ((INIT, "def half", "import torch; torch.set_grad_enabled(False)\ndef half"), EntryError, "is_grad_enabled"),
        ((INIT, "x.ndim != 1", "x.ndim > 2"), WrongOperator, "with a matrix returns a result"),
        ((INIT, "x is not", "this is not"), WrongOperator, "it must be a ValueError that names x"),
        ((INIT, "ValueError", "TypeError"), WrongOperator, "raises TypeError: x is not a vector; it must be"),
        ((BENCHMARK, "8 * n", "4 * n"), WrongOperator, "bytes=20; read once and written once it is 40"),
        ((BENCHMARK, "time.perf_counter() - begin", "1e-9"), WrongOperator, "the same seconds once more"),
        ((BENCHMARK, "time.perf_counter() - begin", "3.0"), WrongOperator, "gives seconds=3.0, and returns after"),
        ((INIT, "x / 2", "x / 2 if len(x) < 4 else x"), WrongOperator, "half with four elements gives wrong values"),
        ((INIT, "x / 2", "x[:3] / 2"), WrongOperator, r"half with four elements gives the shape \(3,\), not \(4,\)"),
        ((INIT, "x / 2", "x / 2 if len(x) < 4 else 1 / 0"), WrongOperator, "four elements raises ZeroDivisionError"),
        ((TESTS, "test_half():", WRAPPED), WrongOperator, WORN),
        ((INIT, "x / 2", "x / 2 if len(x) > 3 else x / 4"), WrongOperator, "your test test_half fails"),
        ((TESTS, "def test_half", "def half"), WrongOperator, "finds no test"),
        ((TESTS, "== 0.5", "> 0"), WrongOperator, "all 1 tests pass with a halves.half in which values are doubled"),
        ((TESTS, "import halves\n", "import halve\n"), WrongOperator, "cannot be imported"),
    ],
)
def test_a_violation_of_the_contract_is_reported(
    tmp_path: Path, change: tuple[str, str, str], error: type[Exception], message: str
) -> None:
    grad = torch.is_grad_enabled()
    try:
        with pytest.raises(error, match=message):
            examine_package(tmp_path, change)
    finally:
        torch.set_grad_enabled(grad)


@pytest.mark.parametrize(
    ("change", "file", "line"),
    [
        ((TOML, 'where = ["src"]', 'where = ["."]'), TOML, 0),
        ((TOML, 'dependencies = ["torch"]', ""), TOML, 0),
        ((INIT, "x.ndim != 1", "x.ndim > 2"), "__init__.py", 1),
        ((INIT, "ValueError", "TypeError"), "__init__.py", 3),
        (("src/halves/benchmark.py", "8 * n", "4 * n"), "benchmark.py", 4),
        (("src/halves/benchmark.py", "return", "yield"), "benchmark.py", 4),
        ((INIT, "x / 2", "x / 4"), "__init__.py", 1),
        ((TESTS, "def test_half", "def half"), "test_half.py", 0),
        ((TESTS, "== 0.5", "> 0"), "test_half.py", 0),
    ],
)
def test_the_file_to_change_is_named(tmp_path: Path, change: tuple[str, str, str], file: str, line: int) -> None:
    with pytest.raises((EntryError, WrongOperator)) as caught:
        examine_package(tmp_path, change)
    finding = classify_exception(caught.value, tmp_path / "layer.py")
    assert (Path(finding.file).name, finding.line) == (file, line)


def test_a_stub_in_the_project_is_named_and_not_the_file_that_calls_it(tmp_path: Path) -> None:
    examine_package(tmp_path)
    halves = importlib.import_module("halves")
    Path(str(halves.__file__)).write_text('def half(x):\n    raise NotImplementedError("TODO: halve it")\n')
    importlib.reload(halves)
    with pytest.raises(NotImplementedError) as caught:
        halves.half(torch.ones(1))
    finding = classify_exception(caught.value, tmp_path / "layer.py")
    assert (finding.verdict, Path(finding.file).name, finding.line) == (Verdict.NOT_STARTED, "__init__.py", 2)


def test_a_fake_with_the_strides_of_its_argument_is_told(tmp_path: Path) -> None:
    """The result of x / 2 keeps the strides of x, but the output of a kernel has the strides of its allocation."""
    examine_package(tmp_path)
    halves = importlib.import_module("halves")
    package._check_fake_strides(halves, "half", [torch.ones(6)[::2]])
    vars(halves)["half"] = lambda x: torch.empty_like(x) if type(x) is not torch.Tensor else x.contiguous()
    with pytest.raises(WrongOperator, match=r"strides \(1, 2\), the kernel one with \(3, 1\)"):
        package._check_fake_strides(halves, "half", [torch.ones(3, 2).t()])
