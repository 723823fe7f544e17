"""Provide torch.distributed to a rank: a process group whose messages pass through the grader.

All that torch.distributed sends and receives goes over one Unix socket to the exchange, which counts it. No port is
opened.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from kernelpath.wire import ConnectionClosed, Wire
from kernelpath.work import fabric_messages as fabric
from kernelpath.work import messages
from kernelpath.work.confine import submission_line
from kernelpath.work.tensors import dtype_name, from_bytes, poison_, raw_bytes, to_bytes

BACKEND = "kernelpath"

_COLLECTIVES = (
    "allreduce_coalesced",
    "allgather",
    "_allgather_base",
    "allgather_coalesced",
    "allgather_into_tensor_coalesced",
    "alltoall",
    "alltoall_base",
    "broadcast",
    "gather",
    "monitored_barrier",
    "recv_anysource",
    "reduce",
    "reduce_scatter",
    "_reduce_scatter_base",
    "reduce_scatter_tensor_coalesced",
    "scatter",
)


class GroupEnded(RuntimeError):
    """The group cannot go on. The exchange knows the reason."""


@contextlib.contextmanager
def join_group(grader: socket.socket, request: messages.Join) -> Iterator[Member]:
    """Be a rank of the default process group inside the `with` block.

    The group is destroyed at the end, and the exchange is told, even after an exception.

    Args:
        grader: The socket over which the channel to the exchange is received.
        request: The rank and the size of the group.
    """
    _, (descriptor,), _, _ = socket.recv_fds(grader, 1, 1)
    member = Member(socket.socket(fileno=descriptor), request)
    if BACKEND not in dist.Backend.backend_list:
        dist.Backend.register_backend(BACKEND, _make_group, devices=["cpu"])
    # torch.distributed calls _make_group with arguments of its own, so _current carries the member there.
    _current.append(member)
    raised = True
    try:
        # A HashStore is in this process. The default, a TCPStore, would open a port.
        dist.init_process_group(BACKEND, rank=request.rank, world_size=request.size, store=HashStore())
        yield member
        raised = False
    finally:
        _current.clear()
        member.leave(raised)
        if dist.is_initialized():
            dist.destroy_process_group()


# The rank that this process is, in a list of at most one.
_current: list[Member] = []


class Member:
    """The rank's end of the wire to the exchange."""

    def __init__(self, channel: socket.socket, request: messages.Join) -> None:
        self.rank = request.rank
        self.size = request.size
        self.collectives = request.collectives
        self._wire: Wire[Any] = Wire(channel, fabric.ToRank)
        self._posted = 0
        self.open: dict[int, Request] = {}

    def post(
        self, name: fabric.OperationName, tensor: torch.Tensor | None, peer: int = -1, tag: int = 0, **fields: Any
    ) -> Request:
        """Begin an operation on a contiguous tensor of the CPU."""
        if tensor is not None and not tensor.is_contiguous():
            raise ValueError("Tensors must be contiguous")
        receives = name == "recv"
        content = to_bytes(tensor) if tensor is not None and not receives else b""
        self._posted += 1
        # Until the wait the buffer of a receive holds poison: a program that reads it early gets wrong values, and one
        # that writes to it is found by the comparison in Request.wait.
        if tensor is not None and receives:
            _poison(tensor)
            content = to_bytes(tensor)
        request = Request(self, self._posted, tensor, content, name)
        self._send(
            fabric.Post(
                number=self._posted,
                name=name,
                peer=peer,
                tag=tag,
                dtype=dtype_name(tensor.dtype) if tensor is not None else "",
                count=tensor.numel() if tensor is not None else 0,
                content=b"" if receives else content,
                line=submission_line(sys._getframe()),
                **fields,
            )
        )
        self.open[self._posted] = request
        return request

    def finish(self, number: int, touched: bool) -> bytes:
        """Wait until an operation is complete, and return its content. Raise GroupEnded where the group ends first."""
        self._send(fabric.Await(number, touched, submission_line(sys._getframe())))
        response = self._receive()
        self.open.pop(number, None)
        return bytes(response.content)

    def poll(self, number: int) -> bool:
        """Return whether an operation is complete."""
        self._send(fabric.Poll(number))
        return bool(self._receive().complete)

    def compute(self, part: int) -> bytes:
        """Compute a part, and return its result, which this process does not have before. Raises GroupEnded."""
        self._send(fabric.ComputePart(part, submission_line(sys._getframe())))
        return bytes(self._receive().content)

    def refuse(self, name: str) -> NoReturn:
        """Report a collective that the group does not have, and raise GroupEnded."""
        self._send(fabric.UnsupportedCollective(name, submission_line(sys._getframe())))
        raise GroupEnded(f"{name} is a collective of the library; write it with send and receive")

    def leave(self, raised: bool) -> None:
        """Report the end of this rank, and close the wire."""
        with contextlib.suppress(GroupEnded):
            self._send(fabric.Leave(raised, list(self.open)))
        self._wire.close()

    def _send(self, message: Any) -> None:
        try:
            self._wire.send(message)
        except ConnectionClosed:
            raise GroupEnded("the group has ended") from None

    def _receive(self) -> Any:
        try:
            response = self._wire.receive()
        except ConnectionClosed:
            raise GroupEnded("the group has ended") from None
        if isinstance(response, fabric.GroupEnd):
            raise GroupEnded(response.reason)
        return response


class Request(dist._Work):  # type: ignore[misc, name-defined]
    """The object that isend, irecv and asynchronous collectives return."""

    def __init__(
        self, member: Member, number: int, tensor: torch.Tensor | None, content: bytes, name: fabric.OperationName
    ) -> None:
        super().__init__()
        self._member = member
        self._number = number
        self._name = name
        self._tensor = tensor
        self._content = content
        self._complete = False

    def wait(self, timeout: object = None) -> bool:
        """Wait for the operation, and copy the received content to the tensor."""
        if not self._complete:
            # Until the wait, a send's buffer must keep its content, and a receive's buffer its poison.
            touched = self._tensor is not None and to_bytes(self._tensor) != self._content
            content = self._member.finish(self._number, touched)
            if self._tensor is not None and content:
                shape = self._tensor.shape
                self._tensor.copy_(from_bytes(dtype_name(self._tensor.dtype), shape, content, "cpu"))
            self._complete = True
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return self._complete or self._member.poll(self._number)

    def is_success(self) -> bool:
        return self.is_completed()

    def get_future(self) -> _Future:
        """Return a future whose value is a list with the tensor."""
        return _Future(self._with_tensor, self.is_completed)

    def _with_tensor(self) -> list[torch.Tensor]:
        self.wait()
        return [] if self._tensor is None else [self._tensor]


class _Future(torch.futures.Future[Any]):
    """A future that completes when somebody waits for it: nothing runs in the background here.

    Args:
        complete: Waits, and returns the value.
        ready: Returns whether the future can complete without waiting.
    """

    def __init__(self, complete: Callable[[], Any], ready: Callable[[], bool]) -> None:
        super().__init__()
        self._complete = complete
        self._ready = ready

    def done(self) -> bool:
        return super().done() or self._ready()

    def wait(self) -> Any:
        if not super().done():
            self.set_result(self._complete())
        return super().wait()

    def value(self) -> Any:
        return self.wait()

    def then(self, callback: Callable[[torch.futures.Future[Any]], Any]) -> _Future:
        def called() -> Any:
            self.wait()
            return callback(self)

        return _Future(called, self._ready)


class _Group(dist.ProcessGroup):
    """The backend that torch.distributed calls."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]
        self._member = _current[0]

    def getBackendName(self) -> str:
        return BACKEND

    def _get_backend(self, device: torch.device) -> _Group:  # type: ignore[override]
        """Return the group itself. torch 2.15 reads `supports_coalescing` of the result, which this group lacks."""
        return self

    def send(self, tensors: Sequence[torch.Tensor], peer: int, tag: int) -> Request:
        return self._member.post("send", tensors[0], peer, tag)

    def recv(self, tensors: Sequence[torch.Tensor], peer: int, tag: int) -> Request:
        return self._member.post("recv", tensors[0], peer, tag)

    def allreduce(self, tensors: Sequence[torch.Tensor], options: Any) -> Request:  # type: ignore[override]
        if "all_reduce" not in self._member.collectives:
            self._member.refuse("all_reduce")
        mean = options.reduceOp == dist.ReduceOp.AVG
        if not mean and not options.reduceOp == dist.ReduceOp.SUM:  # which has no !=
            raise ValueError("this group computes ReduceOp.SUM and ReduceOp.AVG")
        return self._member.post("all_reduce", tensors[0], mean=mean)

    def barrier(self, opts: Any) -> Request:  # type: ignore[override]  # dist.barrier passes it by this name
        return self._member.post("barrier", None)


def _unsupported(name: str) -> Callable[..., NoReturn]:
    """Return a method that refuses a collective."""

    def refuse(self: _Group, *_: object, **__: object) -> NoReturn:
        self._member.refuse(name.strip("_"))

    return refuse


for _name in _COLLECTIVES:
    setattr(_Group, _name, _unsupported(_name))


def _make_group(store: object, rank: int, size: int, timeout: object) -> _Group:
    return _Group(rank, size)


class Layer:
    """A layer of a model whose backward pass takes time on the rank's simulated timeline.

    Args:
        member: The rank.
        part: The number of the layer's computation.
        numel: The number of elements of its gradient.
    """

    def __init__(self, member: Member, part: int, numel: int) -> None:
        self._member = member
        self._part = part
        self.numel = numel

    def backward(self) -> torch.Tensor:
        """Return the flat gradient of the layer's weights, computed now. Layers go backward from the last to the
        first.
        """
        return from_bytes("float32", [self.numel], self._member.compute(self._part), "cpu")


def entry_arguments(member: Member, inputs: Sequence[Any], sizes: Sequence[int]) -> tuple[Any, ...]:
    """Return the arguments of the entry.

    Where `sizes`, the elements of the layers' gradients, are given, a list of layers comes before the inputs.
    """
    if not sizes:
        return tuple(inputs)
    return [Layer(member, part, numel) for part, numel in enumerate(sizes)], *inputs


def _poison(tensor: torch.Tensor) -> None:
    raw = raw_bytes(tensor)
    poison_(raw[: raw.numel() // 2 * 2])
