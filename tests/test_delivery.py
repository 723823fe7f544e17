"""A learner's folder: how it is known, what an upgrade does to each file, and what wrong ones are told."""

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

KERNEL, NOTEBOOK = "phases/1_architecture/w01a_double.py", "notebooks/1_architecture/week01_threads.ipynb"


@pytest.fixture
def course(doubling: ExerciseRef, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a package of version 1.2.3 carries: one exercise."""
    doubling.stub.write_text("# TODO\n")
    notebook = doubling.root / NOTEBOOK
    notebook.parent.mkdir(parents=True)
    notebook.write_text("{}")
    carried = doubling.root.rename(doubling.root.with_name(f"{doubling.root.name}-data"))
    monkeypatch.setattr(places, "PACKAGE_DATA", carried)
    monkeypatch.setattr(kernelpath, "__version__", "1.2.3")
    return carried


@pytest.fixture
def folder(course: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A learner's folder of that version, which is the current one."""
    tmp_path.mkdir(exist_ok=True)
    delivery.deliver(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def kp(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exit_:
            cli.main(arguments)
        printed = capsys.readouterr()
        return int(exit_.value.code or 0), printed.out, printed.err

    return run


def upgraded(folder: Path) -> delivery.DeliveryResult:
    return delivery.deliver(folder, places.marker(folder))


def test_a_learners_folder_has_what_is_edited_and_the_package_the_rest(folder: Path, course: Path) -> None:
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


def test_an_upgrade_replaces_what_is_unchanged_and_adds_what_is_new(folder: Path, course: Path) -> None:
    (course / KERNEL).write_text("# newer\n")
    (course / NOTEBOOK).with_name("week02_memory.ipynb").write_text("{}")
    done = upgraded(folder)
    assert done.written == (KERNEL, "notebooks/1_architecture/week02_memory.ipynb")
    assert (folder / KERNEL).read_text() == "# newer\n"
    assert done.aside == ()
    assert upgraded(folder) == delivery.DeliveryResult("1.2.3"), "a second one has nothing to do"


def test_an_upgrade_keeps_what_the_learner_changed(folder: Path, course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / KERNEL).write_text("mine")
    assert upgraded(folder).aside == (), "the course has not changed it"
    (course / KERNEL).write_text("# newer\n")
    monkeypatch.setattr(kernelpath, "__version__", "1.3.0")
    assert upgraded(folder).aside == ((KERNEL, f"new-1.3.0/{KERNEL}"),)
    assert (folder / KERNEL).read_text() == "mine"
    assert (folder / f"new-1.3.0/{KERNEL}").read_text() == "# newer\n"


def test_a_folder_that_lost_its_marker_is_renewed_without_a_loss(folder: Path) -> None:
    (folder / KERNEL).write_text("mine")
    (folder / places.MARKER).unlink()
    done = delivery.deliver(folder)
    assert done.aside == ((KERNEL, f"new-1.2.3/{KERNEL}"),)
    assert (folder / KERNEL).read_text() == "mine"
    assert places.marker(folder).version == "1.2.3"


@pytest.mark.parametrize(("text", "stays"), [("# TODO\n", False), ("mine", True)])
def test_what_the_course_has_no_longer_stays_if_it_was_changed(
    folder: Path, course: Path, text: str, stays: bool
) -> None:
    (folder / KERNEL).write_text(text)
    (course / KERNEL).unlink()
    done = upgraded(folder)
    assert (done.left, done.removed) == (((KERNEL,), ()) if stays else ((), (KERNEL,)))
    assert (folder / KERNEL).exists() is stays


def test_a_marker_leads_to_no_file_outside(folder: Path) -> None:
    outside = folder.parent / "outside.py"
    outside.write_text("mine")
    sha = delivery._digest(b"mine")
    for name in ("../outside.py", f"phases/../../{outside.name}", str(outside)):
        marker = places.Marker("1.2.3", {**places.marker(folder).files, name: sha})
        assert delivery.deliver(folder, marker).removed == ()
    assert outside.read_text() == "mine"


def test_a_solution_appears_after_a_pass_and_stays_as_the_learner_left_it(folder: Path, course: Path) -> None:
    item = registry.find("double")
    shown = folder / f"solutions/{item.path_id}.py"
    assert delivery.reveal(item) == (shown,)
    assert shown.read_bytes() == item.solution.read_bytes()
    item.solution.write_text("# better\n")
    assert upgraded(folder).written == (f"solutions/{item.path_id}.py",)
    shown.write_text("# my notes\n")
    assert delivery.reveal(item) == ()
    item.solution.write_text("# best\n")
    assert [name for name, _ in upgraded(folder).aside] == [f"solutions/{item.path_id}.py"]
    assert shown.read_text() == "# my notes\n"


def test_the_expert_kernel_appears_beside_the_answer(folder: Path, course: Path) -> None:
    item = registry.find("double")
    expert = item.solution.parent / "expert" / item.solution.name
    expert.parent.mkdir()
    expert.write_text("# fast\n")
    shown = folder / "solutions" / item.phase / "expert" / item.solution.name
    assert delivery.reveal(item) == (folder / f"solutions/{item.path_id}.py", shown)
    assert shown.read_text() == "# fast\n"
    expert.write_text("# faster\n")
    assert upgraded(folder).written == (f"solutions/{item.phase}/expert/{item.solution.name}",)


def test_the_ladder_appears_with_the_answer(folder: Path, course: Path) -> None:
    item = registry.find("double")
    item.ladder.mkdir(parents=True)
    (item.ladder / "1_naive.py").write_text('"""Naive: a step."""\n')
    shown = folder / "solutions" / item.phase / "steps" / item.solution.stem / "1_naive.py"
    assert delivery.reveal(item) == (folder / f"solutions/{item.path_id}.py", shown)


def test_a_checkout_reveals_nothing(doubling: ExerciseRef) -> None:
    assert delivery.reveal(doubling) == ()


@pytest.mark.parametrize(
    ("marker", "said"),
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
def test_a_folder_of_another_version_is_told_in_one_sentence(
    folder: Path, kp: Callable[..., tuple[int, str, str]], marker: str, said: str
) -> None:
    (folder / places.MARKER).write_text(marker)
    for verb in (("list",), ("next",), ("check", "double")):
        status, out, err = kp(*verb)
        assert (status, out) == (2, "")
        assert said in err
        assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("version", "said"), [("1.2.4", "pip install --upgrade kernelpath"), ("1.2.2", "your files: kp upgrade")]
)
def test_a_folder_of_another_patch_version_works_and_one_line_says_so(
    folder: Path, kp: Callable[..., tuple[int, str, str]], version: str, said: str
) -> None:
    assert kp("list")[2] == ""
    replace(places.marker(folder), version=version).write(folder)
    status, out, err = kp("list")
    assert (status, err.count("\n")) == (0, 1)
    assert err.startswith(f"warning: {folder} is of version {version} of the course, and kernelpath is 1.2.3; ")
    assert said in err
    assert "double" in out
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


def test_where_no_folder_can_be_made_one_sentence_says_why(
    folder: Path, course: Path, kp: Callable[..., tuple[int, str, str]]
) -> None:
    (folder / "a_file").write_text("mine")
    (folder / "taken").mkdir()
    (folder / "taken" / "phases").write_text("mine")
    for name, said in (
        (".", "is a course folder already; kp upgrade, in it, brings it up to date"),
        (str(course), "is a checkout of the course"),
        ("a_file", "is a file; name another folder"),
        ("a_file/below", "is a file; name another folder"),
        ("taken", "fix that and try again"),
        ("x" * 300, "fix that and try again"),
    ):
        status, _, err = kp("new", name)
        assert (status, err.count("\n")) == (2, 1), err
        assert said in err
    assert (folder / "a_file").read_text() == (folder / "taken" / "phases").read_text() == "mine"


def test_the_course_is_changed_in_a_checkout_alone(folder: Path, kp: Callable[..., tuple[int, str, str]]) -> None:
    for verb in (("check", "--quick"), ("tables",), ("new", "triple", "--problem", "gelu", "--lane", "cuda")):
        status, _, err = kp("dev", *verb)
        assert (status, err.count("\n")) == (2, 1)
        assert "is a learner's folder; the course itself is changed in a checkout" in err


def test_outside_of_any_folder_one_sentence_says_how_to_get_one(
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
    """The course as an editable install has it: a checkout, while the current folder is an empty one elsewhere."""
    monkeypatch.setattr(places, "PACKAGE_DATA", tmp_path / "no-data")
    monkeypatch.setattr(places, "_source_checkout", lambda: course)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(parents=True)
    monkeypatch.chdir(elsewhere)
    return course


@pytest.mark.parametrize(
    "verb", [(), ("next",), ("list",), ("check", "double"), ("watch",), ("hint",), ("progress",), ("checkpoint", "1")]
)
def test_in_a_folder_that_is_no_course_the_installed_checkout_is_not_taken(
    checkout: Path, kp: Callable[..., tuple[int, str, str]], verb: tuple[str, ...]
) -> None:
    status, out, err = kp(*verb)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert f"{Path.cwd()} is not a course folder" in err
    assert "make one: kp new FOLDER" in err
    assert f"or cd to the checkout that is installed, {checkout}" in err
    assert kp("dev", "check", "--quick")[0] == 2


def test_what_needs_no_learners_file_works_anywhere(
    checkout: Path, kp: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "examine", lambda: [doctor.Diagnosis("Python", True, "3.99", lane=True)])
    assert "Usage: kp check" in kp("check", "--help")[1]
    assert kp("doctor")[:2] == (0, "yes  Python  3.99\n")
    assert "there are no notebooks in book/" in kp("book")[2]  # of the installed course, which is found
    status, _, _ = kp("new", str(tmp_path / "mine"))
    assert (status, places.is_learners(tmp_path / "mine")) == (0, True)
    assert list(Path.cwd().iterdir()) == []


def test_a_course_is_found_from_a_folder_in_it(
    folder: Path, kp: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder / "phases/1_architecture")
    status, out, _ = kp("next")
    assert status == 0
    assert KERNEL in out


# What looks like a file or a folder of the course.
PATHS = re.compile(
    r"(?<![\w./-])(?:phases|notebooks|results|benchmarks|solutions|checks|book)/[\w./-]*[\w]|(?<![\w./-])README\b"
)


def texts(folder: Path) -> Iterator[tuple[Path, str]]:
    """What a learner reads: the texts of the notebooks, hints and explanations, and stubs."""
    for path in sorted(folder.glob("notebooks/*/*.ipynb")):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        yield path, "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    for path in sorted(places.given().glob("checks/*/w*.md")):
        yield path, path.read_text("utf-8")
    for path in sorted(folder.rglob("phases/**/*")):
        if path.is_file():
            yield path, path.read_text("utf-8")


def test_every_path_that_a_learner_reads_is_in_the_learners_folder(tmp_path: Path) -> None:
    delivery.deliver(tmp_path)
    named = {(found.rstrip("."), path.name) for path, text in texts(tmp_path) for found in PATHS.findall(text)}
    assert ("results/traces/block/trace.json.gz", "week05_profiling.ipynb") in named
    absent = [(name, file) for name, file in sorted(named) if not (tmp_path / name).exists() and name != "README"]
    assert absent == []
    assert [file for name, file in named if name == "README"] == [], "the folder's README is no page of the course"
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
    assert upgraded(folder).aside == ()
    assert (folder / "README.md").read_text() == "my notes"
