"""Test that banned phrases are found in text for readers, and that idiomatic English is not reported."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from kernelpath.dev import phrases


@pytest.mark.parametrize(
    ("line", "better"),
    [
        ("It moves 4 sectors a request.", "per"),
        ("Each thread keeps several loads a thread busy.", "per"),
        ("16 bytes are under way", "in flight"),
        ("one addition in a tick", "cycle"),
        ("4.2 million million operations", "trillion"),
        ("a barrier mends that", "fix"),
        ("It is no miracle.", "is not a"),
        ("It returned something else than a tensor.", "something other than"),
        ("Every program loads it anew.", "again"),
        ("Neighbouring threads", "the American spelling"),
    ],
)
def test_an_unidiomatic_phrase_is_reported_with_its_place_and_a_replacement(
    line: str, better: str, tmp_path: Path
) -> None:
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "lesson.md").write_text(f"A first line.\n{line}\n")
    (finding,) = phrases.unidiomatic(tmp_path)
    assert finding.startswith("checks/lesson.md:2: ")
    assert finding.endswith(f"write {better!r}")


@pytest.mark.parametrize(
    "line",
    [
        "How many threads a block has is up to you.",
        "Choose how many elements a program works on.",
        "A thread loads a tile and stores an element.",
        "There is no barrier between them.",
        "the recommended way, ticks=lambda n: n",
        "It is no longer needed.",
    ],
)
def test_idiomatic_phrases_are_not_reported(line: str, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(line)
    assert list(phrases.unidiomatic(tmp_path)) == []


def test_the_cells_of_a_notebook_are_read(tmp_path: Path) -> None:
    cells = [nbformat.v4.new_markdown_cell("A title"), nbformat.v4.new_code_cell("x = 1\nprint('bytes under way')")]
    (tmp_path / "notebooks").mkdir()
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "notebooks" / "week01.ipynb")
    (finding,) = phrases.unidiomatic(tmp_path)
    assert finding.startswith("notebooks/week01.ipynb:3: ")
