"""Autotune: products of many sizes, c += a @ w.T, on a GPU that answers with times recorded on an H200.

The output is the ledger: wrong results, sizes that were tuned again, seconds of tuning over the budget, and by how many
per cent launches are slower than with the best configuration for their size. All of it should be 0.
"""

from __future__ import annotations

import torch

from kernelpath.course.labs.recorded import RecordedGpu, recording
from kernelpath.course.problem import EXACT, Case, Problem


def inputs(rng: torch.Generator, requests: int, layers: int, dtypes: int) -> tuple[RecordedGpu]:
    """Generate `requests` requests for the last `layers` (N, K) of the record, in the given dtypes.

    dtypes is float16, or float32 as well. Both dtypes were recorded for few numbers of rows, so a layer then has few
    sizes, which occur repeatedly.
    """
    sizes = [*recording().seconds]
    shapes = [*dict.fromkeys((size.N, size.K) for size in sizes)][-layers:]
    recorded_in_both = {(size.M, size.N, size.K) for size in sizes if size.dtype == "float32"}
    requested = [
        size
        for size in sizes
        if (size.N, size.K) in shapes
        and (size.dtype == "float16" if dtypes == 1 else (size.M, size.N, size.K) in recorded_in_both)
    ]
    places = torch.randint(len(requested), (requests,), generator=rng, device=rng.device)
    return (RecordedGpu(rng.device.type, [requested[place] for place in places.tolist()]),)


def reference(gpu: RecordedGpu) -> torch.Tensor:
    return torch.zeros(4, dtype=torch.int64, device=gpu.device)


def case(requests: int, layers: int, dtypes: int = 1) -> Case:
    return {"requests": requests, "layers": layers, "dtypes": dtypes}


PROBLEM = Problem(
    inputs=inputs,
    # The first day meets nearly every size. Later ones show what was learned, on a layer that few configurations fit.
    cases=(case(200, 4), case(60, 4, dtypes=2), case(100, 1), case(1, 1)),
    reference=reference,
    tolerance={"int64": EXACT},
    compulsory_bytes=lambda requests, layers, dtypes: 32,
)
