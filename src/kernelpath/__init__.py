"""Learn GPU kernel engineering in 24 weeks: graded with a GPU or without one."""

import os

__version__ = "0.1.0"
"""Of the package and of the course in it; CHANGELOG.md says what its parts mean."""

# One variable moves both caches to another disk: that of submissions, and that of what compilers made.
if "KERNELPATH_CACHE" in os.environ:
    os.environ.setdefault("WARPCHECK_CACHE", os.environ["KERNELPATH_CACHE"])
