"""Write kernels in the CuTe DSL; see `warpcheck.frontends.cute`."""

from warpcheck.frontends.cute import *  # noqa: F403
