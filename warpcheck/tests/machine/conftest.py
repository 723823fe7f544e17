"""Provide fixtures for tests that run CUDA C++ on the PTX machine."""

from __future__ import annotations

import pytest

from machine import hypothesis_profiles as hypothesis_profiles  # loads the profile
from machine import launching
from machine.launching import Run


@pytest.fixture
def run() -> Run:
    """Return `launching.run`."""
    return launching.run
