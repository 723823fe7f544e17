"""Learn GPU kernel engineering in 24 weeks: graded with a GPU or without one."""

import os

# Of the package and of the course in it; CHANGELOG.md says what its parts mean.
__version__ = "0.1.0"

# One variable moves both caches to another disk: the cache of submissions and the cache of compiled kernels.
if "KERNELPATH_CACHE" in os.environ:
    os.environ.setdefault("WARPCHECK_CACHE", os.environ["KERNELPATH_CACHE"])
