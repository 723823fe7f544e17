"""Softmax: one read and one write, with the row kept on chip.

Week 7. out[i, :] = exp(x[i, :] - max) / sum for a contiguous float32 or bfloat16 matrix, computed in float32.
"""

from kernelpath.course import sweeps
from kernelpath.course.problems import softmax
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="softmax",
    problem=softmax.PROBLEM,
    bench={"rows": 16_384, "columns": 8192, "dtype": "bfloat16"},  # 512 MiB in and out, 9 times the L2 of an H200
    sweep=sweeps.rows(),
    # Not torch.softmax: on one H200 it moves 2261 GB/s at 1024 columns and 1072 at 8192. A gate that hangs on one
    # shape of one library does not carry to the next GPU; a ratio of bytes does. The formula moves 8 tensors for 2.
    baseline=softmax.unfused,
    min_speedup=5.5,  # on an H200 the baseline moves 513 GB/s of compulsory bytes, the reference kernel 4088
    arch="sm_90a",  # long rows belong to clusters of blocks
    traffic=Traffic(sectors=1.3, bank_conflicts=1.0, bytes=1.2),
)
