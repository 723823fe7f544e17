"""Test the page of a class, in a browser and with a parser, and its list of ungraded files."""

from __future__ import annotations

import itertools
import os
from datetime import datetime, timedelta, timezone
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kernelpath.course import registry
from kernelpath.school import points
from kernelpath.school.classroom import describe_skipped
from kernelpath.school.gradebook import Grade
from kernelpath.school.points import LearnerScore
from kernelpath.school.policy import LateRule, Policy
from kernelpath.school.similarity import Group, Pair
from kernelpath.show import class_page
from kernelpath.verdict import Report, Verdict
from tests.browser import LOW_CONTRAST, Browser

ROOT = Path(__file__).parents[1]
ITEMS = registry.exercises(ROOT)[:13]
NAMES = ("Ada", "<script>alert(1)</script>", "\u202egnp" + "x" * 200, *(f"learner {number}" for number in range(9)))
VERDICTS = (Verdict.PASSED, Verdict.RACE, Verdict.WRONG_VALUES, Verdict.TOO_MANY_INSTRUCTIONS, Verdict.RACE)


def _learners() -> list[LearnerScore]:
    """Return the scores of Ada, who passed everything, of a learner without submissions, and of mixed learners."""
    due = datetime(2026, 10, 5, tzinfo=timezone.utc)
    grades: list[Grade] = []
    for number, name in enumerate(NAMES):
        for index, item in enumerate(ITEMS):
            verdict = VERDICTS[(number + index) % len(VERDICTS)] if number else Verdict.PASSED
            stars = 1 if verdict.passed else 0
            cause = "" if verdict.passed else f"<b>{verdict.value}</b> & more " + "y" * 500
            report = Report(item.path_id, "", "", "", 0, verdict, cause, "a.cu", 7, stars)
            grades.append(Grade(name, item.path_id, "k", None if name == NAMES[-1] else report))
    times = {(name, ""): due + timedelta(days=number % 3) for number, name in enumerate(NAMES[:-1])}
    policy = Policy({}, {ITEMS[0].path_id: due}, 1, LateRule(10, free_days=1), times=times)
    return points.score_class(grades, [], {item.path_id: 1 for item in ITEMS}, policy)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pair = Pair(ITEMS[0].path_id, (NAMES[0], NAMES[1]), 90, 0.912)
    groups = [Group(ITEMS[0].path_id, {NAMES[0]: pair, NAMES[1]: pair})]
    path = tmp_path_factory.mktemp("class") / "class.html"
    skipped = ["notes.txt is a file", "<i>x</i> is empty"]
    path.write_text(class_page.page("gpu <2026>", ITEMS, _learners(), groups, skipped, ["Ada"]), encoding="utf-8")
    return path


class _Page(HTMLParser):
    """A parser that collects the elements and the text of the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += f" {data}"


def test_the_page_says_which_verdict_stops_each_learner(page: Path) -> None:
    text = " ".join(_Page(page.read_text()).text.split())
    vector_add = next(item for item in ITEMS if item.name == "vector_add")
    stopped = [name for name, verdict in _verdicts(vector_add.path_id) if not verdict.passed]
    assert f"vector_add: {len(stopped)} of {len(NAMES)}" in text
    (raced, *_) = (name for name, verdict in _verdicts(vector_add.path_id) if verdict is Verdict.RACE)
    assert f"{raced} RACE <b>RACE</b> & more yyy" in text
    assert "[…]" in text, "a long cause is cut"
    assert "Ada (91%), <script>alert(1)</script> (91%)" in text
    assert "<i>x</i> is empty" in text
    assert "Ada has no submission time" in text
    assert "2 days late, 1 free: -10%" in text


def _verdicts(stem: str) -> list[tuple[str, Verdict]]:
    return [
        (learner.learner, score.grade.report.verdict)
        for learner in _learners()
        for score in learner.scores
        if score.exercise == stem and score.grade.report
    ]


def test_names_are_escaped_and_verdicts_address_the_teacher(page: Path) -> None:
    parsed = _Page(page.read_text())
    assert "script" not in {tag for tag, _ in parsed.elements}
    assert "\u202e" not in parsed.text
    assert "kp next" not in parsed.text
    assert {tag for tag, _ in parsed.elements} & {"img", "link", "iframe", "form"} == set()


def test_the_page_is_accessible_by_its_markup(page: Path) -> None:
    elements = _Page(page.read_text()).elements
    assert all(attributes.get("scope") in ("row", "col") for tag, attributes in elements if tag == "th")
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    assert {(attributes["href"] or "")[1:] for tag, attributes in elements if tag == "a"} <= set(ids)
    levels = [int(tag[1]) for tag, _ in elements if tag in ("h1", "h2", "h3")]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert levels.count(1) == 1
    for _, attributes in elements:
        if attributes.get("class") == "scroll":
            assert attributes["tabindex"] == "0", "a region that is scrolled can be reached by the keyboard"
            assert attributes["role"] == "region"
            assert attributes["aria-label"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_fits_a_phone_and_a_screen_and_can_be_read(
    page: Path, browser: Browser, width: int, scheme: str
) -> None:
    browser.open(page, width, scheme)
    assert browser.run("[document.documentElement.scrollWidth, innerWidth]") == [width, width]
    wider = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth).length"
    assert browser.run(wider) == 1, "13 exercises are scrolled in a region of their own"
    assert browser.run(LOW_CONTRAST) == []
    first = "document.querySelector('.matrix tbody th').getBoundingClientRect().left"
    before = browser.run(first)
    browser.run("document.querySelector('.scroll').scrollLeft = 300")
    assert browser.run(first) == before, "names stay when the table is scrolled"


def test_a_class_that_passed_everything_gets_a_message() -> None:
    ada = _learners()[0]
    text = " ".join(_Page(class_page.page("x", ITEMS, [ada])).text.split())
    assert "x: 13 of 13 passed" in text
    assert "Nobody: all that was handed in passed." in text
    assert "Not graded" not in text


def test_ungraded_files_are_named_with_the_reason(tmp_path: Path) -> None:
    for name in ("ada", ".hidden", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "ada" / "w01b_vector_add.py").write_text("")
    (tmp_path / ".hidden" / "w01b_vector_add.py").write_text("")
    (tmp_path / "notes\u202e.txt").write_text("")
    (tmp_path / "policy.toml").write_text("")
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    assert describe_skipped(tmp_path, [tmp_path / "policy.toml"]) == [
        ".hidden begins with a dot, as folders of tools do; rename it if it is a learner's",
        "empty is empty",
        "gone is a link to nothing",
        "loop is a link to nothing",
        "notes\\u202e.txt is a file; a learner has a folder",
        "pipe is a file; a learner has a folder",
    ]


def test_an_unreadable_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root can read every folder, so the system's refusal is simulated."""
    (tmp_path / "ada").mkdir()

    def refuse(path: object) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("kernelpath.school.classroom.os.scandir", refuse)
    assert describe_skipped(tmp_path) == ["ada cannot be read: Permission denied"]
