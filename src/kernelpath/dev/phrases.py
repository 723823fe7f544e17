"""Find phrases that are translated rather than English, in all texts that people read, and suggest replacements."""

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

# Patterns and their replacements.
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

_TEXTS_READ = {
    "*.md": ("README.md", "CONTRIBUTING.md"),
    "checks": (".md", ".py"),
    "docs": (".md",),
    "notebooks": (".ipynb", ".md"),
    "phases": (".py", ".cu"),
    "solutions": (".py", ".cu"),
    "src": (".py", ".html"),
    "warpcheck": (".md", ".py"),
}


def unidiomatic(root: Path) -> Iterator[str]:
    """Yield each unidiomatic phrase in our texts, with its place and a replacement."""
    any_phrase = re.compile("|".join(f"(?:{pattern})" for pattern in INSTEAD))
    for path in _texts(root):
        lines = _lines(path)
        # One search for all phrases takes a tenth of the time of a search for each, and few texts have any.
        if any_phrase.search("\n".join(lines)) is None:
            continue
        for number, line in enumerate(lines, start=1):
            for pattern, replacement in INSTEAD.items():
                if match := re.search(pattern, line):
                    yield f"{path.relative_to(root)}:{number}: {match[0]!r} is not idiomatic; write {replacement!r}"


def _texts(root: Path) -> Iterator[Path]:
    for folder, kinds in _TEXTS_READ.items():
        if folder == "*.md":
            yield from (root / name for name in kinds if (root / name).is_file())
        else:
            paths = sorted((root / folder).rglob("*"))
            yield from (path for path in paths if path.suffix in kinds and path.name != Path(__file__).name)


def _lines(path: Path) -> list[str]:
    """Return the lines of a text or, for a notebook, the lines of its cells one after the other."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
    return text.splitlines()
