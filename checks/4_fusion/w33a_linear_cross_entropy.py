"""Linear cross-entropy: the loss of a model's last layer, whose logits are never stored.

Week 33. logits = h @ w.T, and of each row only the loss and the log-sum-exp, from which a backward pass can recompute
everything else. The gradient is left to the page: it needs two or three more products of the same size.
"""

from kernelpath.course.problems import linear_cross_entropy
from kernelpath.course.problems.linear_cross_entropy import case
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="linear_cross_entropy",
    problem=linear_cross_entropy.PROBLEM,
    aligned=True,
    any_size=False,
    requires=(8, 0),  # bfloat16 on tensor cores
    arch="sm_90a",
    bench=case(8192, 128_256, 4096),
    sweep=(case(1024, 128_256, 4096), case(8192, 50_257, 768), case(16_384, 65_536, 2048)),
    baseline=linear_cross_entropy.eager,
    # On an H200, the answer has 1.90 (1.894 to 1.908). In earlier runs, tiles of 128 x 128 without TMA reached 1.2 to
    # 1.5, and tiles of 64 x 128 without TMA 0.65.
    min_speedup=1.2,
    tensor_cores=True,
    # At 128 x 4000 x 64, tiles of 64 x 64 request 3.9 times the compulsory bytes, tiles of 128 x 128 twice, and labels
    # that every warp loads for each tile 1.2 more. Logits that are stored and loaded in float32 add 7.7 and take 3.9
    # times the compulsory bytes of memory.
    traffic=Traffic(bytes=6.0, edges=None),
    workspace=0.2,  # a maximum and a sum for each row and tile of 64 classes take 0.12
)
