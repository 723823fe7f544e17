"""Write the course as web pages, one per week and several about the course, which need no server and no network."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from markupsafe import Markup

from kernelpath import words
from kernelpath.course import registry
from kernelpath.files import write_atomically
from kernelpath.show import book, colab, docs, report, results, seen, templates, view
from kernelpath.show.book import GlossaryEntry
from kernelpath.show.endings import read_endings
from kernelpath.show.seen import TermExample
from kernelpath.show.weeks import LEGIBLE, Week, png_width, render_markdown, weeks
from kernelpath.verdict import Verdict

INDEX = "index.html"
SEARCH = "search.js"
PICTURES = "pictures"

# The pages about the course, by file name.
PAGES = {
    INDEX: "Course",
    "glossary.html": "Glossary",
    "results.html": "Results",
    "verdicts.html": "Verdicts",
    "gallery.html": "Gallery",
    "faults.html": "Faults",
}

# The kinds of pictures in the gallery, each with a pattern of the call that draws them and a caption.
KINDS = {
    "Sectors": (r"plots\.sectors\(", "The 32-byte sectors that the lanes of a warp request at once."),
    "Banks": (r"plots\.banks\(", "The banks of shared memory, and how many wavefronts a request takes."),
    "Layouts": (
        r"layout\.draw\(|plots\.grid\(.*(lane|thread|owner|holder)",
        "Which lane or thread holds which element of a tile.",
    ),
    "Pipelines": (
        r"\.pipeline\(",
        "Which warp copies, waits and multiplies in an asynchronous kernel, event by event.",
    ),
    "Ranks": (r"ranks\.draw\(", "What each rank sends, and when, on a bus with latency and bandwidth."),
    "Traces": (r"trace\.draw\(", "A training step as a profiler recorded it on a GPU."),
    "Rooflines": (r"roofline\.draw\(|plots\.roofline\(", "Kernels under the roof of the machine that ran them."),
}


@dataclass(frozen=True)
class Picture:
    """A picture of a week's page.

    Attributes:
        link: The link to the section of the picture.
        png: The picture as base64.
    """

    kind: str
    week: Week
    heading: str
    link: str
    png: str

    @property
    def width(self) -> int:
        """Return the width in pixels of a page, which are two pixels of the PNG."""
        return png_width(self.png) // 2

    @property
    def wide(self) -> bool:
        return png_width(self.png) > LEGIBLE


def write(
    root: Path,
    folder: Path,
    address: colab.Address | None = None,
    report_progress: Callable[[str], None] = lambda page: None,
) -> Path:
    """Write the pages of a checkout's course into a folder, and return the path of the index.

    Args:
        address: The place on GitHub where the pages will be published, for links to Colab.
        report_progress: Called with the name of each page before it is written.

    Raises ValidationError if a file of results/ or the examples of verdicts are invalid.
    """
    report_progress("reading the notebooks")
    course_weeks = weeks(root)
    folder.mkdir(parents=True, exist_ok=True)

    def page(name: str, template: str, **values: object) -> None:
        report_progress(name)
        write_atomically(folder / name, templates.render(template, here=name, pages=PAGES, **values))

    # `weeks` sorts by phase, as groupby requires. The groups are lists, since several templates iterate over them.
    phases = [(phase, list(group)) for phase, group in groupby(course_weeks, key=lambda week: week.phase)]
    # The first list is one longer than the others.
    for previous, week, following in zip([None, *course_weeks], course_weeks, [*course_weeks[1:], None], strict=False):
        to_run = _write_notebook(root, folder, week, address)
        page(
            week.page,
            "week.html",
            week=week,
            phases=phases,
            before=previous,
            after=following,
            to_run=to_run,
            address=address,
        )
    terms = book.glossary(root)
    page(INDEX, "book.html", phases=phases, lanes=words.LANES)
    page("glossary.html", "glossary.html", glossary=list(_glossary_terms(terms, course_weeks, folder)))
    page("results.html", "results.html", **_results_page(root))
    page("verdicts.html", "verdicts.html", **_verdicts_page(root, terms))
    page("faults.html", "faults.html", **_faults_page(root, terms))
    report_progress("drawing the gallery")
    gallery = [(kind, caption, _pictures(course_weeks, call, kind)) for kind, (call, caption) in KINDS.items()]
    page(
        "gallery.html",
        "gallery.html",
        gallery=[(kind, caption, pictures) for kind, caption, pictures in gallery if pictures],
    )
    # The index of the search is a script, because a page opened from a file cannot fetch JSON.
    write_atomically(folder / SEARCH, render_script(_search_places(root, course_weeks, terms)))
    return folder / INDEX


@dataclass(frozen=True)
class Term:
    """A term of the glossary.

    Attributes:
        shown: The section that shows the term, if there is one.
        picture: The link to the picture, empty if there is none.
    """

    entry: GlossaryEntry
    text: Markup
    shown: TermExample | None
    picture: str


def _glossary_terms(terms: list[GlossaryEntry], course_weeks: list[Week], folder: Path) -> Iterator[Term]:
    """Yield the glossary, and write its pictures, which many terms share, below `folder`."""
    (folder / PICTURES).mkdir(exist_ok=True)
    shown = seen.find_examples(terms, course_weeks)
    paths_by_png = dict[str, str]()
    for entry in terms:
        place = shown.get(entry.anchor)
        # Terms of one section share its picture, which is written once.
        if place and place.png and place.png not in paths_by_png:
            paths_by_png[place.png] = f"{PICTURES}/{place.week.path.stem}-{len(paths_by_png)}.png"
            (folder / paths_by_png[place.png]).write_bytes(place.thumbnail)
        yield Term(entry, render_markdown(entry.text), place, paths_by_png.get(place.png, "") if place else "")


def _write_notebook(root: Path, folder: Path, week: Week, address: colab.Address | None) -> str:
    """Write the week's notebook beside its page, and return its name; empty if the course has none."""
    import nbformat

    source = root / "notebooks" / week.path.parent.name / week.path.name
    if not source.is_file():
        return ""
    notebook = colab.add_install_cell(nbformat.read(source, as_version=4), address)
    write_atomically(folder / source.name, nbformat.writes(notebook) + "\n")
    return source.name


def _results_page(root: Path) -> Mapping[str, object]:
    """Return the roofline of each machine with its exercises' bars, and the tables of the documents."""
    machines = {machine.gpu: machine.timed for machine in results.machines(root) if machine.timed}
    speeds = (docs.results, docs.peer_summary, docs.peers, docs.absent_peers)
    tables = (*speeds, docs.kernels, docs.agreement, docs.functions, docs.findings)
    return {
        "roofs": [
            report.DeviceRoofline(gpu, timed, (report.BASELINE, report.REFERENCE)) for gpu, timed in machines.items()
        ],
        "bars": report.bars,
        "titles": {item.path_id: item.title for item in registry.exercises(root)},
        "tables": {table.__name__: render_markdown("\n".join(table(root))) for table in tables},
    }


def _verdicts_page(root: Path, terms: list[GlossaryEntry]) -> Mapping[str, object]:
    """Return, for each verdict, its example and the terms that mention it."""
    return {
        "verdicts": list(Verdict),
        "endings": read_endings(root),
        "mood": view.mood,
        "terms": {
            verdict: [
                entry for entry in terms if entry.anchor == _anchor(verdict) or verdict.value in _entry_words(entry)
            ]
            for verdict in Verdict
        },
    }


def _faults_page(root: Path, terms: list[GlossaryEntry]) -> Mapping[str, object]:
    """Return the faults found in published kernels, and the anchors of the kinds that the glossary explains."""
    published = results.published(root)
    anchors = {entry.term: entry.anchor for entry in terms}
    anchors_by_kind = {kind: anchors.get(kind) or anchors.get(kind.removesuffix("s")) for kind in published.kinds}
    return {"published": published, "terms": {kind: anchor for kind, anchor in anchors_by_kind.items() if anchor}}


def _anchor(verdict: Verdict) -> str:
    return verdict.name.lower().replace("_", "-")


def _entry_words(entry: GlossaryEntry) -> list[str]:
    """Return the words of an entry without its tables."""
    return [word.strip("`.,;:()*") for word in entry.text.partition("<!--")[0].split()]


def _pictures(course_weeks: list[Week], call: str, kind: str) -> list[Picture]:
    return [
        Picture(kind, week, render_markdown(passage.heading).striptags(), week.link(passage.anchor), png)
        for week in course_weeks
        for passage in week.passages
        for source, png in passage.pictures
        if re.search(call, source)
    ]


def _search_places(root: Path, course_weeks: list[Week], terms: list[GlossaryEntry]) -> Iterator[SearchEntry]:
    """Yield everything that the search can find."""
    for entry in terms:
        yield SearchEntry(f"glossary.html#{entry.anchor}", entry.term, "Glossary", entry.text)
    for verdict in Verdict:
        yield SearchEntry(f"verdicts.html#{_anchor(verdict)}", verdict.value, "Verdicts", verdict.meaning)
    for week in course_weeks:
        for part in week.passages:
            page = week.title if part.anchor else week.phase
            yield SearchEntry(week.link(part.anchor), render_markdown(part.heading).striptags(), page, part.text)
        for item in week.items:
            yield SearchEntry(week.page, item.name, f"{week.title}, {words.LANES[item.lane]}", item.title)
    for kind, (_, caption) in KINDS.items():
        yield SearchEntry(f"gallery.html#{kind.lower()}", kind, "Gallery", caption)
    for finding in results.published(root).findings:
        text = f"{finding.meaning} {' '.join(finding.kernels)} {finding.repository}"
        yield SearchEntry(f"faults.html#{finding.kind.replace(' ', '-')}", finding.kernels[0], "Faults", text)
    yield SearchEntry(
        "results.html", "Results", "Results", "measurements times speedup bandwidth roofline peers agreement"
    )


# Matches a word, in which there may be dots and colons, as in cp.async.
_WORD = re.compile(r"[^\W_][\w.:]*\w|\w")


@dataclass(frozen=True)
class SearchEntry:
    """A search result: its link, its title, the title of its page, and its text in Markdown."""

    link: str
    title: str
    page: str
    text: str

    @property
    def words(self) -> str:
        """Return the words of the text in order, each once and without the words of the title."""
        return " ".join(sorted(set(_words(self.text)) - set(_words(self.title))))


def _words(text: str) -> list[str]:
    """Return the words in lower case. A name such as cp.async is one word, and each of its parts is, too."""
    words = _WORD.findall(re.sub(r"\]\([^)]*\)", "]", text).lower())
    return [part for word in words for part in {word, *re.split(r"[.:_]+", word)}]


def render_script(search_entries: Iterable[SearchEntry]) -> str:
    """Return the index and the search function as JavaScript."""
    rows = [[entry.link, entry.title, entry.page, entry.words] for entry in search_entries]
    return templates.render("search.js", entries=json.dumps(rows, ensure_ascii=False, separators=(",", ":")))
