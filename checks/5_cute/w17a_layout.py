"""Layouts: shape and stride as functions.

Week 17. Six ways to place a matrix in memory, each as a CuTe layout; one case a layout and size.
"""

from kernelpath.course.problems import layouts
from kernelpath.course.spec import Exercise

EXERCISE = Exercise(entry="offsets", problem=layouts.PROBLEM, kind="python")
