"""Test that the tables of the source documents name only existing places and exercises, and declared grading."""

from pathlib import Path

import pytest

from kernelpath.course import registry
from kernelpath.course.errors import DeclarationError
from kernelpath.show import docs, sources

ROOT = Path(__file__).parents[1]


def find_item(subject: str) -> sources.Item:
    (item,) = (item for item in sources.items(ROOT) if item.subject == subject)
    return item


def test_items_name_places_grading_and_gaps() -> None:
    item = find_item("constant memory")
    assert (item.document, item.part) == ("30-day plan, days 1 to 5", "Day 2")
    assert "week04_matmul.ipynb), 7 · Another tile, and constant memory (cell `conv-00`)" in item.place
    assert "week04_matmul.ipynb), One word for a whole warp (cell `conv-02`)" in item.place
    assert item.grading == "`conv2d`: values, traffic, time on a GPU"
    assert item.missing == ""
    assert all(item.place or item.missing for item in sources.items(ROOT)), "an item is neither covered nor missing"


def test_an_item_without_an_exercise_has_the_predictions_and_questions_of_its_places() -> None:
    assert find_item("question: what causes bank conflicts").grading.endswith("in the exam: `banks`, `broadcast`")
    assert find_item("30 days from no knowledge to custom kernels in ML workloads").grading == "1 prediction"
    assert find_item("CUDA by Example; Programming Parallel Computers").grading == ""


def test_the_section_of_a_cell_ends_at_the_next_heading_of_its_level() -> None:
    week, section = sources.find_section(ROOT, "4.7")
    _, part = sources.find_section(ROOT, "4.conv-02")
    _, cell = sources.find_section(ROOT, "4.conv-04")
    assert (week, section.number, part.number, cell.number) == (4, "7", "7", "7")
    assert (part.title, cell.title) == ("One word for a whole warp", "One word for a whole warp")
    assert set(cell.code.split("\n")) < set(part.code.split("\n")) < set(section.code.split("\n"))


def test_graded_properties_follow_the_declaration() -> None:
    properties = sources.graded_properties(registry.find("stochastic_rounding"))
    assert properties == ["values", "traffic", "memory", "determinism", "own check", "time on a GPU"]


def test_every_document_has_a_table_to_which_the_summary_links() -> None:
    text = "\n".join(docs.sources(ROOT))
    for row in list(docs.coverage(ROOT))[2:]:
        title, anchor = row.removeprefix("| [").split(") |")[0].split("](#")
        assert f"\n### {title}\n" in text
        assert anchor == title.lower().replace(" ", "-").replace(",", "")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('["item", "1.99", "", ""]', "week 1 has no section 99"),
        ('["item", "1.no-such", "", ""]', "week 1 has no cell no-such"),
        ('["item", "77.1", "", ""]', "no notebook of week 77"),
        ('["item", "docs/no_such.md", "", ""]', "no page docs/no_such.md"),
        ('["item", "1.1", "no_such", ""]', "no exercise no_such"),
    ],
)
def test_a_section_or_exercise_that_does_not_exist_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str, message: str
) -> None:
    data = tmp_path / "sources.toml"
    data.write_text(
        f'[[source]]\ntitle = "a document"\n[[source.part]]\ntitle = "a part"\nrows = [{row}]\n', encoding="utf-8"
    )
    monkeypatch.setattr(sources, "DATA", str(data))
    with pytest.raises(DeclarationError, match=message):
        list(sources.items(ROOT))
