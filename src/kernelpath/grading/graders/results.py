"""Exchange inputs and results with a submission's process, and check what the process reports about itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kernelpath.course.spec import Exercise
from kernelpath.grading import ground_truth
from kernelpath.grading.provenance import MUTATED, check_launches
from kernelpath.verdict import Finding, Verdict
from kernelpath.work import messages
from kernelpath.work.runner import UNEXPECTED_RESPONSE, SubmissionFailed
from kernelpath.work.tensors import dtype_name, fingerprints, storage_bytes, to_bytes


def call_request(inputs: Sequence[Any]) -> messages.Call:
    """Return the request to call the entry on these inputs."""
    tensors = {
        position: messages.TensorData(dtype_name(value.dtype), list(value.shape), to_bytes(value))
        for position, value in enumerate(inputs)
        if isinstance(value, torch.Tensor)
    }
    return messages.Call(
        arguments=[None if position in tensors else value for position, value in enumerate(inputs)], tensors=tensors
    )


def dense(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Return the inputs with each tensor in a storage of its own that has nothing but its elements, in order.

    A message has no other bytes, and `process_finding` compares whole storages.
    """
    return tuple(
        value.clone(memory_format=torch.contiguous_format) if isinstance(value, torch.Tensor) else value
        for value in inputs
    )


def decode_output(output: messages.TensorData, device: str) -> torch.Tensor:
    """Return an output as a tensor. Raise SubmissionFailed where the worker's code cannot have sent it."""
    return decode_tensor(output.dtype, output.shape, output.content, device)


def decode_tensor(dtype: str, shape: Sequence[int], content: bytes, device: str) -> torch.Tensor:
    """Return a tensor that was sent. Raise SubmissionFailed where its parts do not fit together."""
    try:
        return ground_truth.decode_tensor(dtype, shape, content, device)
    except ground_truth.InvalidTensor:
        raise SubmissionFailed(UNEXPECTED_RESPONSE) from None


def process_finding(
    result: messages.CallResult, inputs: tuple[object, ...], overwritten: Sequence[object] = ()
) -> Finding | None:
    """Return a finding about tampering, guard bands or changed inputs, as the submission's process reports them.

    Args:
        result: The report.
        inputs: The inputs as the grader generated them.
        overwritten: The inputs that the call may change.
    """
    # Tampering comes first: a submission that tampers with its process can fake everything below.
    if result.tampered:
        return Finding(Verdict.TAMPERED, result.tampered)
    if result.out_of_bounds:
        return Finding(Verdict.OUT_OF_BOUNDS, f"a kernel {result.out_of_bounds}")
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    if len(result.input_fingerprints) != len(tensors):
        return MUTATED
    overwritten_ids = {id(value) for value in overwritten}
    constant = [
        (fingerprint, value)
        for fingerprint, value in zip(result.input_fingerprints, tensors, strict=True)
        if id(value) not in overwritten_ids
    ]
    # Whole storages are compared: a write between or around the elements of an input changes the input, too.
    expected = fingerprints([storage_bytes(value) for _, value in constant])
    return None if [list(fingerprint) for fingerprint, _ in constant] == expected else MUTATED


def kernel_process_finding(
    exercise: Exercise, result: messages.CallResult, inputs: tuple[object, ...]
) -> Finding | None:
    """Return a finding as `process_finding` does, or a finding where the process launched no kernel."""
    finding = process_finding(result, inputs, exercise.overwritten(inputs))
    return finding or check_launches(result.operators, result.launches, exercise.entry)
