"""Where the course shows a term of the glossary: a picture, counters, a measurement, or an exercise that is checked."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from PIL import Image

from kernelpath.show.book import Entry
from kernelpath.show.weeks import Passage, Week, prose

WIDTH, HEIGHT = 240, 176
"""Pixels of a page that the picture of a term takes at most; it has twice as many."""

COLORS = 48
"""Of such a picture."""

ENOUGH = 3
"""Points from which a section is about a term, and does not merely mention it."""

PLACES = {
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
    "cooperative launch": (16, 11),
    "counter-based generator": (13, 4),
    "deadlock": (16, 10),
    "event": (3, 1),
    "exposed communication": (16, 12),
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
    "release and acquire": (16, 11),
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
"""Week and section of a term whose word has other uses as well, or that a section shows without the word."""

_CODE = re.compile(r"`([\w.:]{4,})`")


Place = tuple[Week, Passage]


@dataclass(frozen=True)
class Seen:
    """A section that shows a term. how: as what. png: the picture, as base64; empty without one."""

    week: Week
    passage: Passage
    how: str
    png: str = ""

    @property
    def link(self) -> str:
        return self.week.link(self.passage.anchor)

    @property
    def where(self) -> str:
        """In words: "Week 3 · Measuring: 2 · Sectors"."""
        return (
            f"{self.week.title}: {prose(self.passage.heading).striptags()}" if self.passage.anchor else self.week.title
        )

    @property
    def thumbnail(self) -> bytes:
        """The picture as a small PNG of few colors."""
        given = Image.open(io.BytesIO(base64.b64decode(self.png))).convert("RGB")
        given.thumbnail((2 * WIDTH, 2 * HEIGHT), Image.Resampling.LANCZOS)
        file = io.BytesIO()
        given.quantize(COLORS, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
        return file.getvalue()


def _tables(passage: Passage) -> bool:
    outputs = [
        output.get("data", {}).get("text/html", "") for cell in passage.code for output in cell.get("outputs", [])
    ]
    return any("<table" in html for html in outputs)


def _calls(pattern: str) -> Callable[[Passage], bool]:
    return lambda passage: any(re.search(pattern, cell.source) for cell in passage.code)


OTHERS: Mapping[str, Callable[[Passage], bool]] = {
    "a table": _tables,
    "a measurement": _calls(r"notebook\.(on_gpu|times|contestants)\("),
    "an exercise": _calls(r"notebook\.check\("),
}
"""What shows a term where no picture does, the best first."""


def seen(entries: Iterable[Entry], weeks: Iterable[Week]) -> dict[str, Seen]:
    """Of each term, by its anchor, the section that shows it best; nothing of a term that no section shows."""
    places = [(week, passage) for week in weeks for passage in week.passages]
    found = {}
    for entry in entries:
        at = PLACES.get(entry.term)
        pinned = [(week, passage) for week, passage in places if at == (week.number, passage.number)]
        if best := _shown(pinned) if pinned else _told(entry, places):
            found[entry.anchor] = best
    return found


def _told(entry: Entry, places: list[Place]) -> Seen | None:
    """In a section that is about the term; else about what the glossary calls it in code; else that mentions either."""
    names = [entry.term.strip("`"), *_CODE.findall(entry.text)]
    for words, least in ((names[:1], ENOUGH), (names, ENOUGH), (names, 1)):
        pattern = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?:e?s)?(?!\w)", re.IGNORECASE)
        parts = [word.casefold() for word in words]
        points = [
            _points(pattern, place[1]) if any(part in place[1].folded for part in parts) else 0 for place in places
        ]
        about = [(point, place) for point, place in zip(points, places, strict=True) if point >= least]
        if best := _shown([place for _, place in sorted(about, key=lambda one: -one[0])], pattern):
            return best
    return None


def _points(pattern: re.Pattern[str], passage: Passage) -> int:
    heading, told = bool(pattern.search(passage.heading)), len(pattern.findall(passage.text))
    defined = told and re.search(rf"\*\*{pattern.pattern}\*\*", passage.text, re.IGNORECASE) is not None
    shown = sum(len(pattern.findall(cell.source)) for cell in passage.code)
    return 8 * heading + 6 * bool(defined) + min(told, 6) + min(shown, 4)


def _shown(places: list[Place], pattern: re.Pattern[str] | None = None) -> Seen | None:
    """By the first place's picture, preferably one whose code has the pattern; else by what else a place has."""
    for week, passage in places:
        pictures = list(passage.pictures)
        if pictures:
            _, png = max(pictures, key=lambda one: bool(pattern and pattern.search(one[0])))
            return Seen(week, passage, "a picture", png)
    return next(
        (Seen(week, passage, how) for how, shows in OTHERS.items() for week, passage in places if shows(passage)), None
    )
