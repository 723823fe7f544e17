"""Test that sections of planted submissions become programs, and that sections with a wrong format are refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kernelpath.verdict import Verdict
from tests import planted
from tests.planted import FormatError, Planted

ROOT = Path(__file__).parents[1]
PROGRAM = "a = 1\nb = 2\n\nc = 3\nb = 2\n"
PATCH = "```diff\n--- solutions/base.py\n@@\n{}```\n"


@pytest.mark.parametrize(
    ("hunk", "patched"),
    [
        ("-a = 1\n+a = 4\n", "a = 4\nb = 2\n\nc = 3\nb = 2\n"),
        ("\n-c = 3\n", "a = 1\nb = 2\n\nb = 2\n"),
        (" c = 3\n-b = 2\n", "a = 1\nb = 2\n\nc = 3\n"),
        ("+d = 5\n a = 1\n", "d = 5\n" + PROGRAM),
        ("-a = 1\n+a = 12\n+c = 3\n@@\n-c = 3\n+a = 1\n", "a = 12\nc = 3\nb = 2\n\na = 1\nb = 2\n"),
    ],
    ids=["changed", "blank context", "the second of two", "added", "hunks do not see each other"],
)
def test_a_patch_is_found_by_its_text(hunk: str, patched: str, tmp_path: Path) -> None:
    assert reject_of(hunk, tmp_path).submission(tmp_path / "out").read_text() == patched


@pytest.mark.parametrize(
    ("hunk", "message"),
    [
        ("-a = 9\n", "w01a_double/RACE_x does not fit base.py: these lines occur 0 times, not once\na = 9\n"),
        ("-b = 2\n", "these lines occur 2 times"),
        ("- = 1\n", "these lines occur 0 times"),
        ("-a = 1\n--- solutions/gone.py\n@@\n-a\n", "changes solutions/gone.py, which is not there"),
        ("-a = 1\n--- gone.py\n@@\n-a\n", "changes gone.py, but w01a_double has no honest submission gone"),
    ],
    ids=["gone", "ambiguous", "a part of a line", "no such file", "no such honest submission"],
)
def test_a_patch_that_no_longer_fits_is_refused(hunk: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=re.escape(message)):
        reject_of(hunk, tmp_path).submission(tmp_path / "out")


def reject_of(hunk: str, root: Path) -> Planted:
    """Return a section with a patch of this hunk against PROGRAM."""
    (root / "solutions").mkdir()
    (root / "solutions" / "base.py").write_text(PROGRAM)
    (reject,) = sections(f"## RACE x\n\nAn accident.\n\n{PATCH.format(hunk)}", root)
    return reject


def sections(text: str, root: Path, kind: str = "rejects") -> list[Planted]:
    file = root / "tests" / kind / "w01a_double.md"
    file.parent.mkdir(parents=True)
    file.write_text(f"# Submissions to w01a_double\n\n{text}")
    return planted.rejects(root) if kind == "rejects" else planted.accepts(root)


def test_a_section_has_a_verdict_a_name_a_reason_and_a_device(tmp_path: Path) -> None:
    program = '```python\n"""C3: not a number."""\n```\n\n```cuda\n// C\n```\n'
    patch = PATCH.format("-a = 1\n")
    first = f"## WRONG_VALUES nan\n\n{program}\n"
    second = f"## OUT_OF_BOUNDS no_guard\ndevice: cpu\n\nC10, an accident:\ntwo lines.\n\n{patch}"
    out_of_bounds, wrong_values = sections(first + second, tmp_path)
    assert out_of_bounds.name == "w01a_double/OUT_OF_BOUNDS_no_guard"
    assert (out_of_bounds.verdict, out_of_bounds.why) == (Verdict.OUT_OF_BOUNDS, "C10, an accident:\ntwo lines.")
    assert (wrong_values.verdict, wrong_values.why) == (Verdict.WRONG_VALUES, "C3: not a number.")
    python = wrong_values.submission(tmp_path / "out")
    assert python.name == "WRONG_VALUES_nan.py"
    assert python.with_suffix(".cu").read_text() == "// C\n"
    assert planted.rejects(tmp_path, "gpu") == [wrong_values]
    assert planted.rejects(tmp_path, "cpu") == [out_of_bounds, wrong_values]


def test_a_patch_changes_a_file_of_an_honest_submission(tmp_path: Path) -> None:
    sections("## plain\n\n```python\nimport torch\n```\n\n```cuda\nint a;\n```\n", tmp_path, "accepts")
    (reject,) = sections("## RACE x\n\nC10.\n\n```diff\n--- plain.cu\n@@\n-int a;\n+int b;\n```\n", tmp_path)
    python = reject.submission(tmp_path / "out")
    assert (python.name, python.read_text()) == ("plain.py", "import torch\n")
    assert python.with_suffix(".cu").read_text() == "int b;\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("## RACE x\n\nC10.\n", "w01a_double.md, RACE x: a section has a block of `diff`"),
        ("## RACE x\n\n```cuda\n```\n", "a section has a block of `diff`"),
        ("## RACE x\n\nC10.\n\n```diff\n--- a/b.py\n", "a section has a block of `diff`"),
        (f"## RACE x\ndevice: tpu\n\nC10.\n\n{PATCH}", "there is no option `device: tpu`"),
        (f"## RACE x\nspeed: 1\n\nC10.\n\n{PATCH}", "there is no option `speed: 1`"),
    ],
    ids=["no program", "a kernel alone", "an open block", "a value", "a key"],
)
def test_a_section_without_the_format_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=re.escape(message)):
        sections(text, tmp_path)


def test_every_submission_fits_the_programs_that_it_changes(tmp_path: Path) -> None:
    """Most submissions are graded weekly, so a renamed variable of a solution would go unnoticed until then."""
    for index, submission in enumerate((*planted.rejects(ROOT), *planted.accepts(ROOT))):
        folder = tmp_path / str(index)
        assert submission.submission(folder).exists(), submission.name
