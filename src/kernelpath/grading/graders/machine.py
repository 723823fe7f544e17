"""Give inputs to the PTX machine, and turn the faults that it reports into findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from kernelpath.device import messages as device
from kernelpath.verdict import Finding, Verdict
from kernelpath.work.exception_findings import FAULT_VERDICTS, explain_fault
from kernelpath.work.runner import Runner
from kernelpath.work.tensors import dtype_name, storage_bytes, to_bytes

_ENDINGS = {
    **{kind.name: verdict for kind, verdict in FAULT_VERDICTS.items()},
    "TIMED_OUT": Verdict.TIMED_OUT,
    "DEADLOCK": Verdict.DEADLOCK,
}


def encode_inputs(
    inputs: Sequence[Any], fresh_numbers: Iterator[int], *, large_offsets: bool = False, ranks: int = 0
) -> device.Inputs:
    """Return the arguments for the PTX machine.

    Tensors become references to storages. Tensors on torch's meta device get address spans without memory.

    Args:
        inputs: The arguments.
        fresh_numbers: Numbers for the storages. On the machine they are negative, unlike those of the submission's own
            storages.
        large_offsets: Whether offsets may exceed 2**31; see device/large_offsets.
        ranks: The number of ranks in the launch; 0 unless Exercise.ranks.
    """
    numbers: dict[int, int] = {}
    storages: dict[int, bytes] = {}
    spans: dict[int, int] = {}
    arguments: list[Any] = []
    for value in inputs:
        if isinstance(value, torch.device):
            value = device.TorchDevice(str(value))
        elif isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            number = numbers.get(storage._cdata)  # tensors that share a storage share it on the machine as well
            if number is None:
                number = numbers[storage._cdata] = -next(fresh_numbers)
                if value.is_meta:
                    spans[number] = storage.nbytes()
                else:
                    storages[number] = to_bytes(storage_bytes(value))
            shape, strides, offset = list(value.shape), list(value.stride()), int(value.storage_offset())
            value = device.TensorRef(number, dtype_name(value.dtype), shape, strides, offset)
        arguments.append(value)
    return device.Inputs(arguments, storages, large_offsets, spans, ranks)


def machine_finding(failed: device.Failed, submission: Path, remark: str = "") -> Finding:
    """Return the finding about a kernel that the PTX machine ended, in the words of the source.

    Args:
        failed: The machine's report.
        submission: The submission's Python file.
        remark: Added to the machine's sentence.
    """
    if failed.kind == "FORGED":
        return Finding(Verdict.TAMPERED, failed.text)
    cause = explain_fault(failed.text + remark, submission, failed.file, failed.line)
    return Finding(_ENDINGS.get(failed.kind, Verdict.CRASHED), cause, failed.file, failed.line)


def fault_on_machine(runner: Runner, submission: Path, remark: str = "") -> Finding | None:
    """Return a kernel's fault, however the submission's process ended because of it. See `machine_finding`."""
    if not runner.pids:
        return None
    call_end = runner.request_machine(device.End(runner.client, ()), device.CaseReport)
    if call_end is None or call_end.failed is None:
        return None
    return machine_finding(call_end.failed, submission, remark)
