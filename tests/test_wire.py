"""Test the wire: messages are received completely, or ProtocolError, ConnectionClosed, or ResponseTimeout is raised."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import tracemalloc
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelpath import wire
from kernelpath.device import server
from kernelpath.wire import ConnectionClosed, ProtocolError, ResponseTimeout, Wire
from warpcheck import simt

# The deadline of a message in seconds. Without a deadline, a failing test would never end.
SECONDS = 0.2


class Small(msgspec.Struct, tag=True):
    number: int
    names: list[str] = []


class Other(msgspec.Struct, tag=True):
    content: bytes = b""


class Stranger(msgspec.Struct, tag=True):
    number: int


Messages = Small | Other


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = wire.pair()
    yield here, there
    here.close()
    there.close()


def receiver(here: socket.socket, most_bytes: int = 1 << 20) -> Wire[Small | Other]:
    return Wire(here, Messages, most_bytes)


def frame(body: bytes, announced: int | None = None) -> bytes:
    return struct.pack("<Q", len(body) if announced is None else announced) + body


def encode(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


@given(st.lists(st.one_of(st.builds(Small, st.integers(-(2**63), 2**64 - 1), st.lists(st.text())), st.builds(Other))))
def test_messages_are_received_completely_and_in_order(sent: list[Small | Other]) -> None:
    here, there = wire.pair()
    with here, there:
        for message in sent:
            Wire(there, Messages).send(message)
        there.close()
        receiving = receiver(here)
        assert [receiving.receive(SECONDS) for _ in sent] == sent
        with pytest.raises(ConnectionClosed):
            receiving.receive(SECONDS)


def test_a_message_larger_than_the_socket_buffer_is_received(sockets: tuple[socket.socket, socket.socket]) -> None:
    here, there = sockets
    sent = Other(bytes(range(256)) * (1 << 14))
    sending = threading.Thread(target=Wire(there, Messages).send, args=(sent,))
    sending.start()
    assert receiver(here, 1 << 30).receive(10.0) == sent
    sending.join()


GARBAGE = {
    "another message": encode(Stranger(3)),
    "no message": encode([1, 2, 3]),
    "no tag": encode({"number": 3}),
    "a field of another type": encode({"type": "Small", "number": "three"}),
    "a field that is missing": encode({"type": "Small"}),
    "two messages in one": encode(Small(1)) + encode(Small(2)),
    "half a message": encode(Small(1, ["name"]))[:-2],
    "nothing": b"",
    "text that is not UTF-8": encode({"type": "Small", "number": 1, "names": ["?"]}).replace(b"?", b"\xff"),
    "a tag that is not UTF-8": encode({"type": "?"}).replace(b"?", b"\xff"),
    "deep nesting": b"\x91" * 500_000 + b"\xc0",
    "deep nesting in an unknown field": b"\x83\xa4type\xa5Small\xa6number\x01\xa1x" + b"\x91" * 500_000 + b"\xc0",
    "a list of four billion": b"\x83\xa4type\xa5Small\xa6number\x01\xa5names\xdd\xff\xff\xff\xff",
    "an extension of Python's": b"\x82\xa4type\xa5Other\xa7content\xc7\x04\x01abcd",
}


@pytest.mark.parametrize("body", GARBAGE.values(), ids=GARBAGE)
def test_invalid_messages_raise_protocol_error(sockets: tuple[socket.socket, socket.socket], body: bytes) -> None:
    here, there = sockets
    sending = threading.Thread(target=there.sendall, args=(frame(body),))
    sending.start()
    with pytest.raises(ProtocolError) as garbled:
        receiver(here).receive(5.0)
    assert str(garbled.value), "it says what is wrong"
    sending.join()


@given(st.binary(max_size=300))
def test_random_bytes_raise_no_other_exception(sent: bytes) -> None:
    here, there = wire.pair()
    with here, there:
        there.sendall(sent)
        there.close()
        with contextlib.suppress(ProtocolError, ConnectionClosed):
            assert isinstance(receiver(here).receive(SECONDS), (Small, Other))


@given(st.binary(max_size=300))
def test_random_bytes_in_a_frame_are_a_message_or_a_protocol_error(body: bytes) -> None:
    here, there = wire.pair()
    with here, there:
        there.sendall(frame(body))
        with contextlib.suppress(ProtocolError):
            assert isinstance(receiver(here).receive(SECONDS), (Small, Other))


@pytest.mark.parametrize("announced", [(1 << 20) + 1, 1 << 40, (1 << 64) - 1])
def test_an_announced_length_over_the_limit_raises_immediately(
    sockets: tuple[socket.socket, socket.socket], announced: int
) -> None:
    here, there = sockets
    there.sendall(frame(b"", announced))
    with pytest.raises(ProtocolError, match=f"{announced:,} bytes"):
        receiver(here).receive(SECONDS)


def test_memory_is_allocated_for_received_and_not_for_announced_bytes(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    here, there = sockets
    there.sendall(frame(b"x" * 1000, 1 << 30))
    tracemalloc.start()
    with pytest.raises(ResponseTimeout):
        receiver(here, 1 << 30).receive(SECONDS)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


@pytest.mark.parametrize("sent", [b"", b"\x05", frame(b"", 100), frame(encode(Small(1)), 100)])
def test_a_sender_that_stops_raises_response_timeout(sockets: tuple[socket.socket, socket.socket], sent: bytes) -> None:
    here, there = sockets
    there.sendall(sent)
    with pytest.raises(ResponseTimeout):
        receiver(here).receive(SECONDS)


@pytest.mark.parametrize("sent", [b"", b"\x05", frame(b"", 100), frame(encode(Small(1)), 100)])
def test_a_sender_that_closes_raises_connection_closed(
    sockets: tuple[socket.socket, socket.socket], sent: bytes
) -> None:
    here, there = sockets
    there.sendall(sent)
    there.close()
    with pytest.raises(ConnectionClosed):
        receiver(here).receive()


@pytest.mark.parametrize("pause", [0.0, 0.02])
def test_the_deadline_applies_to_the_complete_message(
    sockets: tuple[socket.socket, socket.socket], pause: float
) -> None:
    here, there = sockets
    end = threading.Event()

    def trickle() -> None:
        there.sendall(frame(b"", 1 << 30))
        with contextlib.suppress(OSError):  # the peer was closed
            while not end.wait(pause):
                there.send(b"x")

    # If every byte extended the deadline, it would never pass, and pytest's timeout would end the test.
    sending = threading.Thread(target=trickle)
    sending.start()
    try:
        with pytest.raises(ResponseTimeout):
            receiver(here, 1 << 30).receive(SECONDS)
    finally:
        end.set()
        here.close()
        sending.join()


def test_a_buffered_message_is_received_after_the_deadline(sockets: tuple[socket.socket, socket.socket]) -> None:
    here, there = sockets
    Wire(there, Messages).send(Small(3))
    assert receiver(here).receive(0.0) == Small(3)


def test_a_receiver_that_reads_nothing_does_not_block_the_sender(sockets: tuple[socket.socket, socket.socket]) -> None:
    here, _ = sockets
    with pytest.raises(ResponseTimeout):
        receiver(here).send(Other(bytes(64 << 20)), SECONDS)


def test_sending_to_a_closed_connection_raises_connection_closed(sockets: tuple[socket.socket, socket.socket]) -> None:
    here, there = sockets
    there.close()
    with pytest.raises(ConnectionClosed):
        receiver(here).send(Small(1))


def test_polling_does_not_consume_a_message(sockets: tuple[socket.socket, socket.socket]) -> None:
    here, there = sockets
    receiving = receiver(here)
    assert not receiving.waiting()
    Wire(there, Messages).send(Small(7))
    assert receiving.waiting()
    assert receiving.receive(SECONDS) == Small(7)
    assert not receiving.waiting()
    there.close()
    assert receiving.waiting()


@pytest.mark.parametrize(
    ("sent", "failed"),
    [(struct.pack("<Q", 1000) + b"x", ""), (struct.pack("<Q", 3) + b"\x81\xa1a", "FORGED")],
    ids=["half", "no message"],
)
def test_only_an_invalid_message_is_reported_as_forged(
    sent: bytes, failed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy computer, an honest process may be interrupted within a message for longer than the limit."""
    monkeypatch.setattr(server, "TRANSFER_SECONDS", 0.05)
    ours, theirs = socket.socketpair()
    client = server._Client(ours, simt.TARGETS["sm_80"])
    with theirs:
        theirs.sendall(sent)
        client.serve()
    assert client.wire is None
    assert (client.case.failed.kind if client.case.failed else "") == failed
