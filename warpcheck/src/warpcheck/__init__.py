"""Run and check GPU kernels on a CPU."""

__version__ = "0.1.0"
