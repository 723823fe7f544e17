"""Reading Inductor: what torch.compile fused, and why; then a function that fuses.

report(code) reads a file that Inductor has written for a GPU, as TORCH_LOGS=output_code shows it. It contains one
Python module per graph, one after another, each after a line such as `# graph 1 of 2`. A graph ends where Dynamo could
not continue. In a module,

- a Triton kernel is the function below `@triton_heuristics.KIND(`. It reads its parameters in_ptr0, in_ptr1, …, and
  writes out_ptr0, …. It writes in_out_ptr0, … in place, and also reads them if an earlier launch has written them;
- `call` allocates buffers: `buf0 = empty_strided_cuda((512, 1000), (1000, 1), torch.float32)` gives the shape, strides,
  and dtype;
- `call` also launches kernels: `NAME.run(arg0_1, buf0, 512000, stream=…)` launches a Triton kernel, with arguments in
  the order of its parameters, and `extern_kernels.mm(…, out=buf1)` or `buf1 = torch.ops.aten.sort.stable(…)` launches a
  library kernel;
- `buf2 = buf1`, `buf2 = buf1[0]` and `buf2 = reinterpret_tensor(buf1, …)` are further names for buf1, and
  reinterpret_tensor(buf1, …) among the arguments stands for buf1;
- the comment `# Topologically Sorted Source Nodes: […], Original ATen: [aten.mul, aten.add]` above a launch names the
  operators of the program that the launch computes. The same comment also appears above the source of a Triton kernel.

results/traces/inductor contains such files, compressed with gzip; report receives one as plain text.

The report is a dict with these entries. Lists have one element per launch, in order, over all graphs.

    graphs              the number of graphs
    kernels             the names of the launched kernels: "triton_poi_fused_add_0", "extern_kernels.mm"
    kinds               KIND of each: "pointwise", "reduction", "persistent_reduction", …; "extern" for library kernels
    operators           the operators of each, as one string: "mul, add"; prefixes other than "aten." stay
    reasons             why each is not part of an earlier launch; the first of these that applies:
                        "layout"       a Triton kernel whose operators are all in MOVES: it copies to another layout
                        "graph break"  the first launch of a graph that is not the first
                        "first"        the first launch of the first graph
                        "extern"       it is a library kernel, or reads a buffer that one has written in its graph
                        "reduction"    it reads a buffer that a reduction or a scan has written in its graph
                        "shape"        it reads a buffer that another kernel has written in its graph
                        "independent"  it reads no buffer that was written in its graph
    intermediate_bytes  bytes of all buffers that one launch writes and a later launch in the same graph reads;
                        each counts once, and only if empty_strided_cuda allocated it

gated_fused(x, scale, bias) returns the same result as gated, for a float32 matrix and two float32 vectors.
torch.compile compiles gated to two graphs and five kernels. Your function has to compile to one graph and one kernel.
The grader runs the compiler, which doesn't require a GPU to generate code for one.
`warpcheck.frontends.inductor.written(gated, x, scale, bias).codes` shows the code.
"""

import math
import re
from pathlib import Path

import torch
from torch.nn import functional as F

MOVES = {"clone", "copy", "expand", "permute", "select", "slice", "squeeze", "t", "transpose", "unsqueeze", "view"}
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int64": 8, "int32": 4, "int8": 1, "uint8": 1, "bool": 1}
EPS, LIMIT = 1e-6, 8.0


def report(code: Path) -> dict:
    """Return the report on the graphs in this file."""
    raise NotImplementedError("TODO: read the file, and find the facts")


def gated(x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Normalize by the RMS, clamp, scale by a diagonal matrix, and apply GELU."""
    normed = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS)
    if normed.abs().max() > LIMIT:
        normed = normed.clamp(-LIMIT, LIMIT)
    return F.gelu(normed @ torch.diag(scale) + bias)


def gated_fused(x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Return the same as gated, in one kernel."""
    return gated(x, scale, bias)  # TODO: without the operations that break the graph or that Inductor cannot fuse
