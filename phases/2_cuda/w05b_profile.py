"""Profile: what limits a training step, read from what the profilers wrote.

trace is a Chrome trace of torch.profiler: JSON whose "traceEvents" are dicts. An event with "ph" == "X" has a start
"ts" and a duration "dur", both in microseconds on one clock, a "name", and a category "cat":

- "kernel", "gpu_memcpy" and "gpu_memset" run on the GPU. args["correlation"] is the number of the launching call.
- "cuda_runtime" and "cuda_driver" are the calls, on the host's threads ("pid" and "tid"), with the same
  args["correlation"].
- "user_annotation" is a named range (record_function) on a thread of the host. Ranges nest.

counters is the CSV of `ncu --csv --page raw` of the same step, in another run: lines of progress, a header, a row of
units, and a row for each kernel, numbered in the order of launch by the column ID. It has the kernels of the trace in
the order of launch, which is the order of correlations. Names cannot be compared: ncu writes them in another form.

The report is a dict, or a dataclass, of these facts. Numbers may be 0.1% off.

    kernels           the three names with the greatest total duration in the trace, the greatest first
    microseconds      their total durations
    dram_percent      DRAM, SM and TENSOR of each name: the mean over its launches, weighted by duration in the trace
    sm_percent
    tensor_percent
    bounds            what bounds each: "latency" where DRAM and SM are both below BUSY; "memory" where DRAM is at
                      least as large as SM; else "tensor" where TENSOR is at least BUSY, "compute" where it is not
    idle_microseconds from the first start to the last end on the GPU, the time in which nothing runs there
    idle_share        that, of the time from the first start to the last end; 1 is all of it
    longest_gap       the longest span without anything on the GPU, in microseconds
    gains             of each change below, by its name: how many times as fast the step would be, by Amdahl's law
    change            the change with the greatest gain

The changes: "gaps" closes all gaps. Each name of a range to which a kernel belongs is a change, too: the kernels of
every occurrence of that range become one, which takes as long as the longest of them. A kernel belongs to the innermost
range that was open, on the thread that launched it, at the start of the call. A range is not a change if any of its
occurrences has a launch that is bound by "tensor", because GEMMs do not become faster by sharing a launch. The step
takes the time from the first start to the last end.
"""

from pathlib import Path

BUSY = 60.0
DRAM = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
SM = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"


def report(trace: Path, counters: Path) -> dict:
    """The facts about the step in these two files, by name."""
    raise NotImplementedError("TODO: read both files, and find the facts")
