"""Define the colors of all pictures and pages, and their meaning."""

from __future__ import annotations

INK = "#333333"
QUIET = "#777777"
UNUSED = "#d9d9d9"
WASTED = "#c1272d"

# The colors of the learner's kernel, the reference, the baseline and the copy, the same everywhere.
ROLES = {"yours": "#c03a4e", "reference": "#1c7a4d", "baseline": "#4a6fa5", "copy": QUIET}

# matplotlib's colors that resemble no role's color.
OTHERS = ("C0", "C1", "C4", "C5", "C6", "C8", "C9", "C7")


def color(label: str, default: str = "#8fa3bf") -> str:
    """Return the color of a label that begins with a role, else `default`."""
    return next((color for role, color in ROLES.items() if label.startswith(role)), default)
