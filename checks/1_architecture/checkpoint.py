"""Checkpoint 1: the machine, and how a kernel should use its memory."""

from math import ceil, gcd

from kernelpath.course.checkpoint import Checkpoint, Numbers
from kernelpath.course.problems import matmul_twists


def occupancy(registers: int, block: int) -> dict[str, float]:
    """Return the occupancy of an SM with 65,536 registers and 2,048 threads, where only whole blocks are resident."""
    blocks = min(65_536 // (registers * block), 2048 // block)
    return {"percent": 100 * blocks * block / 2048, "blocks": blocks, "threads": blocks * block}


def roofline(peak: int, bandwidth: int, intensity: int) -> dict[str, str]:
    reach = intensity * bandwidth / 1000
    return {name: f"{value:g}" for name, value in (("reach", reach), ("per", peak / intensity), ("sum", peak + reach))}


NUMBERS = {
    "idle_threads": Numbers(
        {"n": range(10_100, 99_000, 1111), "block": (128, 192, 256, 384, 512)},
        lambda n, block: {"blocks": ceil(n / block), "idle": -n % block},
        unless=lambda n, block: n % block == 0,
    ),
    "grid_stride": Numbers(
        {"n": range(100_003, 900_000, 50_021), "blocks": (32, 48, 66, 132), "threads": (128, 256)},
        lambda n, blocks, threads: {"grid": blocks * threads, "steps": ceil(n / (blocks * threads))},
    ),
    "image_tile": Numbers(
        {"side": (16, 32, 64), "filter": (3, 5, 7, 9)},
        lambda side, filter: {"radius": filter // 2, "width": side + filter - 1, "elements": (side + filter - 1) ** 2},
    ),
    "constant_words": Numbers(
        {"loads": (3, 5, 10, 20), "group": (2, 4, 8, 16)},
        lambda loads, group: {"each": 32 // group, "words": loads * 32 // group},
    ),
    "in_flight": Numbers(
        {"latency": range(400, 900, 50), "bandwidth": range(1500, 5000, 250)},
        lambda latency, bandwidth: {"kilobytes": latency * bandwidth / 1000},
    ),
    "halo": Numbers(
        {"block": (128, 256, 512), "radius": range(3, 13)},
        lambda block, radius: (
            {"taps": 2 * radius + 1, "loads": block + 2 * radius}
            | {"factor": round((2 * radius + 1) * block / (block + 2 * radius), 3)}
        ),
    ),
    "sectors": Numbers(
        {"stride": (2, 3, 4, 5, 6, 7, 8, 12)},
        lambda stride: {"sectors": len({4 * stride * lane // 32 for lane in range(32)})},
    ),
    "banks": Numbers(
        {"stride": (4, 6, 8, 10, 12, 15, 18, 20, 24, 28, 33, 36, 40, 48)},
        lambda stride: {"wavefronts": gcd(stride, 32), "apart": 32 // gcd(stride, 32)},
    ),
    "occupancy": Numbers({"registers": range(40, 136, 8), "block": (128, 256, 512)}, occupancy),
    "bandwidth": Numbers(
        {"millions": range(20, 100, 7), "microseconds": range(60, 400, 35)},
        lambda millions, microseconds: {"megabytes": 8 * millions, "rate": round(8000 * millions / microseconds, 1)},
        unless=lambda millions, microseconds: not 500 < 8000 * millions / microseconds < 4500,
    ),
    "roofline": Numbers(
        {"peak": (48, 54, 60, 66), "bandwidth": (2000, 3000, 4000), "intensity": (3, 4, 5, 8)},
        roofline,
        unless=lambda peak, bandwidth, intensity: intensity**2 * bandwidth == 1000 * peak,
    ),
    "tile_of_two_sizes": Numbers(
        {"rows": (16, 24, 48, 64), "columns": (32, 40, 96, 128)},
        lambda rows, columns: {"factor": round(2 / (1 / rows + 1 / columns), 2)},
    ),
    "tile_traffic": Numbers(
        {"size": (960, 1920, 3840), "tile": (16, 24, 32, 48, 64)},
        lambda size, tile: {"blocks": size // tile, "times": round((2 * size / tile + 1) / 3, 2)},
    ),
    "outputs_per_thread": Numbers(
        {"rows": (2, 4, 6, 8), "columns": (3, 5, 10, 12)},
        lambda rows, columns: (
            {"sum": rows + columns, "product": rows * columns}
            | {"floats": round((rows + columns) / (rows * columns), 4)}
        ),
    ),
}

CHECKPOINT = Checkpoint(
    deliverable="matmul_tiled", variants=matmul_twists.TWISTS, numbers=NUMBERS, faults=3, pictures=2
)
