"""Hello, grid: every thread writes who it is.

Week 1. out[:, i] = (block, warp, lane, i) for the i-th of blocks * threads threads, in int32.
"""

import torch

from kernelpath.course.spec import EXACT, Exercise, Question, Traffic

WARP = 32


def inputs(rng: torch.Generator, blocks: int, threads: int) -> tuple[int, int, torch.device]:
    return blocks, threads, rng.device


def reference(blocks: int, threads: int, device: torch.device) -> torch.Tensor:
    index = torch.arange(blocks * threads, dtype=torch.int32, device=device)
    thread = index % threads
    return torch.stack([index // threads, thread // WARP, thread % WARP, index])


EXERCISE = Exercise(
    entry="hello_grid",
    inputs=inputs,
    cases=(
        {"blocks": 1, "threads": 1},
        {"blocks": 3, "threads": 31},
        {"blocks": 3, "threads": 32},
        {"blocks": 3, "threads": 33},
        {"blocks": 7, "threads": 80},
        {"blocks": 5, "threads": 1024},
        {"blocks": 257, "threads": 96},
    ),
    vary=("blocks", "threads"),
    reference=reference,
    tolerance={"int32": EXACT},
    bytes_moved=lambda blocks, threads: 16 * blocks * threads,
    traffic=Traffic(sectors=1.1, bytes=1.1),  # each of the four stores is coalesced
    hints=(
        "A thread is told three numbers: blockIdx.x, threadIdx.x and blockDim.x. All four answers follow from them."
        " Which of the four count inside the block, and which over the whole grid?",
        "The hardware cuts each block into warps of 32 and starts anew with the next block. So warp and lane are the"
        " quotient and the remainder of threadIdx.x by 32. The index over the whole grid is the number of threads in"
        " the blocks before this one, plus threadIdx.x.",
        "`const int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;` and then one store for each"
        " row of out: `out[i] = blockIdx.x; out[n + i] = threadIdx.x / 32; out[2 * n + i] = threadIdx.x % 32;"
        ' out[3 * n + i] = i;`. Launch: `cuda.kernel("w01a_hello_grid.cu", "hello_grid")[blocks, threads](out)`.',
    ),
    questions=(
        Question(
            ask="A grid of 10 blocks with 100 threads each: what is the index over the whole grid of thread 42 of block"
            " 3? (Both count from 0.)",
            answer=342.0,
            why="Three whole blocks of 100 come before it: 3 * 100 + 42.",
        ),
        Question(
            ask="How many warps does the hardware make of 10 blocks with 100 threads each?",
            answer=40.0,
            why="A warp never holds threads of two blocks. 100 threads are three full warps and one of 4 threads, so 4"
            " warps a block: 40. The 1000 threads would fit into 32 warps.",
            predict=True,
        ),
        Question(
            ask="In which order do the blocks of a grid run?",
            choices=(
                "from block 0 upwards, one after another",
                "in any order, some of them at the same time",
                "all of them at the same time, in step",
            ),
            answer="in any order, some of them at the same time",
            why="Blocks are handed to the multiprocessors as places become free. Nothing about their order is promised,"
            " and a large grid does not fit on the machine at once. So blocks must not wait for each other.",
        ),
    ),
    explain="You now have the coordinates that every kernel begins with. An expert reads more out of them: the lane"
    " decides which addresses a warp touches together, the warp decides what runs in step, the block decides who may"
    " share memory and wait at a barrier, and the grid is a pile of blocks in no order. Note the shape of out, too:"
    " four rows of n. Neighbouring threads write neighbouring integers, so each store of a warp fills 4 sectors of 32"
    " bytes. Had each thread written its four numbers side by side with four stores, every store would have touched 16"
    " sectors.",
)
