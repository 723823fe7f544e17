"""Run one case on the PTX machine: hold the storages that kernels access, and write the transcript of launches."""

from __future__ import annotations

import itertools
import math
import re
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

from kernelpath.device import large_offsets, messages
from kernelpath.device.addresses import AddressSpace
from kernelpath.device.elements import ITEM_TYPES, Bytes, InvalidRequest, digest, elements, item_bytes
from kernelpath.device.links import RelocatedContent
from kernelpath.line_counters import LineInstructions, LineTraffic
from warpcheck import pointers, ptx, simt
from warpcheck.counters import LineCounters, by_access
from warpcheck.layout import Access
from warpcheck.runtime.rank_memory import RankMemory

# A storage starts at a cache line plus its address modulo 16 in the submission's process.
#
# The widest access has 16 bytes, so a kernel cannot observe more of an address's alignment than this.
ALIGNMENT = 16

# The size limit of one storage.
MAX_STORAGE_BYTES = 4 << 30

# The limit of launches in a transcript. An honest entry makes fewer in a case.
MAX_LAUNCHES = 10_000

# The prefix of the transcript's names of storages that survive from earlier calls.
_KEPT_PREFIX = "kept from "

NOT_FROM_KERNEL = "none of your kernels was given the tensor that was returned"
CHANGED_BY_HOST = "after your last kernel, the output was changed by something other than a kernel of yours"

NVRTC = "CUDA C++"
TRITON = "Triton"
CUTE_DSL = "CuTe DSL"

# The number of characters at the start of a text that contain the compiler's name.
_HEADER = 1000

_FILE = re.compile(r'^[ \t]*\.file[ \t]+\d+[ \t]+"([^"\n]*)"', re.MULTILINE)


@dataclass
class CaseStorage:
    """A storage of the submission, in the machine's memory.

    Attributes:
        name: Its name in the transcript.
        initial: The generated content of an input.
        host_digests: Digests of the bytes that the host wrote since the last launch and of the whole content then.
        has_table: Whether the host wrote more than one repeated value since the last launch.
        final: The content at the entry's return, where the host changed it after the last launch.
        launched: Whether a kernel was launched on it.
        linked: The content with this process's addresses in place of the submission's.
    """

    memory: Bytes
    name: str
    initial: Bytes | None = None
    host_digests: str = ""
    has_table: bool = False
    final: Bytes | None = None
    launched: bool = False
    linked: RelocatedContent | None = None

    @property
    def address(self) -> int:
        return int(self.memory.ctypes.data)

    def client_bytes(self) -> bytes:
        """Return the content with the addresses of the submission's process."""
        return self.linked.to_client(self.memory) if self.linked else self.memory.tobytes()


@dataclass
class Case:
    """The state between `begin` and `report`. Storages persist: a submission may keep tensors from call to call."""

    inputs: messages.Inputs = field(default_factory=lambda: messages.Inputs((), {}))
    order: int = 0
    recorded: bool = False
    launches: list[simt.Launch] = field(default_factory=list)
    failed: messages.Failed | None = None
    _unreached: set[str] = field(default_factory=set)
    _reached: list[dict[int, int]] = field(default_factory=list)
    _stored_bytes: list[dict[int, int]] = field(default_factory=list)
    _transcript: list[messages.LaunchEntry] = field(default_factory=list)
    _storage_sizes: list[dict[int, int]] = field(default_factory=list)
    _storages: dict[int, CaseStorage] = field(default_factory=dict)
    _memory: simt.Memory = field(default_factory=simt.Memory)
    _addresses: AddressSpace = field(default_factory=AddressSpace)
    _label: str = ""
    _names: Iterator[int] = field(default_factory=itertools.count)
    _input_names: dict[int, str] = field(default_factory=dict)
    _written_inputs: set[int] = field(default_factory=set)

    def begin(self, inputs: messages.Inputs, order: int, label: str = "") -> None:
        """Begin a case. Storages of inputs have negative numbers.

        The transcript names all other storages in the order of their first launch, so that it does not depend on
        earlier calls.

        Args:
            inputs: The arguments of the entry.
            order: The order of warps and blocks.
            label: Distinguishes the storages of this call from those of other calls in later transcripts.
        """
        for stored in self._storages.values():
            if not stored.name.startswith(_KEPT_PREFIX):
                stored.name = f"{_KEPT_PREFIX}{self._label}: {stored.name}"
        self.inputs = inputs
        self.order = order
        self._label = label
        self._names = itertools.count()
        input_numbers = (*inputs.storages, *inputs.spans)
        self._input_names = {number: f"input {position}" for position, number in enumerate(input_numbers)}
        # A client that sent garbage has lost its connection. Whether that was before its first case or in an earlier
        # one, no case of it passes any more.
        if self.failed is not None and self.failed.kind != "FORGED":
            self.failed = None
        self.launches = []
        self._transcript = []
        self._storage_sizes = []
        self._unreached = set()
        self._reached = []
        self._stored_bytes = []
        self._written_inputs = set()
        for number, content in inputs.storages.items():
            initial = np.frombuffer(content, np.uint8)
            stored = CaseStorage(self._addresses.place(len(content)), self._input_names[number], initial=initial)
            stored.memory[:] = initial
            self._storages[number] = stored

    def launch(self, module: simt.Module, request: messages.Launch) -> tuple[simt.Launch, list[tuple[int, bytes]]]:
        """Run a kernel. Return the launch, and the storages that it changed with their new bytes."""
        max_launches = large_offsets.MAX_LAUNCHES if self.inputs.large_offsets else MAX_LAUNCHES
        # Each record stays in memory until the end of the call, so a loop of launches could exhaust the machine.
        if len(self._transcript) == max_launches:
            raise InvalidRequest(f"more than {max_launches:,} launches in one call")
        for number in request.dropped:
            # A client that could drop the storage of an input would hide that the input was changed, see `_mutated`.
            if number not in self.inputs.storages and number not in self.inputs.spans:
                self._drop(number)
        try:
            new = self._place_all(request)
            buffers = {buffer.storage: self._stored(buffer.storage) for buffer in request.buffers}
            for storage in request.storages:
                self._update(storage, storage.number in new)
            record = self._record(module, request, buffers, new)
        except InvalidRequest as error:  # it may have placed storages, which moves the addresses of later launches
            refused = messages.LaunchEntry(
                request.kernel,
                str(error),
                request.grid,
                request.block,
                request.shared,
                [],
                [],
                compiler=compiler_of(module.text),
            )
            self._transcript.append(refused)
            raise
        # The record comes before the launch, so that a launch that faults is in the transcript as well.
        self._transcript.append(record)
        self._storage_sizes.append(
            # Storages of inputs have negative numbers and are no workspace.
            {number: stored.memory.nbytes for number, stored in self._storages.items() if number >= 0}
        )
        # Only what the kernel has changed is sent back, because most buffers of a launch are inputs.
        before = {number: stored.memory.copy() for number, stored in buffers.items() if not self._is_span(stored)}
        buffer_spans = [self._buffer(buffer) for buffer in request.buffers]
        launch = module.launch(
            request.kernel,
            grid=request.grid,
            block=request.block,
            shared=request.shared,
            args=[self._argument(value) for value in request.arguments],
            buffers=buffer_spans,
            memory=self._memory,
            reverse=self.order,
            cooperative=request.cooperative,
            cluster=request.cluster,
            programmatic_stream_serialization=request.programmatic_stream_serialization,
            # A case with large offsets has too many blocks to run them all: a sample of them shows whether offsets
            # overflow.
            max_instructions=large_offsets.MAX_INSTRUCTIONS if self.inputs.large_offsets else None,
            blocks=large_offsets.sample(request.grid) if self.inputs.large_offsets else None,
            rank_memory=self._rank_memory(buffers.values()) if self.inputs.ranks else (),
        )
        self.launches.append(launch)
        written = {sample.buffer for sample in launch.accesses if sample.access != Access.LOAD and not sample.shared}
        reached = {buffer.storage for buffer in request.buffers if buffer.name in written}
        self._written_inputs |= reached & self.inputs.storages.keys()
        if self.inputs.large_offsets:
            self._unreached |= large_offsets.find_unreached(launch, buffer_spans)
            is_complete = large_offsets.is_complete_sample(launch)
            self._reached.append(_reached_in(launch, request.buffers) if is_complete else {})
            self._stored_bytes.append(_stored_in(launch, request.buffers) if is_complete else {})
        for stored in buffers.values():
            stored.launched = True
            stored.host_digests = ""
            stored.has_table = False
        changed = [number for number, content in before.items() if not np.array_equal(content, buffers[number].memory)]
        return launch, [(number, buffers[number].client_bytes()) for number in changed]

    def _rank_memory(self, tables: Iterable[CaseStorage]) -> list[RankMemory]:
        """Return the memory of each rank: its part of each input, and from its address in a table to the next address
        or to the storage's end.
        """
        ranks = self.inputs.ranks
        rank_memory: list[RankMemory] = []
        for tensor in self.inputs.arguments:
            if not isinstance(tensor, messages.TensorRef) or tensor.storage not in self._storages:
                continue
            itemsize = item_bytes(tensor.dtype)
            start = self._storages[tensor.storage].address + tensor.offset * itemsize
            part = math.prod(tensor.shape) // ranks * itemsize
            rank_memory += [RankMemory(r, start + r * part, start + (r + 1) * part) for r in range(ranks)]
        spans = [(stored.address, stored.address + stored.memory.nbytes) for stored in self._storages.values()]
        for table in tables:
            # A table of the ranks' memory has one address for each rank.
            if table.linked is None or table.memory.nbytes != ranks * pointers.WORD:
                continue
            addresses = pointers.words(table.memory).tolist()
            for rank, address in enumerate(addresses):
                end = next((end for start, end in spans if start <= address < end), address)
                following = [other for other in addresses if address < other < end]
                rank_memory.append(RankMemory(rank, address, min([*following, end])))
        return rank_memory

    def finish(self, storages: Sequence[messages.Storage]) -> None:
        """Store the contents that the host changed between the last launch and the entry's return."""
        for message in storages:
            content = self._relocate(message).local
            stored = self._storages.get(message.number)
            # A storage that is no input and that no launch was given is unknown here. `_output` refuses it.
            if stored is not None and content.size == stored.memory.size:
                stored.final = content

    def report(
        self, outputs: Sequence[messages.TensorRef], counted: bool = True, measures_reads: bool = False
    ) -> messages.CaseReport:
        """Return the report on the case, and reset the state of the case.

        Args:
            outputs: The outputs, as the submission's process names them.
            counted: Whether the report includes the counters.
            measures_reads: Whether it includes `most_read`.
        """
        returned: dict[int, int] = defaultdict(int)
        for output in outputs:
            if output.dtype in ITEM_TYPES and min(output.shape, default=0) >= 0:
                returned[output.storage] += math.prod(output.shape) * item_bytes(output.dtype)
        report = messages.CaseReport(
            outputs=[self._output(output) for output in outputs],
            # The grader numbers the storages of inputs downwards, so descending numbers are the order of the inputs.
            mutated=[number for number in sorted(self.inputs.storages, reverse=True) if self._mutated(number)],
            transcript=self._transcript,
            failed=self.failed,
            traffic=sum_accesses(self.launches) if counted else (),
            instructions=sum_instructions(self.launches) if counted else (),
            tensor=sum(launch.totals.most_tensor_operations for launch in self.launches),
            overlaps=[
                messages.GridOverlap(launch.share_before_wait, launch.share_before_trigger) for launch in self.launches
            ],
            most_read=self._most_read() if measures_reads else (),
            unreached=sorted(self._unreached),
            reached=self._reached[0] if len(self._reached) == 1 else {},
            stored=self._stored_bytes[0] if len(self._stored_bytes) == 1 else {},
            workspace=max(
                # An output may be a view of a larger storage, the rest of which is workspace.
                (
                    sum(max(nbytes - returned[number], 0) for number, nbytes in sizes.items())
                    for sizes in self._storage_sizes
                ),
                default=0,
            ),
        )
        for stored in self._storages.values():
            stored.final = None
        if self.inputs.large_offsets:
            self.launches = []
            for number in [number for number, stored in self._storages.items() if self._is_span(stored)]:
                self._drop(number)
            self._addresses.forget_spans()
        return report

    def _most_read(self) -> list[list[int]]:
        """Return for each input storage, in their order, the most bytes that one block of each launch read."""
        spans = []
        for number in sorted(self.inputs.storages, reverse=True):
            stored = self._storages.get(number)
            spans.append((stored.address, stored.address + stored.memory.nbytes) if stored is not None else (0, 0))
        return [[launch.most_bytes_read(*span) for launch in self.launches] for span in spans]

    def writer(self, storage: int, offset: int) -> messages.LastWriter | None:
        """Return the thread that last wrote a byte of a storage; None if no kernel wrote it."""
        stored = self._storages.get(storage)
        if stored is None:
            return None
        for launch in reversed(self.launches):
            if (author := launch.writer(stored.address + offset)) is not None:
                return messages.LastWriter(author.thread, author.block, launch.file, author.site.line)
        return None

    # Storages

    def place(self, nbytes: int) -> Bytes:
        """Return zeroed bytes for the global variables of a module. Its first launch places them."""
        return self._addresses.place(nbytes)

    def _stored(self, number: int) -> CaseStorage:
        if number in self.inputs.spans and number not in self._storages:
            memory = self._addresses.place(self.inputs.spans[number])
            self._storages[number] = CaseStorage(memory, self._input_names[number])
        if number not in self._storages:
            raise InvalidRequest(f"there is no storage {number}")
        return self._storages[number]

    def _is_span(self, stored: CaseStorage) -> bool:
        """Return whether a storage is an address span whose bytes are never sent or compared."""
        return self.inputs.large_offsets and stored.memory.nbytes >= simt.FAR

    def _drop(self, number: int) -> None:
        """Forget a storage, and the machine's records of who wrote its addresses."""
        if stored := self._storages.pop(number, None):
            self._memory.forget(stored.address, stored.memory.nbytes)

    def _place_all(self, launch: messages.Launch) -> set[int]:
        """Place the storages of a launch in the order of its transcript. Return the numbers of the new ones.

        Raises:
            InvalidRequest: The transcript does not name one of the storages, which would move all later ones unseen.
        """
        storages = {storage.number: storage for storage in launch.storages}
        buffer_numbers = dict.fromkeys(buffer.storage for buffer in launch.buffers)
        if len(storages) < len(launch.storages) or not storages.keys() <= buffer_numbers.keys():
            raise InvalidRequest("a launch comes with a storage that its kernel is not given")
        return {number for number in buffer_numbers if number in storages and self._place(storages[number])}

    def _place(self, storage: messages.Storage) -> bool:
        """Allocate memory for a storage unless it has some. Return whether it is new."""
        stored = self._storages.get(storage.number)
        if storage.number < 0 and (stored is None or stored.memory.nbytes != storage.nbytes or storage.fresh):
            raise InvalidRequest("the storage of an input is the grader's")
        if stored is not None and stored.memory.nbytes == storage.nbytes and not storage.fresh:
            return False
        # An honest client never sends a number with another size, or as fresh a second time. Such a storage counts as
        # new, and has a new name in the transcript.
        self._drop(storage.number)
        if (
            not 0
            <= storage.nbytes
            <= (large_offsets.MAX_STORAGE_BYTES if self.inputs.large_offsets else MAX_STORAGE_BYTES)
        ):
            raise InvalidRequest(f"a storage of {storage.nbytes:,} bytes")
        memory = self._addresses.place(storage.nbytes, storage.alignment % ALIGNMENT)
        self._storages[storage.number] = CaseStorage(memory, f"tensor {next(self._names)}")
        return True

    def _relocate(self, message: messages.Storage) -> RelocatedContent:
        def address_of(number: int) -> tuple[int, int, str]:
            if number not in self._storages:
                raise InvalidRequest(f"there is no storage {number}")
            stored = self._storages[number]
            return stored.address, stored.memory.nbytes, stored.name

        return RelocatedContent(_content(message), message.links, address_of)

    def _update(self, message: messages.Storage, is_new: bool) -> None:
        stored = self._storages[message.number]
        if is_new and message.fresh:
            if not self.inputs.large_offsets:  # the sample may lack the blocks that would have written it
                stored.memory[: message.nbytes // 2 * 2].view(np.uint16)[:] = messages.POISON
                self._memory.allocated(stored.address, message.nbytes)
            return
        linked = stored.linked = self._relocate(message)
        stored.has_table |= not _is_fill(linked.local)
        if is_new:
            stored.host_digests = digest(linked.canonical)
            stored.memory[:] = linked.local
            return
        is_different = linked.extend_to_words(np.not_equal(stored.memory, linked.local))
        earlier_digest = np.frombuffer(
            stored.host_digests.partition(" ")[0].encode(), np.uint8
        )  # chains two updates without a launch between them
        # The mask is part of the digest: a byte that the host overwrote with 0 is not one that it left alone.
        changes = digest(earlier_digest, np.where(is_different, linked.canonical, 0), is_different)
        stored.host_digests = f"{changes} {digest(linked.canonical)}"
        stored.memory[:] = linked.local
        self._memory.written(stored.address)

    def _mutated(self, number: int) -> bool:
        # A store of the same bytes is one, too: it races with others that read the input, and hides who has read it.
        if number in self._written_inputs:
            return True
        stored = self._storages.get(number)
        if stored is None or stored.initial is None:
            return False
        return not np.array_equal(stored.memory if stored.final is None else stored.final, stored.initial)

    def _output(self, ref: messages.TensorRef) -> messages.Output:
        stored = self._storages.get(ref.storage)
        if stored is None or not (stored.launched or ref.storage in self.inputs.storages):
            return messages.Output(b"", NOT_FROM_KERNEL)
        try:
            content = elements(stored.memory, ref)
        except InvalidRequest as error:
            return messages.Output(b"", str(error))
        if stored.final is not None and not np.array_equal(content, elements(stored.final, ref)):
            return messages.Output(b"", CHANGED_BY_HOST)
        return messages.Output(content.tobytes(), "")

    # Launches

    def _argument(self, value: int | float | messages.Pointer | messages.Blob) -> int | float | bytes:
        if isinstance(value, messages.Pointer):
            return self._stored(value.storage).address + value.offset
        if isinstance(value, messages.Blob):
            content = bytearray(value.content)
            for offset, pointer in value.pointers:
                content[offset : offset + 8] = int(self._argument(pointer)).to_bytes(8, "little", signed=True)
            # A slice assignment past the end lengthens a bytearray, and a forged message may have any offset.
            return bytes(content[: len(value.content)])
        return value

    def _buffer(self, buffer: messages.Buffer) -> simt.Buffer:
        stored = self._stored(buffer.storage)
        if (
            buffer.offset < 0
            or buffer.nbytes < 0
            or buffer.offset + buffer.nbytes > stored.memory.nbytes
            or buffer.itemsize < 1
        ):
            raise InvalidRequest(f"{buffer.name} is not inside its storage")
        return simt.Buffer(
            buffer.name, stored.address + buffer.offset, buffer.nbytes, buffer.itemsize, dtype=buffer.dtype
        )

    def _record(
        self, module: simt.Module, request: messages.Launch, buffers: Mapping[int, CaseStorage], new: set[int]
    ) -> messages.LaunchEntry:
        names = {buffer.storage: buffer.name for buffer in request.buffers}
        return messages.LaunchEntry(
            kernel=request.kernel,
            code=module.digest,
            compiler=compiler_of(module.text),
            grid=request.grid,
            block=request.block,
            shared=request.shared,
            arguments=[self._describe_argument(value) for value in zero_padding(module, request)],
            host=[(names[number], stored.host_digests) for number, stored in buffers.items() if stored.host_digests],
            cooperative=request.cooperative,
            cluster=request.cluster,
            programmatic_stream_serialization=request.programmatic_stream_serialization,
            buffers=[self._describe_buffer(buffer, buffer.storage in new) for buffer in request.buffers],
            tables=[names[number] for number, stored in buffers.items() if stored.has_table],
            fills=[
                (names[number], digest(stored.memory))
                for number, stored in buffers.items()
                if number >= 0 and number not in new and not stored.host_digests and _is_fill(stored.memory)
            ],
        )

    def _describe_buffer(self, buffer: messages.Buffer, is_new: bool) -> str:
        """Describe the memory that a kernel may access. A new storage holds no earlier data."""
        new = ", new" if is_new else ""
        return f"{self._describe_storage(buffer.storage)}{new}: {buffer.nbytes} bytes at {buffer.offset}"

    def _describe_storage(self, number: int) -> str:
        """Describe a storage by its name and by everything that a kernel can learn from its address."""
        stored = self._storages.get(number)
        if stored is None:
            return f"no storage {number}"
        misalignment = stored.address % ALIGNMENT
        suffix = f", {misalignment} bytes off 16" if misalignment else ""
        return f"{stored.name} ({stored.memory.nbytes} bytes{suffix})"

    def _describe_argument(self, value: int | float | messages.Pointer | messages.Blob) -> str:
        """Describe an argument for the transcript: of a pointer, everything that a kernel can learn from it."""
        if isinstance(value, messages.Pointer):
            return f"{self._describe_storage(value.storage)} + {value.offset}"
        if isinstance(value, messages.Blob):
            content = bytearray(value.content)
            # An address differs from process to process. The list of pointers describes its target instead.
            for offset, _ in value.pointers:
                content[offset : offset + 8] = bytes(8)
            return (
                f"{content.hex()} {[(offset, self._describe_argument(pointer)) for offset, pointer in value.pointers]}"
            )
        # All NaNs have one text, but a kernel sees the bits of each.
        return repr(value) if value == value else struct.pack("<d", value).hex()


def sum_accesses(launches: Iterable[simt.Launch]) -> list[LineTraffic]:
    """Return the accesses of each source line to each tensor, summed over launches."""
    files: dict[str, list[simt.AccessSample]] = {}
    for launch in launches:
        files.setdefault(Path(launch.file).name, []).extend(launch.accesses)
    return [
        LineTraffic.from_counters(file, counters) for file, samples in files.items() for counters in by_access(samples)
    ]


def sum_instructions(launches: Iterable[simt.Launch]) -> list[LineInstructions]:
    """Return the instructions of each source line, summed over launches."""
    lines: dict[tuple[str, int], LineCounters] = defaultdict(LineCounters)
    for launch in launches:
        for line, counters in launch.lines.items():
            lines[Path(launch.file).name, line].add(counters)
    return [LineInstructions.from_counters(*location, counters) for location, counters in sorted(lines.items())]


def _is_fill(content: Bytes) -> bool:
    """Return whether bytes repeat one value, as torch.zeros and torch.full write it. Such bytes carry no results."""
    words = content[: content.size // 8 * 8].view(np.uint64)
    rest = content[words.nbytes :]
    first = content[:8]
    return bool((words == words[:1]).all() and np.array_equal(rest, first[: rest.size]))


def _reached_in(launch: simt.Launch, buffers: Sequence[messages.Buffer]) -> dict[int, int]:
    """Return the end, in bytes, of a launch's accesses to each storage."""
    reached: dict[int, int] = {}
    for buffer in buffers:
        end = buffer.offset + launch.reached[buffer.name]
        reached[buffer.storage] = max(end, reached.get(buffer.storage, 0))
    return reached


def _stored_in(launch: simt.Launch, buffers: Sequence[messages.Buffer]) -> dict[int, int]:
    """Return the bytes that a launch stored to each storage with ordinary stores, if it made no others."""
    stores = [sample for sample in launch.accesses if sample.access == Access.STORE and not sample.shared]
    if any(sample.bulk for sample in stores):
        return {}
    stored: dict[int, int] = {}
    for buffer in buffers:
        nbytes = sum(sample.lanes * sample.bytes for sample in stores if sample.buffer == buffer.name)
        stored[buffer.storage] = stored.get(buffer.storage, 0) + nbytes
    return stored


def _content(message: messages.Storage) -> Bytes:
    if message.content is None or len(message.content) != message.nbytes:
        raise InvalidRequest(f"storage {message.number} does not hold the bytes that it should")
    return np.frombuffer(message.content, np.uint8)


@lru_cache(maxsize=256)
def compiler_of(text: str) -> str:
    """Return the language that a PTX text was compiled from; "" where no known compiler made the text.

    The text says so, whichever way the kernel took to the device: the course's interface for CUDA C++, the interface
    of the device, or bytes on its socket. Handwritten PTX can imitate a compiler's header, so this catches mistakes and
    shortcuts, not forged PTX. NVIDIA's NVVM compiles both for NVRTC and for the CuTe DSL. The source files of the line
    table distinguish them.
    """
    header = text[:_HEADER]
    if "Generated by LLVM NVPTX Back-End" in header:
        return TRITON
    if "Generated by NVIDIA NVVM Compiler" not in header:
        return ""
    files = [match[1] for match in _FILE.finditer(text)]
    return CUTE_DSL if any(file.endswith(".py") for file in files) else NVRTC


def zero_padding(module: simt.Module, request: messages.Launch) -> list[int | float | messages.Pointer | messages.Blob]:
    """Return the arguments of a launch, with zeros in the bytes that its kernel does not read.

    The padding of a struct that the host passes by value, and the unused end of a tensor map, hold leftover bytes. They
    must not make two transcripts differ. What a kernel reads of 128 bytes shows whether they are a tensor map: a host
    may give any struct the look of one.
    """
    arguments = list(request.arguments)
    if not any(isinstance(value, messages.Blob) for value in arguments):
        return arguments
    for number, unread in enumerate(ptx.unread(module.parsed.functions[request.kernel])[: len(arguments)]):
        value = arguments[number]
        if isinstance(value, messages.Blob):
            arguments[number] = messages.Blob(ptx.clear_bytes(value.content, unread), value.pointers)
    return arguments
