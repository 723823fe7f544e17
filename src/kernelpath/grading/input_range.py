"""Which inputs led to a NaN or an infinity that is wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from kernelpath.grading.provenance import Observation
from kernelpath.verdict import Finding


def describe_inputs(finding: Finding, observation: Observation, expected: Sequence[torch.Tensor]) -> str:
    """Say how large the inputs were, where the first wrong value is NaN or infinite and the right one is neither.

    Of matrices with as many rows as the output, only the row of that value counts. Empty where there is nothing to say.
    """
    if finding.element is None:
        return ""
    position, place = finding.element
    output, truth = observation.outputs[position], expected[position]
    if not truth.is_floating_point() or not bool(torch.isfinite(truth.flatten()[place])):
        return ""
    if bool(torch.isfinite(output.flatten()[place])):
        return ""
    row = place // max(output[0].numel(), 1) if output.dim() else 0
    floats = [one for one in observation.inputs if isinstance(one, torch.Tensor) and one.is_floating_point()]
    of_row = [one[row] for one in floats if one.dim() > 1 and output.dim() and len(one) == len(output)]
    chosen = [one.double() for one in of_row or floats if one.numel()]
    if not chosen:
        return ""
    low, high = min(float(one.min()) for one in chosen), max(float(one.max()) for one in chosen)
    if math.isnan(low) or math.isnan(high):
        return ""
    which = f"the inputs of row {row}" if of_row else "the inputs"
    return f"; {which} lie between {low:.3g} and {high:.3g}: a value on the way overflows, or 0 is divided by 0"
