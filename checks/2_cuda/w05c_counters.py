"""Counters: ten facts about a kernel from four profilers.

Week 5. ncu and torch.profiler recorded the files on an H200 (results/traces/block). The SQLite database is made from
that recording to the schema of nsys, and the CSV of rocprofv3 to AMD's, with counters that are drawn: README.md there
says which.
"""

from kernelpath.course.problems import counter_facts
from kernelpath.course.spec import Exercise

EXERCISE = Exercise(entry="facts", problem=counter_facts.PROBLEM, kind="trace")
