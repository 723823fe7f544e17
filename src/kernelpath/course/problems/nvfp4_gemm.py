"""Product of NVFP4 matrices: 4-bit numbers (e2m1), a scale (e4m3) for every 16 along k, out = a @ b.T in bfloat16.

a is uint8 (m, k / 2), with two numbers in a byte, the first in the low half; b is (n, k / 2). Scales are in the order
in which TMA and tcgen05.cp bring them to tensor memory, as cuBLAS and torch._scaled_mm require it: scale_a is
float8_e4m3fn (ceil(m / 128), k / 64, 32, 4, 4), and [i, j, r, q, s] is the scale of row 128 i + 32 q + r and of the
numbers 64 j + 16 s to 64 j + 16 s + 15 along k. Rows that a does not have have scales, too. scale_b is the same for b.
"""

from __future__ import annotations

import torch

from kernelpath.course.problem import Case, Problem, Tolerance
from kernelpath.course.problems import matmul

# The values of e2m1 by their three lowest bits; the fourth is the sign.
VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
BLOCK = 16

# The number whose value is 1.
CODE_OF_ONE = 2
Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def inputs(rng: torch.Generator, m: int, n: int, k: int) -> Inputs:
    """Return a, scale_a, b, and scale_b: all 16 numbers are equally likely, and scales are between 1/4 and 2."""
    matrices = [
        torch.randint(256, (rows, k // 2), generator=rng, device=rng.device, dtype=torch.uint8) for rows in (m, n)
    ]
    scales = [
        (1.75 * torch.rand(-(-rows // 128), k // 64, 32, 4, 4, generator=rng, device=rng.device) + 0.25).to(
            torch.float8_e4m3fn
        )
        for rows in (m, n)
    ]
    return matrices[0], scales[0], matrices[1], scales[1]


def numbers(packed: torch.Tensor) -> torch.Tensor:
    """Return the values of packed numbers, in float64."""
    values = torch.tensor((*VALUES, *(-value for value in VALUES)), dtype=torch.float64, device=packed.device)
    return values[torch.stack((packed & 15, packed >> 4), -1).flatten(1).int()]


def packed(indices: torch.Tensor) -> torch.Tensor:
    """Return numbers, given as their four bits, two to a byte."""
    return (indices[:, ::2] | indices[:, 1::2] << 4).to(torch.uint8)


def in_rows(scales: torch.Tensor, rows: int) -> torch.Tensor:
    """Return the scale of each block of a row, in float64."""
    return scales.double().permute(0, 3, 2, 1, 4).reshape(-1, scales.shape[1] * 4)[:rows]


def dequantized(matrix: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    return numbers(matrix) * in_rows(scales, len(matrix)).repeat_interleave(BLOCK, 1)


def reference(a: torch.Tensor, scale_a: torch.Tensor, b: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
    return dequantized(a, scale_a) @ dequantized(b, scale_b).T


def extreme(
    rng: torch.Generator, a: torch.Tensor, scale_a: torch.Tensor, b: torch.Tensor, scale_b: torch.Tensor
) -> None:
    """Let the second half of k cancel the first half's sum, except for one number of each row of b.

    Products are multiples of 1/4 up to 36 and all scales of a are 1, so float32 sums are exact in any order. The scales
    of b are 2 or 448, the largest, by the block of 128 rows.
    """
    k = 2 * a.shape[1]
    half = k // 2

    def random_numbers(rows: int) -> torch.Tensor:
        return torch.randint(16, (rows, half), generator=rng, device=rng.device)

    a_half, b_half = random_numbers(len(a)), random_numbers(len(b))
    back = b_half ^ 8
    back[:, -1] = CODE_OF_ONE
    a.copy_(packed(torch.cat((a_half, a_half), 1)))
    b.copy_(packed(torch.cat((b_half, back), 1)))
    scale_a.fill_(1)
    scale_b.fill_(2)
    scale_b[::2] = 448


def summed_in_halves(a: torch.Tensor, scale_a: torch.Tensor, b: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
    """Round the sum of each half of k to bfloat16."""
    a_values, b_values = dequantized(a, scale_a), dequantized(b, scale_b)
    half = a_values.shape[1] // 2
    parts = (a_values[:, :half] @ b_values[:, :half].T, a_values[:, half:] @ b_values[:, half:].T)
    return parts[0].bfloat16().double() + parts[1].bfloat16().double()


def library(a: torch.Tensor, scale_a: torch.Tensor, b: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
    """Compute the baseline: cuBLAS, which takes the scales in the same order."""
    a_values, b_values = (matrix.view(torch.float4_e2m1fn_x2) for matrix in (a, b))
    return torch._scaled_mm(a_values, b_values.t(), scale_a.flatten(), scale_b.flatten(), out_dtype=torch.bfloat16)


def case(m: int, n: int, k: int) -> Case:
    return {"m": m, "n": n, "k": k}


def compulsory_bytes(m: int, n: int, k: int) -> int:
    """Count a, b, and the scales of their rows read, and out written."""
    return (m + n) * (k // 2 + k // BLOCK) + 2 * m * n


PROBLEM = Problem(
    inputs=inputs,
    # k is a multiple of 64: the scales of 128 rows come in blocks of 4. Tiles are 64 to 256 wide and 128 or 256 deep.
    cases=(case(1, 8, 64), case(72, 264, 320), case(130, 65, 1088), case(256, 256, 1024)),
    limits=(case(1_037, 8, 64), case(8, 1_032, 64), case(8, 8, 4_160)),
    gpu_limits=(case(65_537, 8, 64),),
    vary=("m",),
    must_reach=matmul.BEYOND_A_TILE,
    reference=reference,
    extreme=extreme,
    faults={"sums rounded halfway": summed_in_halves},
    first_dtype="bfloat16",
    # As matmul_half has it: half a unit in the last place is at most 2^-8 of a bfloat16. A tensor core may sum in any
    # order and may truncate, which costs far less.
    tolerance={"bfloat16": Tolerance(rtol=1.01 * 2**-8, atol=1e-4)},
    compulsory_bytes=compulsory_bytes,
    flops=lambda m, n, k: 2 * m * n * k,
    product_dtype="float4_e2m1fn_x2",  # two numbers in a byte; the inputs have uint8
)
