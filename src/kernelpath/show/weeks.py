"""The notebooks of the book as HTML: text with its formulas as MathML, highlighted code, and outputs."""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from kernelpath.course import registry
from kernelpath.course.registry import Item
from kernelpath.show import book

if TYPE_CHECKING:
    from nbconvert import HTMLExporter
    from nbformat import NotebookNode

LEGIBLE = 1120
"""Pixels of a picture up to which its text can still be read when a phone shows it whole; a wider one is scrolled."""

_NAMES = {"cuda": "CUDA", "cute": "CuTe"}
_MATH = re.compile(
    r"(?P<code>```.*?```|`[^`\n]*`)|\$\$(?P<block>.+?)\$\$|\$(?P<inline>[^$\s](?:[^$\n]*[^$\s])?)\$", re.S
)
_FENCED = re.compile(r"^```.*?^```", re.S | re.M)
_HEADING = re.compile(r"<h2>(.*?)</h2>", re.S)
_STYLE = re.compile(r"<style>.*?</style>", re.S)


@dataclass(frozen=True)
class Passage:
    """A section of a notebook: its Markdown, without what is fenced, and its cells of code."""

    anchor: str
    heading: str
    texts: list[str] = field(default_factory=list)
    code: list[NotebookNode] = field(default_factory=list)

    @property
    def number(self) -> int:
        """Its place among the sections, from 1; 0 for the beginning."""
        return int(self.anchor.partition("-")[2] or 0)

    @property
    def text(self) -> str:
        return "\n\n".join(self.texts)

    @cached_property
    def folded(self) -> str:
        """All its words, for a search that minds no case."""
        return "\n".join([self.heading, *self.texts, *(cell.source for cell in self.code)]).casefold()

    @property
    def pictures(self) -> Iterator[tuple[str, str]]:
        """The code that drew it, and the PNG as base64, for each picture."""
        for cell in self.code:
            for output in cell.get("outputs", []):
                if "image/png" in output.get("data", {}):
                    yield cell.source, output["data"]["image/png"]


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
    def number(self) -> int:
        """Of the week, as its file is named: week08_matmul."""
        return int(re.sub(r"\D", "", self.path.stem.partition("_")[0]))

    def link(self, anchor: str) -> str:
        """To one of its sections; to its beginning, which has no anchor."""
        return f"{self.page}#{anchor}" if anchor else self.page

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

    @property
    def passages(self) -> Iterator[Passage]:
        """The beginning, which has no anchor, and each section."""
        places = count(1)
        passage = Passage("", self.title)
        for cell in self.notebook.cells:
            if cell.cell_type == "code":
                passage.code.append(cell)
            elif cell.cell_type == "markdown":
                end, *parts = re.split(r"^## (.+)$", _FENCED.sub("", cell.source), flags=re.MULTILINE)
                passage.texts.append(end)
                for heading, text in zip(parts[::2], parts[1::2], strict=True):
                    yield passage
                    passage = Passage(f"section-{next(places)}", heading, [text])
        yield passage

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
    exporter = HTMLExporter(  # type: ignore[no-untyped-call]
        template_name="basic",
        exclude_anchor_links=True,
        exclude_input_prompt=True,
        exclude_output_prompt=True,
        config=config,
    )
    # Pygments has escaped the code, and cleaning it again takes a third of the time.
    exporter.register_filter("clean_html", lambda html: html)  # type: ignore[no-untyped-call]
    return exporter


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
        about = output.metadata.setdefault("image/png", {})
        about["alt"] = f"Figure: {heading}"
        about["unconfined"] = width(data["image/png"]) > LEGIBLE
    return output


def width(picture: str) -> int:
    """Of a PNG as base64, in pixels."""
    found: int = struct.unpack(">I", base64.b64decode(picture[:32])[16:20])[0]
    return found


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
