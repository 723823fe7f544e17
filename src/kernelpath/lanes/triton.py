"""The Triton lane: kernels run as usual on a GPU; on the CPU, Triton's interpreter runs them on numpy.

`activate` is called once, before the submission is imported.
"""

from __future__ import annotations

import os
from typing import Any

from kernelpath import lanes


def activate(device: str) -> None:
    """Make `kernel[grid](...)` work on tensors of `device` ("cuda" or "cpu") and record its launches.

    Must run before anything imports triton: its functions are bound to the interpreter, or not, when they are defined.
    """
    if device == "cuda":
        _record_gpu_launches()
    else:
        os.environ["TRITON_INTERPRET"] = "1"
        _record_interpreter_launches()


def _record_gpu_launches() -> None:
    from triton import knobs

    def launched(metadata: Any) -> None:
        lanes.record(lanes.Launched("triton", metadata.get()["name"], "cuda", ()))

    knobs.runtime.launch_enter_hook.add(launched)


def _record_interpreter_launches() -> None:
    from triton.runtime.interpreter import GridExecutor

    run = GridExecutor.__call__

    def run_and_record(self: Any, *args: Any, **kwargs: Any) -> None:
        run(self, *args, **kwargs)
        lanes.record(lanes.Launched("triton", self.fn.__name__, "cpu", (*args, *kwargs.values())))

    GridExecutor.__call__ = run_and_record
