"""Strided copy: choose the axis that the lanes run along.

Week 9. out = x, contiguous, for a view of three dimensions with any strides: transposed, sliced, repeated.
"""

from itertools import product

from kernelpath.course.problems import strided_copy
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="strided_copy",
    problem=strided_copy.PROBLEM,
    bench=strided_copy.case("transposed", 1, 16_384, 16_384),  # 1 GiB each way
    sweep=tuple(
        strided_copy.case(view, *shape, dtype)
        for dtype, view, shape in product(
            ("float32", "bfloat16"), strided_copy.EVERYDAY, ((1, 8192, 8192), (64, 1024, 1024), (32, 1024, 2001))
        )
    ),
    baseline=strided_copy.reference,
    min_speedup=2.5,  # on an H200 the reference kernel reaches 3.6, tiles of 32 x 32 reach 3.2, one index 0.97
    # The largest cases repeat planes, rows and columns, which are not to be loaded again. Elsewhere half of the sectors
    # may be scattered: a compiler that stores four elements per thread also loads four, one by one where x begins at no
    # multiple of 16.
    traffic=Traffic(sectors=1.3, bytes=1.3, large=0.4, edges=0.5),
)
