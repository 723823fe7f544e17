"""Count what a call does on the PTX machine, for notebooks, and show the source with the counters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console
from rich.text import Text

from kernelpath.line_counters import SECTOR_BYTES
from kernelpath.show import assembly, cells, templates
from kernelpath.show import source as annotated
from warpcheck import frontends

if TYPE_CHECKING:
    from warpcheck.simt import Launch

Kernel = Callable[..., Any]


class HasSource(Protocol):
    """A kernel that knows its source: `lanes.cuda.Kernel`, or the template of one."""

    @property
    def source(self) -> str: ...


def launches(kernel: Kernel, *arguments: Any) -> list[Launch]:
    """Call a kernel on CPU tensors and return the counters of the PTX machine, launch by launch.

    Raises ValueError if no kernel was launched on the CPU.
    """
    launched: list[frontends.Launched] = []
    with frontends.observe(launched.append):
        kernel(*arguments)
    # Launches on a GPU are observed as well, and have no counters.
    with_counters = [launch.counted for launch in launched if launch.counted is not None]
    if not with_counters:
        raise ValueError("nothing was launched on the PTX machine; are the tensors on the CPU?")
    return with_counters


def count(kernel: Kernel, *arguments: Any) -> Launch:
    """Return the counters of the only launch that the call makes. Raises ValueError if there are several."""
    (launch,) = launches(kernel, *arguments)
    return launch


@dataclass(frozen=True)
class Asked:
    """The memory traffic of a call over all its launches. Requests are accesses of whole warps.

    Attributes:
        atomics: The requests that are atomics.
        same_address: The largest number of lanes at one address in each atomic request, summed over the requests.
    """

    requests: int
    sectors: int
    shared_requests: int
    wavefronts: int
    least_wavefronts: int
    instructions: int
    atomics: int
    same_address: int

    @property
    def bytes(self) -> int:
        """Return the requested bytes: 32 for each sector."""
        return SECTOR_BYTES * self.sectors

    @property
    def sectors_per_request(self) -> float:
        return self.sectors / self.requests

    @property
    def same_address_per_request(self) -> float:
        return self.same_address / self.atomics


def asked(kernel: Kernel, *arguments: Any) -> Asked:
    """Call a kernel on CPU tensors and sum the traffic of all of its launches."""
    call_launches = launches(kernel, *arguments)
    totals = [launch.totals for launch in call_launches]
    # Only atomics have a count of lanes at one address.
    atomics = [access for launch in call_launches for access in launch.accesses if access.same_address]
    return Asked(
        requests=sum(access.global_load_requests + access.global_store_requests for access in totals),
        sectors=sum(access.global_load_sectors + access.global_store_sectors for access in totals),
        shared_requests=sum(access.shared_load_requests + access.shared_store_requests for access in totals),
        wavefronts=sum(access.shared_load_wavefronts + access.shared_store_wavefronts for access in totals),
        least_wavefronts=sum(
            access.shared_load_least_wavefronts + access.shared_store_least_wavefronts for access in totals
        ),
        instructions=sum(sum(access.instructions.values()) for access in totals),
        atomics=sum(access.requests for access in atomics),
        same_address=sum(access.same_address for access in atomics),
    )


def annotate(launch: Launch, source: str | HasSource) -> None:
    """Show the source with the cost of a request beside each line: sectors of global, wavefronts of shared memory.

    A line with several accesses has a cost for each.

    Args:
        source: CUDA C++, or the kernel that was launched.
    """
    text = source if isinstance(source, str) else source.source
    lines = annotated.of_launch(launch, text.rstrip())
    # The source of a cell begins with an empty line instead of its magic, see show.magic.
    first = next(index for index, line in enumerate(lines) if line.text.strip())
    lines = lines[first:]
    legend = annotated.legend(lines)

    def write(console: Console) -> None:
        width = max(len(line.text) for line in lines) + 80
        wide_console = Console(file=console.file, width=width, force_jupyter=False)
        wide_console.print(annotated.table(lines))
        if legend:
            wide_console.print(Text(legend, "dim"))

    def html() -> str:
        columns = annotated.columns(lines)
        texts = annotated.highlight_lines(lines)
        return templates.render("annotated.html", lines=lines, columns=columns, texts=texts, legend=legend)

    cells.put(html, write)


def assembled(launch: Launch, source: str | HasSource) -> assembly.LineMap:
    """Return the PTX and the SASS of each line of the source in a launched kernel, and the messages of ptxas.

    Args:
        source: CUDA C++, or the kernel that was launched.
    """
    return assembly.of_launch(launch, source if isinstance(source, str) else source.source)


def listing(line_map: assembly.LineMap) -> None:
    """Show the PTX and the SASS of each line below the line."""
    texts = annotated.highlight_lines([annotated.Line(line.number, line.text) for line in line_map.lines])
    cells.put(
        lambda: templates.render("assembly.html", found=line_map, texts=texts),
        lambda console: console.print(assembly.table(line_map)),
    )
