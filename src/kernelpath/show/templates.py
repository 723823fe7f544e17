"""Fills the HTML pages in html/. Every page stands alone: no network, no server, light and dark."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from kernelpath.course import problem
from kernelpath.show import view


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
    environment.filters |= {"seconds": view.seconds, "stars": view.stars, "arguments": problem.arguments}
    return environment
