"""Generated tables."""

from __future__ import annotations

from pathlib import Path

from kernelpath.course import registry
from kernelpath.show import docs


def test_tables_of_this_checkout_are_current() -> None:
    assert list(docs.stale(registry.root())) == []


def test_a_table_is_replaced_between_its_markers(tmp_path: Path) -> None:
    for folder in ("checks/1_architecture", "phases", "solutions/1_architecture"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "checks/1_architecture/w01b_vector_add.py").write_text('"""Adding: two vectors."""\n')
    (tmp_path / "solutions/1_architecture/w01b_vector_add.cu").write_text("")
    text = "before\n<!-- table: syllabus -->\nold\n<!-- end -->\nafter\n"
    assert docs.regenerate(text, tmp_path) == (
        "before\n<!-- table: syllabus -->\n"
        "| week | exercise | lane | what it is |\n| --- | --- | --- | --- |\n"
        "| 1 | `vector_add` | CUDA C++ | Adding: two vectors |\n<!-- end -->\nafter\n"
    )
