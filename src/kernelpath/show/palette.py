"""The colors of all pictures and pages, and what they stand for."""

from __future__ import annotations

INK = "#333333"
QUIET = "#777777"
UNUSED = "#d9d9d9"
WASTED = "#c1272d"

ROLES = {"yours": "#c03a4e", "reference": "#1c7a4d", "baseline": "#4a6fa5", "copy": QUIET}
"""Yours, the reference, the baseline and the copy look the same everywhere."""

OTHERS = ("C0", "C1", "C4", "C5", "C6", "C8", "C9", "C7")
"""matplotlib's colors that look like none of the roles."""


def color(label: str, other: str = "#8fa3bf") -> str:
    """The color of a label that begins with a role. other: the color of one that does not."""
    return next((color for role, color in ROLES.items() if label.startswith(role)), other)
