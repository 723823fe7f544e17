"""Declare the operators, one per module, each with the `PROBLEM` that its exercises, notebooks and benchmarks share."""
