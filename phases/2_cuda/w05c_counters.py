"""Counters: the same ten facts, from the files of four profilers.

file contains the tool's recording: "ncu" (the CSV from `ncu --csv --page raw`), "nsys" (the SQLite export), "perfetto"
(a Chrome trace from torch.profiler, which Perfetto opens) or "rocprof" (counter_collection.csv from rocprofv3). The
result is a dict or a dataclass with facts about the longest launch in the file. A fact that the file does not contain
is None. A value that a tool estimates from the launch, such as "est. achieved occupancy %", was not measured. Numbers
may be 0.1% off.

    kernel              the kernel's name, as the tool writes it
    nanoseconds         how long the kernel ran
    blocks              blocks in the grid, over all dimensions (AMD's workgroup is a block)
    threads             threads per block, over all dimensions (AMD's work-item is a thread)
    registers           registers per thread (vector registers, VGPR_Count, on AMD)
    dram_bytes          bytes read from device memory and bytes written to it, together
    sectors_per_request sectors per request of global loads through the LSU; None where there was no request
    occupancy           achieved occupancy, in percent: active warps, relative to the maximum
    stall               the reason that stalled most warps per issue, by ncu's name, such as "long_scoreboard";
                        "selected" is not a stall, because these warps issue
    tensor              percentage of the time in which the tensor (matrix) pipe was active

The files contain the facts in these places:

- ncu: after the progress lines comes the header, which starts with "ID". All other columns may be in any order. The row
  below the header contains the units, and numbers contain commas, as in 1,234. The columns are gpu__time_duration.sum,
  launch__grid_size, launch__block_size, launch__registers_per_thread, dram__bytes_read.sum, dram__bytes_write.sum,
  l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum and l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum,
  sm__warps_active.avg.pct_of_peak_sustained_active, smsp__average_warps_issue_stalled_REASON_per_issue_active.ratio,
  sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed.
- nsys: the table is CUPTI_ACTIVITY_KIND_KERNEL; demangledName is an id in StringIds. Times are in nanoseconds.
- perfetto: kernels are events with "cat" == "kernel" and "dur" in microseconds; the launch's shape is in "args".
- rocprof: there is one row per counter and dispatch (Dispatch_Id). Times are in nanoseconds. Grid_Size counts
  work-items. FETCH_SIZE and WRITE_SIZE are in kilobytes of 1024 bytes; OccupancyPercent and MfmaUtil (the matrix pipe)
  are percentages. A file contains only the counters that were requested. AMD has no counters for sectors or for ncu's
  stalls.
"""

from pathlib import Path


def facts(file: Path, tool: str) -> dict:
    """Return the ten facts about the longest launch, by name."""
    raise NotImplementedError("TODO: read what this tool writes")
