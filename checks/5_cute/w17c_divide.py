"""Division: tile a layout in CuTe's three forms.

Week 17. logical, zipped and tiled divide in plain Python: by a shape, by layouts for modes, by one for the whole.
"""

from kernelpath.course.problems import layout_algebra
from kernelpath.course.spec import Exercise

EXERCISE = Exercise(
    entry="divisions",
    problem=layout_algebra.DIVIDE,
    kind="python",
    without=layout_algebra.LIBRARIES,
    check=layout_algebra.complaint,
)
