"""Exchange typed messages between two processes that do not trust each other.

A frame is eight bytes of length and a msgspec Struct in MessagePack. The receiver declares which Structs it accepts.
Anything else, including a frame over the limit, raises ProtocolError. Nothing is ever unpickled. A deadline covers a
whole message, so a sender that stops in the middle of a message causes a ResponseTimeout. The deadline of a large
message grows with the bytes that have been transferred, because a busy computer copies slowly.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from typing import Any, Generic, TypeVar

import msgspec

Received = TypeVar("Received", bound=msgspec.Struct)

# A frame may hold the largest case's tensors, and no more than a worker may have memory.
MOST_BYTES = 4 << 30

# A timer exercise replaces time.monotonic in the submission's process by a clock that asks for the time over a wire.
_monotonic = time.monotonic

_LENGTH = struct.Struct("<Q")

# The bytes of a message for which a deadline is extended once.
_CHUNK = 1 << 20


class ResponseTimeout(Exception):
    """No whole message arrived, or the other end accepted none, within the time allowed."""


class ConnectionClosed(Exception):
    """The other end of the connection has closed."""


class ProtocolError(Exception):
    """A message is not accepted here. The text says what is wrong with the message."""


class Wire(Generic[Received]):
    """Send and receive messages at one end of a Unix stream socket.

    Args:
        connection: This end of the socket.
        accepts: The Struct, or the union of tagged Structs, that may be received.
        most_bytes: The longest frame that is accepted.
    """

    def __init__(self, connection: socket.socket, accepts: Any, most_bytes: int = MOST_BYTES) -> None:
        self.connection = connection
        self._decoder: msgspec.msgpack.Decoder[Received] = msgspec.msgpack.Decoder(accepts)
        self._encoder = msgspec.msgpack.Encoder()
        self._most_bytes = most_bytes

    def fileno(self) -> int:
        return self.connection.fileno()

    def send(self, message: msgspec.Struct, seconds: float | None = None) -> None:
        """Send a message. `seconds` covers a MiB of it.

        Raises:
            ResponseTimeout: The other end did not read in time.
            ConnectionClosed: The other end has closed.
        """
        body = memoryview(self._encoder.encode(message))
        self.connection.settimeout(seconds)
        try:
            # In pieces, because the time limit of a socket covers a whole sendall.
            self.connection.sendall(_LENGTH.pack(len(body)))
            for start in range(0, len(body), _CHUNK):
                self.connection.sendall(body[start : start + _CHUNK])
        except TimeoutError:
            raise ResponseTimeout from None
        except OSError as error:
            raise ConnectionClosed from error

    def receive(self, seconds: float | None = None) -> Received:
        """Return the next message. `seconds` covers a message of a MiB; a larger message has as much for each MiB.

        Raises:
            ResponseTimeout: The message was not complete in time.
            ConnectionClosed: The other end has closed.
            ProtocolError: The bytes are not a message that is accepted here.
        """
        start = _monotonic()
        (size,) = _LENGTH.unpack(self._exactly(_LENGTH.size, start, seconds))
        if size > self._most_bytes:
            raise ProtocolError(f"a message of {size:,} bytes")
        try:
            return self._decoder.decode(self._exactly(size, start, seconds))
        # Bytes of a process that is not trusted: whatever is wrong with them is an error of the protocol and no crash.
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise ProtocolError(str(error)) from error

    def waiting(self, seconds: float = 0.0) -> bool:
        """Return whether data, or the end of the stream, can be read, now or within `seconds`."""
        return bool(select.select([self.connection], [], [], seconds)[0])

    def close(self) -> None:
        self.connection.close()

    def _exactly(self, size: int, start: float, seconds: float | None) -> bytearray:
        """Return exactly `size` bytes. Memory grows as bytes are received, not as they are announced."""
        received = bytearray()
        while len(received) < size:
            remaining: float | None = None
            if seconds is not None:
                remaining = start + seconds * (1 + len(received) // _CHUNK) - _monotonic()
            # If nothing was read yet, data that has already arrived still counts: the reader may have been late, and
            # not the sender.
            if remaining is not None and remaining <= 0 and (received or not self.waiting()):
                raise ResponseTimeout
            self.connection.settimeout(None if remaining is None else max(remaining, 1e-3))
            try:
                piece = self.connection.recv(min(size - len(received), max(_CHUNK, len(received))))
            except TimeoutError:
                raise ResponseTimeout from None
            except OSError as error:
                raise ConnectionClosed from error
            if not piece:
                raise ConnectionClosed
            received += piece
        return received


def pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected stream sockets."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
