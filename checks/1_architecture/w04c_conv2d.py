"""Convolution: a tile with a halo in two dimensions, and a filter in constant memory.

Week 4. A 5 x 5 filter over a float32 image of any size. Every thread of a warp needs the same weight at the same time.
"""

from kernelpath.course.problems import conv2d
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="conv2d",
    problem=conv2d.PROBLEM,
    bench=conv2d.case(16_384, 16_384),  # 2 GB
    sweep=(conv2d.case(2048, 2048), conv2d.case(8192, 8192), conv2d.case(4097, 4099)),
    baseline=conv2d.cudnn,
    min_speedup=20.0,  # the reference has 46 on an H200: cuDNN has no good kernel for a single channel
    # At 128 x 128 a tile of 32 x 32 with its halo moves 1.3 times the compulsory bytes, and one of 32 x 8 1.7 times,
    # since rows of the halo begin in the middle of sectors. Without a tile, L1 is asked for 13 times as much.
    # Narrow images leave a warp a few elements of each row.
    traffic=Traffic(sectors=1.6, bank_conflicts=0.5, bytes=2.0, edges=None),
)
