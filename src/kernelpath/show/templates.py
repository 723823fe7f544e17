"""Fills the HTML pages in html/. Every page stands alone: no network, no server, light and dark."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from kernelpath import words
from kernelpath.show import palette

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_VARIABLES = {**{hue: role for role, hue in palette.ROLES.items()}, palette.INK: "ink", palette.QUIET: "quiet"}
"""The variables of page.html that take the place of a picture's colors, for the sake of dark pages."""


_FILTERS = ("case", "exact", "factor", "seconds", "share", "span", "stars")


def render(name: str, **values: Any) -> str:
    """The template `name` with its values; text is escaped. Raises jinja2.UndefinedError for a value left out."""
    return _environment().get_template(name).render(values)


@lru_cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("kernelpath.show", "html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {name: getattr(words, name) for name in _FILTERS}
    environment.filters |= {"marked": marked, "zip": zip}
    environment.globals["roles"] = palette.ROLES
    return environment


def marked(text: str) -> Markup:
    """A text of one of our Markdown files, with its code set as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(words.shown(text), quote=False)))


def svg(figure: Figure, label: str, hovers: Mapping[str, str]) -> Markup:
    """A figure as SVG to stand inside a page, with the page's colors and font.

    label: for screen readers. hovers: what is shown under the mouse, by the gid of what was drawn.
    """
    from matplotlib import rc_context

    text = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": label, "savefig.transparent": True}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    drawn = text.getvalue()
    drawn = drawn[drawn.index("<svg") :]
    drawn = re.sub(r"<metadata>.*?</metadata>", "", drawn, count=1, flags=re.DOTALL)
    drawn = re.sub(r'\s(xmlns|xmlns:xlink|width|height|version)="[^"]*"', "", drawn, count=5)
    drawn = drawn.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1)
    drawn = drawn.replace(' target="_blank"', "")  # links lead to other places of the page
    for color, variable in _VARIABLES.items():
        drawn = drawn.replace(color, f"var(--{variable})")
    for gid, told in hovers.items():
        drawn = drawn.replace(f'<g id="{gid}">', f'<g id="{gid}"><title>{escape(told)}</title>', 1)
    return Markup(drawn)
