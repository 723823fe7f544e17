"""Route: each token's experts, their weights, and the rows sorted by expert.

Week 27. The gate of a mixture of experts: top-k and softmax of a row, then a stable counting sort on the device.
"""

from kernelpath.course.problems import moe_route
from kernelpath.course.problems.moe_route import case
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="moe_route",
    problem=moe_route.PROBLEM,
    any_size=False,
    bench=case(65_536, 256, 8, "skewed"),
    baseline=moe_route.eager,
    min_speedup=3.7,  # on an H200 the reference reaches 9.4, and its first version, with one reduction of pairs, 4.2
    traffic=Traffic(bytes=2.5, edges=None),
    deterministic=True,
)
