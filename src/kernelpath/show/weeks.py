"""Render the notebooks of the book as HTML: text with its formulas as MathML, highlighted code, and outputs."""

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

from kernelpath import words
from kernelpath.course import registry
from kernelpath.course.registry import ExerciseRef
from kernelpath.show import book

if TYPE_CHECKING:
    from nbconvert import HTMLExporter
    from nbformat import NotebookNode

# The picture width in pixels up to which text is legible when a phone shows the whole picture. Wider ones scroll.
LEGIBLE = 1120

_PHASE_NAMES = {"cuda": "CUDA", "cute": "CuTe"}

# Matches code or a formula. Code comes first, so that a dollar sign in code begins no formula.
#
# A formula begins and ends without a space, so that the text between two prices is none.
_MATH = re.compile(
    r"(?P<code>```.*?```|`[^`\n]*`)|\$\$(?P<block>.+?)\$\$|\$(?P<inline>[^$\s](?:[^$\n]*[^$\s])?)\$", re.S
)
_FENCED = re.compile(r"^```.*?^```", re.S | re.M)
_HEADING = re.compile(r"<h2>(.*?)</h2>", re.S)
_KERNEL = re.compile(r"%%cuda|@triton\.|@cute\.|__global__|\bpl\.")
_HARNESS = re.compile(r"\b(?:notebook|plots|answers|ranks|layout|trace|roofline|assembly)\.\w+\(")

# Matches the code of a cell with its id, as the template "basic" of nbconvert writes it.
_CODE_CELL = re.compile(
    r'(?<= code_cell rendered" id="cell-id=)(?P<id>[\w-]+)(?P<begin>">\n)'
    r'(?P<code><div class="input">.*?</pre></div>\n</div>\n</div>\n</div>\n)',
    re.S,
)
_STYLE = re.compile(r"<style>.*?</style>", re.S)


@dataclass(frozen=True)
class NotebookSection:
    """A section of a notebook: its Markdown without code blocks, and its code cells."""

    anchor: str
    heading: str
    texts: list[str] = field(default_factory=list)
    code: list[NotebookNode] = field(default_factory=list)

    @property
    def number(self) -> int:
        """Return the section's number from 1, or 0 for the part before the first section."""
        return int(self.anchor.partition("-")[2] or 0)

    @property
    def text(self) -> str:
        return "\n\n".join(self.texts)

    @cached_property
    def folded(self) -> str:
        """Return all words of the section, case-folded."""
        return "\n".join([self.heading, *self.texts, *(cell.source for cell in self.code)]).casefold()

    @property
    def pictures(self) -> Iterator[tuple[str, str]]:
        """Yield the code that drew each picture, and its PNG as base64."""
        for cell in self.code:
            for output in cell.get("outputs", []):
                if "image/png" in output.get("data", {}):
                    yield cell.source, output["data"]["image/png"]


@dataclass(frozen=True)
class Week:
    """A notebook of the book as a page, with its exercises in `items`."""

    path: Path
    notebook: NotebookNode
    items: tuple[ExerciseRef, ...]

    @property
    def page(self) -> str:
        """Return the name of the page's file."""
        return f"{self.path.stem}.html"

    @property
    def number(self) -> int:
        """Return the number of the week, from its file name: week08_matmul."""
        return int(re.sub(r"\D", "", self.path.stem.partition("_")[0]))

    def link(self, anchor: str) -> str:
        """Return a link to one of the page's sections, or to its start if the anchor is empty."""
        return f"{self.page}#{anchor}" if anchor else self.page

    @property
    def phase(self) -> str:
        """Return the phase as text, "Phase 1 · Architecture", or "Electives" for a week that no exam counts."""
        if self.number > registry.CORE_WEEKS:
            return "Electives"
        number, _, name = self.path.parent.name.partition("_")
        return f"Phase {number} · {_PHASE_NAMES.get(name, name.capitalize())}"

    @property
    def title(self) -> str:
        return book.title(self.notebook)

    @property
    def provenance(self) -> str:
        """Return the sentence about the machine, day and versions that made the outputs, empty without a GPU."""
        return book.provenance(self.notebook)

    @property
    def question(self) -> Markup:
        """Return the question of the week from the notebook's first cell, empty if there is none."""
        match = re.search(r"\*\*The question of this week:\*\* (.+)", self.notebook.cells[0].source)
        return render_markdown(match[1][0].upper() + match[1][1:]) if match else Markup()

    @property
    def body(self) -> Markup:
        """Return text, code and outputs; each section's heading has an anchor."""
        numbers = count(1)
        return Markup(_HEADING.sub(lambda match: f'<h2 id="section-{next(numbers)}">{match[1]}</h2>', self._html))

    @property
    def sections(self) -> list[tuple[str, Markup]]:
        """Return the anchor and the text of each section's heading."""
        return [
            (f"section-{number}", Markup(text)) for number, text in enumerate(_HEADING.findall(self._html), start=1)
        ]

    @property
    def passages(self) -> Iterator[NotebookSection]:
        """Yield the part before the first section, which has no anchor, and each section."""
        numbers = count(1)
        passage = NotebookSection("", self.title)
        for cell in self.notebook.cells:
            if cell.cell_type == "code":
                passage.code.append(cell)
            elif cell.cell_type == "markdown":
                end, *parts = re.split(
                    r"^## (.+)$", _FENCED.sub("", words.without_expressions(cell.source)), flags=re.MULTILINE
                )
                passage.texts.append(end)
                for heading, text in zip(parts[::2], parts[1::2], strict=True):
                    yield passage
                    passage = NotebookSection(f"section-{next(numbers)}", heading, [text])
        yield passage

    @cached_property
    def _html(self) -> str:
        return _body(self.notebook)


def weeks(root: Path) -> list[Week]:
    """Return the weeks that the book of a checkout has, in order."""
    import nbformat

    items = registry.exercises(root)
    return [
        Week(path, nbformat.read(path, as_version=4), tuple(item for item in items if _belongs_to(item, path)))
        for path in book.executed_notebooks(root)
    ]


def _belongs_to(item: ExerciseRef, path: Path) -> bool:
    return item.phase == path.parent.name and path.name.startswith(f"week{item.week:02d}_")


def render_markdown(markdown: str) -> Markup:
    """Convert Markdown to HTML with its formulas as MathML."""
    from nbconvert.filters import markdown2html

    formulas: list[str] = []
    return _with_formulas(markdown2html(_without_formulas(words.without_expressions(markdown), formulas)), formulas)


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
    copy.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}  # the lexer that knows magics
    formulas: list[str] = []
    heading = ""
    for cell in copy.cells:
        if cell.cell_type == "markdown":
            heading = ([heading, *re.findall(r"^#+ (.+)$", cell.source, re.MULTILINE)])[-1]
            cell.source = re.sub(r"\]\((?:[^)\s]*/)?(week\w+)\.ipynb", r"](\1.html", cell.source)
            cell.source = _without_formulas(words.without_expressions(cell.source), formulas)
        elif cell.cell_type == "code":
            cell.outputs = [cleaned for output in cell.outputs if (cleaned := _clean_output(output, heading))]
    html, _ = _exporter().from_notebook_node(copy)
    return _with_formulas(_fold_harness(html, copy), formulas)


def _fold_harness(html: str, notebook: NotebookNode) -> str:
    """Fold the code of cells that ask, measure and draw. Kernels and plain Python stay open."""
    harness = {cell.get("id", "") for cell in notebook.cells if cell.cell_type == "code" and _is_harness(cell.source)}

    def fold(match: re.Match[str]) -> str:
        if match["id"] not in harness:
            return match[0]
        return f"{match['id']}{match['begin']}<details><summary>Code</summary>\n{match['code']}</details>\n"

    return _CODE_CELL.sub(fold, html)


def _is_harness(source: str) -> bool:
    return _HARNESS.search(source) is not None and _KERNEL.search(source) is None


def _clean_output(output: Any, heading: str) -> Any:
    """Remove an output's own styles, which the page has, and add an alt text to a picture.

    Return None if it is empty.
    """
    data = output.get("data", {})
    if data.get("text/html", "").startswith("<pre style"):  # the output of rich, whose colors suit light pages only
        del data["text/html"]
    if "text/html" in data:
        data["text/html"] = _STYLE.sub("", data["text/html"])
        return output if data["text/html"].strip() else None
    if "image/png" in data:
        metadata = output.metadata.setdefault("image/png", {})
        metadata["alt"] = f"Figure: {heading}"
        metadata["unconfined"] = png_width(data["image/png"]) > LEGIBLE
    return output


def png_width(picture: str) -> int:
    """Return the width in pixels of a PNG in base64."""
    # A PNG begins with 8 bytes of signature and 8 bytes of the header of IHDR, whose first field is the width.
    pixels: int = struct.unpack(">I", base64.b64decode(picture[:32])[16:20])[0]
    return pixels


def _without_formulas(markdown: str, formulas: list[str]) -> str:
    """Replace each formula by a placeholder, and append its MathML to `formulas`."""

    def replace_formula(match: re.Match[str]) -> str:
        if match["code"]:
            return match[0]
        formulas.append(_mathml(match["block"] or match["inline"], block=match["block"] is not None))
        # A word of letters and digits, which the conversion of Markdown to HTML leaves as it is.
        return f"xformula{len(formulas) - 1}x"

    return _MATH.sub(replace_formula, markdown)


def _with_formulas(html: str, formulas: list[str]) -> Markup:
    return Markup(re.sub(r"xformula(\d+)x", lambda match: formulas[int(match[1])], html))


def _mathml(formula: str, block: bool) -> str:
    from latex2mathml.converter import convert

    math = convert(formula, display="block" if block else "inline")
    return f'<span class="formula">{math}</span>' if block else math
