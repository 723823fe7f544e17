"""Build the search index of the pages: one script, which a page loads from its own folder without a server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from kernelpath.show import templates

_WORD = re.compile(r"[^\W_][\w.:]*\w|\w")
"""Matches a word, in which there may be dots and colons, as in cp.async."""


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
