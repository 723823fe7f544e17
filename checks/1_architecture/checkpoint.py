"""Checkpoint 1: the machine, and what its memory asks of a kernel."""

from kernelpath.course.spec import Checkpoint

CHECKPOINT = Checkpoint(deliverable="matmul_tiled")
