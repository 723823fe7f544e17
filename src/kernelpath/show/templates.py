"""Fill the HTML pages in html/. Every page is self-contained: no network, no server, light and dark."""

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

# The variables of page.html that replace a picture's colors, so that dark pages can change them.
_VARIABLES = {**{hue: role for role, hue in palette.ROLES.items()}, palette.INK: "ink", palette.QUIET: "quiet"}


_FILTERS = ("case", "exact", "factor", "seconds", "share", "span", "stars")


def render(name: str, **values: Any) -> str:
    """Fill the template `name`, escaping text. Raises jinja2.UndefinedError for a missing value."""
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
    """Format a text of one of our Markdown files with its inline code as code elements."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(words.shown(text), quote=False)))


def svg(figure: Figure, label: str, hovers: Mapping[str, str]) -> Markup:
    """Return a figure as SVG to be embedded in a page, with the page's colors and font.

    Args:
        label: The text for screen readers.
        hovers: The text shown under the mouse, by the gid of the drawn object.
    """
    from matplotlib import rc_context

    text = io.StringIO()
    # Text stays text, in the page's font. With a salt for the ids and without a date, the same figure gives the same
    # bytes.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": label, "savefig.transparent": True}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    markup = text.getvalue()
    markup = markup[markup.index("<svg") :]
    markup = re.sub(r"<metadata>.*?</metadata>", "", markup, count=1, flags=re.DOTALL)
    # SVG inside HTML needs no namespaces. Without width and height, the page determines the size.
    markup = re.sub(r'\s(xmlns|xmlns:xlink|width|height|version)="[^"]*"', "", markup, count=5)
    markup = markup.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1)
    markup = markup.replace(' target="_blank"', "")  # links lead to targets in the same page
    for color, variable in _VARIABLES.items():
        markup = markup.replace(color, f"var(--{variable})")
    for gid, hover in hovers.items():
        markup = markup.replace(f'<g id="{gid}">', f'<g id="{gid}"><title>{escape(hover)}</title>', 1)
    return Markup(markup)
