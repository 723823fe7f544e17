"""Profile: what limits a training step, and what a fix would gain.

Week 5. The step is a transformer block in bfloat16, forward and backward, recorded on an H200 (results/traces/block) by
torch.profiler and ncu. Facts are found in every variant of the recording: other names, times, orders, counters.
`kp profile --record FILE.py` records a step of your own, and `kp check profile --trace FOLDER` grades on it.
"""

from kernelpath.course.problems import profile_report
from kernelpath.course.spec import Exercise

EXERCISE = Exercise(entry="report", problem=profile_report.PROBLEM, kind="trace")
