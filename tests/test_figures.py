"""Test the figures in texts: they are computed from results/ and shown as plain numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelpath import words
from kernelpath.course import registry
from kernelpath.show import figures, weeks

LADDER = {"device": "a GPU", "date": "2026-11-28", "value": {"8192": {"tile order": 782.8, "fused, GB/s": 760.0}}}
GAIN = "100 * {week22/ladder/8192/tile order} / {week22/ladder/8192/fused, GB/s} - 100"
REPORTS = {"gpu": "a GPU", "reports": [{"exercise": "1_a/w01b_vector_add"}, {"exercise": "2_b/w06a_sum", "stars": 3}]}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "results").mkdir()
    (tmp_path / "results/notebooks.json").write_text(json.dumps({"week22/ladder": LADDER}))
    (tmp_path / "results/gpu.json").write_text(json.dumps(REPORTS))
    return tmp_path


def write_cell(root: Path, text: str, folder: str = "notebooks") -> Path:
    path = root / folder / "5_cute/week22_peak.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    cells = [
        {"cell_type": "markdown", "id": "cell-00", "metadata": {}, "source": ["# Week 22\n"]},
        {"cell_type": "markdown", "id": "cell-14", "metadata": {}, "source": [text]},
    ]
    path.write_text(json.dumps({"cells": cells}, indent=1, ensure_ascii=False))
    return path


def test_a_figure_that_differs_from_results_is_found_in_its_cell(root: Path) -> None:
    write_cell(root, f"The gain is 5.7<!--= {GAIN} | .1f -->%, not 3.0<!--= {GAIN} | .1f -->%.")
    (problem,) = figures.stale(root)
    assert problem == (
        "notebooks/5_cute/week22_peak.ipynb, cell cell-14 says 5.7 where results/ has 3.0; kp dev tables"
    )


def test_a_changed_measurement_makes_a_figure_stale_until_it_is_renewed(root: Path) -> None:
    texts = [write_cell(root, f"It gains 3.0<!--= {GAIN} | .1f -->% (**1.03<!--= 1 + ({GAIN}) / 100 | .2f -->×**).")]
    texts.append(write_cell(root, f"It gains 3.0<!--= {GAIN} | .1f -->%.", "book"))
    (root / "README.md").write_text("It has 3<!--= {gpu/reports/w06a_sum/stars} | .0f --> stars.\n")
    assert not list(figures.stale(root))
    before = LADDER["value"]["8192"]["tile order"]  # type: ignore[index]
    LADDER["value"]["8192"]["tile order"] = 912.0  # type: ignore[index]
    (root / "results/notebooks.json").write_text(json.dumps({"week22/ladder": LADDER}))
    LADDER["value"]["8192"]["tile order"] = before  # type: ignore[index]
    assert len(list(figures.stale(root))) == 2
    assert len(figures.rewrite(root)) == 2
    assert "It gains 20.0<!--=" in texts[0].read_text()
    assert "(**1.20<!--=" in texts[0].read_text()
    assert "It gains 20.0<!--=" in texts[1].read_text()
    assert not list(figures.stale(root))


@pytest.mark.parametrize(("step", "number"), [("#0", "782.8"), ("#1", "760.0"), ("#-1", "760.0"), ("#-2", "782.8")])
def test_a_value_is_named_by_its_position(root: Path, step: str, number: str) -> None:
    text = f"It is {number}<!--= {{week22/ladder/8192/{step}}} | .1f -->."
    assert figures.renew(text.replace(number, "0"), figures.Measurements(root)) == text


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("{week22/ladder/8192/#2}", "results/ has no 'week22/ladder/8192/#2': nothing is at '#2'"),
        ("{week22/ladder/8192/#-3}", "results/ has no 'week22/ladder/8192/#-3': nothing is at '#-3'"),
        ("{week22/ladder/8192/stores}", "results/ has no 'week22/ladder/8192/stores': nothing is at 'stores'"),
        ("{week23/ladder/8192}", "results/ has no 'week23/ladder/8192': nothing is at 'week23'"),
        ("{week22/ladder/8192}", "'week22/ladder/8192' is not a number"),
        ("{gpu/reports/w09_none/stars}", "results/ has no 'gpu/reports/w09_none/stars': nothing is at 'w09_none'"),
        ("1 / (2 - 2)", "'1 / (2 - 2)' cannot be evaluated: division by zero"),
        ("open(1)", "'open(1)' is not allowed in a figure"),
        ("().x", "'().x' is not allowed in a figure"),
    ],
)
def test_an_expression_that_cannot_be_evaluated_says_why(root: Path, expression: str, reason: str) -> None:
    write_cell(root, f"It is 1<!--= {expression} | .1f -->.")
    (problem,) = figures.stale(root)
    assert problem == f"notebooks/5_cute/week22_peak.ipynb, cell cell-14: {reason}"


def test_a_figure_without_a_format_is_an_error(root: Path) -> None:
    write_cell(root, "It is 1<!--= 1 + 1 -->.")
    (problem,) = figures.stale(root)
    assert "<!--= 1 + 1 --> is not a figure" in problem


def test_figures_are_renewed_in_linear_time(root: Path) -> None:
    text = f"{'A' * 2_000_000} 3.0<!--= {GAIN} | .1f -->%"
    assert figures.renew(text, figures.Measurements(root)) == text


def test_pages_and_terminals_show_the_plain_number() -> None:
    text = f"The gain is 3.0<!--= {GAIN} | .1f -->%."
    assert words.without_expressions(text) == "The gain is 3.0%."
    assert weeks.render_markdown(text).strip() == "<p>The gain is 3.0%.</p>"


def test_the_figures_of_this_checkout_are_current() -> None:
    assert not list(figures.stale(registry.root()))
