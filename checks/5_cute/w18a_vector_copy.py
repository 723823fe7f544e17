"""A vector copy: a thread-value layout and 16-byte accesses.

Week 18. A copy of a contiguous float32 or bfloat16 vector of any length, which may begin anywhere in its storage.
"""

import torch

from kernelpath.course import draw
from kernelpath.course.spec import EXACT, Exercise, Question, Traffic

BYTES = {"float32": 4, "bfloat16": 2}


def inputs(rng: torch.Generator, n: int, offset: int, dtype: str) -> tuple[torch.Tensor]:
    """A vector of n elements that begins `offset` elements into its storage."""
    return (draw.normal(rng, n + offset, dtype=dtype)[offset:],)


EXERCISE = Exercise(
    entry="vector_copy",
    inputs=inputs,
    cases=(
        {"n": 1, "offset": 0, "dtype": "float32"},
        {"n": 1023, "offset": 0, "dtype": "float32"},
        {"n": 1024, "offset": 0, "dtype": "float32"},
        {"n": 1025, "offset": 0, "dtype": "float32"},
        {"n": 4099, "offset": 1, "dtype": "float32"},
        {"n": 10_007, "offset": 3, "dtype": "bfloat16"},
        {"n": 10_007, "offset": 8, "dtype": "bfloat16"},
        {"n": 100_003, "offset": 0, "dtype": "bfloat16"},
    ),
    vary=("n",),
    reference=torch.clone,
    tolerance={"float32": EXACT, "bfloat16": EXACT},
    bench={"n": 1 << 28, "offset": 0, "dtype": "float32"},  # 1 GiB in and 1 GiB out
    baseline=torch.clone,
    min_speedup=0.7,
    bytes_moved=lambda n, offset, dtype: 2 * BYTES[dtype] * n,
    traffic=Traffic(sectors=1.05, bytes=1.05),
    hints=(
        "First copy one element a thread: block * 256 + thread is its index, and it must be below cute.size(src)."
        " Then ask how many elements fit into 16 bytes, the widest access there is.",
        "A tile is what one block copies: 256 threads times `width` elements. Its thread-value layout is"
        " (256, width):(width, 1). cute.zipped_divide(src, (tile,)) cuts the vector into tiles, and"
        " cute.composition(one tile, layout)[thread, None] is what one thread moves.",
        "atom = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), src.element_type, num_bits_per_copy=bits);"
        " values = cute.make_rmem_tensor_like(mine); cute.copy(atom, mine, values); cute.copy(atom, values, yours)."
        " An access of 128 bits needs addresses that are multiples of 16: bits = 8 * the smaller of the two"
        " src.iterator.alignment and dst.iterator.alignment. Only a block whose tile is full may do this; the last"
        " one compares each index with the size.",
    ),
    questions=(
        Question(
            ask="How many 32-byte sectors does an aligned 16-byte load by all 32 lanes of a warp touch?",
            answer=16.0,
            why="32 * 16 bytes are 512 contiguous bytes: 16 sectors, all of them used. With 4-byte loads it is 4.",
        ),
        Question(
            ask="The layout (256,4):(4,1) deals a tile of 1024 elements out to 256 threads. Which element is value 2 of"
            " thread 5?",
            answer=22.0,
            why="5 * 4 + 2 * 1 = 22.",
        ),
        Question(
            ask="A float32 vector x begins at a multiple of 256 bytes. What is the widest access, in bytes, that may"
            " load x[1:] from its first element on?",
            answer=4.0,
            why="Its address is 4 beyond a multiple of 256. An access must be aligned to its size: 8 and 16 fault.",
        ),
        Question(
            ask="Memory delivers 4.3 TB/s after 0.8 microseconds. How many KB must each of 132 multiprocessors have"
            " in flight (10^3 bytes)?",
            answer=26.0,
            tolerance=0.03,
            why="Little's law: 4.3e12 * 0.8e-6 = 3.44 MB in flight, 26 KB for each. 2048 threads with one 16-byte load"
            " each are 33 KB; with 4-byte loads they would be 8 KB.",
            predict=True,
        ),
    ),
    explain="A copy has nothing to compute, so it shows what the memory can do, and every kernel that only streams"
    " should come close to it. What is left to try: several loads a thread (slower on an H200, but of use where few"
    " threads fit on a multiprocessor), hints that keep a stream out of the caches, and on Hopper bulk copies by the"
    " TMA unit, where one thread moves kilobytes and no register is used (week 21). What the tile is, who moves which"
    " part of it and with which instruction stand in three separate places here. Every CuTe kernel is built so, up to"
    " the fastest matrix product: only the layouts and the atoms change.",
)
