"""Long context: causal attention over packed sequences.

Week 15. out = softmax(q @ k^T / sqrt(head)) @ v per head and sequence; the sequences lie one after another.
"""

from kernelpath.course.problems import packed_attention
from kernelpath.course.problems.packed_attention import case
from kernelpath.course.spec import Exercise, Traffic

# Equal lengths, which libraries serve with kernels for batches, then packed ones that only some take.
SWEEP = (
    *(case(lengths, 128, heads=16, kv_heads=16) for lengths in ("16x1024", "4x4096", "16384", "32768")),
    case("4x4096", 32, heads=16, kv_heads=16),
    case("4x4096", 64, heads=16, kv_heads=16),
    case("4x4096", 256, heads=8, kv_heads=8),
    case("16384+8192+4096+2048+2x1024", 128, heads=64, kv_heads=8),
    case("500x64", 128, heads=16, kv_heads=16),
    case("8192+300x100", 64, heads=32, kv_heads=8),
    case("131072", 64),
)

EXERCISE = Exercise(
    entry="long_context",
    problem=packed_attention.PROBLEM,
    aligned=True,  # as tensor descriptors need it
    # Here a load by descriptor is a copy by the TMA unit. For sm_80 Triton makes loads by pointers of it: 3.9 gives
    # the load of k 2 sectors per request, 3.6 gives it 32, because each lane takes an element of another row.
    arch="sm_90a",
    bench=case("16384+8192+4096+2048+2x1024", 128, heads=16, kv_heads=16),
    sweep=SWEEP,
    baseline=packed_attention.eager,
    min_speedup=6.0,  # on an H200 plain loops with pointers and masks reach 6.7, the reference kernel 14.3
    workspace=0.1,  # no copy that is padded, no scores
    tensor_cores=True,
    # Tiles of 64 queries ask for 2.5 times the compulsory bytes of the largest case, of 32 for 3.5 times; tiles of 32
    # that walk over keys which the mask hides ask for 5 times.
    traffic=Traffic(sectors=2.0, bytes=4.0, edges=None),
)
