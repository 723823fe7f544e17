"""Swizzle: spread a tile over the banks with XOR.

Week 17. Swizzle<B,M,S>, its composition with a layout, wavefronts of a request, and the choice of a swizzle for a tile.
"""

from kernelpath.course.problems import swizzles
from kernelpath.course.spec import Exercise

EXERCISE = Exercise(entry="banks", problem=swizzles.PROBLEM, kind="python", check=swizzles.complaint)
