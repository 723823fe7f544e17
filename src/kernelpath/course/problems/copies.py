"""Copies: a float32 vector from pageable memory of the host to the device, piece by piece, on a simulated bus.

Outputs are the vector on the device (zeros after an error) and the ledger: the status raised, the buffers not given
back, and how many times as long as with overlapped copies it took.
"""

from __future__ import annotations

import torch

from kernelpath.course.labs.bus import CHUNK, LAUNCH_FAILURE, OUT_OF_MEMORY, Runtime, SimulatedRuntime
from kernelpath.course.problem import EXACT, Case, Problem

PIECES = 24


# A case in which every call of the entry fails once, each in a run of its own.
EACH = "each"


def inputs(rng: torch.Generator, n: int, fails: int | str, status: int) -> tuple[Runtime, torch.Tensor, int]:
    """Return the runtime, n float32 in pageable memory of the host, and the capacity of a buffer."""
    seed = int(torch.randint(1 << 31, (), generator=rng, device=rng.device))
    source = torch.randn(n, generator=torch.Generator().manual_seed(seed))
    each = isinstance(fails, str)
    return SimulatedRuntime(rng.device.type, 0 if isinstance(fails, str) else fails, status, each), source, CHUNK


def reference(runtime: Runtime, source: torch.Tensor, chunk: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the vector, or zeros after a failure, and the ledger."""
    target = torch.zeros_like(source) if runtime.failed else source
    status = runtime.status if runtime.failed else 0
    return target.to(runtime.device), torch.tensor([status, 0, 1], device=runtime.device)


def case(n: int, fails: int | str = 0, status: int = 0) -> Case:
    return {"n": n, "fails": fails, "status": status}


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        case(1),
        case(CHUNK - 1),
        case(CHUNK),
        case(CHUNK + 1),
        case(PIECES * CHUNK - 17),
        case(PIECES * CHUNK - 17, fails=1, status=OUT_OF_MEMORY),
        case(PIECES * CHUNK - 17, fails=2, status=OUT_OF_MEMORY),
        case(PIECES * CHUNK - 17, fails=9, status=LAUNCH_FAILURE),
        case(2 * CHUNK + 1, fails=EACH, status=LAUNCH_FAILURE),  # three pieces: a buffer is waited for once
    ),
    reference=reference,
    tolerance={"float32": EXACT, "int64": EXACT},  # nothing is computed
    compulsory_bytes=lambda n, fails, status: 4 * n,
)
