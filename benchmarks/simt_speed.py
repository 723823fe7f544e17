"""Measure how fast the PTX machine compiles and runs, with counters and checks, next to Numba's CUDA simulator.

    python benchmarks/simt_speed.py

Prints the time to compile a line of PTX of a long kernel: with an empty cache, with a cache that another kernel has
filled, and with one that has the kernel itself. Then it prints lane-instructions per second of the naive GEMM at 256 x
256 x 256 and of a few other kernels, and the time for one multiply-add of a lane in both machines, as the median of
several runs. All times are processor times, which other programs on the machine disturb little. Both machines run on
one core. Numba is not a dependency (pip install numba).
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from simt_kernels import SOURCE

from warpcheck import ptx, simt
from warpcheck.cache import use_root
from warpcheck.compiler import compile_kernel
from warpcheck.frontends import nvrtc

os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
warnings.simplefilter("ignore")
from numba import cuda  # noqa: E402

LONG = """
extern "C" __global__ void row(const float* x, float* y) {
    float values[WIDTH], greatest = -INFINITY, sum = 0;
    #pragma unroll
    for (int i = 0; i < WIDTH; i++) values[i] = x[i * blockDim.x + threadIdx.x];
    #pragma unroll
    for (int i = 0; i < WIDTH; i++) greatest = fmaxf(greatest, values[i]);
    #pragma unroll
    for (int i = 0; i < WIDTH; i++) sum += values[i] = expf(values[i] - greatest);
    #pragma unroll
    for (int i = 0; i < WIDTH; i++) y[i * blockDim.x + threadIdx.x] = values[i] / sum;
}
"""
TILE = 16


def seconds(call: Callable[[], object], repeat: int = 5) -> float:
    """Return the median processor seconds of a call, after a first call that does not count."""
    call()
    times = []
    for _ in range(repeat):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return statistics.median(times)


def matrices(n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.random((n, n), np.float32) for _ in range(3)]


def launcher(name: str, n: int, grid: tuple[int, ...], block: tuple[int, ...]) -> Callable[[], simt.Launch]:
    binary = nvrtc.compile_kernel(SOURCE, "speed.cu", name, "compute_80")
    module = simt.load(binary.ptx, "speed.cu")
    arrays = matrices(n)
    buffers = [simt.Buffer(x, m.ctypes.data, m.nbytes, 4) for x, m in zip("abc", arrays, strict=True)]

    def launch() -> simt.Launch:
        args = [*(m.ctypes.data for m in arrays), n]
        return module.launch(binary.mangled, grid=grid, block=block, args=args, buffers=buffers, threads=1)

    launch()
    expected = arrays[0] + arrays[1] if name == "add" else arrays[0] @ arrays[1]
    np.testing.assert_allclose(arrays[2], expected, rtol=1e-4)
    return launch


def compile_long(width: int) -> tuple[float, int]:
    """Return the milliseconds to compile the long kernel of this width from its PTX, and its lines of PTX."""
    binary = nvrtc.compile_kernel(LONG.replace("WIDTH", str(width)), "row.cu", "row", "compute_80")
    start = time.process_time()
    compile_kernel(ptx.parse(binary.ptx, "row.cu"), binary.mangled, f"row of {width}")
    return (time.process_time() - start) * 1e3, len(binary.ptx.splitlines())


def print_compiling() -> None:
    for cache, width in (("empty", 256), ("with its forms", 320), ("with the kernel", 320)):
        ms, lines = compile_long(width)
        print(f"compiling {lines} lines of PTX, cache {cache + ':':16} {ms:7.1f} ms  {ms / lines:6.3f} ms a line")


def simulated_product(n: int) -> Callable[[], None]:
    """Return a launch of the naive GEMM on Numba's simulator."""

    @cuda.jit
    def product(a, b, c, n):  # type: ignore[no-untyped-def]
        column, row = cuda.grid(2)
        total = np.float32(0)
        for k in range(n):
            total += a[row, k] * b[k, column]
        c[row, column] = total

    a, b, c = matrices(n)
    return lambda: product[(n // TILE, n // TILE), (TILE, TILE)](a, b, c, n)


def print_rates() -> None:
    for name, n, grid, block in (
        ("product", 256, (16, 16), (TILE, TILE)),
        ("tiled", 256, (16, 16), (TILE, TILE)),
        ("add", 1024, (4096,), (256,)),
    ):
        launch = launcher(name, n, grid, block)
        instructions = launch().instructions
        duration = seconds(launch)
        rate = instructions / duration / 1e6
        print(f"{name:8} {n:5}  {duration * 1e3:7.1f} ms  {rate:6.0f} million lane-instructions/s")
        if name == "product":
            ours = duration / n**3
    small = 32
    theirs = seconds(simulated_product(small), repeat=3) / small**3
    print(
        f"one multiply-add of a lane: {ours * 1e9:.1f} ns, Numba's simulator {theirs * 1e9:.0f} ns:"
        f" {theirs / ours:.0f} times"
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        use_root(Path(folder))
        print_compiling()
        print_rates()


if __name__ == "__main__":
    main()
