"""Load CUDA C++ kernels from `.cu` files; see `warpcheck.frontends.cuda`."""

from warpcheck.frontends.cuda import *  # noqa: F403
