"""Test that every malformed or malicious response of a worker ends as a verdict, in bounded time and memory.

Native code in a submission can write anything into its worker's end of the wire. These tests replace the forked worker
by a thread that sends such data, and run a complete grading against it. Only `FakeWorker` knows the wire format and
the fields of an honest response.
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
# The limit on the length of a cause, which is printed.
MOST_CHARACTERS = 10_000

Fields = dict[str, Any]
# The behavior of a worker that is requested to run a case. It receives the fields of the honest response.
Answers = Callable[["FakeWorker", Fields], None]


class FakeWorker:
    """The worker's end of the wire, and the process that the grader believes to be there."""

    # The id of no process. The test's own process would look busy while it waits for the response, and a busy process
    # has twenty times as long to respond (process_clock).
    pid = 1 << 30

    def __init__(self, descriptor: int, answers: Answers) -> None:
        self.wire = socket.socket(fileno=os.dup(descriptor))
        self._answers = answers
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                request = self.read()
                if request["type"] == "Call":
                    self._answers(self, self.make_honest_response(request))
                else:
                    self.answer({"type": "Done", "secret": request["secret"]})

    # The wire format of a message

    def read(self) -> Fields:
        (size,) = struct.unpack("<Q", self._exactly(8))
        request: Fields = msgspec.msgpack.decode(self._exactly(size))
        return request

    def _exactly(self, size: int) -> bytes:
        content = self.wire.recv(size, socket.MSG_WAITALL) if size else b""
        if len(content) < size:
            raise EOFError
        return content

    def frame(self, content: bytes, size: int | None = None) -> None:
        """Send a message in a frame, whose header announces `size` bytes if that is not None."""
        self.wire.sendall(struct.pack("<Q", len(content) if size is None else size) + content)

    @staticmethod
    def encode(value: Any) -> bytes:
        return msgspec.msgpack.encode(value)

    @staticmethod
    def encode_nested(depth: int) -> bytes:
        return b"\x91" * depth + b"\xc0"

    # The fields of a response

    def make_honest_response(self, request: Fields) -> Fields:
        """Return the response of a worker whose submission is correct."""
        (tensor,) = request["tensors"].values()
        x = from_bytes(tensor["dtype"], tensor["shape"], tensor["content"], "cpu")
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
        self.frame(self.encode(fields))

    @staticmethod
    def make_reported_finding(fields: Fields, verdict: str, cause: str) -> Fields:
        finding = {"verdict": verdict, "cause": cause, "file": "", "line": 0, "element": None}
        return {"type": "ReportedFinding", "secret": fields["secret"], "finding": finding}

    @staticmethod
    def make_compiling(begins: bool) -> Fields:
        return {"type": "Compiling", "secret": "", "begins": begins}

    # The interface of a worker's process that the grader uses

    def wait(self, seconds: float | None = None) -> int | None:
        return 0 if self._has_ended.wait(0) else None

    def kill(self) -> int:
        with contextlib.suppress(OSError):
            self.wire.shutdown(socket.SHUT_RDWR)
        self._has_ended.set()
        return -signal.SIGKILL

    def close(self) -> None:
        self._thread.join(5.0)
        self.wire.close()


class FakeServer:
    said = ""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    def fork(self, *arguments: Any) -> FakeWorker:
        return FakeWorker(arguments[1], self._answers)


Grade = Callable[[Answers], Report]


@pytest.fixture
def grade_against(doubling: ExerciseRef, monkeypatch: pytest.MonkeyPatch) -> Grade:
    """Return a function that grades `double` against a worker with this behavior, within a limit on memory."""
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


def test_an_honest_answer_passes(grade_against: Grade) -> None:
    assert grade_against(FakeWorker.answer).verdict is Verdict.PASSED


def send_frame(make_body: Callable[[Fields], bytes]) -> Answers:
    """Respond with a single frame."""
    return lambda fake, fields: fake.frame(make_body(fields))


def change_fields(**changes: Any) -> Answers:
    """Respond honestly, except for these fields."""
    return lambda fake, fields: fake.answer({**fields, **changes})


def omit_field(name: str) -> Answers:
    return lambda fake, fields: fake.answer({key: value for key, value in fields.items() if key != name})


def change_output(**changes: Any) -> Answers:
    """Respond honestly, except for these fields of the output."""
    return lambda fake, fields: fake.answer({**fields, "outputs": [{**fields["outputs"][0], **changes}]})


def report_finding(verdict: str, cause: str) -> Answers:
    return lambda fake, fields: fake.answer(fake.make_reported_finding(fields, verdict, cause))


def make_output_refs(fields: Fields) -> Fields:
    return {"type": "OutputRefs", "secret": fields["secret"], "outputs": [], "operators": [], "tampered": ""}


def respond_twice(fake: FakeWorker, fields: Fields) -> None:
    fake.answer(fields)
    fake.answer(fields)


def send_half(fake: FakeWorker, fields: Fields) -> None:
    fake.frame(fake.encode({"secret": fields["secret"]}), size=1000)


def send_half_and_close(fake: FakeWorker, fields: Fields) -> None:
    send_half(fake, fields)
    fake.wire.shutdown(socket.SHUT_RDWR)


def drip(fake: FakeWorker, fields: Fields) -> None:
    """Send bytes until the grader closes the connection: no byte may move the deadline of the message."""
    fake.frame(b"", size=1 << 20)
    while True:
        fake.wire.sendall(b" ")
        time.sleep(CASE_SECONDS / 5)


def compile_forever(fake: FakeWorker, fields: Fields) -> None:
    """Begin and end compiling until the grader closes the connection: no turn may move the deadline."""
    for turn in itertools.count():
        fake.answer(fake.make_compiling(turn % 2 == 0))
        time.sleep(1e-3)


TAMPERED = [
    ("random bytes", send_frame(lambda _: bytes(range(256)))),
    ("nothing", send_frame(lambda _: b"")),
    ("a list", send_frame(lambda fields: FakeWorker.encode([fields["secret"]]))),
    ("a number", send_frame(lambda _: FakeWorker.encode(7))),
    ("null", send_frame(lambda _: FakeWorker.encode(None))),
    ("deep nesting", send_frame(lambda _: FakeWorker.encode_nested(100_000))),
    ("30 MB of text", send_frame(lambda _: FakeWorker.encode("x" * 30_000_000))),
    ("half of a message", send_frame(lambda fields: FakeWorker.encode({"secret": fields["secret"]})[:-5])),
    ("text that is not UTF-8", send_frame(lambda fields: FakeWorker.encode({"secret": "?"}).replace(b"?", b"\xff"))),
    ("no secret", omit_field("secret")),
    ("another secret", change_fields(secret="0" * 32)),
    ("a secret that is a list", change_fields(secret=[])),
    ("answered twice", respond_twice),
    ("no outputs", omit_field("outputs")),
    ("no input_fingerprints", omit_field("input_fingerprints")),
    ("no tampered", omit_field("tampered")),
    ("outputs that are text", change_fields(outputs="float32")),
    ("outputs of numbers", change_fields(outputs=[7])),
    ("launches that are a number", change_fields(launches=7)),
    ("tampered that is a number", change_fields(tampered=7)),
    ("an unknown dtype", change_output(dtype="no_such_dtype")),
    ("a dtype that is a function", change_output(dtype="zeros")),
    ("a negative extent", change_output(shape=[-4])),
    ("an extent that is text", change_output(shape=["4"])),
    ("an extent that is NaN", change_output(shape=[math.nan])),
    ("an extent that no machine has", change_output(shape=[1 << 62])),
    ("a shape that is not that of the bytes", change_output(shape=[3, 5, 7])),
    ("no bytes", change_output(content=b"")),
    ("a byte too few", change_output(content=b"123")),
    ("bytes that are a number", change_output(content=4)),
    ("another answer", lambda fake, fields: fake.answer({"type": "Done", "secret": fields["secret"]})),
    ("an answer from another exercise", lambda fake, fields: fake.answer(make_output_refs(fields))),
    ("an exabyte is announced", lambda fake, fields: fake.frame(b"", size=1 << 60)),
    ("an unknown verdict", report_finding("WON", "")),
    ("a finding that it passed", report_finding("PASSED", "")),
    (
        "a finding that is text",
        lambda fake, fields: fake.answer({"type": "ReportedFinding", "secret": fields["secret"], "finding": "no"}),
    ),
]

CRASHED: list[tuple[str, Answers]] = [
    ("closes", lambda fake, fields: fake.wire.shutdown(socket.SHUT_RDWR)),
    ("half of a message, then it closes", send_half_and_close),
    ("30 MB of a cause", report_finding("CRASHED", "x" * 30_000_000)),
    ("escapes for the terminal in a cause", report_finding("CRASHED", "\x1b[2J\x1b]0;owned\x07\rPASSED")),
]

TIMED_OUT: list[tuple[str, Answers]] = [
    ("silence", lambda fake, fields: None),
    ("half of a message, then silence", send_half),
    ("a byte at a time", drip),
    ("three gigabytes are announced", lambda fake, fields: fake.frame(b"", size=3 << 30)),
    ("always compiling", compile_forever),
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
def test_an_invalid_response_is_tampering(answers: Answers, grade_against: Grade) -> None:
    assert grade_against(answers).verdict is Verdict.TAMPERED


@pytest.mark.parametrize("answers", parameters(CRASHED))
def test_a_worker_that_closes_the_connection_has_crashed(answers: Answers, grade_against: Grade) -> None:
    assert grade_against(answers).verdict is Verdict.CRASHED


@pytest.mark.parametrize("answers", parameters(TIMED_OUT))
def test_a_worker_that_does_not_finish_times_out(answers: Answers, grade_against: Grade) -> None:
    assert grade_against(answers).verdict is Verdict.TIMED_OUT


def test_an_extra_field_ends_as_a_verdict(grade_against: Grade) -> None:
    assert grade_against(change_fields(also="this")).verdict in (Verdict.PASSED, Verdict.TAMPERED)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), 1 << 63) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
names = st.sampled_from(
    ["outputs", "input_fingerprints", "launches", "operators", "tampered", "finding", "secret", "type"]
)
fixture_settings = settings(
    max_examples=share_of_examples(1 / 2), suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@fixture_settings
@given(changes=st.dictionaries(names, values, min_size=1, max_size=3))
def test_no_field_makes_the_grader_fail(changes: Fields, grade_against: Grade) -> None:
    grade_against(change_fields(**changes))


@fixture_settings
@given(message=st.binary(max_size=200))
def test_no_bytes_make_the_grader_fail(message: bytes, grade_against: Grade) -> None:
    assert not grade_against(send_frame(lambda _: message)).verdict.passed
