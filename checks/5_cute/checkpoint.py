"""Checkpoint 5: layouts and tensors, the three tiles, asynchronous copies and barriers, and the last 20%."""

from kernelpath.course.checkpoint import Checkpoint, Numbers
from kernelpath.course.problems import hopper_twists


def up(a: int, b: int) -> int:
    """Return the quotient, rounded up."""
    return -(-a // b)


def swizzled(row: int, column: int) -> dict[str, int]:
    """Apply Swizzle<3, 3, 3> to an element of rows of 64 elements."""
    offset = 64 * row + column
    return {"offset": offset, "place": offset ^ (offset >> 3 & 0b111_000)}


def held(lane: int, value: int) -> dict[str, int]:
    """Evaluate ((4,8),(2,2)):((32,1),(16,8)), the accumulator layout of m16n8k16."""
    offset = lane % 4 * 32 + lane // 4 + value % 2 * 16 + value // 2 * 8
    return {"offset": offset, "row": offset % 16, "column": offset // 16}


def waves(rows: int, columns: int) -> dict[str, float]:
    tiles = up(rows, 128) * up(columns, 256)
    return {"tiles": tiles, "waves": up(tiles, 132), "percent": round(100 * tiles / (132 * up(tiles, 132)), 3)}


def block_of_tile(group: int, down: int, across: int, row: int, column: int) -> dict[str, int]:
    """Return the index of a tile's block, if groups of rows of tiles are numbered column by column."""
    first = row // group * group
    height = min(group, down - first)
    before = first * across
    return {"before": before, "height": height, "within": row - first, "block": before + column * height + row - first}


def share(size: int, microseconds: int, peak: int) -> dict[str, float]:
    reached = 2 * size**3 / microseconds / 1e6
    return {"reached": round(reached, 2), "percent": round(100 * reached / peak, 3)}


def padded(rows: int, columns: int) -> dict[str, float]:
    width = max(128, 1 << (columns - 1).bit_length())
    computed = 8 * up(rows, 8) * width
    return {"computed": computed, "percent": round(100 - 100 * rows * columns / computed, 3)}


NUMBERS = {
    "layout_offset": Numbers(
        {"rows": (4, 8), "pad": (0, 1, 3), "i": (1, 2, 3), "j": (2, 5)},
        lambda rows, pad, i, j: {"stride": rows + pad, "offset": i + (rows + pad) * j},
    ),
    "cosize": Numbers(
        {"rows": (4, 6, 8), "columns": (3, 5), "stride": (9, 12)},
        lambda rows, columns, stride: (
            {"size": rows * columns, "cosize": (rows - 1) + (columns - 1) * stride + 1, "last": columns - 1}
        ),
    ),
    "composed": Numbers(
        {"rows": (4, 8), "columns": (8, 16), "i": (6, 9, 13, 22)},
        lambda rows, columns, i: ({"row": i % rows, "column": i // rows, "offset": i % rows * columns + i // rows}),
    ),
    "tiles_of": Numbers(
        {"rows": (512, 1024), "columns": (768, 2048), "tile": (64, 128), "depth": (32, 64)},
        lambda rows, columns, tile, depth: {"tiles": rows // tile * (columns // depth)},
    ),
    "swizzled_place": Numbers({"row": (1, 3, 5, 9), "column": (8, 20, 42)}, swizzled),
    "sum_held": Numbers({"lane": (2, 5, 11, 22, 30), "value": (1, 2, 3)}, held),
    "copies_each": Numbers(
        {"rows": (64, 128, 256), "depth": (32, 64, 128), "threads": (128, 256)},
        lambda rows, depth, threads: {"bytes": 2 * rows * depth, "copies": 2 * rows * depth // (16 * threads)},
    ),
    "sums_each": Numbers(
        {"rows": (64, 96, 128), "columns": (64, 128), "threads": (128, 256)},
        lambda rows, columns, threads: {"sums": rows * columns // threads},
    ),
    "tile_intensity": Numbers(
        {"rows": (64, 128, 256), "columns": (64, 128, 192, 256)},
        lambda rows, columns: {"intensity": round(rows * columns / (rows + columns), 4)},
    ),
    "edge_waste": Numbers(
        {"m": (129, 200, 1000), "n": (130, 500, 4097)},
        lambda m, n: {"percent": round(100 - 100 * m * n / (128 * up(m, 128) * 128 * up(n, 128)), 3)},
    ),
    "mma_per_stage": Numbers(
        {"rows": (32, 64), "columns": (32, 64, 128), "depth": (32, 64)},
        lambda rows, columns, depth: {"count": rows // 16 * (columns // 8) * (depth // 16)},
    ),
    "ldmatrix_per_step": Numbers(
        {"rows": (16, 32, 64, 96), "columns": (32, 64, 128)},
        lambda rows, columns: {"count": rows // 16 + columns // 16, "products": rows // 16 * columns // 8},
    ),
    "stages_that_fit": Numbers(
        {"rows": (64, 128, 256), "columns": (128, 192, 256), "depth": (32, 64)},
        lambda rows, columns, depth: (
            {"kibibytes": 2 * (rows + columns) * depth / 1024, "stages": 227 * 512 // ((rows + columns) * depth)}
        ),
    ),
    "bytes_expected": Numbers(
        {"rows": (64, 128), "columns": (128, 192, 256), "depth": (32, 64), "inside": (5, 40)},
        lambda rows, columns, depth, inside: {"bytes": 2 * (rows + columns) * depth},
    ),
    "phases_over": Numbers(
        {"step": (5, 9, 14, 23, 31), "stages": (2, 3, 4)},
        lambda step, stages: {"stage": step % stages, "phases": step // stages, "parity": step // stages % 2},
    ),
    "wgmma_per_stage": Numbers(
        {"rows": (64, 128, 256), "columns": (128, 256), "depth": (32, 64, 128)},
        lambda rows, columns, depth: {"count": rows // 64 * (depth // 16)},
    ),
    "sums_of_a_group": Numbers(
        {"rows": (64, 128), "columns": (64, 96, 128, 192, 256)},
        lambda rows, columns: {"registers": rows * columns // 128},
        unless=lambda rows, columns: rows * columns // 128 > 192,
    ),
    "block_of_a_tile": Numbers(
        {"group": (4, 8), "down": (10, 11, 13), "across": (5, 6, 9), "row": (3, 8, 9), "column": (1, 2, 4)},
        block_of_tile,
    ),
    "waves_of_tiles": Numbers({"rows": (1024, 1536, 2000, 2560, 3000), "columns": (4096, 5120, 6144)}, waves),
    "multicast": Numbers(
        {"rows": (64, 128), "columns": (128, 256), "depth": (32, 64), "blocks": (2, 4)},
        lambda rows, columns, depth, blocks: (
            {"without": 2 * blocks * (rows + columns) * depth / 1024}
            | {"kibibytes": 2 * (blocks * rows + columns) * depth / 1024}
        ),
    ),
    "registers_moved": Numbers(
        {"launched": (128, 144, 152, 160, 168), "kept": (24, 32, 40)},
        lambda launched, kept: {"pool": 3 * launched, "registers": (3 * launched - kept) // 2 // 8 * 8},
    ),
    "peak_share": Numbers(
        {"size": (4096, 8192), "microseconds": (185, 200, 220, 1500, 1600, 1700), "peak": (720, 780)},
        share,
        unless=lambda size, microseconds, peak: not 50 <= share(size, microseconds, peak)["percent"] <= 100,
    ),
    "attention_work": Numbers(
        {"batch": (2, 4), "heads": (8, 16), "tokens": (2048, 4096, 8192), "head": (64, 128)},
        lambda batch, heads, tokens, head: {"teraflop": round(2 * batch * heads * tokens**2 * head / 1e12, 5)},
    ),
    "out_of_phase": Numbers(
        {"products": (600, 800, 1000), "softmax": (350, 500, 700)},
        lambda products, softmax: {"alone": products + softmax, "speedup": round((products + softmax) / products, 4)},
        unless=lambda products, softmax: softmax > products,
    ),
    "tensor_memory": Numbers(
        {"columns": (32, 64, 96, 128, 160, 192, 224, 256)},
        lambda columns: {"kibibytes": 128 * columns * 4 / 1024},
    ),
    "padding_of_a_port": Numbers({"rows": (5, 33, 60), "columns": (100, 500, 1000, 3000)}, padded),
}

CHECKPOINT = Checkpoint(
    deliverable="persistent_gemm", variants=hopper_twists.TWISTS, numbers=NUMBERS, faults=3, pictures=2
)
