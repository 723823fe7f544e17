"""Bottlenecks: replay a step, and predict what a change would gain.

Week 15. Five changes to a training step are predicted from its Chrome trace: a graph of launches, fused chains, copies
ahead of time, kernels on all multiprocessors, no waits. The truth is a simulation of host and GPU with each change.
"""

from kernelpath.course.problems import bottlenecks
from kernelpath.course.spec import Exercise

EXERCISE = Exercise(entry="report", problem=bottlenecks.PROBLEM, kind="trace")
