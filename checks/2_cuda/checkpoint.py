"""Checkpoint 2: what limits a kernel, how you find out, and what to do about it."""

from math import ceil, exp

from kernelpath.course.checkpoint import Checkpoint, Numbers
from kernelpath.course.problems import fused_twists


def product(rows: int, width: int, bandwidth: int, peak: int) -> dict[str, float]:
    """Return the microseconds under both roofs for a bfloat16 GEMM of (rows, width) and (width, width)."""
    memory = 2 * (2 * rows * width + width * width) / bandwidth / 1e3
    arithmetic = 2 * rows * width * width / peak / 1e6
    return {"memory": round(memory, 2), "arithmetic": round(arithmetic, 2), "least": round(max(memory, arithmetic), 3)}


def resident(columns: int, threads: int, more: int) -> dict[str, int]:
    """Return the resident blocks on an SM with 65,536 registers and 2,048 threads, if each block holds a row."""
    registers = columns // threads + more
    return {"registers": registers, "blocks": min(65_536 // (registers * threads), 2048 // threads)}


def stage(rows: int, columns: int, depth: int, latency: int) -> dict[str, int]:
    cycles = rows * columns * depth // 128
    return {"cycles": cycles, "stages": ceil(latency / cycles) + 1}


NUMBERS = {
    "least_time": Numbers(
        {"inputs": (2, 3, 4), "millions": range(30, 200, 17), "bandwidth": (1900, 3200, 4500)},
        lambda inputs, millions, bandwidth: (
            {"megabytes": 2 * (inputs + 1) * millions}
            | {"microseconds": round(2000 * (inputs + 1) * millions / bandwidth, 2)}
        ),
    ),
    "decode": Numbers(
        {"sequences": (16, 32, 48), "heads": (2, 4, 8), "tokens": (4096, 8192, 16_384), "bandwidth": (2000, 4000)},
        lambda sequences, heads, tokens, bandwidth: {
            "milliseconds": round(4 * 128 * sequences * heads * tokens / bandwidth / 1e6, 4)
        },
    ),
    "both_roofs": Numbers(
        {"rows": (1, 16, 64, 512, 2048), "width": (4096, 8192), "bandwidth": (2000, 4000), "peak": (300, 800)}, product
    ),
    "amdahl": Numbers(
        {"step": (40, 60, 80, 100), "kernel": range(8, 33, 4), "times": (2, 3, 4)},
        lambda step, kernel, times: {"left": round(kernel / times, 2), "gain": step / (step - kernel + kernel / times)},
        unless=lambda step, kernel, times: step / (step - kernel + kernel / times) < 1.08,
    ),
    "fused_range": Numbers(
        {"step": (6000, 8000, 9000), "kernels": (7, 9, 12), "longest": (90, 120, 160), "others": (60, 75)},
        lambda step, kernels, longest, others: (
            {"whole": longest + (kernels - 1) * others}
            | {"gain": step / (step - (kernels - 1) * others), "saved": (kernels - 1) * others}
        ),
        unless=lambda step, kernels, longest, others: step / (step - (kernels - 1) * others) < 1.05,
    ),
    "one_address": Numbers(
        {"exponent": (20, 22, 24), "threads": (128, 256, 512), "nanoseconds": (0.7, 1.2, 1.8)},
        lambda exponent, threads, nanoseconds: (
            {"turns": 2**exponent // threads} | {"microseconds": 2**exponent / threads * nanoseconds / 1000}
        ),
    ),
    "loads_in_flight": Numbers(
        {"latency": (600, 700, 800, 900), "bandwidth": (2000, 3000, 4500), "threads": (256, 512, 1024)},
        lambda latency, bandwidth, threads: (
            {"bytes": round(latency * bandwidth / 132)} | {"loads": ceil(latency * bandwidth / 132 / (4 * threads))}
        ),
    ),
    "privatized": Numbers(
        {"exponent": (24, 26, 28), "blocks": (132, 264, 528), "bins": (64, 256, 512)},
        lambda exponent, blocks, bins: {"added": blocks * bins, "fewer": 2**exponent / (blocks * bins)},
        unless=lambda exponent, blocks, bins: 2**exponent / (blocks * bins) > 9e5,
    ),
    "active_lanes": Numbers(
        {"few": (1, 2, 4, 8), "long": (24, 32, 48), "short": (2, 4, 6, 8)},
        lambda few, long, short: (
            {"many": 32 - few, "busy": few * long + (32 - few) * short}
            | {"lanes": (few * long + (32 - few) * short) / long}
        ),
    ),
    "fused_bytes": Numbers(
        {"operators": range(3, 9), "second": (1, 2)},
        lambda operators, second: (
            {"unfused": 2 * operators + second, "fused": 2 + second}
            | {"factor": round((2 * operators + second) / (2 + second), 3)}
        ),
    ),
    "online": Numbers(
        {"sum": (4, 6, 10, 20), "rise": (1, 2, 3)},
        lambda sum, rise: {"after": round(sum * exp(-rise) + 1, 4)},
    ),
    "rows_in_registers": Numbers(
        {"columns": (4096, 8192, 16_384), "threads": (256, 512, 1024), "more": (16, 24, 32)},
        resident,
        unless=lambda columns, threads, more: (
            columns // threads + more > 255 or not resident(columns, threads, more)["blocks"]
        ),
    ),
    "wavefronts": Numbers(
        {"rows": (4, 8, 12, 16), "columns": (2, 4, 6, 8)},
        lambda rows, columns: (
            {"reads": rows + columns, "cycles": rows * columns / 4}
            | {"wavefronts": round(4 * (rows + columns) / (rows * columns), 3)}
        ),
    ),
    "launch_bounds": Numbers(
        {"threads": (128, 192, 256, 384), "blocks": (2, 3, 4, 5)},
        lambda threads, blocks: (
            {"exact": round(65_536 / (threads * blocks), 1)} | {"registers": 65_536 // (threads * blocks) // 8 * 8}
        ),
        unless=lambda threads, blocks: not 32 < 65_536 / (threads * blocks) < 248,
    ),
    "stages": Numbers(
        {"rows": (64, 128), "columns": (64, 128, 256), "depth": (8, 16), "latency": (900, 1200, 1600, 2100)},
        stage,
    ),
    "ring": Numbers(
        {"rows": (64, 128), "columns": (64, 128, 256), "depth": (8, 16, 32), "stages": (2, 3, 4)},
        lambda rows, columns, depth, stages: (
            {"values": (rows + columns) * depth} | {"kibibytes": stages * (rows + columns) * depth * 4 / 1024}
        ),
    ),
    "fragments": Numbers(
        {"rows": (16, 32, 48, 64), "columns": (16, 32, 48, 64)},
        lambda rows, columns: (
            {"sums": rows * columns // 32, "of_a": rows // 4, "of_b": columns // 4}
            | {"registers": rows * columns // 32 + rows // 4 + columns // 4}
        ),
    ),
}

CHECKPOINT = Checkpoint(deliverable="softmax", variants=fused_twists.TWISTS, numbers=NUMBERS, faults=3, pictures=2)
