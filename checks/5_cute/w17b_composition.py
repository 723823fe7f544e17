"""Composition: layouts of layouts, and their complements.

Week 17. coalesce, composition and complement in plain Python, on random layouts with modes within modes, gaps and
broadcasts, and on those where no layout is the answer.
"""

from kernelpath.course.problems import layout_algebra
from kernelpath.course.spec import Exercise

EXERCISE = Exercise(
    entry="algebra",
    problem=layout_algebra.COMPOSITION,
    kind="python",
    without=layout_algebra.LIBRARIES,
    check=layout_algebra.complaint,
)
