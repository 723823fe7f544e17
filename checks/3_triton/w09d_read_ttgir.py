"""Reading TTGIR: who holds which element.

Week 9. Triton's intermediate representation for eight kernels, and for modules with layouts that are drawn: how many
elements a thread holds, how many threads hold an element, and how far each conversion between layouts moves values.
"""

from kernelpath.course.problems import ttgir_facts
from kernelpath.course.spec import Exercise

EXERCISE = Exercise(entry="report", problem=ttgir_facts.PROBLEM, kind="trace")
