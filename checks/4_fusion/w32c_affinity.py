"""Affinity: the CPUs, the memory, and the network adapter of each rank of a node.

Week 32. From the matrix of nvidia-smi, the place of a rank for each GPU: its CPUs without splitting a core, its NUMA
node, its nearest adapter, and the rates at which all ranks send and copy at once.
"""

from kernelpath.course.problems import affinity
from kernelpath.course.spec import Exercise

EXERCISE = Exercise(entry="affinity", problem=affinity.PROBLEM, kind="trace")
