"""Test the package as a learner gets it: a wheel that pip installs, and a folder that follows the course."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import kernelpath
from kernelpath.work import landlock

ROOT = Path(__file__).parents[1]
STUB = "phases/1_architecture/w01b_vector_add"
# The size limit of the wheel; most of its bytes are the pictures of book/.
MOST_BYTES = 12_000_000

Kp = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from this checkout, in a temporary folder and without network access."""
    folder = tmp_path_factory.mktemp("wheel")
    options = (
        "egg_info",
        "--egg-base",
        folder,
        "build",
        "--build-base",
        folder / "build",
        "bdist_wheel",
        "--dist-dir",
        folder,
    )
    build = [sys.executable, "setup.py", "-q", *map(str, options)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    offline = ("--quiet", "--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check")
    command = [sys.executable, "-m", "pip", "install", *offline, "--target", str(folder), str(wheel)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture
def site(installed: Path, tmp_path: Path) -> Path:
    """Return a folder of packages with the wheel installed, which the test may change."""
    return shutil.copytree(installed, tmp_path / "site")


@pytest.fixture
def kp(site: Path, tmp_path: Path) -> Kp:
    """Return a function that runs a command of the installed package, in the learner's folder if it exists."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        learner_folder = tmp_path / "learn"
        environment = {**os.environ, "PYTHONPATH": str(site), "COLUMNS": "100"}
        command = [sys.executable, "-m", "kernelpath.cli", *arguments]
        return subprocess.run(
            command,
            cwd=learner_folder if learner_folder.is_dir() else tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )

    return run


def parse_verdict(done: subprocess.CompletedProcess[str]) -> str:
    return str(json.loads(done.stdout)["verdict"])


def test_a_wheel_contains_the_course_and_stays_small(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert wheel.name == f"kernelpath-{kernelpath.__version__}-py3-none-any.whl"
    assert wheel.stat().st_size < MOST_BYTES
    for tree in ("checks", "phases", "notebooks", "solutions", "results", "book"):
        tree_files = {str(path.relative_to(ROOT)) for path in (ROOT / tree).rglob("*") if path.is_file()}
        assert {f"kernelpath/data/{name}" for name in tree_files if not re.search(r"/(\.|__pycache__)", name)} <= names
    assert "kernelpath/py.typed" in names
    assert not [name for name in names if "__pycache__" in name]


def test_a_learner_can_start_pass_and_upgrade(kp: Kp, site: Path, tmp_path: Path) -> None:
    folder = tmp_path / "learn"
    data = site / "kernelpath" / "data"
    assert "kp new FOLDER" in kp("list").stderr, "there is no folder of the course yet"
    assert kp("new", "learn").returncode == 0
    assert sorted(path.name for path in folder.iterdir()) == [
        "README.md",
        "benchmarks",
        "kernelpath.json",
        "notebooks",
        "phases",
        "results",
    ]
    assert len(re.findall(r"^ +\d+  \w+", kp("list").stdout, re.MULTILINE)) == len([*data.glob("checks/*/w*.py")]) > 60

    check = ("check", "vector_add", "--device", "cpu", "--json", "-")
    assert parse_verdict(kp(*check)) == "NOT_STARTED"
    assert not (folder / "solutions").exists()
    for suffix in (".py", ".cu"):
        shutil.copy(data / f"{STUB}{suffix}".replace("phases", "solutions"), folder / f"{STUB}{suffix}")
    done = kp(*check)
    assert parse_verdict(done) == "PASSED"
    assert "solutions/1_architecture/w01b_vector_add.cu is now in your folder" in done.stderr
    copied_solutions = sorted(path.name for path in (folder / "solutions").rglob("*.*"))
    assert copied_solutions == ["w01b_vector_add.cu", "w01b_vector_add.py"]

    new_version = f"{kernelpath.__version__.partition('.')[0]}.99.0"
    (site / "kernelpath" / "__init__.py").write_text(f'__version__ = "{new_version}"\n')
    for name in (f"{STUB}.cu", "phases/1_architecture/w01a_hello_grid.cu"):
        (data / name).write_text("// new\n" + (data / name).read_text())
    edited = (folder / f"{STUB}.cu").read_bytes()
    assert kp("list").stderr.endswith("bring the folder up to date, which keeps your files: kp upgrade\n")
    done = kp("upgrade")
    assert f"kept your {STUB}.cu; the new version is new-{new_version}/{STUB}.cu" in done.stdout
    assert (folder / f"{STUB}.cu").read_bytes() == edited
    assert (folder / f"new-{new_version}/{STUB}.cu").read_text().startswith("// new\n")
    assert (folder / "phases/1_architecture/w01a_hello_grid.cu").read_text().startswith("// new\n")
    assert kp("list").returncode == 0


def test_a_newer_patch_version_only_warns(kp: Kp, site: Path) -> None:
    kp("new", "learn")
    major, minor, patch = kernelpath.__version__.split(".")
    (site / "kernelpath" / "__init__.py").write_text(f'__version__ = "{major}.{minor}.{int(patch) + 1}"\n')
    done = kp("check", "vector_add", "--device", "cpu", "--json", "-")
    assert parse_verdict(done) == "NOT_STARTED"
    assert done.stderr.splitlines()[0].startswith("warning: ")
    assert "which keeps your files: kp upgrade" in done.stderr.splitlines()[0]


def test_a_teacher_can_grade_with_the_wheel_alone(kp: Kp, site: Path, tmp_path: Path) -> None:
    """Grade an exercise that reads the recordings of the course. One of two learners opens the solution."""
    data = site / "kernelpath" / "data"
    solution = data / "solutions/4_fusion/w13c_read_inductor.py"
    for learner, text in {"ada": solution.read_text(), "eve": f"open({str(solution)!r})"}.items():
        (tmp_path / "class" / learner).mkdir(parents=True)
        (tmp_path / "class" / learner / solution.name).write_text(text)
    before = {path: path.stat().st_mtime_ns for path in data.rglob("*") if path.is_file()}
    done = kp("grade", "class", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    grades = json.loads((tmp_path / "class-grades" / "grades.json").read_text())["grades"]
    ada, eve = (entry["report"] for entry in grades)
    assert ada["verdict"] == "PASSED"
    assert eve["verdict"] == "ACCESS_DENIED"
    assert eve["cause"] == f"the submission uses {solution}, which is not its own"
    data_files = {path for path in data.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert {path: path.stat().st_mtime_ns for path in data_files} == before
    assert "kp new FOLDER" in kp("check", "vector_add").stderr, "a learner has a folder"


def test_a_submission_reads_neither_solutions_nor_checks(kp: Kp, site: Path, tmp_path: Path) -> None:
    kp("new", "learn")
    withheld_names = ("solutions/1_architecture/w01b_vector_add.cu", "checks/1_architecture/w01b_vector_add.py")
    withheld = [str(site / "kernelpath" / "data" / place) for place in withheld_names]
    (tmp_path / "learn" / f"{STUB}.py").write_text(
        f"TOLD = []\nfor path in {withheld}:\n"
        "    try:\n        TOLD.append(open(path).read())\n"
        "    except Exception as error:\n        TOLD.append(type(error).__name__)\n"
        "def vector_add(x, y):\n    raise ValueError(TOLD)\n"
    )
    report = json.loads(kp("check", "vector_add", "--device", "cpu", "--json", "-").stdout)
    assert report["verdict"] == "CRASHED"
    assert re.fullmatch(r"ValueError: \['AccessDenied', '(PermissionError|.*EXERCISE.*)'\]", report["cause"], re.DOTALL)
    assert not landlock.version() or "EXERCISE" not in report["cause"], "without Landlock, only solutions are withheld"


def test_the_first_version_of_the_changelog_is_the_current_one() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (\S+)", changelog, re.MULTILINE)
    assert next(version for version in versions if version != "Unreleased") == kernelpath.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", kernelpath.__version__)
