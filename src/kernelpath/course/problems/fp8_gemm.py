"""fp8_matmul with scales of blocks alone, for matrices whose rows are multiples of 16 bytes, as TMA takes them."""

from __future__ import annotations

from dataclasses import replace

from kernelpath.course.problems import fp8_matmul


def case(m: int, n: int, k: int) -> dict[str, int | str]:
    return fp8_matmul.case(m, n, k, "block")


PROBLEM = replace(
    fp8_matmul.PROBLEM,
    # Tiles are 64 to 256 wide and 128 deep, in rings of up to 6 stages. Blocks of scales are partial along k and n.
    cases=(
        case(1, 8, 16),
        case(20, 24, 2080),  # 17 blocks: more than any ring has stages, and sums that 14 bits do not hold
        case(300, 264, 400),
    ),
    vary=("m",),
    far=(),
    limits=(case(1_037, 8, 16), case(8, 1_032, 16)),
    gpu_limits=(case(65_537, 8, 16),),
)
