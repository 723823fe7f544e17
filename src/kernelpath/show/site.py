"""Writes the book as web pages: one a week, and an index with the syllabus and the glossary. Each page stands alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import count, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from kernelpath import words
from kernelpath.course import registry
from kernelpath.course.registry import Item
from kernelpath.files import write_atomically
from kernelpath.show import book, templates

if TYPE_CHECKING:
    from nbconvert import HTMLExporter
    from nbformat import NotebookNode

INDEX = "index.html"

_NAMES = {"cuda": "CUDA", "cute": "CuTe"}
_MATH = re.compile(
    r"(?P<code>```.*?```|`[^`\n]*`)|\$\$(?P<block>.+?)\$\$|\$(?P<inline>[^$\s](?:[^$\n]*[^$\s])?)\$", re.S
)
_HEADING = re.compile(r"<h2>(.*?)</h2>", re.S)
_STYLE = re.compile(r"<style>.*?</style>", re.S)


@dataclass(frozen=True)
class Week:
    """A notebook of the book as a page. items: its exercises."""

    path: Path
    notebook: NotebookNode
    items: tuple[Item, ...]

    @property
    def page(self) -> str:
        """The name of its file."""
        return f"{self.path.stem}.html"

    @property
    def phase(self) -> str:
        """In words: "Phase 1 · Architecture"."""
        number, _, name = self.path.parent.name.partition("_")
        return f"Phase {number} · {_NAMES.get(name, name.capitalize())}"

    @property
    def title(self) -> str:
        return book.title(self.notebook)

    @property
    def question(self) -> Markup:
        """The question of the week, from the notebook's first cell; empty if it asks none."""
        found = re.search(r"\*\*The question of this week:\*\* (.+)", self.notebook.cells[0].source)
        return prose(found[1][0].upper() + found[1][1:]) if found else Markup()

    @property
    def body(self) -> Markup:
        """Text, code and outputs; each section's heading has an anchor."""
        places = count(1)
        return Markup(_HEADING.sub(lambda match: f'<h2 id="section-{next(places)}">{match[1]}</h2>', self._html))

    @property
    def sections(self) -> list[tuple[str, Markup]]:
        """Anchor and text of each section's heading."""
        return [(f"section-{place}", Markup(text)) for place, text in enumerate(_HEADING.findall(self._html), start=1)]

    @cached_property
    def _html(self) -> str:
        return _body(self.notebook)


def weeks(root: Path) -> list[Week]:
    """The weeks that the book of a checkout has, in order."""
    import nbformat

    items = registry.exercises(root)
    return [
        Week(path, nbformat.read(path, as_version=4), tuple(item for item in items if _of(item, path)))
        for path in book.copies(root)
    ]


def _of(item: Item, path: Path) -> bool:
    return item.phase == path.parent.name and path.name.startswith(f"week{item.week:02d}_")


def write(root: Path, to: Path) -> Path:
    """Write the pages of a checkout's book into a folder, and return that of the index."""
    found = weeks(root)
    to.mkdir(parents=True, exist_ok=True)
    for before, week, after in zip([None, *found], found, [*found[1:], None], strict=False):
        write_atomically(to / week.page, templates.render("week.html", week=week, before=before, after=after))
    phases = [(phase, list(group)) for phase, group in groupby(found, key=lambda week: week.phase)]
    glossary = [(entry, prose(entry.text)) for entry in book.glossary(root)]
    index = templates.render("book.html", phases=phases, glossary=glossary, lanes=words.LANES)
    write_atomically(to / INDEX, index)
    return to / INDEX


def prose(markdown: str) -> Markup:
    """Markdown as HTML, its formulas as MathML."""
    from nbconvert.filters import markdown2html

    formulas: list[str] = []
    return _with_formulas(markdown2html(_without_formulas(markdown, formulas)), formulas)


@lru_cache
def _exporter() -> HTMLExporter:
    from nbconvert import HTMLExporter
    from traitlets.config import Config

    config = Config({"HighlightMagicsPreprocessor": {"enabled": True, "languages": {"%%cuda": "cuda"}}})
    return HTMLExporter(  # type: ignore[no-untyped-call]
        template_name="basic",
        exclude_anchor_links=True,
        exclude_input_prompt=True,
        exclude_output_prompt=True,
        config=config,
    )


def _body(notebook: NotebookNode) -> Markup:
    import nbformat

    copy = nbformat.from_dict(notebook)
    copy.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}  # the one that knows magics
    formulas: list[str] = []
    heading = ""
    for cell in copy.cells:
        if cell.cell_type == "markdown":
            heading = ([heading, *re.findall(r"^#+ (.+)$", cell.source, re.MULTILINE)])[-1]
            cell.source = re.sub(r"\]\((?:[^)\s]*/)?(week\w+)\.ipynb", r"](\1.html", cell.source)
            cell.source = _without_formulas(cell.source, formulas)
        elif cell.cell_type == "code":
            cell.outputs = [shown for output in cell.outputs if (shown := _output(output, heading))]
    html, _ = _exporter().from_notebook_node(copy)
    return _with_formulas(html, formulas)


def _output(output: Any, heading: str) -> Any:
    """An output without its own styles, which the page has, and with a text for a picture; None if nothing is left."""
    data = output.get("data", {})
    if data.get("text/html", "").startswith("<pre style"):  # of rich, whose colors are for light pages alone
        del data["text/html"]
    if "text/html" in data:
        data["text/html"] = _STYLE.sub("", data["text/html"])
        return output if data["text/html"].strip() else None
    if "image/png" in data:
        output.metadata.setdefault("image/png", {})["alt"] = f"Figure: {heading}"
    return output


def _without_formulas(markdown: str, formulas: list[str]) -> str:
    """The text with a word in place of each formula, which goes to the list as MathML."""

    def taken(match: re.Match[str]) -> str:
        if match["code"]:
            return match[0]
        formulas.append(_mathml(match["block"] or match["inline"], block=match["block"] is not None))
        return f"xformula{len(formulas) - 1}x"

    return _MATH.sub(taken, markdown)


def _with_formulas(html: str, formulas: list[str]) -> Markup:
    return Markup(re.sub(r"xformula(\d+)x", lambda match: formulas[int(match[1])], html))


def _mathml(formula: str, block: bool) -> str:
    from latex2mathml.converter import convert

    math = convert(formula, display="block" if block else "inline")
    return f'<span class="formula">{math}</span>' if block else math
