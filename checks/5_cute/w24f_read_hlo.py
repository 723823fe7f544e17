"""Reading HLO: which kernels XLA makes of a function, and the bytes that they move.

Week 24. Optimized HLO that XLA generates for an H200, which need not be there: fusions and their kinds, library calls,
the bytes that each reads and writes, and the bytes that fusion saves.
"""

from kernelpath.course.problems import hlo_facts
from kernelpath.course.spec import Exercise

EXERCISE = Exercise(entry="report", problem=hlo_facts.PROBLEM, kind="trace")
