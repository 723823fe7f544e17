"""Learn GPU kernel engineering in 24 weeks: graded with a GPU or without one."""

__version__ = "0.1.0"
"""Of the package and of the course in it; CHANGELOG.md says what its parts mean."""
