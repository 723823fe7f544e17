"""Describe the inputs that led to a wrong NaN or infinity."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from kernelpath.grading.provenance import Observation
from kernelpath.verdict import Finding


def describe_inputs(finding: Finding, observation: Observation, expected: Sequence[torch.Tensor]) -> str:
    """Say how large the inputs were, where the first wrong value is NaN or infinite and the right one is neither.

    Of matrices with as many rows as the output, only the row of that value counts. The text is empty where there is
    nothing to say.
    """
    if finding.element is None:
        return ""
    position, index = finding.element
    output, truth = observation.outputs[position], expected[position]
    if not truth.is_floating_point() or not bool(torch.isfinite(truth.flatten()[index])):
        return ""
    # torch.isfinite does not take float8.
    if bool(torch.isfinite(output.flatten()[index].double())):
        return ""
    row = index // max(output[0].numel(), 1) if output.dim() else 0
    floats = [value for value in observation.inputs if isinstance(value, torch.Tensor) and value.is_floating_point()]
    rows = [tensor[row] for tensor in floats if tensor.dim() > 1 and output.dim() and len(tensor) == len(output)]
    selected = [tensor.double() for tensor in rows or floats if tensor.numel()]
    if not selected:
        return ""
    low = min(float(tensor.min()) for tensor in selected)
    high = max(float(tensor.max()) for tensor in selected)
    if math.isnan(low) or math.isnan(high):
        return ""
    subject = f"the inputs of row {row}" if rows else "the inputs"
    return f"; {subject} lie between {low:.3g} and {high:.3g}: a value on the way overflows, or 0 is divided by 0"
