"""Reading an AMD GPU's assembly: waves, LDS, matrix instructions.

Week 24. Triton's kernels for an AMD Instinct MI300X, which need not be there: the waves and registers of a workgroup,
what its lanes load and exchange through LDS, and the operations of its matrix instructions.
"""

from kernelpath.course.problems import amdgcn_facts
from kernelpath.course.spec import Exercise

EXERCISE = Exercise(entry="report", problem=amdgcn_facts.PROBLEM, kind="trace")
