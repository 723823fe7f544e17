"""Compute answers to predictions that are pure arithmetic, so that no cell shows its formula beside the guess.

Everything that can be counted or measured is. These few cannot, and the text after each prediction derives them.
"""

from __future__ import annotations

from collections.abc import Sequence

FLOAT_BYTES = 4
WARP = 32


def threads_in_flight(bandwidth: float, latency: float, bytes_each: float) -> float:
    """Return the number of threads with `bytes_each` bytes in flight that keep memory busy (Little's law).

    The bandwidth is in bytes per second, the latency in seconds.
    """
    return bandwidth * latency / bytes_each


def bytes_per_thread(bandwidth: float, latency: float, threads: int) -> float:
    """Return the bytes that each thread of a copy has to load before it waits: half of the traffic is loads."""
    return bandwidth / 2 * latency / threads


def compute_bound_from(ridge: float) -> int:
    """Return the least n whose float32 GEMM of n x n matrices has an intensity (compulsory bytes) of `ridge`."""
    n = 1
    while product_intensity(n) < ridge:
        n += 1
    return n


def product_intensity(n: int) -> float:
    """Return the operations per compulsory byte of a float32 GEMM of n x n matrices."""
    return 2 * n**3 / (3 * n**2 * FLOAT_BYTES)


def product_bytes(n: int, tile: int) -> float:
    """Return the bytes that a tiled n x n float32 GEMM requests: the loads of A and B, and the stores of C."""
    return 2 * n**3 / tile * FLOAT_BYTES + n**2 * FLOAT_BYTES


def share_of_peak(wavefronts: float, multiply_adds: float = 4) -> float:
    """Return the share of the peak if each multiply-add of a warp needs `wavefronts`, and an SM serves one per cycle.

    Args:
        multiply_adds: The warp-wide multiply-adds that an SM executes per cycle.
    """
    return 1 / (wavefronts * multiply_adds)


def reads_per_multiply_add(side: int) -> float:
    """Return the shared-memory reads per multiply-add of a thread with side x side outputs of a GEMM."""
    return (side + side) / side**2


def padded_work(n: int, tile: int) -> float:
    """Return the work of an n x n x n GEMM in whole tiles, over the work of its own multiply-adds."""
    return (-(-n // tile) * tile / n) ** 3


def masked_share(columns: int) -> float:
    """Return the masked share of a block, if the block is the next power of two above `columns`."""
    return 1 - columns / (1 << (columns - 1).bit_length())


def values_per_thread(columns: int, warps: int) -> float:
    """Return the number of values of a row that each thread holds if `warps` warps hold the row."""
    return columns / (WARP * warps)


def speedup(before: float, after: float) -> float:
    """Return the speedup if time is proportional to the traffic."""
    return before / after


def fused_gain(operations: float, readers: int, bandwidth: float, rate: float) -> float:
    """Return the speedup if every reader recomputes a 4-byte value that one kernel stored for all readers before.

    Args:
        bandwidth: Bytes per second.
        rate: Operations per second.
    """
    unfused_seconds = operations / rate + (1 + readers) * FLOAT_BYTES / bandwidth
    return unfused_seconds / (readers * operations / rate)


def break_even(readers: int, bandwidth: float, rate: float) -> float:
    """Return the operations at which `fused_gain` is 1: the bytes saved take as long as the repeated operations."""
    return (1 + readers) * FLOAT_BYTES / bandwidth * rate / (readers - 1)


def order_of_tiles(down: int, across: int, group: int) -> list[int]:
    """Return the tile of each program, numbered by rows. Programs go down `group` rows before the next column."""
    tiles = []
    for first in range(0, down, group):
        rows = range(first, min(first + group, down))
        tiles += [row * across + column for column in range(across) for row in rows]
    return tiles


def panels(tiles: Sequence[int], across: int) -> tuple[int, int]:
    """Return the number of rows and of columns that the tiles cover, which is what they need of a and of b."""
    return len({tile // across for tile in tiles}), len({tile % across for tile in tiles})


def tail_share(tiles: int, multiprocessors: int) -> float:
    """Return the average share of busy multiprocessors, if each takes one tile at a time and all take equally long."""
    return tiles / (-(-tiles // multiprocessors) * multiprocessors)


# Answers that follow from an argument, and not from a formula; the text after the prediction gives the argument.
CHOICES = {
    "week11/order": 2,
    "week15/extra_bytes": 0,
    "week21/plain_groups": 1,
    "week31/mmas_ahead": 16,
    "week33/norm_operations": 4,
}


def tile_kib(m: int, n: int, k: int, rows: int, columns: int) -> float:
    """Return the KiB of bfloat16 that the tiles of a GEMM load, each its rows of a and its rows of b."""
    tiles = -(-m // rows) * -(-n // columns)
    return 2 * tiles * (rows + columns) * k / 1024


def exponentials(rows: int, tiles: int, each: int) -> int:
    """Return the exponentials of a block's rows, of which each has so many in each tile of keys."""
    return rows * tiles * each


def time_after(total: float, part: float, factor: float) -> float:
    """Return the time of a step in which a part becomes faster by a factor (Amdahl's law)."""
    return total - part + part / factor


def tree_barriers(threads: int) -> int:
    """Return the barriers of a sum over a block by halves: one after the loads, and one after each step."""
    return 1 + threads.bit_length() - 1


def share_of_additions(blocks: int, bins: int, elements: int) -> float:
    """Return the additions to global memory per element of a histogram whose blocks add their counts at the end."""
    return blocks * bins / elements


def counters_kib(bins: int, bits: int) -> float:
    """Return the KiB of a block's counters."""
    return bins * bits / 8 / 1024


def blocks_of_counters(bins: int, bits: int) -> int:
    """Return the blocks whose counters fit on an SM of an H200, which has 228 KiB and takes 1 KiB for each block."""
    return int(228 // (counters_kib(bins, bits) + 1))


def tile_cycles(rows: int, columns: int, depth: int) -> float:
    """Return the cycles in which an SM does the multiply-adds of a tile on its CUDA cores: 128 in each."""
    return rows * columns * depth / 128


def mma_cycles(rows: int, columns: int, depth: int) -> float:
    """Return the cycles of a tile by mma.sync of 16 x 8 x 16: four at a time on an SM, in 6.0 cycles (week 8)."""
    return rows * columns * depth / (16 * 8 * 16) / 4 * 6.0


def stages_for(latency: float, cycles: float, in_use: int) -> int:
    """Return the stages that hide a latency behind iterations of `cycles`, beside those in use."""
    return int(in_use + -(-latency // cycles))


def mma_over_ffma() -> float:
    """Return the operations of an mma.sync of 16 x 8 x 16 over those of a warp's FFMA."""
    return 2 * 16 * 8 * 16 / (2 * WARP)


def mma_busy(rows: int, columns: int) -> float:
    """Return the cycles of shared memory over those of the tensor cores for rows x columns accumulators per warp.

    In 16 steps along k, a warp reads 32 bytes of each row and column, 128 of them per cycle.
    """
    return 32 * (rows + columns) / 128 / (rows * columns / 128 * 6.0 / 4)


def stages_that_fit(rows: int, columns: int, depth: int, kib: int = 227) -> int:
    """Return the stages of 2-byte tiles of a and b that fit into a block's shared memory."""
    return kib * 1024 // (2 * depth * (rows + columns))


def products_in_int32(factor: int) -> int:
    """Return the number of squares of `factor` whose sum an int32 always holds."""
    return (2**31 - 1) // factor**2


def gemm_intensity(size: int, width: int) -> float:
    """Return the operations per byte of a square GEMM with operands of `width` bytes and outputs of 2."""
    return 2 * size**3 / (2 * size**2 * width + 2 * size**2)


def promotion(depth: int) -> tuple[float, float]:
    """Return the tensor cores' multiply-adds for each promotion of an accumulator, and the promotions' share of time.

    An SM of an H200 does 4096 multiply-adds on its tensor cores and 128 on its CUDA cores per cycle.
    """
    tensor_cores = depth / 4096
    cuda_cores = 1 / 128
    return depth, cuda_cores / (tensor_cores + cuda_cores)


def attention_trips(tokens: int, head: int) -> float:
    """Return the bytes of four trips of an n x n matrix over those of q, k, v and out."""
    return 4 * tokens**2 / (4 * tokens * head)


def scores_terabytes(heads: int, tokens: int) -> float:
    """Return the TB of all scores in 2 bytes each."""
    return heads * tokens**2 * 2 / 1e12


def fewer_accesses(side: int) -> float:
    """Return the accesses of one element each over those of `side` elements each, for a square through registers."""
    return side * side / side


def balanced_side(multiply_adds: float, bandwidth: float) -> float:
    """Return the side of a square tile whose float32 operands take as long to load as its products to compute."""
    return 8 * multiply_adds / bandwidth


def padded_stages_kib(stages: int, depth: int, rows: int, columns: int, padding: int) -> float:
    """Return the KiB of float32 stages whose rows of a are padded."""
    return stages * depth * (rows + padding + columns) * FLOAT_BYTES / 1024


def useful_share(size: int, tile: int, depth: int) -> float:
    """Return the share of the multiply-adds of whole tiles that a GEMM of this size needs."""
    padded = -(-size // tile) * tile
    deep = -(-size // depth) * depth
    return size**3 / (padded**2 * deep)


def ldmatrix_bytes(side: int, warps: int) -> int:
    """Return the bytes that warps load of two square 2-byte tiles: each its rows of a, and all of b."""
    return 2 * (side * side + warps * side * side)


def fresh_stages(stages: int, boxes: int) -> int:
    """Return the waits of a producer that find a stage which no consumer has used yet."""
    return min(stages, boxes)


def attention_cycles(queries: int, keys: int, head: int) -> float:
    """Return the cycles of both GEMMs of a tile of attention on an SM's tensor cores, 4096 operations in each."""
    return 2 * 2 * queries * keys * head / 4096


def exponential_cycles(queries: int, keys: int) -> float:
    """Return the cycles of the exponentials of a tile of attention: 16 in each on an SM."""
    return queries * keys / 16


def accumulator_place(register: int) -> tuple[int, int]:
    """Return the piece of 8 columns and the step of 16 keys of a register of scores that wgmma left in a thread."""
    return register // 4, register // 8


def pipeline_place(number: int, stages: int) -> tuple[int, int]:
    """Return the stage of a tile by its number, and the parity of its phase."""
    return number % stages, number // stages % 2


def causal_tiles(tokens: int, side: int) -> tuple[float, float]:
    """Return the scores of the visited tiles over those below the diagonal, and the share of tiles with a mask."""
    blocks = tokens // side
    visited = blocks * (blocks + 1) // 2
    return visited * side**2 / (tokens * (tokens + 1) // 2), blocks / visited


def turns_waited(tiles: int) -> int:
    """Return the waits of a consumer for its turn, which its last tile needs no more."""
    return tiles - 1


def instructions_per_element(bits: float) -> float:
    """Return the lane-instructions that an H200 has time for while it reads an element of `bits` bits.

    Its 132 SMs execute 128 of them per cycle at 1.7 GHz, and memory delivers 4.5 TB/s.
    """
    return 132 * 128 * 1.7e9 / (4.5e12 * 8 / bits)


def bits_per_weight(group: int, scale: int, zero: int) -> float:
    """Return the bits of a 4-bit weight with its share of the scale and the zero point of its group, in bits."""
    return 4 + (scale + zero) / group


def cached_tokens(memory: float, layers: int, kv_heads: int, head: int, element: int) -> float:
    """Return the tokens whose keys and values fit in `memory` bytes, with `element` bytes each."""
    return memory / (2 * layers * kv_heads * head * element)


def cache_bytes(heads: int, key: int, value: int, element: int = 2) -> int:
    """Return the bytes that a token takes in a layer's cache, with `key` and `value` columns for each head."""
    return element * heads * (key + value)


def tokens_with_equal_bytes(hidden: int, weight: int, logit: int) -> float:
    """Return the tokens whose logits take as many bytes as the vocabulary matrix, for any number of classes.

    Args:
        hidden: The columns of the matrix.
        weight: The bytes of an element of the matrix.
        logit: The bytes of a logit.
    """
    return weight * hidden / logit


def grpo_bytes(one_pass: float, tokens: int) -> tuple[float, ...]:
    """Return the bytes per token of four ways to divide GRPO's gradients by a count of the mask, one byte per token.

    Args:
        one_pass: The bytes per token of a pass that has the divisor.
        tokens: The tokens of the batch, in blocks of 1,024.
    """
    count_first = one_pass + 1
    divide_afterwards = one_pass + 2 * FLOAT_BYTES
    # The second kernel loads everything again. Each gradient is stored once.
    two_kernels = 2 * one_pass - FLOAT_BYTES
    count_in_each_block = one_pass + -(-tokens // 1024)
    return count_first, divide_afterwards, two_kernels, count_in_each_block


def chunked_loss_bytes(chunks: int, weights: int) -> int:
    """Return the bytes of w and dw that chunks of tokens move, if they read bfloat16 w twice and update float32 dw."""
    return chunks * (2 * 2 + 2 * 4) * weights


def bytes_of_sort(passes: int, key_bytes: int, value_bytes: int) -> float:
    """Return the bytes that the passes of a sort of pairs read and write, over those of the keys."""
    return passes * 2 * (key_bytes + value_bytes) / key_bytes


def reads_for_digits(bits: int, digit_bits: int) -> int:
    """Return the reads of a search that decides one digit of a key in each read."""
    return -(-bits // digit_bits)
