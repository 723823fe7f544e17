"""One case on the PTX machine: the storages that kernels work on, and the transcript of what they were given."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from kernelpath.device import far, messages, padding
from kernelpath.device.addresses import AddressSpace
from kernelpath.device.compilers import compiler_of
from kernelpath.device.elements import Bytes, Refused, digest, elements
from kernelpath.device.links import Linked
from warpcheck import simt
from warpcheck.counters import AccessCounters, LineCounters, by_access

ALIGNMENT = 16
"""A storage begins at a line, plus what the widest access sees of its alignment in the submission's process."""

MOST_BYTES = 4 << 30
"""That a storage may have."""

NOTES = 10_000
"""Launches that a transcript holds; no honest entry makes more in a case."""

_KEPT = "kept from "
"""How the transcript's name of a storage of an earlier call begins."""

NOT_GIVEN = "none of your kernels was given the tensor that was returned"
CHANGED = "after your last kernel, the output was changed by something other than a kernel of yours"


@dataclass
class Stored:
    """A storage. name: what the transcript calls it. host: digests of what the host wrote since the last launch, and of
    all there is then; has_table: whether that is more than one value over and over. final: the bytes at the entry's
    return. linked: what the submission's process has in place of addresses.
    """

    memory: Bytes
    name: str
    drawn: Bytes | None = None
    host: str = ""
    has_table: bool = False
    final: Bytes | None = None
    launched: bool = False
    linked: Linked | None = None

    @property
    def address(self) -> int:
        return int(self.memory.ctypes.data)

    def told(self) -> bytes:
        return self.linked.told(self.memory) if self.linked else self.memory.tobytes()


@dataclass
class Case:
    """What holds between `begin` and `ended`. Storages outlive it: a submission may keep tensors from call to call."""

    inputs: messages.Inputs = field(default_factory=lambda: messages.Inputs((), {}))
    order: int = 0
    recorded: bool = False
    launches: list[simt.Launch] = field(default_factory=list)
    failed: messages.Failed | None = None
    _unreached: set[str] = field(default_factory=set)
    _reached: list[dict[int, int]] = field(default_factory=list)
    _notes: list[messages.Note] = field(default_factory=list)
    _held: list[dict[int, int]] = field(default_factory=list)
    _storages: dict[int, Stored] = field(default_factory=dict)
    _memory: simt.Memory = field(default_factory=simt.Memory)
    _addresses: AddressSpace = field(default_factory=AddressSpace)
    _label: str = ""
    _names: Iterator[int] = field(default_factory=itertools.count)
    _input_names: dict[int, str] = field(default_factory=dict)

    def begin(self, inputs: messages.Inputs, order: int, label: str = "") -> None:
        """Storages of inputs have negative numbers.

        The transcript names the others in the order in which launches are given them, so that it is the same whatever
        was called before. label: tells the storages of this call from those of other calls, once they are kept.
        """
        for stored in self._storages.values():
            if not stored.name.startswith(_KEPT):
                stored.name = f"{_KEPT}{self._label}: {stored.name}"
        self.inputs, self.order = inputs, order
        self._label, self._names = label, itertools.count()
        self._input_names = {number: f"input {place}" for place, number in enumerate((*inputs.storages, *inputs.spans))}
        if self.failed is not None and self.failed.kind != "FORGED":
            self.failed = None
        self.launches, self._notes, self._held, self._unreached, self._reached = [], [], [], set(), []
        for number, content in inputs.storages.items():
            place = self._addresses.place(len(content))
            stored = Stored(place, self._input_names[number], drawn=np.frombuffer(content, np.uint8))
            stored.memory[:] = np.frombuffer(content, np.uint8)
            self._storages[number] = stored

    def launch(self, module: simt.Module, asked: messages.Launch) -> tuple[simt.Launch, list[tuple[int, bytes]]]:
        """Run a kernel. Returns what was counted, and the storages that it changed."""
        most = far.NOTES if self.inputs.far else NOTES
        if len(self._notes) == most:
            raise Refused(f"more than {most:,} launches in one call")
        for number in asked.dropped:
            if number not in self.inputs.storages and number not in self.inputs.spans:
                self._drop(number)
        try:
            new = self._place_all(asked)
            buffers = {buffer.storage: self._stored(buffer.storage) for buffer in asked.buffers}
            for storage in asked.storages:
                self._update(storage, storage.number in new)
            note = self._note(module, asked, buffers, new)
        except Refused as error:  # it may have placed storages, and so moved those of the launches to come
            self._notes.append(messages.Note(asked.kernel, str(error), asked.grid, asked.block, asked.shared, [], []))
            raise
        self._notes.append(note)
        self._held.append({number: one.memory.nbytes for number, one in self._storages.items() if number >= 0})
        before = {number: stored.memory.copy() for number, stored in buffers.items() if not self._is_span(stored)}
        spans = [self._buffer(buffer) for buffer in asked.buffers]
        launch = module.launch(
            asked.kernel,
            grid=asked.grid,
            block=asked.block,
            shared=asked.shared,
            args=[self._argument(value) for value in asked.arguments],
            buffers=spans,
            memory=self._memory,
            reverse=self.order,
            cooperative=asked.cooperative,
            cluster=asked.cluster,
            max_instructions=far.INSTRUCTIONS if self.inputs.far else None,
            blocks=far.sample(asked.grid) if self.inputs.far else None,
        )
        self.launches.append(launch)
        if self.inputs.far:
            self._unreached |= far.unreached(launch, spans)
            self._reached.append(_reached_in(launch, asked.buffers) if far.is_whole(launch) else {})
        for stored in buffers.values():
            stored.launched, stored.host, stored.has_table = True, "", False
        changed = [number for number, content in before.items() if not np.array_equal(content, buffers[number].memory)]
        return launch, [(number, buffers[number].told()) for number in changed]

    def finish(self, storages: Sequence[messages.Storage]) -> None:
        """The entry has returned: what differs now was written by the host, after the last launch."""
        for told in storages:
            content = self._linked(told).here
            stored = self._storages.get(told.number)
            if stored is not None and content.size == stored.memory.size:
                stored.final = content

    def ended(self, outputs: Sequence[messages.Strided], counted: bool = True) -> messages.Ended:
        """The report on the case. counted: with counters."""
        given = {output.storage for output in outputs}
        ended = messages.Ended(
            outputs=[self._output(output) for output in outputs],
            mutated=[number for number in sorted(self.inputs.storages, reverse=True) if self._mutated(number)],
            notes=self._notes,
            failed=self.failed,
            accesses=self._accesses() if counted else (),
            instructions=self._instructions() if counted else (),
            tensor=sum(launch.totals.most_tensor_operations for launch in self.launches),
            unreached=sorted(self._unreached),
            reached=self._reached[0] if len(self._reached) == 1 else {},
            workspace=max((sum(held[one] for one in held.keys() - given) for held in self._held), default=0),
        )
        for stored in self._storages.values():
            stored.final = None
        if self.inputs.far:
            self.launches = []
            for number in [number for number, stored in self._storages.items() if self._is_span(stored)]:
                self._drop(number)
            self._addresses.forget_spans()
        return ended

    def writer(self, storage: int, offset: int) -> messages.Writer | None:
        """Who wrote a byte of a storage last."""
        stored = self._storages.get(storage)
        if stored is None:
            return None
        for launch in reversed(self.launches):
            if (author := launch.writer(stored.address + offset)) is not None:
                return messages.Writer(author.thread, author.block, launch.file, author.site.line)
        return None

    # Storages

    def place(self, nbytes: int) -> Bytes:
        """Return zeroed bytes for the variables of a module, which its first launch places."""
        return self._addresses.place(nbytes)

    def _stored(self, number: int) -> Stored:
        if number in self.inputs.spans and number not in self._storages:
            place = self._addresses.place(self.inputs.spans[number])
            self._storages[number] = Stored(place, self._input_names[number])
        if number not in self._storages:
            raise Refused(f"there is no storage {number}")
        return self._storages[number]

    def _is_span(self, stored: Stored) -> bool:
        """Whether a storage has no memory, and so nobody asks for its bytes."""
        return self.inputs.far and stored.memory.nbytes >= simt.FAR

    def _drop(self, number: int) -> None:
        """Forget a storage: whatever is there later is new."""
        if stored := self._storages.pop(number, None):
            self._memory.forget(stored.address, stored.memory.nbytes)

    def _place_all(self, launch: messages.Launch) -> set[int]:
        """Place what storages a launch brings, in the order in which its transcript names them. Return the new ones.

        Raises Refused for a storage that the transcript does not name: it would move those that come after it.
        """
        brought = {storage.number: storage for storage in launch.storages}
        named = dict.fromkeys(buffer.storage for buffer in launch.buffers)
        if len(brought) < len(launch.storages) or not brought.keys() <= named.keys():
            raise Refused("a launch comes with a storage that its kernel is not given")
        return {number for number in named if number in brought and self._place(brought[number])}

    def _place(self, storage: messages.Storage) -> bool:
        """Give a storage its place. Returns whether it is new."""
        stored = self._storages.get(storage.number)
        if storage.number < 0 and (stored is None or stored.memory.nbytes != storage.nbytes or storage.fresh):
            raise Refused("the storage of an input is the grader's")
        if stored is not None and stored.memory.nbytes == storage.nbytes and not storage.fresh:
            return False
        self._drop(storage.number)
        if not 0 <= storage.nbytes <= (far.MOST_BYTES if self.inputs.far else MOST_BYTES):
            raise Refused(f"a storage of {storage.nbytes:,} bytes")
        place = self._addresses.place(storage.nbytes, storage.alignment % ALIGNMENT)
        self._storages[storage.number] = Stored(place, f"tensor {next(self._names)}")
        return True

    def _linked(self, told: messages.Storage) -> Linked:
        def address_of(number: int) -> tuple[int, int, str]:
            if number not in self._storages:
                raise Refused(f"there is no storage {number}")
            stored = self._storages[number]
            return stored.address, stored.memory.nbytes, stored.name

        return Linked(_content(told), told.links, address_of)

    def _update(self, told: messages.Storage, is_new: bool) -> None:
        stored = self._storages[told.number]
        if is_new and told.fresh:
            if not self.inputs.far:  # there the blocks that would have written it may not be in the sample
                stored.memory[: told.nbytes // 2 * 2].view(np.uint16)[:] = messages.POISON
                self._memory.allocated(stored.address, told.nbytes)
            return
        linked = stored.linked = self._linked(told)
        stored.has_table |= not _is_fill(linked.here)
        if is_new:
            stored.host = digest(linked.shown)
            stored.memory[:] = linked.here
            return
        different = linked.whole(np.not_equal(stored.memory, linked.here))
        before = np.frombuffer(stored.host.partition(" ")[0].encode(), np.uint8)  # and no launch has seen it
        stored.host = f"{digest(before, np.where(different, linked.shown, 0), different)} {digest(linked.shown)}"
        stored.memory[:] = linked.here
        self._memory.written(stored.address)

    def _mutated(self, number: int) -> bool:
        stored = self._storages.get(number)
        if stored is None or stored.drawn is None:
            return False
        return not np.array_equal(stored.memory if stored.final is None else stored.final, stored.drawn)

    def _output(self, told: messages.Strided) -> messages.Output:
        stored = self._storages.get(told.storage)
        if stored is None or not (stored.launched or told.storage in self.inputs.storages):
            return messages.Output(b"", NOT_GIVEN)
        try:
            content = elements(stored.memory, told)
        except Refused as error:
            return messages.Output(b"", str(error))
        if stored.final is not None and not np.array_equal(content, elements(stored.final, told)):
            return messages.Output(b"", CHANGED)
        return messages.Output(content.tobytes(), "")

    # Launches

    def _argument(self, value: int | float | messages.Pointer | messages.Blob) -> int | float | bytes:
        if isinstance(value, messages.Pointer):
            return self._stored(value.storage).address + value.offset
        if isinstance(value, messages.Blob):
            content = bytearray(value.content)
            for at, pointer in value.pointers:
                content[at : at + 8] = int(self._argument(pointer)).to_bytes(8, "little", signed=True)
            return bytes(content[: len(value.content)])
        return value

    def _buffer(self, told: messages.Buffer) -> simt.Buffer:
        stored = self._stored(told.storage)
        if told.offset < 0 or told.nbytes < 0 or told.offset + told.nbytes > stored.memory.nbytes or told.itemsize < 1:
            raise Refused(f"{told.name} is not inside its storage")
        return simt.Buffer(told.name, stored.address + told.offset, told.nbytes, told.itemsize, dtype=told.dtype)

    def _note(
        self, module: simt.Module, asked: messages.Launch, buffers: Mapping[int, Stored], new: set[int]
    ) -> messages.Note:
        names = {buffer.storage: buffer.name for buffer in asked.buffers}
        return messages.Note(
            kernel=asked.kernel,
            code=module.digest,
            compiler=compiler_of(module.text),
            grid=asked.grid,
            block=asked.block,
            shared=asked.shared,
            arguments=[self._described(value) for value in padding.zeroed(module, asked)],
            host=[(names[number], stored.host) for number, stored in buffers.items() if stored.host],
            cooperative=asked.cooperative,
            cluster=asked.cluster,
            buffers=[self._describe_buffer(buffer, buffer.storage in new) for buffer in asked.buffers],
            tables=[names[number] for number, stored in buffers.items() if stored.has_table],
        )

    def _describe_buffer(self, buffer: messages.Buffer, is_new: bool) -> str:
        """Describe what a kernel may touch. Of what is fresh, nothing of an earlier storage is left."""
        new = ", new" if is_new else ""
        return f"{self._describe_storage(buffer.storage)}{new}: {buffer.nbytes} bytes at {buffer.offset}"

    def _describe_storage(self, number: int) -> str:
        """Describe a storage by its name, and by all that its address tells a kernel."""
        stored = self._storages.get(number)
        if stored is None:
            return f"no storage {number}"
        odd = f", {stored.address % ALIGNMENT} bytes off 16" if stored.address % ALIGNMENT else ""
        return f"{stored.name} ({stored.memory.nbytes} bytes{odd})"

    def _described(self, value: int | float | messages.Pointer | messages.Blob) -> str:
        """An argument in the transcript; of a pointer all that a kernel may learn from it."""
        if isinstance(value, messages.Pointer):
            return f"{self._describe_storage(value.storage)} + {value.offset}"
        if isinstance(value, messages.Blob):
            content = bytearray(value.content)
            for at, _ in value.pointers:
                content[at : at + 8] = bytes(8)
            return f"{content.hex()} {[(at, self._described(pointer)) for at, pointer in value.pointers]}"
        return repr(value)

    def _accesses(self) -> list[tuple[str, AccessCounters]]:
        files: dict[str, list[simt.AccessSample]] = {}
        for launch in self.launches:
            files.setdefault(Path(launch.file).name, []).extend(launch.accesses)
        return [(file, one) for file, samples in files.items() for one in by_access(samples)]

    def _instructions(self) -> list[tuple[str, int, int, int, int, int]]:
        lines: dict[tuple[str, int], LineCounters] = defaultdict(LineCounters)
        for launch in self.launches:
            for line, counters in launch.lines.items():
                lines[Path(launch.file).name, line].add(counters)
        return [(*place, *one.executed) for place, one in sorted(lines.items())]


def _is_fill(content: Bytes) -> bool:
    """Whether bytes are one value over and over, as torch.zeros and torch.full leave them: they carry no results."""
    words = content[: content.size // 8 * 8].view(np.uint64)
    rest = content[words.nbytes :]
    first = content[:8]
    return bool((words == words[:1]).all() and np.array_equal(rest, first[: rest.size]))


def _reached_in(launch: simt.Launch, buffers: Sequence[messages.Buffer]) -> dict[int, int]:
    """Return how far in bytes a launch accessed each storage."""
    reached: dict[int, int] = {}
    for buffer in buffers:
        end = buffer.offset + launch.reached[buffer.name]
        reached[buffer.storage] = max(end, reached.get(buffer.storage, 0))
    return reached


def _content(told: messages.Storage) -> Bytes:
    if told.content is None or len(told.content) != told.nbytes:
        raise Refused(f"storage {told.number} does not hold the bytes that it should")
    return np.frombuffer(told.content, np.uint8)
