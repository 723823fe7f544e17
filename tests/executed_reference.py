"""Execute a reference kernel on the PTX machine for another GPU model, in a separate process."""

from __future__ import annotations

import dataclasses
from typing import Any

from kernelpath.course import registry
from kernelpath.course.inputs import generate_inputs
from kernelpath.dev import cards
from kernelpath.grading.compare import check_outputs
from kernelpath.grading.ground_truth import expected_outputs
from warpcheck import backend, simulated_gpu
from warpcheck.target import SM_90A


class _Device(backend.Local):
    """Record the shared memory of each launch."""

    def __init__(self) -> None:
        super().__init__()
        self.shared: list[int] = []

    def load(self, *text: Any) -> Any:
        module = super().load(*text)
        launch = module.launch

        def launch_and_note(*args: Any, shared: int, **kwargs: Any) -> Any:
            self.shared.append(shared)
            return launch(*args, shared=shared, **kwargs)

        module.launch = launch_and_note  # type: ignore[method-assign]
        return module


def execute(name: str, architecture: str, case: dict[str, object]) -> tuple[str | None, int]:
    """Return the cause of a wrong output or None, and the largest shared memory of a launch in bytes."""
    card = cards.target(architecture)
    if architecture == "sm_90":  # simulate the shared memory of sm_120, which also has TMA
        card = dataclasses.replace(SM_90A, shared=99 << 10)
    # With one multiprocessor, a reference kernel chooses its larger tiles.
    simulated_gpu.show({**cards.properties(card), "multi_processor_count": 1}, card)
    device = _Device()
    backend.use(device)
    item = registry.find(name)
    exercise = registry.load(item)
    inputs = generate_inputs(exercise, case, 1, "cpu")
    result = cards.load_entry(item, exercise)(*inputs)
    outputs = result if isinstance(result, tuple) else [result]
    finding = check_outputs(outputs, expected_outputs(exercise, inputs), exercise.tolerance)
    return finding.cause if finding else None, max(device.shared)
