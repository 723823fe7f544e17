"""Reading Inductor: what torch.compile fused, and why.

Week 13. Inductor's code for five functions, and for others that are drawn: graphs, kernels, operators, intermediate
tensors. Then a function of two graphs and five kernels becomes one kernel, which the compiler itself decides.
"""

from kernelpath.course.problems import inductor_facts
from kernelpath.course.spec import Exercise

EXERCISE = Exercise(entry="report", problem=inductor_facts.PROBLEM, kind="trace")
