"""Checkpoint 3: what Triton decides for you, and what it doesn't."""

from math import exp, log

from kernelpath.course.checkpoint import Checkpoint, Numbers
from kernelpath.course.problems import operator_twists


def power_of_two(number: int) -> int:
    """Return the smallest power of two that is at least `number`."""
    return 1 << (number - 1).bit_length()


def merged(first: int, mean: float, second: int, other: float) -> dict[str, float]:
    """Merge two parts of a row: return the mean, and the term that is added to the sums of squared deviations."""
    both = first + second
    gained = (mean - other) ** 2 * first * second / both
    return {"both": both, "merged": round((first * mean + second * other) / both, 4), "gained": round(gained, 3)}


def wave(across: int, group: int) -> dict[str, float]:
    """Return the tiles of A and B that a wave of 128 programs needs, in row-major and in grouped order."""
    plain = 128 // across + across
    grouped = group + 128 // group
    return {"plain": plain, "columns": 128 // group, "grouped": grouped, "factor": round(plain / grouped, 3)}


def tail(rows: int, columns: int) -> dict[str, float]:
    tiles = rows * columns
    waves = -(-tiles // 132)
    return {"tiles": tiles, "waves": waves, "busy": round(100 * tiles / (132 * waves), 2)}


NUMBERS = {
    "implicit_gemm": Numbers(
        {"images": (8, 32), "side": (14, 56), "filter": (3, 5, 7), "channels": (32, 48, 64, 96)},
        lambda images, side, filter, channels: {"taps": filter * filter, "length": channels * filter * filter},
    ),
    "quantized_bytes": Numbers(
        {"megavalues": range(16, 144, 16)},
        lambda megavalues: {"eager": 9, "saved": 6 * megavalues},
    ),
    "owned": Numbers(
        {"block": (512, 1024, 2048, 4096), "warps": (2, 4, 8)},
        lambda block, warps: {"threads": 32 * warps, "elements": block // (32 * warps)},
    ),
    "masked": Numbers(
        {"columns": (100, 600, 1000, 1100, 1500, 3000, 5000, 12_000)},
        lambda columns: (
            {"block": power_of_two(columns)} | {"share": round(100 - 100 * columns / power_of_two(columns), 2)}
        ),
    ),
    "tuning_time": Numbers(
        {"configurations": (8, 12, 24, 40), "sizes": (3, 5, 8), "compile": (0.5, 0.8, 1.5), "trial": (100, 200)},
        lambda configurations, sizes, compile, trial: (
            {"seconds": configurations * (compile + sizes * trial / 1000)}
            | {"compiling": configurations * compile, "trying": configurations * sizes * trial / 1000}
        ),
    ),
    "broadcast_bytes": Numbers(
        {"rows": (1024, 2048, 4096, 8192), "columns": (512, 4096)},
        lambda rows, columns: (
            {"megabytes": round((4 * rows * columns + 4 * columns) / 1e6, 3)}
            | {"naive": round(8 * rows * columns / 1e6, 3)}
        ),
    ),
    "row_registers": Numbers(
        {"columns": (3000, 5000, 6000, 10_000, 20_000), "warps": (4, 8, 16)},
        lambda columns, warps: ({"block": power_of_two(columns), "registers": power_of_two(columns) // (32 * warps)}),
        unless=lambda columns, warps: power_of_two(columns) // (32 * warps) > 200,
    ),
    "welford": Numbers(
        {"first": (10, 100, 300), "mean": (2.0, 5.0), "second": (30, 60), "other": (1.0, 3.5)},
        merged,
    ),
    "stripes": Numbers(
        {"stripes": (132, 264, 528), "columns": (1024, 4096, 8192)},
        lambda stripes, columns: {"megabytes": round(16 * stripes * columns / 1e6, 3)},
    ),
    "backward_bytes": Numbers(
        {"rows": (8192, 16_384, 32_768), "columns": (1024, 4096), "bandwidth": (2000, 4000)},
        lambda rows, columns, bandwidth: (
            {"megabytes": round(6 * rows * columns / 1e6, 1)}
            | {"microseconds": round(6 * rows * columns / bandwidth / 1e3, 2)}
        ),
    ),
    "intensity": Numbers(
        {"rows": (32, 64, 128, 256), "columns": (64, 128, 256)},
        lambda rows, columns: {"operations": round(rows * columns / (rows + columns), 3)},
    ),
    "wave": Numbers({"across": (8, 32, 64, 128), "group": (4, 8, 16)}, wave),
    "tile_ring": Numbers(
        {"rows": (64, 128), "columns": (128, 256), "depth": (32, 64, 128), "stages": (2, 3, 4)},
        lambda rows, columns, depth, stages: {"kibibytes": stages * (rows + columns) * depth * 2 / 1024},
    ),
    "tail": Numbers({"rows": (10, 12, 16, 20), "columns": (14, 17, 20, 24)}, tail),
    "int8_sum": Numbers(
        {"depth": (60, 100, 500, 1000, 2000, 4000, 9000, 17_000, 40_000)},
        lambda depth: {"largest": depth * 128 * 128, "bits": (depth * 128 * 128).bit_length()},
    ),
    "scores": Numbers(
        {"batch": (1, 2, 4), "heads": (16, 32), "tokens": (4096, 8192, 16_384)},
        lambda batch, heads, tokens: (
            {"scores": round(2 * batch * heads * tokens**2 / 1e9, 3)}
            | {"others": round(8 * batch * heads * tokens * 128 / 1e6, 1)}
        ),
    ),
    "causal": Numbers(
        {"blocks": (4, 6, 8, 10, 16, 20, 24, 32)},
        lambda blocks: (
            {"computed": blocks * (blocks + 1) // 2, "all": blocks**2} | {"share": round(50 * (blocks + 1) / blocks, 3)}
        ),
    ),
    "rescaled": Numbers(
        {"sum": (3.0, 8.0, 20.0), "before": (1, 2), "after": (3, 4, 6)},
        lambda sum, before, after: {"rescaled": round(sum * exp(before - after), 5)},
    ),
    "base_two": Numbers(
        {"maximum": (2.0, 5.0, 9.0), "sum": (1.5, 4.0, 30.0)},
        lambda maximum, sum: {"lse": round(maximum * log(2) + log(sum), 4)},
    ),
    "key_head": Numbers(
        {"heads": (32, 64), "kv_heads": (4, 8), "head": (5, 13, 22, 30)},
        lambda heads, kv_heads, head: ({"group": heads // kv_heads, "key": head // (heads // kv_heads)}),
    ),
    "backward_work": Numbers(
        {"forward": (0.4, 0.8, 1.6), "rate": (0.6, 0.7, 0.8)},
        lambda forward, rate: {"milliseconds": round(2.5 * forward / rate, 4), "percent": round(100 * rate)},
    ),
}

CHECKPOINT = Checkpoint(
    deliverable="fused_softmax", variants=operator_twists.TWISTS, numbers=NUMBERS, faults=3, pictures=2
)
