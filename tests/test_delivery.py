"""Test learners' folders: detection, the effect of an upgrade on each file, and errors for invalid folders."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import kernelpath
from kernelpath import cli, doctor
from kernelpath.cli import app
from kernelpath.course import delivery, places, registry, stubs
from kernelpath.course.registry import ExerciseRef, LookupFailed

KERNEL = "phases/1_architecture/w01a_double.py"
NOTEBOOK = "notebooks/1_architecture/week01_threads.ipynb"


@pytest.fixture
def course(doubling: ExerciseRef, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the course data of a package of version 1.2.3 with one exercise."""
    doubling.stub.write_text("# TODO\n")
    notebook = doubling.root / NOTEBOOK
    notebook.parent.mkdir(parents=True)
    notebook.write_text("{}")
    package_data = doubling.root.rename(doubling.root.with_name(f"{doubling.root.name}-data"))
    monkeypatch.setattr(places, "PACKAGE_DATA", package_data)
    monkeypatch.setattr(kernelpath, "__version__", "1.2.3")
    return package_data


@pytest.fixture
def folder(course: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a learner's folder of version 1.2.3, which becomes the current folder."""
    tmp_path.mkdir(exist_ok=True)
    delivery.deliver(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def kp(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exit_:
            cli.main(arguments)
        captured = capsys.readouterr()
        return int(exit_.value.code or 0), captured.out, captured.err

    return run


def upgrade(folder: Path) -> delivery.DeliveryResult:
    return delivery.deliver(folder, places.marker(folder))


def test_a_learners_folder_has_the_stubs_and_the_package_the_rest(folder: Path, course: Path) -> None:
    item = registry.find("double")
    assert (registry.root(), registry.course(), item.root, item.course) == (folder, course, folder, course)
    assert item.stub == folder / KERNEL
    assert (item.declaration, item.solution) == (
        course / f"checks/{item.path_id}.py",
        course / f"solutions/{item.path_id}.py",
    )
    assert not [path for path in folder.rglob("*") if path.parts[-1] in ("checks", "solutions")]


def test_a_stub_is_restored_from_the_package(folder: Path) -> None:
    (folder / KERNEL).write_text("mine")
    assert stubs.pristine(registry.find("double")) == {folder / KERNEL: "# TODO\n"}


def test_an_upgrade_replaces_unchanged_files_and_adds_new_ones(folder: Path, course: Path) -> None:
    (course / KERNEL).write_text("# newer\n")
    (course / NOTEBOOK).with_name("week02_memory.ipynb").write_text("{}")
    result = upgrade(folder)
    assert result.written == (KERNEL, "notebooks/1_architecture/week02_memory.ipynb")
    assert (folder / KERNEL).read_text() == "# newer\n"
    assert result.aside == ()
    assert upgrade(folder) == delivery.DeliveryResult("1.2.3"), "a second upgrade must change nothing"


def test_an_upgrade_keeps_changed_files(folder: Path, course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / KERNEL).write_text("mine")
    assert upgrade(folder).aside == (), "the course has not changed the file"
    (course / KERNEL).write_text("# newer\n")
    monkeypatch.setattr(kernelpath, "__version__", "1.3.0")
    assert upgrade(folder).aside == ((KERNEL, f"new-1.3.0/{KERNEL}"),)
    assert (folder / KERNEL).read_text() == "mine"
    assert (folder / f"new-1.3.0/{KERNEL}").read_text() == "# newer\n"


def test_a_folder_without_its_marker_is_restored_without_data_loss(folder: Path) -> None:
    (folder / KERNEL).write_text("mine")
    (folder / places.MARKER).unlink()
    result = delivery.deliver(folder)
    assert result.aside == ((KERNEL, f"new-1.2.3/{KERNEL}"),)
    assert (folder / KERNEL).read_text() == "mine"
    assert places.marker(folder).version == "1.2.3"


@pytest.mark.parametrize(("text", "stays"), [("# TODO\n", False), ("mine", True)])
def test_a_removed_file_of_the_course_stays_only_if_changed(folder: Path, course: Path, text: str, stays: bool) -> None:
    (folder / KERNEL).write_text(text)
    (course / KERNEL).unlink()
    result = upgrade(folder)
    assert (result.left, result.removed) == (((KERNEL,), ()) if stays else ((), (KERNEL,)))
    assert (folder / KERNEL).exists() is stays


def test_a_marker_cannot_remove_files_outside_the_folder(folder: Path) -> None:
    outside = folder.parent / "outside.py"
    outside.write_text("mine")
    sha = delivery._digest(b"mine")
    for name in ("../outside.py", f"phases/../../{outside.name}", str(outside)):
        marker = places.Marker("1.2.3", {**places.marker(folder).files, name: sha})
        assert delivery.deliver(folder, marker).removed == ()
    assert outside.read_text() == "mine"


def test_a_revealed_solution_keeps_the_learners_changes(folder: Path, course: Path) -> None:
    item = registry.find("double")
    revealed = folder / f"solutions/{item.path_id}.py"
    assert delivery.reveal(item) == (revealed,)
    assert revealed.read_bytes() == item.solution.read_bytes()
    item.solution.write_text("# better\n")
    assert upgrade(folder).written == (f"solutions/{item.path_id}.py",)
    revealed.write_text("# my notes\n")
    assert delivery.reveal(item) == ()
    item.solution.write_text("# best\n")
    assert [name for name, _ in upgrade(folder).aside] == [f"solutions/{item.path_id}.py"]
    assert revealed.read_text() == "# my notes\n"


def test_the_expert_kernel_is_revealed_with_the_answer(folder: Path, course: Path) -> None:
    item = registry.find("double")
    expert = item.solution.parent / "expert" / item.solution.name
    expert.parent.mkdir()
    expert.write_text("# fast\n")
    revealed = folder / "solutions" / item.phase / "expert" / item.solution.name
    assert delivery.reveal(item) == (folder / f"solutions/{item.path_id}.py", revealed)
    assert revealed.read_text() == "# fast\n"
    expert.write_text("# faster\n")
    assert upgrade(folder).written == (f"solutions/{item.phase}/expert/{item.solution.name}",)


def test_the_ladder_is_revealed_with_the_answer(folder: Path, course: Path) -> None:
    item = registry.find("double")
    item.ladder.mkdir(parents=True)
    (item.ladder / "1_naive.py").write_text('"""Naive: a step."""\n')
    revealed = folder / "solutions" / item.phase / "steps" / item.solution.stem / "1_naive.py"
    assert delivery.reveal(item) == (folder / f"solutions/{item.path_id}.py", revealed)


def test_a_checkout_reveals_nothing(doubling: ExerciseRef) -> None:
    assert delivery.reveal(doubling) == ()


@pytest.mark.parametrize(
    ("marker", "expected_error"),
    [
        ('{"version": "1.3.0"}', "upgrade it: pip install --upgrade kernelpath"),
        ('{"version": "1.1.9"}', "which keeps your files: kp upgrade"),
        ('{"version": "0.2.3"}', "which keeps your files: kp upgrade"),
        ('{"version": "1.10.0"}', "upgrade it: pip install --upgrade kernelpath"),
        ('{"version": "new"}', "names no version like 1.2.3; remove it, then renew it"),
        ('{"version": 3}', "is broken"),
        ("[]", "is broken"),
        ("\x00\xff", "is broken"),
    ],
)
def test_a_folder_of_another_version_is_an_error_of_one_line(
    folder: Path, kp: Callable[..., tuple[int, str, str]], marker: str, expected_error: str
) -> None:
    (folder / places.MARKER).write_text(marker)
    for verb in (("list",), ("next",), ("check", "double")):
        status, out, err = kp(*verb)
        assert (status, out) == (2, "")
        assert expected_error in err
        assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("version", "expected_warning"),
    [("1.2.4", "pip install --upgrade kernelpath"), ("1.2.2", "your files: kp upgrade")],
)
def test_a_folder_of_another_patch_version_works_with_a_warning(
    folder: Path, kp: Callable[..., tuple[int, str, str]], version: str, expected_warning: str
) -> None:
    assert kp("list")[2] == ""
    replace(places.marker(folder), version=version).write(folder)
    status, out, err = kp("list")
    assert (status, err.count("\n")) == (0, 1)
    assert err.startswith(f"warning: {folder} is of version {version} of the course, and kernelpath is 1.2.3; ")
    assert expected_warning in err
    assert "double" in out
    # A folder of an older version is upgraded; a folder of a newer version is refused.
    assert kp("upgrade")[0] == (0 if version < "1.2.3" else 2)
    assert places.marker(folder).version == ("1.2.3" if version < "1.2.3" else version)


def test_an_older_folder_is_upgraded_and_a_newer_one_is_not(
    folder: Path, kp: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernelpath, "__version__", "1.0.0")
    assert kp("upgrade")[0] == 2
    assert places.marker(folder).version == "1.2.3"
    monkeypatch.setattr(kernelpath, "__version__", "2.0.0")
    assert kp("upgrade")[0] == 0
    assert json.loads((folder / places.MARKER).read_text())["version"] == "2.0.0"
    assert kp("list")[0] == 0


def test_kp_new_explains_an_unusable_folder(
    folder: Path, course: Path, kp: Callable[..., tuple[int, str, str]]
) -> None:
    (folder / "a_file").write_text("mine")
    (folder / "taken").mkdir()
    (folder / "taken" / "phases").write_text("mine")
    for name, expected_error in (
        (".", "is a course folder already; kp upgrade, in it, brings it up to date"),
        (str(course), "is a checkout of the course"),
        ("a_file", "is a file; name another folder"),
        ("a_file/below", "is a file; name another folder"),
        ("taken", "fix that and try again"),
        ("x" * 300, "fix that and try again"),
    ):
        status, _, err = kp("new", name)
        assert (status, err.count("\n")) == (2, 1), err
        assert expected_error in err
    assert (folder / "a_file").read_text() == (folder / "taken" / "phases").read_text() == "mine"


def test_dev_commands_require_a_checkout(folder: Path, kp: Callable[..., tuple[int, str, str]]) -> None:
    for verb in (("check", "--quick"), ("tables",), ("new", "triple", "--problem", "gelu", "--lane", "cuda")):
        status, _, err = kp("dev", *verb)
        assert (status, err.count("\n")) == (2, 1)
        assert "is a learner's folder; the course itself is changed in a checkout" in err


def test_outside_a_course_folder_the_error_names_kp_new(
    course: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(places, "_source_checkout", lambda: tmp_path)
    with pytest.raises(LookupFailed, match="or make one: kp new FOLDER"):
        registry.root()
    with places.allow_package_course():
        assert registry.root() == course
    with pytest.raises(LookupFailed, match="or make one: kp new FOLDER"):
        registry.root()
    with pytest.raises(LookupFailed, match="or make one: kp new FOLDER"):
        places.find_learners_folder()


@pytest.fixture
def checkout(course: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the checkout of an editable install, while the current folder is an empty folder elsewhere."""
    monkeypatch.setattr(places, "PACKAGE_DATA", tmp_path / "no-data")
    monkeypatch.setattr(places, "_source_checkout", lambda: course)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(parents=True)
    monkeypatch.chdir(elsewhere)
    return course


@pytest.mark.parametrize(
    "verb", [(), ("next",), ("list",), ("check", "double"), ("watch",), ("hint",), ("progress",), ("checkpoint", "1")]
)
def test_commands_do_not_fall_back_to_the_installed_checkout(
    checkout: Path, kp: Callable[..., tuple[int, str, str]], verb: tuple[str, ...]
) -> None:
    status, out, err = kp(*verb)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert f"{Path.cwd()} is not a course folder" in err
    assert "make one: kp new FOLDER" in err
    assert f"or cd to the checkout that is installed, {checkout}" in err
    assert kp("dev", "check", "--quick")[0] == 2


def test_commands_without_learner_files_work_anywhere(
    checkout: Path, kp: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "examine", lambda: [doctor.Diagnosis("Python", True, "3.99", lane=True)])
    assert "Usage: kp check" in kp("check", "--help")[1]
    assert kp("doctor")[:2] == (0, "yes  Python  3.99\n")
    assert "there are no notebooks in book/" in kp("book")[2]  # of the installed course, which is found
    status, _, _ = kp("new", str(tmp_path / "mine"))
    assert (status, places.is_learners(tmp_path / "mine")) == (0, True)
    assert list(Path.cwd().iterdir()) == []


def test_a_course_is_found_from_its_subfolders(
    folder: Path, kp: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder / "phases/1_architecture")
    status, out, _ = kp("next")
    assert status == 0
    assert KERNEL in out


# A text that looks like the path of a file or a folder of the course.
PATHS = re.compile(
    r"(?<![\w./-])(?:phases|notebooks|results|benchmarks|solutions|checks|book)/[\w./-]*[\w]|(?<![\w./-])README\b"
)


def read_texts(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the texts that a learner reads, with their paths: notebooks, hints, explanations, and stubs."""
    for path in sorted(folder.glob("notebooks/*/*.ipynb")):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        yield path, "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    for path in sorted(places.given().glob("checks/*/w*.md")):
        yield path, path.read_text("utf-8")
    for path in sorted(folder.rglob("phases/**/*")):
        if path.is_file():
            yield path, path.read_text("utf-8")


def test_every_mentioned_path_exists_in_the_learners_folder(tmp_path: Path) -> None:
    delivery.deliver(tmp_path)
    mentioned_paths = {
        (mention.rstrip("."), path.name) for path, text in read_texts(tmp_path) for mention in PATHS.findall(text)
    }
    assert ("results/traces/block/trace.json.gz", "week05_profiling.ipynb") in mentioned_paths
    missing_paths = [
        (name, file) for name, file in sorted(mentioned_paths) if not (tmp_path / name).exists() and name != "README"
    ]
    assert missing_paths == []
    assert [file for name, file in mentioned_paths if name == "README"] == [], (
        "the README of a learner's folder is not the README of the course"
    )
    size = sum(path.stat().st_size for path in tmp_path.rglob("results/**/*") if path.is_file())
    assert size < 500_000


def test_a_new_folder_says_what_to_do_first(
    course: Path, tmp_path: Path, kp: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "mine"
    tmp_path.mkdir(exist_ok=True)
    status, out, _ = kp("new", str(folder))
    assert (status, "jupyter lab notebooks opens the notebooks" in out) == (0, True)
    readme = (folder / "README.md").read_text()
    assert "`jupyter lab notebooks` opens the notebooks" in readme
    commands = set(re.findall(r"`kp ?(\w*)", readme))
    assert commands - {""} <= set(app.kp.commands)
    monkeypatch.chdir(folder)
    assert "open it with: jupyter lab notebooks" in kp()[1]
    (folder / "README.md").write_text("my notes")
    assert upgrade(folder).aside == ()
    assert (folder / "README.md").read_text() == "my notes"
