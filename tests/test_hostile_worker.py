"""A worker that answers garbage: each of its answers ends as a verdict, in bounded time and memory.

Native code in a submission can write anything into its worker's end of the wire. Here a thread of the test does so, in
place of the process that the fork server would have forked, and a whole grading runs against it. Only `Fake`
knows how a message looks on the wire, and what an honest answer holds.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import signal
import socket
import struct
import threading
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelpath.course.registry import ExerciseRef
from kernelpath.grading import grade
from kernelpath.verdict import Report, Verdict
from kernelpath.work import forkserver, host, runner
from kernelpath.work.tensors import fingerprint, from_bytes, to_bytes
from machine.hypothesis_profiles import share_of_examples

CASE_SECONDS = 1.0
MOST_BYTES = 400 << 20
# Of a cause, which is printed.
MOST_CHARACTERS = 10_000

Fields = dict[str, Any]
# What a worker does when it is asked to run a case. It is given the fields of the honest answer.
Answers = Callable[["Fake", Fields], None]


class Fake:
    """The worker's end of the wire, and the process that the grader believes to be there."""

    # Of no process. The one of this process, which waits for the answer, would look busy, and a busy process has twenty
    # times as long to answer (process_clock).
    pid = 1 << 30

    def __init__(self, descriptor: int, answers: Answers) -> None:
        self.wire = socket.socket(fileno=os.dup(descriptor))
        self._answers = answers
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                request = self.read()
                if request["type"] == "Call":
                    self._answers(self, self.honest(request))
                else:
                    self.answer({"type": "Done", "secret": request["secret"]})

    # How a message looks on the wire

    def read(self) -> Fields:
        (size,) = struct.unpack("<Q", self._exactly(8))
        asked: Fields = msgspec.msgpack.decode(self._exactly(size))
        return asked

    def _exactly(self, size: int) -> bytes:
        found = self.wire.recv(size, socket.MSG_WAITALL) if size else b""
        if len(found) < size:
            raise EOFError
        return found

    def frame(self, body: bytes, size: int | None = None) -> None:
        """A message as it is framed; size: what its frame says, where that is a lie."""
        self.wire.sendall(struct.pack("<Q", len(body) if size is None else size) + body)

    @staticmethod
    def encoded(value: Any) -> bytes:
        return msgspec.msgpack.encode(value)

    @staticmethod
    def nested(depth: int) -> bytes:
        return b"\x91" * depth + b"\xc0"

    # What an answer holds

    def honest(self, request: Fields) -> Fields:
        """The answer of a worker whose submission is right."""
        (sent,) = request["tensors"].values()
        x = from_bytes(sent["dtype"], sent["shape"], sent["content"], "cpu")
        out = 2 * x
        return {
            "type": "CallResult",
            "secret": request["secret"],
            "outputs": [{"dtype": "float32", "shape": list(out.shape), "content": to_bytes(out)}],
            "input_fingerprints": [fingerprint(x)],
            "out_of_bounds": "",
            "operators": [],
            "launches": [],
            "tampered": "",
        }

    def answer(self, fields: Fields) -> None:
        self.frame(self.encoded(fields))

    @staticmethod
    def reported_finding(fields: Fields, verdict: str, cause: str) -> Fields:
        told = {"verdict": verdict, "cause": cause, "file": "", "line": 0, "element": None}
        return {"type": "ReportedFinding", "secret": fields["secret"], "finding": told}

    @staticmethod
    def compiling(begins: bool) -> Fields:
        return {"type": "Compiling", "secret": "", "begins": begins}

    # What the grader sees of the process

    def wait(self, seconds: float | None = None) -> int | None:
        return 0 if self._ended.wait(0) else None

    def kill(self) -> int:
        with contextlib.suppress(OSError):
            self.wire.shutdown(socket.SHUT_RDWR)
        self._ended.set()
        return -signal.SIGKILL

    def close(self) -> None:
        self._thread.join(5.0)
        self.wire.close()


class FakeServer:
    said = ""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    def fork(self, *arguments: Any) -> Fake:
        return Fake(arguments[1], self._answers)


Grade = Callable[[Answers], Report]


@pytest.fixture
def graded(doubling: ExerciseRef, monkeypatch: pytest.MonkeyPatch) -> Grade:
    """Grades `double` against a worker that answers so; fails where that takes too much memory, or does not end."""
    monkeypatch.setattr(runner, "CASE_SECONDS", CASE_SECONDS)
    monkeypatch.setattr(runner, "COMPILE_SECONDS", CASE_SECONDS)
    monkeypatch.setattr(host, "_TRANSFER_SECONDS", CASE_SECONDS)

    def run(answers: Answers) -> Report:
        server = FakeServer(answers)
        monkeypatch.setattr(forkserver, "get_server", lambda **_: server)
        tracemalloc.start()
        try:
            report = grade.grade(doubling, doubling.solution, device="cpu", seed=1)
        finally:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert peak < MOST_BYTES
        assert len(report.cause) < MOST_CHARACTERS
        assert report.cause.isprintable()
        return report

    return run


def test_an_honest_answer_passes(graded: Grade) -> None:
    assert graded(Fake.answer).verdict is Verdict.PASSED


def body(made: Callable[[Fields], bytes]) -> Answers:
    """Answers with one frame."""
    return lambda fake, fields: fake.frame(made(fields))


def changed(**changes: Any) -> Answers:
    """Answers honestly, but for these fields."""
    return lambda fake, fields: fake.answer({**fields, **changes})


def without(name: str) -> Answers:
    return lambda fake, fields: fake.answer({key: value for key, value in fields.items() if key != name})


def output(**changes: Any) -> Answers:
    """Answers honestly, but for what it says of its output."""
    return lambda fake, fields: fake.answer({**fields, "outputs": [{**fields["outputs"][0], **changes}]})


def complaining(verdict: str, cause: str) -> Answers:
    return lambda fake, fields: fake.answer(fake.reported_finding(fields, verdict, cause))


def placed(fields: Fields) -> Fields:
    return {"type": "OutputRefs", "secret": fields["secret"], "outputs": [], "operators": [], "tampered": ""}


def twice(fake: Fake, fields: Fields) -> None:
    fake.answer(fields)
    fake.answer(fields)


def half(fake: Fake, fields: Fields) -> None:
    fake.frame(fake.encoded({"secret": fields["secret"]}), size=1000)


def half_and_gone(fake: Fake, fields: Fields) -> None:
    half(fake, fields)
    fake.wire.shutdown(socket.SHUT_RDWR)


def drip(fake: Fake, fields: Fields) -> None:
    """Send bytes until the grader closes the connection: no byte may move the deadline of the message."""
    fake.frame(b"", size=1 << 20)
    while True:
        fake.wire.sendall(b" ")
        time.sleep(CASE_SECONDS / 5)


def always_compiling(fake: Fake, fields: Fields) -> None:
    """Begin and end compiling until the grader closes the connection: no turn may move the deadline."""
    for turn in itertools.count():
        fake.answer(fake.compiling(turn % 2 == 0))
        time.sleep(1e-3)


TAMPERED = [
    ("random bytes", body(lambda _: bytes(range(256)))),
    ("nothing", body(lambda _: b"")),
    ("a list", body(lambda fields: Fake.encoded([fields["secret"]]))),
    ("a number", body(lambda _: Fake.encoded(7))),
    ("null", body(lambda _: Fake.encoded(None))),
    ("deep nesting", body(lambda _: Fake.nested(100_000))),
    ("30 MB of text", body(lambda _: Fake.encoded("x" * 30_000_000))),
    ("half of a message", body(lambda fields: Fake.encoded({"secret": fields["secret"]})[:-5])),
    ("text that is not UTF-8", body(lambda fields: Fake.encoded({"secret": "?"}).replace(b"?", b"\xff"))),
    ("no secret", without("secret")),
    ("another secret", changed(secret="0" * 32)),
    ("a secret that is a list", changed(secret=[])),
    ("answered twice", twice),
    ("no outputs", without("outputs")),
    ("no input_fingerprints", without("input_fingerprints")),
    ("no tampered", without("tampered")),
    ("outputs that are text", changed(outputs="float32")),
    ("outputs of numbers", changed(outputs=[7])),
    ("launches that are a number", changed(launches=7)),
    ("tampered that is a number", changed(tampered=7)),
    ("an unknown dtype", output(dtype="no_such_dtype")),
    ("a dtype that is a function", output(dtype="zeros")),
    ("a negative extent", output(shape=[-4])),
    ("an extent that is text", output(shape=["4"])),
    ("an extent that is NaN", output(shape=[math.nan])),
    ("an extent that no machine has", output(shape=[1 << 62])),
    ("a shape that is not that of the bytes", output(shape=[3, 5, 7])),
    ("no bytes", output(content=b"")),
    ("a byte too few", output(content=b"123")),
    ("bytes that are a number", output(content=4)),
    ("another answer", lambda fake, fields: fake.answer({"type": "Done", "secret": fields["secret"]})),
    ("an answer from another exercise", lambda fake, fields: fake.answer(placed(fields))),
    ("an exabyte is announced", lambda fake, fields: fake.frame(b"", size=1 << 60)),
    ("an unknown verdict", complaining("WON", "")),
    ("a finding that it passed", complaining("PASSED", "")),
    (
        "a finding that is text",
        lambda fake, fields: fake.answer({"type": "ReportedFinding", "secret": fields["secret"], "finding": "no"}),
    ),
]

CRASHED: list[tuple[str, Answers]] = [
    ("closes", lambda fake, fields: fake.wire.shutdown(socket.SHUT_RDWR)),
    ("half of a message, then it closes", half_and_gone),
    ("30 MB of a cause", complaining("CRASHED", "x" * 30_000_000)),
    ("escapes for the terminal in a cause", complaining("CRASHED", "\x1b[2J\x1b]0;owned\x07\rPASSED")),
]

TIMED_OUT: list[tuple[str, Answers]] = [
    ("silence", lambda fake, fields: None),
    ("half of a message, then silence", half),
    ("a byte at a time", drip),
    ("three gigabytes are announced", lambda fake, fields: fake.frame(b"", size=3 << 30)),
    ("always compiling", always_compiling),
]

Case = tuple[str, Answers]


def parameters(cases: list[Case]) -> list[Any]:
    return [
        pytest.param(
            answers,
            id=name,
        )
        for name, answers in cases
    ]


@pytest.mark.parametrize("answers", parameters(TAMPERED))
def test_what_is_no_answer_is_forged(answers: Answers, graded: Grade) -> None:
    assert graded(answers).verdict is Verdict.TAMPERED


@pytest.mark.parametrize("answers", parameters(CRASHED))
def test_who_leaves_has_crashed(answers: Answers, graded: Grade) -> None:
    assert graded(answers).verdict is Verdict.CRASHED


@pytest.mark.parametrize("answers", parameters(TIMED_OUT))
def test_who_does_not_finish_is_out_of_time(answers: Answers, graded: Grade) -> None:
    assert graded(answers).verdict is Verdict.TIMED_OUT


def test_a_field_too_many_is_no_way_out(graded: Grade) -> None:
    assert graded(changed(also="this")).verdict in (Verdict.PASSED, Verdict.TAMPERED)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), 1 << 63) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
names = st.sampled_from(
    ["outputs", "input_fingerprints", "launches", "operators", "tampered", "finding", "secret", "type"]
)
quietly = settings(max_examples=share_of_examples(1 / 2), suppress_health_check=[HealthCheck.function_scoped_fixture])


@quietly
@given(changes=st.dictionaries(names, values, min_size=1, max_size=3))
def test_no_field_makes_the_grader_fail(changes: Fields, graded: Grade) -> None:
    graded(changed(**changes))


@quietly
@given(message=st.binary(max_size=200))
def test_no_bytes_make_the_grader_fail(message: bytes, graded: Grade) -> None:
    assert not graded(body(lambda _: message)).verdict.passed
