"""Profile: what limits a training step, as read from the profilers' files.

trace is a Chrome trace from torch.profiler: a JSON file whose "traceEvents" are dicts. An event with "ph" == "X" has a
start "ts" and a duration "dur", both in microseconds on one clock, a "name", and a category "cat":

- "kernel", "gpu_memcpy" and "gpu_memset" run on the GPU. args["correlation"] is the number of the launching call.
- "cuda_runtime" and "cuda_driver" are the calls on the host's threads ("pid" and "tid"), with the same
  args["correlation"].
- "user_annotation" is a named range (record_function) on a host thread. Ranges nest.

counters is the CSV that `ncu --csv --page raw` wrote for the same step, in another run: progress lines, a header, a row
of units, and one row per kernel, numbered in launch order by the column ID. It contains the same kernels as the trace,
in launch order, which is the order of correlations. You can't match kernels by name, because ncu writes names in a
different form.

The report is a dict or a dataclass with these facts. Numbers may be 0.1% off.

    kernels           the three names with the longest total duration in the trace, the longest first
    microseconds      their total durations
    dram_percent      DRAM, SM and TENSOR of each name: the mean over its launches, weighted by duration in the trace
    sm_percent
    tensor_percent
    bounds            each name's limit: "latency" where DRAM and SM are both below BUSY; "memory" where DRAM is at
                      least as large as SM; else "tensor" where TENSOR is at least BUSY, "compute" where it is not
    idle_microseconds the time in which nothing runs on the GPU, between the first start and the last end
    idle_share        the same, as a share of the time from the first start to the last end, from 0 to 1
    longest_gap       the longest span in which nothing runs on the GPU, in microseconds
    gains             the speedup of the step for each change below, by its name, according to Amdahl's law
    change            the change with the largest gain

These are the changes. "gaps" closes all gaps. The name of each range to which a kernel belongs is a change, too: all
kernels in each occurrence of that range become one kernel, which takes as long as the longest of them. A kernel belongs
to the innermost range that was open, on the thread that launched it, at the start of the call. A range is not a change
if any of its occurrences contains a launch that is bound by "tensor", because GEMMs do not become faster by sharing a
launch. The step's time extends from the first start to the last end.
"""

from pathlib import Path

BUSY = 60.0
DRAM = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
SM = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"


def report(trace: Path, counters: Path) -> dict:
    """Return the facts about the step in these two files, by name."""
    raise NotImplementedError("TODO: read both files, and find the facts")
