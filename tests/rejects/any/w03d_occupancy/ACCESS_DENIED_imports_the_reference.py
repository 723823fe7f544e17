"""S2: the grader's own answer, imported."""

from kernelpath.course.problems.occupancy import reference


def active_blocks(kernels, sm):
    return reference(kernels, sm)
