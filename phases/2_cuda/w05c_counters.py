"""Counters: the same ten facts, from what four profilers write.

file holds what the tool recorded: "ncu" (the CSV of `ncu --csv --page raw`), "nsys" (the SQLite export), "perfetto"
(the Chrome trace of torch.profiler, which Perfetto opens) or "rocprof" (counter_collection.csv of rocprofv3). The
answer is a dict, or a dataclass, of facts about the longest launch in the file. A fact that the file does not contain
is None. A value that a tool estimates from the launch, such as "est. achieved occupancy %", was not measured. Numbers
may be 0.1% off.

    kernel              its name, as the tool writes it
    nanoseconds         how long it ran
    blocks              of its grid, all dimensions (a workgroup of AMD's is a block)
    threads             of a block, all dimensions (a work-item is a thread)
    registers           of a thread (vector registers, VGPR_Count, on AMD)
    dram_bytes          read from device memory and written to it, together
    sectors_per_request of loads from global memory through the LSU; None where there was no request
    occupancy           achieved, in percent: warps that were active, of the most that can be
    stall               the reason that stalled most warps per issue, in ncu's words, such as "long_scoreboard";
                        "selected" is no stall: these warps issue
    tensor              percent of the time in which the tensor (matrix) pipe was active

Where they are:

- ncu: after lines of progress comes the header, which starts with "ID". All other columns are in any order. The row
  below the header has the units, and 1,234 is a number. gpu__time_duration.sum, launch__grid_size, launch__block_size,
  launch__registers_per_thread, dram__bytes_read.sum, dram__bytes_write.sum,
  l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum and l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum,
  sm__warps_active.avg.pct_of_peak_sustained_active, smsp__average_warps_issue_stalled_REASON_per_issue_active.ratio,
  sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed.
- nsys: table CUPTI_ACTIVITY_KIND_KERNEL; demangledName is an id in StringIds. Times are nanoseconds.
- perfetto: events with "cat" == "kernel", "dur" in microseconds; the launch is in "args".
- rocprof: a row for each counter of each dispatch (Dispatch_Id). Times are nanoseconds. Grid_Size counts work-items.
  FETCH_SIZE and WRITE_SIZE are kilobytes of 1024, OccupancyPercent and MfmaUtil (the matrix pipe) are percent. A file
  has the counters that were requested. AMD has no counters for sectors or for ncu's stalls.
"""

from pathlib import Path


def facts(file: Path, tool: str) -> dict:
    """The ten facts about the longest launch, by name."""
    raise NotImplementedError("TODO: read what this tool writes")
