"""The index that the pages search: one script, which a page loads from beside itself, so that no server is needed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from kernelpath.show import templates

_WORD = re.compile(r"[^\W_][\w.:]*\w|\w")


@dataclass(frozen=True)
class Place:
    """Something that can be found: its link, what it is called, the page it is on, and its text in Markdown."""

    link: str
    title: str
    page: str
    text: str

    @property
    def words(self) -> str:
        """The words of its text, each once and in order; what the title says is not repeated."""
        return " ".join(sorted(set(_words(self.text)) - set(_words(self.title))))


def _words(text: str) -> list[str]:
    """In lower case; a name such as cp.async is one word, and so is each of its parts."""
    found = _WORD.findall(re.sub(r"\]\([^)]*\)", "]", text).lower())
    return [part for word in found for part in {word, *re.split(r"[.:_]+", word)}]


def script(places: Iterable[Place]) -> str:
    """The index and what searches it, as JavaScript."""
    entries = [[place.link, place.title, place.page, place.words] for place in places]
    return templates.render("search.js", entries=json.dumps(entries, ensure_ascii=False, separators=(",", ":")))
