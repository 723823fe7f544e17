"""Register hypothesis profiles. HYPOTHESIS_PROFILE selects the one that sets the number of examples per property."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

__all__ = ["share_of_examples"]

settings.register_profile(
    "everyday",
    max_examples=60,
    deadline=None,
    derandomize=True,  # the same examples in every run, so that only a change of the code can make a test fail
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("long", settings.get_profile("everyday"), max_examples=5000, derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "everyday"))


def share_of_examples(share: float) -> int:
    """Return a share of the profile's number of examples, for a property whose examples are expensive."""
    return max(1, round(share * settings().max_examples))
