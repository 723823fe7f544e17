"""Top-p: sample from the nucleus of each row of logits, without a sort.

Week 25. Temperature, top-k, and top-p as a selection by digits, then a scan that stops at a given random number.
"""

from kernelpath.course.problems import top_p
from kernelpath.course.problems.top_p import case
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="top_p",
    problem=top_p.PROBLEM,
    aligned=True,
    any_size=False,
    bench=case(1024, 128_256),  # 525 MB
    sweep=(case(1, 128_256), case(16, 128_256)),
    baseline=top_p.eager,
    # On an H200, the answer has 0.75 (0.741 to 0.752) of the speed of PyTorch's sort, because atomics contend for few
    # addresses in the first pass. The expert kernel has 27.0 (26.9 to 27.1), and the third star takes 0.9 of its speed.
    min_speedup=0.65,
    # A maximum, a digit, and the candidates read the row three times, and a maximum, four digits of 8 bits, and a scan
    # six times. With one read per bit, it is at least 34 times. A sort moves keys with their tokens four times, which
    # takes 64 bytes for the 4 bytes of a logit.
    traffic=Traffic(bytes=8.0, edges=None),
    deterministic=True,
)
