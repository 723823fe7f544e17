"""Stream-K: a GEMM that divides the k-tiles of all output tiles evenly among the SMs.

Week 26. out = a @ b.T in bfloat16 where the tiles do not fill the last wave. Each program computes an equal share of
all k-tiles, and parts of a tile that several programs share are added in a fixed order.
"""

from kernelpath.course.problems import stream_k
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="stream_k",
    problem=stream_k.PROBLEM,
    aligned=True,
    any_size=False,
    requires=(8, 0),  # bfloat16 on tensor cores
    bench={"m": 1536, "n": 1536, "k": 16_384},  # 144 tiles of 128 x 128
    sweep=({"m": 2048, "n": 1152, "k": 8192}, {"m": 512, "n": 1024, "k": 32_768}, {"m": 4096, "n": 4096, "k": 4096}),
    baseline=lambda a, b: a @ b.T,
    min_speedup=0.4,  # on an H200, the answer reaches 0.56 of cuBLAS, and the expert kernel 0.76
    tensor_cores=True,
    deterministic=True,
    multiprocessors=5,  # which divides neither 3, 6, nor 12, the tiles of the largest case
    measures_reads=True,  # graders/stream_k.py limits the share of b that one program reads
    # In the largest case, honest kernels request 1.5 to 2.0 times the compulsory bytes: a is read for each tile,
    # and parts are stored and loaded.
    traffic=Traffic(bytes=3.0, edges=None),
)
