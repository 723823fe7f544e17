"""Connect a submission's process to the PTX machine: a device whose memory and counters are in another process.

The machine does not trust this end. It treats all bytes that this end sends as written by the host, and a storage that
this end omits as unchanged. A false report changes the input of the kernel, and the transcript shows the report.
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

from kernelpath.device import aligned, failures, lab_client, large_offsets, messages, placement
from kernelpath.device.lab_messages import LabResponse
from kernelpath.device.links import find_links
from kernelpath.wire import Wire
from warpcheck import pointers, simt
from warpcheck.backend import Dim3, LaunchResult
from warpcheck.pointers import bytes_at

if TYPE_CHECKING:
    from warpcheck.backend import Argument

_Response = TypeVar("_Response", bound=messages.Message)

ToClient = messages.ToClient | LabResponse

# A kernel may learn the address of a storage modulo this number: whether its widest accesses are aligned.
ALIGNMENT = 16

_NOTHING = np.empty(0, np.uint8)

# The grader numbers the storages of inputs downwards from here; this end numbers all others upwards from 0.
_FIRST_INPUT = -1


@dataclass
class ClientStorage:
    """A storage in this process.

    Attributes:
        alive: Expires when the submission frees the storage.
        machine_bytes: The bytes that the machine has; None where the machine does not know the storage.
        fresh: Whether nothing has written to it since its allocation.
        span: Whether it is address space without memory, whose bytes are never sent.
        table: Whether it may hold addresses.
        links: The addresses in it that the machine knows.
    """

    number: int
    address: int
    nbytes: int
    alive: StorageWeakRef
    machine_bytes: npt.NDArray[np.uint8] | None
    fresh: bool = False
    span: bool = False
    table: bool = False
    links: list[messages.Link] = field(default_factory=list)

    def bytes(self) -> npt.NDArray[np.uint8]:
        return bytes_at(self.address, self.nbytes)


class Client:
    """The device that the frontends launch on (warpcheck.backend.Device)."""

    def __init__(self, wire: Wire[messages.Message]) -> None:
        self._wire = wire
        self._storages: dict[int, ClientStorage] = {}
        self._observed: dict[int, tuple[StorageWeakRef, int, bool]] = {}
        self._next = 0
        self._dropped: list[int] = []
        self._input_memory = aligned.Pool()
        # Whether the case has tensors that are larger than memory.
        self.large_offsets = False
        self.load = cache(self._load)

    # A table that the submission makes may hold addresses of inputs. Above the heap they can be told from numbers.
    @pointers.above_the_heap
    def inputs(self) -> tuple[Any, ...]:
        """Return the arguments of the current case. Each tensor has a storage of its own."""
        inputs = self._request(messages.Fetch(), messages.Inputs)
        tensors = {}
        for number, content in inputs.storages.items():
            tensors[number] = self._input_memory.storage(len(content))
            storage = tensors[number].untyped_storage()
            initial = np.frombuffer(content, np.uint8)
            storage_record = ClientStorage(number, storage.data_ptr(), len(content), StorageWeakRef(storage), initial)
            np.copyto(storage_record.bytes(), initial)
            self._storages[storage_record.address] = storage_record
        self.large_offsets = inputs.large_offsets
        for number, nbytes in inputs.spans.items():
            tensors[number] = large_offsets.reserve_readonly(nbytes)
            storage = tensors[number].untyped_storage()
            storage_record = ClientStorage(
                number, storage.data_ptr(), nbytes, StorageWeakRef(storage), _NOTHING, span=True
            )
            self._storages[storage_record.address] = storage_record
        parts = [value for value in inputs.arguments if isinstance(value, messages.LabPart)]
        lab = (
            lab_client.create_proxy(parts[0], lambda request: self._request(request, LabResponse), self.place)
            if parts
            else None
        )
        return tuple(_decode_argument(value, tensors, lab) for value in inputs.arguments)

    def fresh(self, tensor: torch.Tensor) -> None:
        """Register a newly allocated tensor: only the poison that fills it has been written to its storage."""
        storage = tensor.untyped_storage()
        if storage.nbytes():
            storage_record = self._register(storage)
            # The copy is of the poison. If the host writes to the tensor before a launch, its bytes differ from the
            # copy, and they are sent as the host's.
            storage_record.fresh = True
            storage_record.machine_bytes = storage_record.bytes().copy()
            storage_record.table = pointers.holds_words(tensor)

    def finish(self) -> None:
        """Send the storages that the host changed since the last launch."""
        self._forget_expired()
        changed = [self._encode_storage(storage) for storage in self._storages.values() if self._is_changed(storage)]
        self._request(messages.Finish(changed), messages.Acknowledged)

    def place(self, tensor: torch.Tensor) -> messages.TensorRef:
        """Return a reference to a tensor for the grader. Number the storage if it is unknown so far."""
        storage_record = self._find_or_register(tensor.untyped_storage())
        dtype = str(tensor.dtype).removeprefix("torch.")
        return messages.TensorRef(
            storage_record.number, dtype, tensor.shape, tensor.stride(), int(tensor.storage_offset())
        )

    def _load(self, text: str, source: str | None = None) -> RemoteModule:
        return RemoteModule(self, self._request(messages.LoadPtx(text, source), messages.Loaded))

    def compile(self, module: int, name: str) -> None:
        self._request(messages.Compile(module, name), messages.Acknowledged)

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
        programmatic_stream_serialization: bool = False,
    ) -> LaunchResult:
        placement.check_launch(tensors)
        self._forget_expired()
        spans = [(key, pointers.Span.of(tensor)) for key, tensor in tensors if tensor.numel()]
        storage_of = {key: self._find_or_register(span.owner.untyped_storage(), span.table) for key, span in spans}
        buffers = [_buffer(key, tensor, storage_of[key]) for key, tensor in tensors if key in storage_of]
        for key, span in pointers.reachable(arguments, spans, self._spans):
            storage_of[key] = storage = self._find_or_register(span.owner)
            buffers.append(messages.Buffer(key, storage.number, 0, storage.nbytes, 1, "bytes"))
        storages = {
            storage.number: storage
            for storage in storage_of.values()
            if storage.machine_bytes is None or storage.fresh or self._is_changed(storage)
        }
        message = messages.Launch(
            module=module,
            kernel=name,
            grid=grid,
            block=block,
            shared=shared,
            arguments=[self._argument(value) for value in arguments],
            buffers=buffers,
            storages=[self._encode_storage(storage) for storage in storages.values()],
            dropped=self._dropped,
            cooperative=cooperative,
            cluster=cluster or (),
            programmatic_stream_serialization=programmatic_stream_serialization,
        )
        self._dropped = []
        ran = self._request(message, messages.LaunchResult)
        # First record the bytes that were sent, then the bytes that the kernel changed, which replace them.
        for storage in storages.values():
            storage.machine_bytes = _NOTHING if storage.span else storage.bytes().copy()
            storage.fresh = False
        numbered = {storage.number: storage for storage in self._storages.values()}
        for number, content in ran.changed:
            storage = numbered[number]
            storage.machine_bytes = np.frombuffer(content, np.uint8)
            np.copyto(storage.bytes(), storage.machine_bytes)
            storage.links = self._find_links(storage)
        sys.stdout.write(ran.printed)
        return LaunchResult(ran.cost)

    # Storages

    def observe(self, tensor: torch.Tensor) -> None:
        """Note a tensor of the submission, because a kernel may reach it through an address in memory."""
        if tensor.numel() and tensor.device.type == "cpu" and tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            self._observed[storage.data_ptr()] = StorageWeakRef(storage), storage.nbytes(), pointers.holds_words(tensor)

    def _spans(self) -> list[pointers.Span]:
        """Return the live storages that an address may point into."""
        known = {storage.address: (storage.alive, storage.nbytes, storage.table) for storage in self._storages.values()}
        return [
            # The weak reference becomes a storage, so the memory stays alive as long as the span.
            pointers.Span(address, address + nbytes, table, torch.UntypedStorage._new_with_weak_ptr(alive.cdata))
            # `|` prefers the second operand: the record of a storage that the machine knows.
            for address, (alive, nbytes, table) in (self._observed | known).items()
            if not alive.expired()
        ]

    def _find_or_register(self, storage: torch.UntypedStorage, table: bool = False) -> ClientStorage:
        """Return the record of a storage, a new one if needed.

        Args:
            table: Whether the storage may hold addresses. Storages of inputs hold none: the grader generated their
                content.
        """
        storage_record = self._storages.get(storage.data_ptr())
        # The allocator may reuse the address of a freed storage, so a record is valid only as long as its storage
        # lives.
        if storage_record is None or storage_record.alive.expired() or storage_record.nbytes != storage.nbytes():
            storage_record = self._register(storage)
        observed = self._observed.get(storage_record.address)
        storage_record.table |= storage_record.number > _FIRST_INPUT and (
            table or (observed is not None and observed[2])
        )
        return storage_record

    def _register(self, storage: torch.UntypedStorage) -> ClientStorage:
        storage_record = ClientStorage(self._next, storage.data_ptr(), storage.nbytes(), StorageWeakRef(storage), None)
        # Address space without memory: reading it to compare or send it would commit it, page by page.
        storage_record.fresh = storage_record.span = self.large_offsets and storage_record.nbytes >= simt.FAR
        self._next += 1
        # The allocator has reused the address, so the machine must forget the storage that had it.
        if earlier := self._storages.get(storage_record.address):
            self._dropped.append(earlier.number)
        self._storages[storage_record.address] = storage_record
        return storage_record

    def _forget_expired(self) -> None:
        """Forget freed storages, and note their numbers for the next launch."""
        self._observed = {address: storage for address, storage in self._observed.items() if not storage[0].expired()}
        self._dropped += [storage.number for storage in self._storages.values() if storage.alive.expired()]
        self._storages = {
            address: storage for address, storage in self._storages.items() if not storage.alive.expired()
        }

    def _is_changed(self, storage: ClientStorage) -> bool:
        if storage.machine_bytes is None or storage.span:
            return False
        # The same words may mean other addresses by now: a storage that they point into was registered later, or freed.
        return not np.array_equal(storage.bytes(), storage.machine_bytes) or (
            storage.table and self._find_links(storage) != storage.links
        )

    def _find_links(self, storage: ClientStorage) -> list[messages.Link]:
        targets = [(target.number, target.address, target.nbytes) for target in self._storages.values()]
        return find_links(pointers.words(storage.bytes()), targets) if storage.table else []

    def _encode_storage(self, storage: ClientStorage) -> messages.Storage:
        is_untouched = storage.fresh and not self._is_changed(storage)
        content = None if is_untouched else storage.bytes().tobytes()
        storage.links = [] if is_untouched else self._find_links(storage)
        return messages.Storage(
            storage.number, storage.nbytes, storage.address % ALIGNMENT, content, is_untouched, storage.links
        )

    # Arguments

    def _argument(self, value: Argument) -> int | float | messages.Pointer | messages.Blob:
        if isinstance(value, bytes | float):
            return value if isinstance(value, float) else messages.Blob(value, list(self._pointers(value)))
        address = int(value) if isinstance(value, int) else value.data_ptr()
        return self._pointer(address) or address

    def _pointers(self, content: bytes) -> Iterator[tuple[int, messages.Pointer]]:
        for offset in range(0, len(content) - pointers.WORD + 1, pointers.WORD):
            if pointer := self._pointer(int.from_bytes(content[offset : offset + pointers.WORD], sys.byteorder)):
                yield offset, pointer

    def _pointer(self, address: int) -> messages.Pointer | None:
        """Return the storage and offset of an address; None outside all storages.

        The end of a storage belongs to it unless another storage starts there: an allocator need not leave a gap.
        """
        storages = (storage for storage in self._storages.values() if storage.nbytes)
        candidates = [storage for storage in storages if storage.address <= address <= storage.address + storage.nbytes]
        storage = max(candidates, key=lambda storage: storage.address, default=None)
        return messages.Pointer(storage.number, address - storage.address) if storage else None

    def _request(self, message: messages.Message, expected: type[_Response]) -> _Response:
        self._wire.send(message)
        # No time limit: the grader ends this process when the limit of the call is reached.
        response = self._wire.receive()
        if isinstance(response, messages.Failed):
            raise failures.decode_failure(response)
        assert isinstance(response, expected)
        return response


class RemoteModule:
    """A module that the machine has loaded for a Client."""

    def __init__(self, client: Client, loaded: messages.Loaded) -> None:
        self._client = client
        self._number = loaded.module
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
        programmatic_stream_serialization: bool = False,
    ) -> LaunchResult:
        return self._client.launch(
            self._number,
            name,
            grid,
            block,
            shared,
            arguments,
            tensors,
            cooperative,
            cluster,
            programmatic_stream_serialization,
        )


def _decode_argument(value: Any, storages: Mapping[int, torch.Tensor], lab: Any) -> Any:
    match value:
        case messages.TensorRef():
            dtype: torch.dtype = getattr(torch, value.dtype)
            storage = storages[value.storage].view(dtype)
            return storage.as_strided(tuple(value.shape), tuple(value.strides), value.offset)
        case messages.TorchDevice(name=name):
            return torch.device(name)
        case messages.LabPart(method=method):
            return getattr(lab, method) if method else lab
    return value


def _buffer(name: str, tensor: torch.Tensor, storage: ClientStorage) -> messages.Buffer:
    span = simt.Buffer.of(name, tensor)
    return messages.Buffer(name, storage.number, span.address - storage.address, span.nbytes, span.itemsize, span.dtype)
