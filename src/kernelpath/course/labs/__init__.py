"""Labs: simulated devices for exercises whose mistakes a real device would show once in a thousand runs.

virtual        what the simulated devices share: one queue, which torch.cuda's ways to wait mean, too
timer          an asynchronous device with a clock of its own, which misleads naive timers (w03a_benchmark)
bus            pinned buffers, copies in flight and calls that fail (w02d_copies)
multiprocessor the limits of one: published, recorded, or (driver) asked of the GPU at hand (w03d_occupancy)
fabric         ranks on simulated links: a timeline of messages and collectives (w16b_all_reduce, w16c_overlap)
operators      what a roofline knows of operators and machines, and torch's own calls (w05a_roofline)
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class Lab(ABC):
    """A simulated device that is an input of an exercise and puts something of its own around a submission's call."""

    @abstractmethod
    def during(self, names: dict[str, Any]) -> AbstractContextManager[None]:
        """What surrounds the call. names: the globals of the submission's module."""

    def variants(self) -> Iterator[Lab]:
        """Labs that the entry is called with, too, after this one: what they are may follow from what was done here."""
        return iter(())

    def graded(self, outputs: Sequence[torch.Tensor], held: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """The outputs as this lab knows them. outputs: as returned. held: their places in the lab's own memory."""
        return outputs


def varied(inputs: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """The inputs once more with each variant of a lab among them."""
    for lab in inputs:
        for other in lab.variants() if isinstance(lab, Lab) else ():
            yield tuple(other if value is lab else value for value in inputs)


def surround(
    within: AbstractContextManager[Any], entry: Callable[..., Any], inputs: Sequence[Any]
) -> AbstractContextManager[Any]:
    """The `with` block for a call of the entry: `within`, and inside of it what the labs among the inputs ask for."""
    names = getattr(entry, "__globals__", {})
    found = [value.during(names) for value in inputs if isinstance(value, Lab)]
    return _nested(within, *found) if found else within


@contextlib.contextmanager
def _nested(*managers: AbstractContextManager[Any]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for manager in managers:
            stack.enter_context(manager)
        yield
