"""Wait for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable

# Seconds that a test waits for what must happen. They pass only where it does not, so that load makes none fail.
PATIENCE = 60.0


def happens(event: Callable[[], bool]) -> bool:
    """Whether it does within PATIENCE."""
    end = time.monotonic() + PATIENCE
    while not event() and time.monotonic() < end:
        time.sleep(0.02)
    return event()
