"""Read recordings of profilers, find facts in them, and vary them for grading.

chrome      torch.profiler's Chrome trace, which Perfetto opens
ncu         Nsight Compute's CSV of raw metrics
nsys        Nsight Systems' SQLite export
rocprof     rocprofv3's CSV of counters
inductor    the modules that torch.compile writes (w13c_read_inductor)
ttgir       Triton's representation of a kernel with its layouts (w09d_read_ttgir)
amdgcn      the assembly of a kernel for an AMD GPU (w24c_read_amdgcn)
hlo         the kernels that XLA makes of a function (w24f_read_hlo)
topology    the matrix of `nvidia-smi topo -m` (w32c_affinity)
report      what limits a training step (w05b_profile)
replay      how long a step takes after a change (w15c_bottlenecks)
facts       one kernel as each tool knows it (w05c_counters)
variants    the same recording with other names, times, orders and counters
recordings  the recorded files, in results/traces or in a folder of the learner's
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

Plain = bool | int | float | str | None
Fact = Plain | Sequence[Plain] | Mapping[str, Plain]

# The facts of a report, by name.
Facts = Mapping[str, Fact]


class Malformed(ValueError):
    """A file is not in its tool's format. The message is a sentence that says what is wrong with the file."""


class TraceFile(Struct, frozen=True):
    """A recorded file. A submission gets it as a path to a file of that name."""

    name: str
    content: bytes
