"""Phrases that are translated rather than English, with what to write instead, wherever a person reads them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

_THINGS = (
    "blocks?|bytes?|columns|elements?|floats|instructions?|numbers|operations|programs|registers?|requests|rows|sectors?|"
    "tensors|threads?|values?|warps|wavefronts?"
)
_EACH = "SM|access|block|cycle|element|lane|learner|line|load|program|request|second|stage|store|thread|tile|value|warp"
_ITS_VERB = r"(?: (?:\w+s|can|had|may|must)\b)"

INSTEAD = {
    rf"\b(?<![Hh]ow many )(?:{_THINGS}) an? (?:{_EACH})\b(?!{_ITS_VERB})": "per",
    rf"\b(?:loads?|reads?|stores?) a (?:lane|thread|warp)\b(?!{_ITS_VERB})": "per",
    r"\bunder[- ]?way\b": "in flight",
    r"\b(?:in|of|per|a) ticks?\b": "cycle",
    r"\bmillion million\b": "trillion",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"\bhad back\b": "restored",
    r"\bto be had\b": "available",
    r"\banew\b": "again",
    r"\bas one speaks of\b": "as messages name",
    r"\bfor want of\b": "for lack of",
    r"\bin the place of\b": "in place of",
    r"\bsomething else than\b": "something other than",
    r"\b[Nn]eighbour|\b[Ss]ceptic|\bbehaviour|\bcolour": "the American spelling",
    r"\bis no (?:curiosity|kernelpath|matter|miracle|multiple)\b": "is not a",
    r"\bthe commonest\b": "the most common",
    r"\bstrewn\b": "scattered",
}
"""A pattern, and what to write instead."""

_READ = {
    "*.md": ("README.md", "PTX_MACHINE.md", "ATTACKS.md"),
    "checks": (".md", ".py"),
    "notebooks": (".ipynb", ".md"),
    "phases": (".py", ".cu"),
    "solutions": (".py", ".cu"),
    "src": (".py", ".html"),
    "warpcheck": (".md", ".py"),
}


def unidiomatic(root: Path) -> Iterator[str]:
    """What a reader of our texts stumbles over, with its place and what to write instead."""
    for path in _texts(root):
        for number, line in enumerate(_lines(path), start=1):
            for pattern, better in INSTEAD.items():
                if found := re.search(pattern, line):
                    yield f"{path.relative_to(root)}:{number}: {found[0]!r} is not idiomatic; write {better!r}"


def _texts(root: Path) -> Iterator[Path]:
    for folder, kinds in _READ.items():
        if folder == "*.md":
            yield from (root / name for name in kinds if (root / name).is_file())
        else:
            paths = sorted((root / folder).rglob("*"))
            yield from (path for path in paths if path.suffix in kinds and path.name != Path(__file__).name)


def _lines(path: Path) -> list[str]:
    """The lines of a text; of a notebook, those of its cells one after the other."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
    return text.splitlines()
