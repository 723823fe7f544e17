"""Checkpoint 1: the machine, and what its memory asks of a kernel."""

from kernelpath.course.spec import Checkpoint, Question

CHECKPOINT = Checkpoint(
    deliverable="matmul_tiled",
    questions={
        1: (
            Question(
                ask="Which of these is decided by the hardware and not by your launch?",
                choices=(
                    "how many threads a block has",
                    "how many threads a warp has",
                    "how many blocks the grid has",
                    "how much shared memory a block gets",
                ),
                answer="how many threads a warp has",
                why="A block is yours to shape: it is the group that shares memory and meets at a barrier. The warp is"
                " the machine's: it cuts each block into groups of 32 threads, and one instruction serves the 32 of"
                " them.",
            ),
        ),
        2: (
            Question(
                ask="What may threads of one block do together that threads of two blocks may not?",
                choices=(
                    "read the same address of global memory",
                    "wait for each other at __syncthreads()",
                    "run at the same time",
                    "run on the same multiprocessor",
                ),
                answer="wait for each other at __syncthreads()",
                why="Only the threads of a block are certain to be on the machine at the same time, on one"
                " multiprocessor. So only they can share memory on the chip and meet at its barrier. Two blocks may"
                " well run at the same time, but nothing promises it.",
            ),
            Question(
                ask="Why does staging data in shared memory make a kernel faster that reads each value many times?",
                choices=(
                    "it is larger than the L2 cache, so that more values fit into it",
                    "it is on the chip, so that each value is fetched once and reused",
                    "it needs no addresses, so that there are fewer instructions",
                    "loads from it are coalesced, whatever the lanes ask for",
                ),
                answer="it is on the chip, so that each value is fetched once and reused",
                why="It answers in tens of cycles instead of hundreds, and its bandwidth is that of all"
                " multiprocessors together. But each value has to be fetched from device memory once, so without"
                " reuse, or a change of order as in a transpose, nothing is gained.",
            ),
            Question(
                ask="A memory answers after 600 ns and moves 3,000 GB/s. How many kB (10^3 bytes) have to be under way"
                " at any moment to keep it busy?",
                answer=1800.0,
                tolerance=0.01,
                why="Little's law: what is under way is latency times bandwidth, 600e-9 s * 3e12 B/s = 1.8e6 bytes."
                " Latency says how long one load takes; bandwidth is reached only if enough loads wait at the same"
                " time.",
            ),
        ),
        3: (
            Question(
                ask="Lane k of a warp reads the float32 at word 2 * k of shared memory, which has 32 banks of 4 bytes."
                " In how many wavefronts is the request served?",
                answer=2.0,
                why="Bank = word modulo 32. Lanes k and k + 16 fall on the same bank with different words, so each"
                " bank that is used has two words to give: two wavefronts. An odd stride would take one.",
                predict=True,
            ),
            Question(
                ask="All lanes of a warp read the same word of shared memory. What does that cost?",
                choices=(
                    "32 wavefronts, as all lanes meet in one bank",
                    "one wavefront, as the word is broadcast",
                    "two wavefronts, one for each half of the warp",
                ),
                answer="one wavefront, as the word is broadcast",
                why="A conflict is different words in one bank. The same word is fetched once and given to all.",
            ),
            Question(
                ask="What does a higher occupancy give a kernel that is waiting for memory?",
                choices=(
                    "a shorter latency for each load from memory",
                    "more warps to issue from while others wait",
                    "more registers for each of its threads",
                    "fewer bytes to move",
                ),
                answer="more warps to issue from while others wait",
                why="Resident warps hide latency, they do not shorten it. It is one way to have bytes in flight; more"
                " independent loads in each thread are another, and often the better one. Past the point where memory"
                " is busy, more occupancy gains nothing.",
            ),
            Question(
                ask="A multiprocessor has 65,536 registers and room for 2,048 threads. A kernel takes 64 registers a"
                " thread and nothing else limits it. What is its occupancy, in percent?",
                answer=50.0,
                why="65,536 / 64 = 1,024 threads fit, half of 2,048.",
            ),
            Question(
                ask="You time a kernel by reading the host's clock before and after the launch, and nothing else. What"
                " do you measure?",
                choices=(
                    "the time of the kernel, without its launch",
                    "the time to hand the launch to the driver",
                    "the time of the kernel and of the copy back",
                ),
                answer="the time to hand the launch to the driver",
                why="A launch returns at once. Synchronize before both readings of the clock, or record events on the"
                " stream.",
            ),
        ),
        4: (
            Question(
                ask="Two square float32 matrices are multiplied with tiles of 32 x 32 in shared memory. In the"
                " formula, each multiply-add loads two floats from device memory. By which factor do these loads fall?",
                answer=32.0,
                why="Each value that a block fetches is used by 32 threads of it: a row of the first tile by 32"
                " columns, a column of the second by 32 rows. The loads in the formula fall by the width of the tile."
                " (A warp of the naive kernel shares its element of the first matrix, so against that kernel it is"
                " less.)",
            ),
        ),
    },
)
