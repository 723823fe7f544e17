"""The PTX machine's other end in a submission's process: a device whose memory and counters are somewhere else.

It is not trusted. What it sends for the bytes of a storage is what the host wrote there, whoever wrote it; what it
leaves out has not been written. A lie changes what the kernel works on, and the transcript says so.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from kernelpath.device import aligned, failures, far, lab_client, messages, placement
from kernelpath.device.lab_messages import Went
from kernelpath.device.links import links
from kernelpath.wire import Wire
from warpcheck import pointers, simt
from warpcheck.backend import Dim3, LaunchResult
from warpcheck.pointers import bytes_at

if TYPE_CHECKING:
    from warpcheck.backend import Argument

_Answer = TypeVar("_Answer", bound=messages.Message)

ToClient = messages.ToClient | Went

ALIGNMENT = 16
"""What a kernel may learn of where a storage lies: whether wide accesses are aligned."""

_NOTHING = np.empty(0, np.uint8)
_INPUTS = -1
"""Storages of inputs are numbered downwards from here, by the grader; those of the submission upwards from 0."""


@dataclass
class _Storage:
    """A storage in this process. left: its bytes as the machine left them; None where it has not seen them.

    span: it has no memory, so there is nothing to tell of its bytes. table: it may hold addresses; links: those that
    the machine was told.
    """

    number: int
    address: int
    nbytes: int
    alive: StorageWeakRef
    left: npt.NDArray[np.uint8] | None
    fresh: bool = False
    span: bool = False
    table: bool = False
    links: list[messages.Link] = field(default_factory=list)

    def bytes(self) -> npt.NDArray[np.uint8]:
        return bytes_at(self.address, self.nbytes)


class Client:
    """A device for `api.use`."""

    def __init__(self, wire: Wire[messages.Message]) -> None:
        self._wire = wire
        self._storages: dict[int, _Storage] = {}
        self._met: dict[int, tuple[StorageWeakRef, int, bool]] = {}
        self._next = 0
        self._dropped: list[int] = []
        self.far = False
        """Whether the case has tensors that are longer than memory."""
        self.load = cache(self._load)

    @pointers.above_the_heap
    def inputs(self) -> tuple[Any, ...]:
        """The arguments of the case that has begun; tensors have storages of their own."""
        told = self._ask(messages.Fetch(), messages.Inputs)
        tensors = {}
        for number, content in told.storages.items():
            tensors[number] = aligned.storage(len(content))
            storage = tensors[number].untyped_storage()
            left = np.frombuffer(content, np.uint8)
            known = _Storage(number, storage.data_ptr(), len(content), StorageWeakRef(storage), left)
            np.copyto(known.bytes(), left)
            self._storages[known.address] = known
        self.far = told.far
        for number, nbytes in told.spans.items():
            tensors[number] = far.without_memory(nbytes)
            storage = tensors[number].untyped_storage()
            known = _Storage(number, storage.data_ptr(), nbytes, StorageWeakRef(storage), _NOTHING, span=True)
            self._storages[known.address] = known
        parts = [value for value in told.arguments if isinstance(value, messages.LabPart)]
        lab = lab_client.of(parts[0], lambda asked: self._ask(asked, Went), self.place) if parts else None
        return tuple(_argument_of(value, tensors, lab) for value in told.arguments)

    def fresh(self, tensor: torch.Tensor) -> None:
        """Nothing has written to this tensor's storage yet but the poison that fills it."""
        storage = tensor.untyped_storage()
        if storage.nbytes():
            known = self._new(storage)
            known.fresh, known.left = True, known.bytes().copy()
            known.table = pointers.holds_words(tensor)

    def finish(self) -> None:
        """Tell what the host wrote since the last launch."""
        self._forget()
        told = [self._told(one) for one in self._storages.values() if self._changed(one)]
        self._ask(messages.Finish(told), messages.Done)

    def place(self, tensor: torch.Tensor) -> messages.Strided:
        """Where a tensor lies, for the grader. A storage that the machine does not know has a number all the same."""
        known = self._known(tensor.untyped_storage())
        dtype = str(tensor.dtype).removeprefix("torch.")
        return messages.Strided(known.number, dtype, tensor.shape, tensor.stride(), int(tensor.storage_offset()))

    def _load(self, text: str, source: str | None = None) -> RemoteModule:
        return RemoteModule(self, self._ask(messages.Load(text, source), messages.Loaded))

    def compile(self, module: int, name: str) -> None:
        self._ask(messages.Compile(module, name), messages.Done)

    def launch(
        self,
        module: int,
        name: str,
        grid: Dim3,
        block: Dim3,
        shared: int,
        arguments: Sequence[Argument],
        tensors: Sequence[tuple[str, torch.Tensor]],
        cooperative: bool = False,
        cluster: Dim3 | None = None,
    ) -> LaunchResult:
        placement.check_launch(tensors)
        self._forget()
        given = [(key, pointers.Span.of(tensor)) for key, tensor in tensors if tensor.numel()]
        used = {key: self._known(span.owner.untyped_storage(), span.table) for key, span in given}
        buffers = [_buffer(key, tensor, used[key]) for key, tensor in tensors if key in used]
        for key, span in pointers.reachable(arguments, given, self._spans):
            used[key] = one = self._known(span.owner)
            buffers.append(messages.Buffer(key, one.number, 0, one.nbytes, 1, "bytes"))
        storages = {one.number: one for one in used.values() if one.left is None or one.fresh or self._changed(one)}
        message = messages.Launch(
            module=module,
            kernel=name,
            grid=grid,
            block=block,
            shared=shared,
            arguments=[self._argument(value) for value in arguments],
            buffers=buffers,
            storages=[self._told(one) for one in storages.values()],
            dropped=self._dropped,
            cooperative=cooperative,
            cluster=cluster or (),
        )
        self._dropped = []
        ran = self._ask(message, messages.Ran)
        for one in storages.values():
            one.left, one.fresh = _NOTHING if one.span else one.bytes().copy(), False
        numbered = {one.number: one for one in self._storages.values()}
        for number, content in ran.changed:
            one = numbered[number]
            one.left = np.frombuffer(content, np.uint8)
            np.copyto(one.bytes(), one.left)
            one.links = self._links(one)
        sys.stdout.write(ran.printed)
        return LaunchResult(ran.cost)

    # Storages

    def met(self, tensor: torch.Tensor) -> None:
        """A tensor of the submission's that a kernel may be led to by an address in memory."""
        if tensor.numel() and tensor.device.type == "cpu" and tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            self._met[storage.data_ptr()] = StorageWeakRef(storage), storage.nbytes(), pointers.holds_words(tensor)

    def _spans(self) -> list[pointers.Span]:
        """The storages that addresses may lead to."""
        known = {one.address: (one.alive, one.nbytes, one.table) for one in self._storages.values()}
        return [
            pointers.Span(address, address + nbytes, table, torch.UntypedStorage._new_with_weak_ptr(alive.cdata))
            for address, (alive, nbytes, table) in (self._met | known).items()
            if not alive.expired()
        ]

    def _known(self, storage: torch.UntypedStorage, table: bool = False) -> _Storage:
        """table: it may hold addresses. Those of inputs are the grader's, and hold none."""
        known = self._storages.get(storage.data_ptr())
        if known is None or known.alive.expired() or known.nbytes != storage.nbytes():
            known = self._new(storage)
        met = self._met.get(known.address)
        known.table |= known.number > _INPUTS and (table or (met is not None and met[2]))
        return known

    def _new(self, storage: torch.UntypedStorage) -> _Storage:
        known = _Storage(self._next, storage.data_ptr(), storage.nbytes(), StorageWeakRef(storage), None)
        known.fresh = known.span = self.far and known.nbytes >= simt.FAR
        self._next += 1
        if replaced := self._storages.get(known.address):
            self._dropped.append(replaced.number)
        self._storages[known.address] = known
        return known

    def _forget(self) -> None:
        self._met = {address: one for address, one in self._met.items() if not one[0].expired()}
        self._dropped += [one.number for one in self._storages.values() if one.alive.expired()]
        self._storages = {address: one for address, one in self._storages.items() if not one.alive.expired()}

    def _changed(self, one: _Storage) -> bool:
        if one.left is None or one.span:
            return False
        return not np.array_equal(one.bytes(), one.left) or (one.table and self._links(one) != one.links)

    def _links(self, one: _Storage) -> list[messages.Link]:
        known = [(other.number, other.address, other.nbytes) for other in self._storages.values()]
        return links(pointers.words(one.bytes()), known) if one.table else []

    def _told(self, one: _Storage) -> messages.Storage:
        untouched = one.fresh and not self._changed(one)
        content = None if untouched else one.bytes().tobytes()
        one.links = [] if untouched else self._links(one)
        return messages.Storage(one.number, one.nbytes, one.address % ALIGNMENT, content, untouched, one.links)

    # Arguments

    def _argument(self, value: Argument) -> int | float | messages.Pointer | messages.Blob:
        if isinstance(value, bytes | float):
            return value if isinstance(value, float) else messages.Blob(value, list(self._pointers(value)))
        address = int(value) if isinstance(value, int) else value.data_ptr()
        return self._pointer(address) or address

    def _pointers(self, content: bytes) -> Iterator[tuple[int, messages.Pointer]]:
        for at in range(0, len(content) - pointers.WORD + 1, pointers.WORD):
            if pointer := self._pointer(int.from_bytes(content[at : at + pointers.WORD], sys.byteorder)):
                yield at, pointer

    def _pointer(self, address: int) -> messages.Pointer | None:
        """A storage's end is an address in it, unless another one begins there: an allocator need not leave a gap."""
        known = (one for one in self._storages.values() if one.nbytes)
        around = [one for one in known if one.address <= address <= one.address + one.nbytes]
        one = max(around, key=lambda one: one.address, default=None)
        return messages.Pointer(one.number, address - one.address) if one else None

    def _ask(self, message: messages.Message, expected: type[_Answer]) -> _Answer:
        self._wire.send(message)
        answer = self._wire.receive()
        if isinstance(answer, messages.Failed):
            raise failures.raised(answer)
        assert isinstance(answer, expected)
        return answer


class RemoteModule:
    """A module that a Client has loaded."""

    def __init__(self, client: Client, loaded: messages.Loaded) -> None:
        self._client, self._number = client, loaded.module
        self.kernels: Mapping[str, simt.Kernel] = loaded.kernels

    def compile(self, name: str) -> None:
        self._client.compile(self._number, name)

    def launch(
        self,
        name: str,
        *,
        grid: Dim3,
        block: Dim3,
        shared: int,
        arguments: Sequence[Argument],
        tensors: Sequence[tuple[str, torch.Tensor]],
        cooperative: bool = False,
        cluster: Dim3 | None = None,
    ) -> LaunchResult:
        return self._client.launch(self._number, name, grid, block, shared, arguments, tensors, cooperative, cluster)


def _argument_of(told: Any, storages: Mapping[int, torch.Tensor], lab: Any) -> Any:
    match told:
        case messages.Strided():
            dtype: torch.dtype = getattr(torch, told.dtype)
            storage = storages[told.storage].view(dtype)
            return storage.as_strided(tuple(told.shape), tuple(told.strides), told.offset)
        case messages.TorchDevice(name=name):
            return torch.device(name)
        case messages.LabPart(method=method):
            return getattr(lab, method) if method else lab
    return told


def _buffer(name: str, tensor: torch.Tensor, storage: _Storage) -> messages.Buffer:
    span = simt.Buffer.of(name, tensor)
    return messages.Buffer(name, storage.number, span.address - storage.address, span.nbytes, span.itemsize, span.dtype)
