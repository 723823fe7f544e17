"""Copies: overlap host-to-device transfers with host work.

Week 2. Two pinned buffers in turn, events, and a status after every call. Graded on values, on what is freed and when,
on failures, and on the time, all on a simulated bus: a real one rarely shows what was done too early. The notebook
measures on the real one.
"""

from collections.abc import Sequence
from typing import Any

import torch

from kernelpath.course.labs.bus import OUT_OF_MEMORY, PINNED_AT_MOST, Runtime
from kernelpath.course.problems import copies
from kernelpath.course.spec import Exercise


def complaint(inputs: Sequence[Any], outputs: Sequence[torch.Tensor]) -> str | None:
    """What the ledger says, in words."""
    runtime: Runtime = inputs[0]
    status, kept, times = outputs[1].tolist()
    spent, failing = runtime.spent, runtime.fails - 1
    call = f"call {runtime.fails} ({spent.calls[failing]}{_in_line(spent.lines[failing:])})" if runtime.failed else ""
    after = f" after {call} failed" if call else ""
    if call and status != runtime.status:
        raised = f"raised status {status}" if status else "raised no error"
        return f"{raised} where {call} had returned status {runtime.status}"
    if status == OUT_OF_MEMORY and not call:
        return f"raised status {status}: more than {PINNED_AT_MOST:,} elements were pinned at a time"
    if kept:
        return f"a leak: {kept} pinned buffer{'s were' if kept > 1 else ' was'} not freed{after}"
    if early := spent.freed_early:
        buffers, them = (f"{early} pinned buffers were", "them") if early > 1 else ("a pinned buffer was", "it")
        return f"{buffers} freed{after}, with a copy from {them} still in the queue; host_free waits for nothing"
    if spent.refilled_early:
        line = _in_line([spent.refilled_line])
        return f"a pinned buffer was filled again{line} before its copy had read it: wait for the event after that copy"
    if times > 1:
        return f"took {times} times as long as with overlapped copies: the host and the bus waited for each other"
    return None


def _in_line(lines: Sequence[int]) -> str:
    """Where the first of some calls stands in the submission, if that is known."""
    return f" in line {lines[0]}" if any(lines[:1]) else ""


EXERCISE = Exercise(entry="copies", problem=copies.PROBLEM, kind="lab", check=complaint)
