"""Writes the course as web pages: one per week, and those about the course. They need no server and no network."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from markupsafe import Markup

from kernelpath import words
from kernelpath.course import registry
from kernelpath.files import write_atomically
from kernelpath.show import book, colab, docs, report, results, search, seen, templates, view
from kernelpath.show.book import Entry
from kernelpath.show.endings import endings
from kernelpath.show.search import Place
from kernelpath.show.seen import Seen
from kernelpath.show.weeks import LEGIBLE, Week, prose, weeks, width
from kernelpath.verdict import Verdict

INDEX = "index.html"
SEARCH = "search.js"
PICTURES = "pictures"
PAGES = {
    INDEX: "Course",
    "glossary.html": "Glossary",
    "results.html": "Results",
    "verdicts.html": "Verdicts",
    "gallery.html": "Gallery",
    "faults.html": "Faults",
}
"""The pages about the course, by file name."""

KINDS = {
    "Sectors": (r"plots\.sectors\(", "The sectors of 32 bytes that the lanes of a warp ask for in one request."),
    "Banks": (r"plots\.banks\(", "The banks of shared memory, and how many wavefronts a request takes."),
    "Layouts": (
        r"layout\.draw\(|plots\.grid\(.*(lane|thread|owner|holder)",
        "Which lane or thread holds which element of a tile.",
    ),
    "Pipelines": (
        r"\.pipeline\(",
        "Who issues, lands, waits and multiplies in an asynchronous kernel, event by event.",
    ),
    "Ranks": (r"ranks\.draw\(", "What each rank sends, and when, on a bus with latency and bandwidth."),
    "Traces": (r"trace\.draw\(", "A step of training as a profiler recorded it on a GPU."),
    "Rooflines": (r"roofline\.draw\(|plots\.roofline\(", "Kernels under the roof of the machine that ran them."),
}
"""What the gallery shows: by kind a pattern of the call that draws it, and what it is a picture of."""


@dataclass(frozen=True)
class Picture:
    """A picture of a week's page. link: to its section. png: as base64."""

    kind: str
    week: Week
    heading: str
    link: str
    png: str

    @property
    def width(self) -> int:
        """In pixels of a page, which are two of the picture's."""
        return width(self.png) // 2

    @property
    def wide(self) -> bool:
        return width(self.png) > LEGIBLE


def write(
    root: Path, to: Path, address: colab.Address | None = None, tell: Callable[[str], None] = lambda page: None
) -> Path:
    """Write the pages of a checkout's course into a folder, and return that of the index.

    address: where they will be published on GitHub, for links to Colab. tell: is called with the name of each page
    before it is written.

    Raises ValidationError where a file of results/ or the examples of verdicts cannot be understood.
    """
    tell("reading the notebooks")
    found = weeks(root)
    to.mkdir(parents=True, exist_ok=True)

    def page(name: str, template: str, **values: object) -> None:
        tell(name)
        write_atomically(to / name, templates.render(template, here=name, pages=PAGES, **values))

    for before, week, after in zip([None, *found], found, [*found[1:], None], strict=False):
        to_run = _to_run(root, to, week, address)
        page(week.page, "week.html", week=week, before=before, after=after, to_run=to_run, address=address)
    phases = [(phase, list(group)) for phase, group in groupby(found, key=lambda week: week.phase)]
    terms = book.glossary(root)
    page(INDEX, "book.html", phases=phases, lanes=words.LANES)
    page("glossary.html", "glossary.html", glossary=list(_terms(terms, found, to)))
    page("results.html", "results.html", **_results(root))
    page("verdicts.html", "verdicts.html", **_verdicts(root, terms))
    page("faults.html", "faults.html", **_faults(root, terms))
    tell("drawing the gallery")
    gallery = [(kind, about, _pictures(found, call, kind)) for kind, (call, about) in KINDS.items()]
    page("gallery.html", "gallery.html", gallery=[(kind, about, drawn) for kind, about, drawn in gallery if drawn])
    write_atomically(to / SEARCH, search.script(_places(root, found, terms)))
    return to / INDEX


@dataclass(frozen=True)
class Term:
    """A term of the glossary. shown: where, if anywhere. picture: the link to it; empty without one."""

    entry: Entry
    text: Markup
    shown: Seen | None
    picture: str


def _terms(terms: list[Entry], found: list[Week], to: Path) -> Iterator[Term]:
    """The glossary; writes its pictures, which many terms share, below the folder of the pages."""
    (to / PICTURES).mkdir(exist_ok=True)
    shown, written = seen.seen(terms, found), dict[str, str]()
    for entry in terms:
        place = shown.get(entry.anchor)
        if place and place.png and place.png not in written:
            written[place.png] = f"{PICTURES}/{place.week.path.stem}-{len(written)}.png"
            (to / written[place.png]).write_bytes(place.thumbnail)
        yield Term(entry, prose(entry.text), place, written.get(place.png, "") if place else "")


def _to_run(root: Path, to: Path, week: Week, address: colab.Address | None) -> str:
    """The name of the week's notebook, which is written beside its page; empty where the course has none."""
    import nbformat

    given = root / "notebooks" / week.path.parent.name / week.path.name
    if not given.is_file():
        return ""
    made = colab.notebook(nbformat.read(given, as_version=4), address)
    write_atomically(to / given.name, nbformat.writes(made) + "\n")
    return given.name


def _results(root: Path) -> Mapping[str, object]:
    """The roofline of each machine with its exercises' bars, and the tables of the documents."""
    machines = {machine.gpu: machine.timed for machine in results.machines(root) if machine.timed}
    tables = (docs.results, docs.peers, docs.kernels, docs.agreement, docs.functions, docs.findings)
    return {
        "roofs": [report.Roofed(gpu, timed, (report.BASELINE, report.REFERENCE)) for gpu, timed in machines.items()],
        "bars": report.bars,
        "titles": {item.stem: item.title for item in registry.exercises(root)},
        "tables": {table.__name__: prose("\n".join(table(root))) for table in tables},
    }


def _verdicts(root: Path, terms: list[Entry]) -> Mapping[str, object]:
    """For each verdict the terms that speak of it; its example, where the checkout has one."""
    return {
        "verdicts": list(Verdict),
        "endings": endings(root),
        "mood": view.mood,
        "terms": {
            verdict: [one for one in terms if one.anchor == _anchor(verdict) or verdict.value in _spoken(one)]
            for verdict in Verdict
        },
    }


def _faults(root: Path, terms: list[Entry]) -> Mapping[str, object]:
    """What was found in published kernels; the anchors of the kinds that the glossary explains."""
    published = results.published(root)
    anchors = {entry.term: entry.anchor for entry in terms}
    named = {kind: anchors.get(kind) or anchors.get(kind.removesuffix("s")) for kind in published.kinds}
    return {"published": published, "terms": {kind: anchor for kind, anchor in named.items() if anchor}}


def _anchor(verdict: Verdict) -> str:
    return verdict.name.lower().replace("_", "-")


def _spoken(entry: Entry) -> list[str]:
    """The words of an entry, without those of its tables."""
    return [word.strip("`.,;:()*") for word in entry.text.partition("<!--")[0].split()]


def _pictures(found: list[Week], call: str, kind: str) -> list[Picture]:
    return [
        Picture(kind, week, prose(passage.heading).striptags(), week.link(passage.anchor), png)
        for week in found
        for passage in week.passages
        for source, png in passage.pictures
        if re.search(call, source)
    ]


def _places(root: Path, found: list[Week], terms: list[Entry]) -> Iterator[Place]:
    """All that the search can find."""
    for entry in terms:
        yield Place(f"glossary.html#{entry.anchor}", entry.term, "Glossary", entry.text)
    for verdict in Verdict:
        yield Place(f"verdicts.html#{_anchor(verdict)}", verdict.value, "Verdicts", verdict.meaning)
    for week in found:
        for part in week.passages:
            page = week.title if part.anchor else week.phase
            yield Place(week.link(part.anchor), prose(part.heading).striptags(), page, part.text)
        for item in week.items:
            yield Place(week.page, item.name, f"{week.title}, {words.LANES[item.lane]}", item.title)
    for kind, (_, about) in KINDS.items():
        yield Place(f"gallery.html#{kind.lower()}", kind, "Gallery", about)
    for finding in results.published(root).findings:
        named = f"{finding.meaning} {' '.join(finding.kernels)} {finding.repository}"
        yield Place(f"faults.html#{finding.kind.replace(' ', '-')}", finding.kernels[0], "Faults", named)
    yield Place("results.html", "Results", "Results", "measurements times speedup bandwidth roofline peers agreement")
