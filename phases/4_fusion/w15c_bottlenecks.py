"""Bottlenecks: replay a step, and predict what a change would gain.

trace is a Chrome trace from torch.profiler, a JSON file with "traceEvents" and "deviceProperties". The first entry of
"deviceProperties" has "numSms", the number of multiprocessors. An event with "ph" == "X" has a start "ts" and a
duration "dur" in microseconds, a "name", and a category "cat". Two groups of categories matter here, in any order:

- "cuda_runtime" and "cuda_driver": calls from one host thread. args["correlation"] is the number of the call.
- "kernel" and "gpu_memcpy": activities on one stream of the GPU, with the correlation of the call that launched them. A
  kernel has args["grid"], three extents in blocks, and a copy has args["bytes"].

The step follows these rules. Before each call, the host works for the time that the trace has between the end of the
previous call and the start of this call. A call takes as long as its recorded duration. Its activity starts when both
the call and the previous activity have ended, and also takes as long as recorded. Two kinds of calls wait instead.
"cudaStreamSynchronize" takes no time itself and ends when the GPU has finished all activities launched so far. The call
of an activity named "Memcpy HtoD (Pageable -> Device)" takes no time itself either. Its copy starts as soon as the call
and the previous activity allow, and the call ends when its copy ends. The step lasts from the start of the first call
to the last end of a call or an activity.

Five changes:

    graph     all kernels are launched as one graph: neither their calls nor the host's work before them takes time
    fusion    kernels whose names contain "elementwise" become one kernel if their calls follow each other without any
              other call between them. The first call launches this kernel, which takes as long as the longest of them.
              The other calls, the host's work before these calls, and their kernels disappear
    prefetch  pageable copies were made before the step: their calls do not wait, and calls and copies take no time. The
              host's work before them remains
    split     a kernel with fewer blocks than multiprocessors uses all multiprocessors, and takes
              blocks / multiprocessors of its time
    async     no call synchronizes, except for the last call of the step. The work before these calls disappears, too

Changes that are applied together are applied in the order split, fusion, prefetch, async, graph. Return a dict, or a
dataclass, with these facts. Numbers may be 0.01% off.

    microseconds             the time of the step
    busy_share               the total duration of all activities divided by the time of the step
    launches                 the number of kernels
    fused_away               the number of kernels that disappear by fusion
    pageable_bytes           the bytes of pageable copies
    few_blocks_microseconds  the total duration of the kernels with fewer blocks than multiprocessors
    waits                    the number of calls that synchronize, excluding the last call of the step
    after                    the time of the step after each change alone, by its name
    bottlenecks              the names of the three changes that leave the shortest times, the shortest first. Equal
                             times, rounded to nanoseconds, stay in the order above
    together                 how many times faster the step is with these three changes together
"""

import json
from pathlib import Path

CHANGES = ("graph", "fusion", "prefetch", "split", "async")
PAGEABLE = "Memcpy HtoD (Pageable -> Device)"
SYNCHRONIZE = "cudaStreamSynchronize"


def report(trace: Path) -> dict:
    """Return the facts about the step, by name."""
    document = json.loads(trace.read_text())
    multiprocessors = document["deviceProperties"][0]["numSms"]
    raise NotImplementedError("TODO: read the calls, replay them, and replay them after each change")
