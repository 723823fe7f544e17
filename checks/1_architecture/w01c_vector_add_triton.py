"""Vector addition in Triton: a program works on a block of elements.

Week 1. out = x + y for float32 vectors of any length, contiguous but not always aligned to 16 bytes.
"""

import torch

from kernelpath.course import draw
from kernelpath.course.spec import Exercise, Question, Tolerance, Traffic


def inputs(rng: torch.Generator, n: int, offset: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Two vectors of n elements: x begins `offset` elements into its storage, y twice as far into its own."""
    x, y = draw.normal(rng, n + offset), draw.normal(rng, n + 2 * offset)
    return x[offset:], y[2 * offset :]


def reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.double() + y.double()


EXERCISE = Exercise(
    entry="vector_add",
    inputs=inputs,
    cases=(
        {"n": 1, "offset": 0},
        {"n": 1023, "offset": 0},
        {"n": 1024, "offset": 0},
        {"n": 1025, "offset": 0},
        {"n": 10_007, "offset": 1},
        {"n": 131_072, "offset": 0},
    ),
    vary=("n",),
    reference=reference,
    # As in vector_add: one rounding is 2^-24 at most, and TF32 misses by 1.4e-4 in the median.
    tolerance={"float32": Tolerance(rtol=6.0e-8, atol=0.0)},
    bench={"n": 1 << 26, "offset": 0},  # 256 MiB a vector, 13 times the L2 of an H200 in all
    baseline=torch.add,
    min_speedup=0.7,
    bytes_moved=lambda n, offset: 12 * n,
    flops=lambda n, offset: n,
    traffic=Traffic(sectors=1.3, bytes=1.3),
    hints=(
        "There are no threads in this kernel. A program has a number, tl.program_id(0), and works on BLOCK elements at"
        " once. Which ones are its own?",
        "offsets = program * BLOCK + tl.arange(0, BLOCK) is a block of BLOCK indices. The last program reaches past the"
        " end, so load and store take a mask: which of the offsets lie inside?",
        "`offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK); inside = offsets < n;"
        " total = tl.load(x + offsets, mask=inside) + tl.load(y + offsets, mask=inside);"
        " tl.store(out + offsets, total, mask=inside)`."
        " Launch: `vector_add_blocks[triton.cdiv(n, BLOCK),](x, y, out, n, BLOCK)`.",
    ),
    questions=(
        Question(
            ask="BLOCK is 1024 and num_warps is 4. How many elements does one thread add?",
            answer=8.0,
            why="4 warps are 128 threads, and 1024 / 128 = 8. Triton deals them out as two groups of four neighbours,"
            " because four float32 make one access of 16 bytes.",
        ),
        Question(
            ask="n = 1000 and BLOCK = 1024: what do the 24 masked elements of a load cost?",
            choices=(
                "24 * 4 bytes of traffic for each vector",
                "no traffic, as masked lanes ask for nothing",
                "a second program, for the last elements",
            ),
            answer="no traffic, as masked lanes ask for nothing",
            why="A mask becomes a predicate on the load instruction. Memory sees only what the active lanes ask for.",
        ),
        Question(
            ask="Which of these do you choose yourself in a Triton kernel?",
            choices=(
                "which thread holds which element of a block",
                "how many elements a program works on",
                "when the threads of a program wait for each other",
            ),
            answer="how many elements a program works on",
            why="BLOCK is yours, and so is the number of warps. Triton's compiler decides which thread holds what, how"
            " wide the accesses are, and where barriers go.",
        ),
        Question(
            ask="By which factor is this Triton kernel faster or slower than a good CUDA C++ kernel, at n = 2^26? (1 is"
            " equally fast.)",
            answer=1.0,
            tolerance=0.1,
            why="Both issue the same accesses of 16 bytes, and memory decides the rest. Where a kernel only streams"
            " memory, the language does not matter.",
            predict=True,
        ),
    ),
    explain="You wrote no index of a thread, and no special case for four floats at once. Triton saw that the offsets"
    " of a block are contiguous and that the pointers are multiples of 16 (it looks at each launch, and compiles again"
    " for x[1:]), and made accesses of 16 bytes out of that. This is the bargain of the whole language: you say which"
    " block, the compiler says which thread. An expert checks that it did so: the PTX must show ld.global.v4. What"
    " remains yours is BLOCK and num_warps. Here they hardly matter once each thread has 16 bytes under way from each"
    " input; in phase 3 they decide whether a tile stays on the chip.",
)
