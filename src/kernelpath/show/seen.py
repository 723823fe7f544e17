"""Find where the course shows a term of the glossary: in a picture, a table, a measurement, or an exercise."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from PIL import Image

from kernelpath.show.book import GlossaryEntry
from kernelpath.show.weeks import NotebookSection, Week, render_markdown

WIDTH = 240

# The maximum size of a term's picture in pixels of a page. The file has twice as many pixels.
HEIGHT = 176

# The palette size of such a picture.
COLORS = 48

# The relevance from which on a section is about a term and does not merely mention it.
MIN_RELEVANCE = 3

# Week and section of terms whose word has other uses as well, or that a section shows without the word.
FIXED_PLACES = {
    "aligned": (8, 3),
    "arithmetic intensity": (1, 9),
    "atomic": (6, 1),
    "auxiliary output": (22, 12),
    "bank conflict": (3, 5),
    "baseline": (3, 7),
    "block": (1, 1),
    "block of values": (9, 1),
    "block scales": (22, 13),
    "bulk copy": (21, 1),
    "case": (1, 7),
    "causal mask": (12, 4),
    "confidence interval": (3, 7),
    "contiguous": (9, 2),
    "cooperative launch": (16, 16),
    "counter-based generator": (13, 4),
    "deadlock": (16, 15),
    "event": (3, 1),
    "exposed communication": (16, 17),
    "fragmentation": (15, 4),
    "grid": (1, 1),
    "guard": (4, 5),
    "identity tensor": (18, 1),
    "kernel": (1, 1),
    "lane": (1, 4),
    "mask": (10, 1),
    "mbarrier": (21, 4),
    "measured ceiling": (1, 9),
    "MFMA": (24, 4),
    "MMA atom": (20, 1),
    "mutation testing": (16, 7),
    "named barrier": (23, 2),
    "NVTX": (5, 7),
    "operation": (1, 9),
    "paired rounds": (3, 7),
    "pairwise summation": (6, 5),
    "phase": (21, 4),
    "power limit": (22, 10),
    "predication": (6, 9),
    "program": (9, 1),
    "quantization": (11, 10),
    "range": (5, 7),
    "reference": (3, 7),
    "register double buffering": (8, 7),
    "relaxed": (25, 5),
    "release and acquire": (16, 16),
    "resident": (3, 8),
    "rotary embedding": (16, 3),
    "SM": (1, 5),
    "specialization": (9, 3),
    "split-K": (15, 5),
    "star": (1, 6),
    "thread": (1, 1),
    "throughput": (5, 5),
    "tile": (4, 3),
    "tuning key": (9, 6),
    "two-level accumulation": (22, 13),
    "verdict": (1, 6),
    "warp": (1, 4),
    "warp specialization": (22, 2),
    "Welford's method": (10, 8),
    "wheel": (16, 7),
    "window": (2, 4),
    "workspace": (14, 7),
    "XU": (23, 1),
}

_CODE = re.compile(r"`([\w.:]{4,})`")


Place = tuple[Week, NotebookSection]


@dataclass(frozen=True)
class TermExample:
    """A section that shows a term.

    Attributes:
        how: The kind of example, such as "a picture".
        png: The picture as base64, empty if there is none.
    """

    week: Week
    passage: NotebookSection
    how: str
    png: str = ""

    @property
    def link(self) -> str:
        return self.week.link(self.passage.anchor)

    @property
    def where(self) -> str:
        """Return the place as text, such as "Week 3 · Measuring: 2 · Sectors"."""
        return (
            f"{self.week.title}: {render_markdown(self.passage.heading).striptags()}"
            if self.passage.anchor
            else self.week.title
        )

    @property
    def thumbnail(self) -> bytes:
        """Return the picture as a small PNG with few colors."""
        picture = Image.open(io.BytesIO(base64.b64decode(self.png))).convert("RGB")
        picture.thumbnail((2 * WIDTH, 2 * HEIGHT), Image.Resampling.LANCZOS)
        file = io.BytesIO()
        picture.quantize(COLORS, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
        return file.getvalue()


def _has_table(passage: NotebookSection) -> bool:
    outputs = [
        output.get("data", {}).get("text/html", "") for cell in passage.code for output in cell.get("outputs", [])
    ]
    return any("<table" in html for html in outputs)


def _calls(pattern: str) -> Callable[[NotebookSection], bool]:
    return lambda passage: any(re.search(pattern, cell.source) for cell in passage.code)


# Examples of a term that has no picture, the best kind first.
FALLBACKS: Mapping[str, Callable[[NotebookSection], bool]] = {
    "a table": _has_table,
    "a measurement": _calls(r"notebook\.(on_gpu|times|contestants)\("),
    "an exercise": _calls(r"notebook\.check\("),
}


def find_examples(entries: Iterable[GlossaryEntry], weeks: Iterable[Week]) -> dict[str, TermExample]:
    """Return the section that shows each term best, by the term's anchor. Terms without such a section are left out."""
    places = [(week, passage) for week in weeks for passage in week.passages]
    examples = {}
    for entry in entries:
        fixed_place = FIXED_PLACES.get(entry.term)
        pinned = [(week, passage) for week, passage in places if fixed_place == (week.number, passage.number)]
        if best := _best_example(pinned) if pinned else _find_by_text(entry, places):
            examples[entry.anchor] = best
    return examples


def _find_by_text(entry: GlossaryEntry, places: list[Place]) -> TermExample | None:
    """Find a section about the term, else one about its name in code, else one that mentions either."""
    names = [entry.term.strip("`"), *_CODE.findall(entry.text)]
    for words, min_relevance in ((names[:1], MIN_RELEVANCE), (names, MIN_RELEVANCE), (names, 1)):
        pattern = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?:e?s)?(?!\w)", re.IGNORECASE)
        lowercase_words = [word.casefold() for word in words]
        relevances = [
            _relevance(pattern, place[1]) if any(part in place[1].folded for part in lowercase_words) else 0
            for place in places
        ]
        candidates = [
            (relevance, place)
            for relevance, place in zip(relevances, places, strict=True)
            if relevance >= min_relevance
        ]
        if best := _best_example([place for _, place in sorted(candidates, key=lambda pair: -pair[0])], pattern):
            return best
    return None


def _relevance(pattern: re.Pattern[str], passage: NotebookSection) -> int:
    """Score how much a section is about a pattern: heading, bold definition, mentions in text, uses in code."""
    heading = bool(pattern.search(passage.heading))
    mentions = len(pattern.findall(passage.text))
    defined = mentions and re.search(rf"\*\*{pattern.pattern}\*\*", passage.text, re.IGNORECASE) is not None
    uses_in_code = sum(len(pattern.findall(cell.source)) for cell in passage.code)
    return 8 * heading + 6 * bool(defined) + min(mentions, 6) + min(uses_in_code, 4)


def _best_example(places: list[Place], pattern: re.Pattern[str] | None = None) -> TermExample | None:
    """Return the first section with a picture, preferring code that matches the pattern; else the best fallback."""
    for week, passage in places:
        pictures = list(passage.pictures)
        if pictures:
            _, png = max(pictures, key=lambda picture: bool(pattern and pattern.search(picture[0])))
            return TermExample(week, passage, "a picture", png)
    return next(
        (
            TermExample(week, passage, how)
            for how, shows in FALLBACKS.items()
            for week, passage in places
            if shows(passage)
        ),
        None,
    )
