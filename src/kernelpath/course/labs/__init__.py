"""Simulate devices for exercises whose mistakes a real device would show once in a thousand runs.

virtual        what the simulated devices share: one queue, which torch.cuda's ways to wait refer to as well
timer          an asynchronous device with a clock of its own, which misleads naive timers (w03a_benchmark)
bus            pinned buffers, copies in flight and calls that fail (w02d_copies)
multiprocessor its limits: published, recorded, or (driver) queried from the GPU at hand (w03d_occupancy)
fabric         ranks on simulated links: a timeline of messages and collectives (w16b_all_reduce, w16c_overlap)
ci_machine     times of two versions of a kernel on a machine with troubles (w16g_regression_gate)
operators      what a roofline knows of operators and machines, and torch's own calls (w05a_roofline)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class Lab:
    """A simulated device that is an input of an exercise and patches its environment around a submission's call."""

    def during(self, names: dict[str, Any]) -> AbstractContextManager[None]:
        """Return the context of the call: an empty one, unless the lab replaces functions that the submission uses.

        Args:
            names: The globals of the submission's module.
        """
        return contextlib.nullcontext()

    def variants(self) -> Iterator[Lab]:
        """Yield further labs that the entry is called with after this one, which may depend on the first call."""
        return iter(())

    def graded(self, outputs: Sequence[torch.Tensor], device_outputs: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Return the outputs as this lab knows them.

        Args:
            outputs: The returned outputs.
            device_outputs: The outputs' places in the lab's own memory.
        """
        return outputs


def inputs_with_variants(inputs: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the inputs again with each variant of a lab among them."""
    for lab in inputs:
        for variant in lab.variants() if isinstance(lab, Lab) else ():
            yield tuple(variant if value is lab else value for value in inputs)


def surround(
    within: AbstractContextManager[Any], entry: Callable[..., Any], inputs: Sequence[Any]
) -> AbstractContextManager[Any]:
    """Return the context for a call of the entry: `within`, and inside of it the contexts of the labs in the inputs."""
    # A submission can give its entry any type, also one without globals.
    names = getattr(entry, "__globals__", {})
    contexts = [value.during(names) for value in inputs if isinstance(value, Lab)]
    return _enter_all(within, *contexts) if contexts else within


@contextlib.contextmanager
def _enter_all(*managers: AbstractContextManager[Any]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for manager in managers:
            stack.enter_context(manager)
        yield
