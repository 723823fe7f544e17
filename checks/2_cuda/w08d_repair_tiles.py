"""Repair tiles: faulty barriers and cp.async waits in four GEMMs.

Week 8. Four kernels that somebody else wrote: tiles through registers, and tiles by cp.async in a circular buffer.
"""

from kernelpath.course.problem import Case, Tolerance
from kernelpath.course.problems import matmul
from kernelpath.course.problems.broken import broken_kernels
from kernelpath.course.spec import BrokenKernel, Exercise

REPAIRS = {
    "tile": BrokenKernel(("Race",), changes=1),
    "ring": BrokenKernel(("Race", "Uninitialized"), changes=1),
    "tail": BrokenKernel(("Uninitialized",), changes=2),
    "edge": BrokenKernel(("BarrierDivergence",), changes=1),
}


def case(kernel: str, m: int, n: int, k: int) -> Case:
    return {"kernel": kernel, "m": m, "n": n, "k": k}


EXERCISE = Exercise(
    entry="run",
    kind="repair",
    problem=broken_kernels(
        dict.fromkeys(REPAIRS, matmul.PROBLEM),
        # A k of 90 fills the circular buffer twice; 8 needs a single tile.
        cases=[case(kernel, *sizes) for kernel in REPAIRS for sizes in ((16, 48, 8), (33, 20, 90))],
        tolerance={"float32": Tolerance(rtol=1e-5, atol=1e-5)},
    ),
    repairs=REPAIRS,
    aligned=True,
    deterministic=True,
    requires=(8, 0),  # cp.async
)
