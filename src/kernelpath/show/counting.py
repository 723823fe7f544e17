"""What notebooks count on the PTX machine: the counters of a call, and the source with them."""

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


class Sourced(Protocol):
    """A kernel that knows its source: `lanes.cuda.Kernel`, or the template of one."""

    @property
    def source(self) -> str: ...


def launches(kernel: Kernel, *arguments: Any) -> list[Launch]:
    """Call a kernel on CPU tensors and return what the PTX machine counted, launch by launch.

    Raises ValueError if no kernel was launched on the CPU.
    """
    launched: list[frontends.Launched] = []
    with frontends.observe(launched.append):
        kernel(*arguments)
    counted = [one.counted for one in launched if one.counted is not None]
    if not counted:
        raise ValueError("nothing was launched on the PTX machine; are the tensors on the CPU?")
    return counted


def count(kernel: Kernel, *arguments: Any) -> Launch:
    """What the PTX machine counted in the only launch that the call makes. Raises ValueError if there are several."""
    (launch,) = launches(kernel, *arguments)
    return launch


@dataclass(frozen=True)
class Asked:
    """What a call asked of memory, over all its launches. Requests are accesses of whole warps.

    atomics: requests that are atomics. same_address: the most lanes that met at one address, summed over them.
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
        """Bytes asked for: 32 for each sector."""
        return SECTOR_BYTES * self.sectors

    @property
    def sectors_per_request(self) -> float:
        return self.sectors / self.requests

    @property
    def same_address_per_request(self) -> float:
        return self.same_address / self.atomics


def asked(kernel: Kernel, *arguments: Any) -> Asked:
    """Call a kernel on CPU tensors and sum what all of its launches asked for."""
    launched = launches(kernel, *arguments)
    totals = [launch.totals for launch in launched]
    atomics = [one for launch in launched for one in launch.accesses if one.same_address]
    return Asked(
        requests=sum(one.global_load_requests + one.global_store_requests for one in totals),
        sectors=sum(one.global_load_sectors + one.global_store_sectors for one in totals),
        shared_requests=sum(one.shared_load_requests + one.shared_store_requests for one in totals),
        wavefronts=sum(one.shared_load_wavefronts + one.shared_store_wavefronts for one in totals),
        least_wavefronts=sum(one.shared_load_least_wavefronts + one.shared_store_least_wavefronts for one in totals),
        instructions=sum(sum(one.instructions.values()) for one in totals),
        atomics=sum(one.requests for one in atomics),
        same_address=sum(one.same_address for one in atomics),
    )


def annotate(launch: Launch, source: str | Sourced) -> None:
    """Show the source, and beside each line what a request of it cost: sectors in global memory, wavefronts in shared.

    source: CUDA C++, or the kernel that was launched. Where a line has several accesses, a cost stands there for each.
    """
    text = source if isinstance(source, str) else source.source
    lines = annotated.of_launch(launch, text.rstrip())
    first = next(place for place, line in enumerate(lines) if line.text.strip())
    lines = lines[first:]
    legend = annotated.legend(lines)

    def write(console: Console) -> None:
        width = max(len(line.text) for line in lines) + 80
        wide = Console(file=console.file, width=width, force_jupyter=False)
        wide.print(annotated.table(lines))
        if legend:
            wide.print(Text(legend, "dim"))

    def html() -> str:
        columns, texts = annotated.columns(lines), annotated.colored(lines)
        return templates.render("annotated.html", lines=lines, columns=columns, texts=texts, legend=legend)

    cells.put(html, write)


def assembled(launch: Launch, source: str | Sourced) -> assembly.Map:
    """What became of each line of the source in a launched kernel: its PTX, its SASS, and what ptxas says.

    source: CUDA C++, or the kernel that was launched.
    """
    return assembly.of_launch(launch, source if isinstance(source, str) else source.source)


def listing(found: assembly.Map) -> None:
    """Show under each line of the source the PTX and the SASS that it became."""
    texts = annotated.colored([annotated.Line(line.number, line.text) for line in found.lines])
    cells.put(
        lambda: templates.render("assembly.html", found=found, texts=texts),
        lambda console: console.print(assembly.table(found)),
    )
