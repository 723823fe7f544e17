"""`python -m kernelpath.cli` is `kp`."""

from __future__ import annotations

from kernelpath.cli import main

main()
