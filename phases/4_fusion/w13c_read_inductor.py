"""Reading Inductor: what torch.compile fused, and why; then a function that fuses.

report(code) reads a file that Inductor has written for a GPU, as TORCH_LOGS=output_code shows it: a Python module for
each graph, one after another, each after a line such as `# graph 1 of 2`. A graph ends where Dynamo could not go on.
In a module

- a Triton kernel is the function below `@triton_heuristics.KIND(`. Its parameters in_ptr0, in_ptr1, … are read,
  out_ptr0, … are written, in_out_ptr0, … are written in place, and read if an earlier launch has written them;
- `call` allocates buffers, `buf0 = empty_strided_cuda((512, 1000), (1000, 1), torch.float32)`: shape, strides, dtype;
- and launches: `NAME.run(arg0_1, buf0, 512000, stream=…)` a Triton kernel, with its parameters in their order,
  `extern_kernels.mm(…, out=buf1)` or `buf1 = torch.ops.aten.sort.stable(…)` a kernel of a library;
- `buf2 = buf1`, `buf2 = buf1[0]` and `buf2 = reinterpret_tensor(buf1, …)` are further names of buf1, and
  reinterpret_tensor(buf1, …) among arguments is buf1;
- the comment `# Topologically Sorted Source Nodes: […], Original ATen: [aten.mul, aten.add]` above a launch names the
  operators of the program that are computed there. It also stands above the source of a Triton kernel.

results/traces/inductor has such files, each packed by gzip; report gets one as plain text.

The report is a dict of these facts. Lists have one element for each launch, in order, over all graphs.

    graphs              how many graphs there are
    kernels             the names that are launched: "triton_poi_fused_add_0", "extern_kernels.mm"
    kinds               KIND of each: "pointwise", "reduction", "persistent_reduction", …; "extern" for a library's
    operators           the operators of each, as one string: "mul, add"; other prefixes than "aten." stay
    reasons             why each is not part of an earlier launch; the first of these that holds:
                        "layout"       a Triton kernel whose operators are all in MOVES: it copies to another layout
                        "graph break"  the first launch of a graph that is not the first
                        "first"        the first launch of the first graph
                        "extern"       it is a library's kernel, or reads a buffer that one has written in its graph
                        "reduction"    it reads a buffer that a reduction or a scan has written in its graph
                        "shape"        it reads a buffer that another kernel has written in its graph
                        "independent"  it reads none that was written in its graph
    intermediate_bytes  bytes of all buffers that one launch writes and a later one of the same graph reads, each once;
                        what is not allocated by empty_strided_cuda does not count

gated_fused(x, scale, bias) returns the same as gated, for a matrix and two vectors in float32. torch.compile compiles
gated to two graphs and five kernels. Your function has to compile to one graph and one kernel. The grader runs the
compiler, which generates code for a GPU without having one. `warpcheck.frontends.inductor.written(gated, x, scale,
bias).codes` shows the code.
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
    """The facts about the graphs in this file, by name."""
    raise NotImplementedError("TODO: read the file, and find the facts")


def gated(x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """RMS normalization, held within a limit, scaled by a diagonal matrix, and GELU."""
    normed = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS)
    if normed.abs().max() > LIMIT:
        normed = normed.clamp(-LIMIT, LIMIT)
    return F.gelu(normed @ torch.diag(scale) + bias)


def gated_fused(x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The same, as one kernel."""
    return gated(x, scale, bias)  # TODO: without what breaks the graph, and without what Inductor cannot fuse
