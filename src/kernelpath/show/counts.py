"""Show kernels beside each other by what they do on the PTX machine: what a GPU would time, a laptop counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rich.table import Table

from kernelpath import words
from kernelpath.line_counters import CallCounts

Counter = Callable[[CallCounts], float]

COUNTERS: dict[str, Counter] = {
    "bytes per element": lambda counts: counts.bytes / counts.elements,
    "requests per 1000 elements": lambda counts: 1000 * counts.requests / counts.elements,
    "wavefronts per 1000 elements": lambda counts: 1000 * counts.wavefronts / counts.elements,
    "instructions per element": lambda counts: counts.instructions / counts.elements,
}
"""The counters of a call by their headings. Elements are those of the outputs, instructions those of warps."""

_GAINS = {
    "bytes per element": "a kernel that memory limits would take less time by that factor",
    "requests per 1000 elements": "wider accesses save instructions, and keep more bytes in flight",
    "wavefronts per 1000 elements": "more outputs per thread, wider reads, or no conflicts relieve shared memory",
    "instructions per element": "fewer of them leave the schedulers more time for the rest",
}
"""What would be gained where a counter is the largest difference."""

MIN_DIFFERENCE = 1.1
"""The factor from which on a counter differs."""


def table(counts_by_label: Mapping[str, CallCounts]) -> Table:
    """Return a table with a row for each counter and a column for each kernel."""
    rows = Table(box=None, pad_edge=False, header_style="bold")
    rows.add_column("counted on the PTX machine")
    for label in counts_by_label:
        rows.add_column(label, justify="right")
    for heading, counter in COUNTERS.items():
        rows.add_row(heading, *(words.number(counter(counts), 3) for counts in counts_by_label.values()))
    return rows


def describe_gain(yours: CallCounts, reference: CallCounts) -> str:
    """Say in one sentence which counter separates two kernels most, and what would be gained there."""
    ratios = {
        heading: counter(yours) / counter(reference) for heading, counter in COUNTERS.items() if counter(reference)
    }
    heading = max(ratios, key=lambda heading: ratios[heading])
    if ratios[heading] < MIN_DIFFERENCE:
        return (
            "By these counts there is nothing left to gain. What still separates the kernels is waiting, which only a "
            "GPU shows."
        )
    noun = heading.partition(" per ")[0]
    return f"Yours needs {ratios[heading]:.3g}× the {noun} of the reference: {_GAINS[heading]}."
