"""The table of the source documents names only sections and exercises that exist, and grading that is declared."""

from pathlib import Path

import pytest

from kernelpath.course import registry
from kernelpath.course.errors import DeclarationError
from kernelpath.show import sources

ROOT = Path(__file__).parents[1]


def test_rows_name_places_grading_and_what_is_missing() -> None:
    rows = {cells[1]: cells for cells in sources.rows(ROOT)}
    _, _, place, grading, missing = rows["constant memory"]
    assert "week04_matmul.ipynb" in place
    assert "(cell `conv-00`)" in place
    assert grading == "`conv2d`: values, traffic, time on a GPU"
    assert missing == ""
    assert all(place or missing for _, _, place, _, missing in rows.values()), "an item is neither covered nor missing"


def test_graded_properties_follow_the_declaration() -> None:
    properties = sources.graded_properties(registry.find("stochastic_rounding"))
    assert properties == ["values", "traffic", "memory", "determinism", "own check", "time on a GPU"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('["item", "1.99", "", ""]', "week 1 has no section 99"),
        ('["item", "77.1", "", ""]', "no notebook of week 77"),
        ('["item", "1.1", "no_such", ""]', "no exercise no_such"),
    ],
)
def test_a_place_that_does_not_exist_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str, message: str
) -> None:
    data = tmp_path / "sources.toml"
    data.write_text(f'[[source]]\ntitle = "a document"\nrows = [{row}]\n', encoding="utf-8")
    monkeypatch.setattr(sources, "DATA", str(data))
    with pytest.raises(DeclarationError, match=message):
        list(sources.rows(ROOT))
