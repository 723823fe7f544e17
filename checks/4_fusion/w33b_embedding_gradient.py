"""Embedding gradient: add the rows of each token, with the same bits in every run.

Week 33. A scatter-add whose tokens repeat, as the words of a text do: segments of very different lengths, no atomics,
and no program that has much more work than others.
"""

from kernelpath.course.problems import embedding_gradient
from kernelpath.course.problems.embedding_gradient import case
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="embedding_gradient",
    problem=embedding_gradient.PROBLEM,
    aligned=True,
    bench=case(65_536, 128_256, 4096, "half"),
    sweep=tuple(case(65_536, 128_256, 4096, repeats) for repeats in ("few", "text", "one")),
    baseline=embedding_gradient.library,
    # On an H200, the answer has 4.20 (4.191 to 4.215). In an earlier run, pieces of 16 rows and 256 columns had 3.0,
    # and 1.2 with a join that adds one sum at a time.
    min_speedup=2.5,
    # Two float32 sums for each 16 rows, stored and loaded, add up to 0.5, and for each 64 rows to 0.13. A second read
    # of dy makes 2 and more.
    traffic=Traffic(bytes=2.5, edges=None),
    deterministic=True,
    measures_reads=True,  # graders/embedding_gradient.py limits the share of dy that one block reads
)
