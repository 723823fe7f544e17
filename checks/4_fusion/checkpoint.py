"""Checkpoint 4: elementwise, horizontal, vertical, epilogue; and when not to fuse."""

from math import exp, log

from kernelpath.course.checkpoint import Checkpoint, Numbers
from kernelpath.course.problems import operator_twists


def merged(first: float, second: float, lse: float, other: float) -> dict[str, float]:
    """Outputs of two parts of a sequence, weighted by their sums of exponentials."""
    mine, others = exp(lse), exp(other)
    return {"merged": round((first * mine + second * others) / (mine + others), 4)}


def online(first: float, sum: float, second: float, other: float) -> dict[str, float]:
    """Two pieces of a row, each a maximum and a sum of exponentials relative to it."""
    lse = log(sum * exp(first) + other * exp(second))
    return {"lse": round(lse, 4), "distance": round(abs(first - second), 3)}


def padding(first: int, second: int, third: int) -> dict[str, float]:
    tokens, slots = first + second + third, 3 * max(first, second, third)
    return {"tokens": tokens, "slots": slots, "percent": round(100 - 100 * tokens / slots, 3)}


def ring_time(latency: float, bandwidth: int, kilobytes: int, ranks: int) -> dict[str, float]:
    """Return the time of a ring all-reduce in microseconds; kB divided by GB/s are microseconds."""
    steps, chunk = 2 * (ranks - 1), kilobytes / ranks
    return {"steps": steps, "chunk": chunk, "microseconds": round(steps * (latency + chunk / bandwidth), 3)}


NUMBERS = {
    "chain_bytes": Numbers(
        {"operators": (3, 4, 5, 6, 8), "megabytes": (64, 128, 256, 512)},
        lambda operators, megabytes: (
            {"eager": 2 * operators * megabytes, "fused": 2 * megabytes} | {"saved": 2 * (operators - 1) * megabytes}
        ),
    ),
    "fused_share": Numbers(
        {"percent": (10, 20, 30, 40), "factor": (2, 3, 5)},
        lambda percent, factor: (
            {"rest": 100 - percent, "speedup": round(100 / (100 - percent + percent / factor), 4)}
        ),
    ),
    "mask_bytes": Numbers(
        {"millions": (16, 24, 32, 48, 64, 96, 134, 268)},
        lambda millions: {"megabytes": 2 * millions},
    ),
    "philox_calls": Numbers(
        {"block": (1024, 2048, 4096), "warps": (2, 4, 8)},
        lambda block, warps: {"elements": block // (32 * warps), "calls": block // (128 * warps)},
    ),
    "stochastic_move": Numbers(
        {"value": (1, 2, 4, 8), "thousandths": (1, 2, 3)},
        lambda value, thousandths: {
            "update": thousandths / 1000,
            "spacing": value / 128,
            "probability": round(thousandths / 1000 / (value / 128), 4),
        },
    ),
    "adam_bytes": Numbers(
        {"millions": (124, 350, 1300, 7000), "bandwidth": (2000, 4000)},
        lambda millions, bandwidth: {"bytes": 28, "milliseconds": round(28 * millions / bandwidth, 3)},
    ),
    "horizontal": Numbers(
        {"tensors": (100, 200, 400), "launch": (4, 5, 8), "work": (60, 100, 150)},
        lambda tensors, launch, work: (
            {"loop": tensors * launch, "speedup": round(tensors * launch / (launch + work), 4)}
        ),
    ),
    "norm_bytes": Numbers(
        {"rows": (2048, 8192, 16_384), "columns": (2048, 4096, 5120, 8192)},
        lambda rows, columns: {"megabytes": round(8 * rows * columns / 1e6, 2)},
    ),
    "epilogue_bytes": Numbers(
        {"rows": (2048, 4096, 8192), "columns": (4096, 8192, 14_336)},
        lambda rows, columns: {"megabytes": round(4 * rows * columns / 1e6, 2)},
    ),
    "epilogue_speedup": Numbers(
        {"product": (200, 400, 800, 1400), "elementwise": (40, 90, 120), "hidden": (60, 75, 90)},
        lambda product, elementwise, hidden: (
            {"before": product + elementwise, "after": product + elementwise * (100 - hidden) / 100}
            | {"speedup": round((product + elementwise) / (product + elementwise * (100 - hidden) / 100), 4)}
        ),
    ),
    "two_accumulators": Numbers(
        {"rows": (16, 32, 64, 128), "columns": (64, 128), "warps": (4, 8)},
        lambda rows, columns, warps: (
            {"elements": rows * columns // (32 * warps), "registers": 2 * rows * columns // (32 * warps)}
        ),
        unless=lambda rows, columns, warps: 2 * rows * columns // (32 * warps) > 200,
    ),
    "rows_again": Numbers(
        {"rows": (64, 128), "columns": (64, 128, 256), "n": (2048, 4096, 14_336)},
        lambda rows, columns, n: {"times": n // columns},
    ),
    "logits": Numbers(
        {"rows": (4096, 8192, 16_384), "classes": (32_000, 50_257, 128_256)},
        lambda rows, classes: {"gigabytes": round(4 * rows * classes / 1e9, 4)},
    ),
    "online_row": Numbers(
        {"first": (2.0, 5.0), "sum": (3.0, 7.0), "second": (1.0, 4.0, 6.0), "other": (2.0, 12.0)},
        online,
    ),
    "ignored": Numbers(
        {"rows": (64, 200, 512), "ignored": (12, 24, 39)},
        lambda rows, ignored: {"valid": rows - ignored, "factor": round(1 / (rows - ignored), 7)},
    ),
    "cache_bytes": Numbers(
        {"layers": (24, 32, 80), "heads": (2, 8, 32), "head": (64, 128)},
        lambda layers, heads, head: {"kilobytes": round(4 * layers * heads * head / 1e3, 3)},
    ),
    "batch_fits": Numbers(
        {"memory": (40, 60, 100), "kilobytes": (100, 131, 320), "tokens": (3000, 7000, 30_000)},
        lambda memory, kilobytes, tokens: (
            {"each": round(kilobytes * tokens / 1e6, 4), "sequences": int(memory * 1e6 // (kilobytes * tokens))}
        ),
    ),
    "step_time": Numbers(
        {"sequences": (16, 64, 128), "tokens": (1000, 4000), "kilobytes": (100, 131), "bandwidth": (2000, 4500)},
        lambda sequences, tokens, kilobytes, bandwidth: (
            {"gigabytes": round(sequences * tokens * kilobytes / 1e6, 4)}
            | {"milliseconds": round(sequences * tokens * kilobytes / 1e3 / bandwidth, 4)}
        ),
    ),
    "last_page": Numbers(
        {"tokens": (35, 100, 517, 1000, 2050), "page": (16, 64, 256)},
        lambda tokens, page: (
            {"pages": -(-tokens // page), "percent": round(100 - 100 * tokens / (page * -(-tokens // page)), 3)}
        ),
    ),
    "padding": Numbers(
        {"first": (1000, 4000, 8000), "second": (200, 900), "third": (300, 2500)},
        padding,
    ),
    "splits": Numbers(
        {"sequences": (1, 2, 5, 8), "heads": (2, 4, 8)},
        lambda sequences, heads: ({"programs": sequences * heads, "parts": -(-264 // (sequences * heads))}),
    ),
    "merged": Numbers(
        {"first": (0.2, 1.0), "second": (0.5, 3.0), "lse": (2.0, 5.0), "other": (3.0, 4.0)},
        merged,
    ),
    "alignment": Numbers(
        {"queries": (4, 16, 33), "keys": (40, 100, 517), "query": (0, 1, 3)},
        lambda queries, keys, query: {"last": query + keys - queries},
    ),
    "host_bound": Numbers(
        {"launches": (100, 400, 900), "kernel": (8, 12, 40), "host": (5, 10), "factor": (2, 4)},
        lambda launches, kernel, host, factor: (
            {"before": launches * max(kernel, host), "faster": kernel / factor}
            | {"after": launches * max(host, kernel / factor)}
        ),
    ),
    "ring_bytes": Numbers(
        {"ranks": (2, 3, 4, 8), "megabytes": (24, 96, 240)},
        lambda ranks, megabytes: {"sent": round(2 * (ranks - 1) * megabytes / ranks, 3)},
    ),
    "bus_bandwidth": Numbers(
        {"ranks": (2, 4, 8), "megabytes": (64, 256, 1024), "microseconds": (900, 2000, 3600)},
        lambda ranks, megabytes, microseconds: (
            {"gigabytes": round(megabytes * 1e3 / microseconds * 2 * (ranks - 1) / ranks, 3)}
        ),
    ),
    "ring_time": Numbers(
        {"latency": (5.0, 10.0), "bandwidth": (100, 350), "kilobytes": (8, 1000, 64_000), "ranks": (2, 4, 8)},
        ring_time,
    ),
    "false_alarms": Numbers(
        {"kernels": (10, 25, 50, 100), "percent": (0.1, 0.5, 1.0, 2.0)},
        lambda kernels, percent: (
            {"rate": percent / 100, "share": round(1 - (1 - percent / 100) ** kernels, 6)}
            | {"alarms": round(100 - 100 * (1 - percent / 100) ** kernels, 4)}
        ),
    ),
    "hidden": Numbers(
        {"compute": (20, 30), "communication": (5, 8, 12), "together": (22, 24, 31)},
        lambda compute, communication, together: (
            {"exposed": together - compute} | {"percent": round(100 * (1 - (together - compute) / communication), 3)}
        ),
        unless=lambda compute, communication, together: not compute < together < compute + communication,
    ),
}

CHECKPOINT = Checkpoint(
    deliverable="kernel_library", variants=operator_twists.FUSED_TWISTS, numbers=NUMBERS, faults=3, pictures=2
)
