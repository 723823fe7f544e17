"""Test that the table of docs/attacks.md agrees with the planted submissions."""

from __future__ import annotations

from tests import write_attacks
from tests.test_rejects import ROWS


def test_the_table_of_attacks_is_current() -> None:
    """After a change of the planted submissions, run python -m tests.write_attacks."""
    text = write_attacks.FILE.read_text(encoding="utf-8")
    assert write_attacks.regenerate(text) == text


def test_each_attack_says_how_it_is_detected_on_both_devices() -> None:
    assert list(write_attacks.DETECTION) == list(ROWS)
    assert all(all(cells) for cells in write_attacks.DETECTION.values())


def test_each_planted_submission_is_counted_in_one_row() -> None:
    rows = [line.split(" | ") for line in write_attacks.table().splitlines()[2:]]
    attacks = list(write_attacks.planted())
    assert [sum(int(row[column]) for row in rows) for column in (1, 2)] == [
        sum(attack.without_gpu for attack in attacks),
        sum(attack.on_gpu for attack in attacks),
    ]
