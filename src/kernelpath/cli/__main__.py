"""Run `kp` as `python -m kernelpath.cli`."""

from __future__ import annotations

from kernelpath.cli import main

main()
