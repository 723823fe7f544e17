"""Wait for an event in another process."""

from __future__ import annotations

import time
from collections.abc import Callable

# Seconds that a test waits for an event. Only a test that fails waits this long, so a loaded machine fails no test.
PATIENCE = 60.0


def happens(event: Callable[[], bool]) -> bool:
    """Return whether the event happens within PATIENCE."""
    end = time.monotonic() + PATIENCE
    while not event() and time.monotonic() < end:
        time.sleep(0.02)
    return event()
