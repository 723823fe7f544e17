"""Compile CUDA C++ programs with their host code; see `warpcheck.frontends.host_program`."""

from warpcheck.frontends.host_program import *  # noqa: F403
