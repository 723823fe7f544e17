"""Typed messages between two processes that do not trust each other.

A frame is eight bytes of length and a msgspec Struct in MessagePack. Whoever receives says which Structs it accepts;
anything else, a frame over the limit included, is `Garbled`. Nothing is ever unpickled. A deadline holds for a whole
message, so a sender that stops in the middle of one is `Silent`.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from typing import Any, Generic, TypeVar

import msgspec

Received = TypeVar("Received", bound=msgspec.Struct)

MOST_BYTES = 4 << 30
"""A frame may hold the largest case's tensors, and no more than a worker may have memory."""

_LENGTH = struct.Struct("<Q")
_CHUNK = 1 << 20


class Silent(Exception):
    """No whole message came, or none was taken, within the time allowed."""


class Gone(Exception):
    """The other end has closed."""


class Garbled(Exception):
    """What came is not a message that is accepted here. The text says what is wrong with it."""


class Wire(Generic[Received]):
    """One end of a Unix stream socket. accepts: the Struct, or the union of tagged Structs, that may come."""

    def __init__(self, connection: socket.socket, accepts: Any, most_bytes: int = MOST_BYTES) -> None:
        self.connection = connection
        self._decoder: msgspec.msgpack.Decoder[Received] = msgspec.msgpack.Decoder(accepts)
        self._encoder = msgspec.msgpack.Encoder()
        self._most_bytes = most_bytes

    def fileno(self) -> int:
        return self.connection.fileno()

    def send(self, message: msgspec.Struct, seconds: float | None = None) -> None:
        """Raises Silent where the other end takes nothing for so long, and Gone."""
        body = self._encoder.encode(message)
        self.connection.settimeout(seconds)
        try:
            self.connection.sendall(_LENGTH.pack(len(body)))
            self.connection.sendall(body)
        except TimeoutError:
            raise Silent from None
        except OSError as error:
            raise Gone from error

    def receive(self, seconds: float | None = None) -> Received:
        """The next message. seconds: for the whole of it. Raises Silent, Gone and Garbled."""
        end = None if seconds is None else time.monotonic() + seconds
        (size,) = _LENGTH.unpack(self._exactly(_LENGTH.size, end))
        if size > self._most_bytes:
            raise Garbled(f"a message of {size:,} bytes")
        try:
            return self._decoder.decode(self._exactly(size, end))
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise Garbled(str(error)) from error

    def waiting(self) -> bool:
        """Whether something has come, be it the end."""
        return bool(select.select([self.connection], [], [], 0)[0])

    def close(self) -> None:
        self.connection.close()

    def _exactly(self, size: int, end: float | None) -> bytearray:
        """So many bytes. Memory is taken as they come, not as they are announced."""
        taken = bytearray()
        while len(taken) < size:
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0 and (taken or not self.waiting()):
                raise Silent
            self.connection.settimeout(None if left is None else max(left, 1e-3))
            try:
                piece = self.connection.recv(min(size - len(taken), max(_CHUNK, len(taken))))
            except TimeoutError:
                raise Silent from None
            except OSError as error:
                raise Gone from error
            if not piece:
                raise Gone
            taken += piece
        return taken


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected ends."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
