"""How many examples hypothesis tries of each property: HYPOTHESIS_PROFILE names the profile."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

__all__ = ["share_of_examples"]

settings.register_profile(
    "everyday",
    max_examples=60,
    deadline=None,
    derandomize=True,  # a change fails by what it changes, and not by chance
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("long", settings.get_profile("everyday"), max_examples=5000, derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "everyday"))


def share_of_examples(share: float) -> int:
    """Return a share of the examples that the profile tries, for a property whose examples are expensive."""
    return max(1, round(share * settings().max_examples))
