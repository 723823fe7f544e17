"""Parallel plan: bytes, memory and time of a step on many GPUs.

Week 32. Data, sharded-data, tensor and pipeline parallelism, and tensor parallelism within nodes with data parallelism
across them, for models and clusters that are drawn. The grader simulates every message, and the submission predicts.
"""

from kernelpath.course.problems import parallel_plan
from kernelpath.course.spec import Exercise

EXERCISE = Exercise(entry="plan", problem=parallel_plan.PROBLEM, kind="trace")
