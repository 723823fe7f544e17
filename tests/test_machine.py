"""The PTX machine as a process of its own: the storages that it keeps, its transcript, and what it is not fooled by."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelpath.device import messages
from kernelpath.device.addresses import AddressSpace
from kernelpath.device.case import CHANGED_BY_HOST, NOT_FROM_KERNEL, NVRTC
from kernelpath.wire import ConnectionClosed
from tests.machines import Served, Submission, floats, strided

X = floats(1, 2, 3, 4)


@pytest.fixture(scope="module")
def machine() -> Iterator[Served]:
    served = Served()
    yield served
    served.close()


@pytest.fixture
def another() -> Iterator[Served]:
    """A machine that a test may end."""
    served = Served()
    yield served
    served.close()


@pytest.fixture
def submission(machine: Served) -> Submission:
    attached = machine.attach()
    attached.load()
    attached.begin({-1: X})
    return attached


def written(number: int, content: Any, alignment: int = 0) -> messages.Storage:
    """A storage whose bytes the host wrote."""
    content = np.asarray(content, np.float32).tobytes()
    return messages.Storage(number, len(content), alignment, content, False)


def fresh(number: int, nbytes: int = 16) -> messages.Storage:
    """A storage that nothing has written to."""
    return messages.Storage(number, nbytes, 0, None, True)


def values(output: messages.Output) -> list[float]:
    assert output.fault == ""
    return [float(value) for value in np.frombuffer(output.content, np.float32)]


# Who wrote what


def test_an_output_is_what_the_kernel_wrote(submission: Submission) -> None:
    result = submission.launch("copy", 4, on=[-1, 0], storages=[fresh(0)])
    assert isinstance(result, messages.LaunchResult)
    assert [(number, content) for number, content in result.changed] == [(0, X.tobytes())]
    assert result.cost > 0
    end = submission.end(strided(0))
    assert values(end.outputs[0]) == [1, 2, 3, 4]
    assert (end.mutated, end.failed) == ([], None)
    assert [(note.kernel, note.arguments, note.host) for note in end.transcript] == [
        ("copy", ["input 0 (16 bytes) + 0", "tensor 0 (16 bytes) + 0", "4"], [])
    ]


def test_an_output_that_no_kernel_was_given_is_not_its_work(submission: Submission) -> None:
    submission.launch("copy", 4, on=[-1, 0], storages=[fresh(0)])
    assert submission.end(strided(7)).outputs[0] == messages.Output(b"", NOT_FROM_KERNEL)


def test_an_output_that_the_host_changed_after_the_last_kernel_is_not_its_work(submission: Submission) -> None:
    submission.launch("copy", 4, on=[-1, 0], storages=[fresh(0)])
    end = submission.end(strided(0), written=[written(0, [1, 2, 3, 5])])
    assert end.outputs[0] == messages.Output(b"", CHANGED_BY_HOST)
    assert values(submission.end(strided(0)).outputs[0]) == [1, 2, 3, 4], "a change is reported in its own case only"


def test_what_the_host_changes_beside_the_output_is_no_fault(submission: Submission) -> None:
    submission.launch("copy", 2, on=[-1, 0], storages=[fresh(0)])
    view = messages.TensorRef(0, "float32", [2], [1], 0)
    assert values(submission.end(view, written=[written(0, [1, 2, 9, 9])]).outputs[0]) == [1, 2]


def test_the_transcript_holds_what_the_host_wrote_before_a_launch(submission: Submission) -> None:
    def entry_after_writing(content: list[float]) -> Any:
        submission.begin({-1: X})
        submission.launch("nothing", on=[3], storages=[written(3, content)])
        (note,) = submission.end().transcript
        return note.host

    entry_after_writing([0, 0, 0, 0])
    assert entry_after_writing([0, 0, 0, 0]) == entry_after_writing([0, 0, 0, 0])
    first, second = entry_after_writing([1, 0, 0, 0]), entry_after_writing([2, 0, 0, 0])
    assert [name for name, _ in first] == ["tensor3"]
    assert first != second


def test_a_change_of_the_host_is_reported_once(submission: Submission) -> None:
    submission.launch("nothing", on=[3], storages=[written(3, [1, 2, 3, 4])])
    submission.launch("nothing", on=[3])
    assert [len(note.host) for note in submission.end().transcript] == [1, 0]


@pytest.mark.parametrize("way", ["in one without it", "in one that is refused"])
def test_bytes_announced_twice_before_a_launch_count_as_written_by_the_host(submission: Submission, way: str) -> None:
    """Told a second time they differ from nothing, for any values."""

    def digests(content: list[float]) -> set[str]:
        submission.begin({-1: X})
        submission.launch("nothing", on=[3], storages=[written(3, [0, 0, 0, 0])])
        storages = [written(3, content)]
        submission.launch("nothing", on=[-1] if way == "in one without it" else [3, 77], storages=storages)
        submission.launch("nothing", on=[3], storages=storages)
        ((_, names),) = submission.end().transcript[-1].host
        return set(names.split())

    assert digests([1, 2, 3, 4]) == digests([1, 2, 3, 4])
    assert not digests([1, 2, 3, 4]) & digests([5, 6, 7, 8])


def test_an_input_that_a_kernel_changes_is_reported(submission: Submission) -> None:
    submission.launch("add_one", on=[-1])
    assert submission.end().mutated == [-1]


def test_an_input_that_is_changed_and_restored_is_only_in_the_transcript(submission: Submission) -> None:
    submission.launch("copy", 4, on=[-1, 0], storages=[written(-1, [9, 9, 9, 9]), fresh(0)])
    end = submission.end(strided(0), written=[written(-1, X)])
    assert end.mutated == []
    assert values(end.outputs[0]) == [9, 9, 9, 9]
    assert [name for name, _ in end.transcript[0].host] == ["tensor-1"]


def test_an_input_that_the_host_changes_after_the_last_kernel_is_mutated(submission: Submission) -> None:
    submission.launch("nothing", on=[-1])
    assert submission.end(written=[written(-1, [0, 0, 0, 0])]).mutated == [-1]


# Memory


def test_bytes_that_nothing_wrote_come_out_as_poison(submission: Submission) -> None:
    submission.launch("copy", 3, on=[-1, 0], storages=[fresh(0)])
    content = submission.end(strided(0)).outputs[0].content
    assert np.frombuffer(content, np.float32)[:3].tolist() == [1, 2, 3]
    assert np.frombuffer(content, np.uint16)[6:].tolist() == [messages.POISON, messages.POISON]


def test_reading_what_nothing_wrote_is_a_fault(submission: Submission) -> None:
    failed = submission.launch("copy", 4, on=[0, 1], storages=[fresh(0), fresh(1)])
    assert isinstance(failed, messages.Failed)
    assert (failed.kind, failed.kernel, failed.file) == ("UNINITIALIZED", "copy", "kernels.cu")
    assert submission.end().failed == failed


@pytest.mark.parametrize("content", [X.tolist(), [0, 0, 0, 0]])
def test_what_the_host_wrote_may_be_read(submission: Submission, content: list[float]) -> None:
    submission.launch("nothing", on=[0], storages=[fresh(0)])
    submission.launch("copy", 4, on=[0, 1], storages=[written(0, content), fresh(1)])
    assert values(submission.end(strided(1)).outputs[0]) == content


def test_a_storage_lives_from_call_to_call(submission: Submission) -> None:
    submission.launch("copy", 4, on=[-1, 0], storages=[fresh(0)])
    submission.begin({-2: X})
    submission.launch("add_one", on=[0])
    assert values(submission.end(strided(0)).outputs[0]) == [2, 3, 4, 5]


def test_a_number_that_was_dropped_is_a_new_storage(submission: Submission) -> None:
    submission.launch("copy", 4, on=[-1, 0], storages=[fresh(0)])
    failed = submission.launch("copy", 4, on=[0, 1], storages=[fresh(0), fresh(1)], dropped=[0])
    assert isinstance(failed, messages.Failed)
    assert failed.kind == "UNINITIALIZED"


def test_an_output_of_a_storage_that_was_dropped_is_nobodys_work(submission: Submission) -> None:
    submission.launch("copy", 4, on=[-1, 0], storages=[fresh(0)])
    submission.launch("nothing", on=[-1], dropped=[0])
    assert submission.end(strided(0)).outputs[0].fault == NOT_FROM_KERNEL


def test_who_wrote_a_byte_is_known(submission: Submission) -> None:
    submission.launch("copy", 4, on=[-1, 0], storages=[fresh(0)])
    ask = submission.machine.ask
    writer = ask(messages.GetLastWriter(submission.number, 0, 4 * 2), messages.LastWriter)
    assert (writer.thread, writer.block, writer.file, writer.line) == ("2", "0", "kernels.cu", 3)
    assert ask(messages.GetLastWriter(submission.number, -1, 0), messages.Acknowledged) == messages.Acknowledged()
    assert ask(messages.GetLastWriter(submission.number, 99, 0), messages.Acknowledged) == messages.Acknowledged()


def test_statics_begin_anew_for_another_client_and_live_for_this_one(machine: Served, submission: Submission) -> None:
    def count_calls(submission: Submission) -> int:
        result = submission.launch("count", on=[0], storages=[written(0, [0, 0, 0, 0])], block=1)
        assert isinstance(result, messages.LaunchResult)
        return int(np.frombuffer(result.changed[0][1], np.int32)[0])

    assert [count_calls(submission), count_calls(submission)] == [1, 2]
    second_client = machine.attach()
    second_client.load()
    second_client.begin()
    assert count_calls(second_client) == 1


def test_clients_do_not_see_each_others_storages(machine: Served, submission: Submission) -> None:
    submission.launch("copy", 4, on=[-1, 0], storages=[fresh(0)])
    second_client = machine.attach()
    second_client.load()
    second_client.begin({-1: floats(5, 6, 7, 8)})
    for number in (-1, 0):
        second_client.launch("copy", 4, on=[-1, 0], storages=[fresh(0)])
        answer = second_client.launch("nothing", on=[number])
        assert isinstance(answer, messages.LaunchResult)
    assert values(second_client.end(strided(0)).outputs[0]) == [5, 6, 7, 8]
    assert values(submission.end(strided(0)).outputs[0]) == [1, 2, 3, 4]
    second_client.begin()
    assert second_client.end(strided(3)).outputs[0].fault == NOT_FROM_KERNEL


# What a kernel may know


def transcript(submission: Submission) -> list[messages.LaunchEntry]:
    return [*submission.end().transcript]


@pytest.mark.parametrize("trick", ["alignment", "unnamed", "twice", "refused", "no content", "modules", "memory"])
def test_two_launches_with_the_same_transcript_give_the_same(machine: Served, trick: str) -> None:
    """A kernel learns from addresses only what the transcript shows, whatever the host does to move storages."""
    allocations = []

    def launch(tricks: bool) -> tuple[list[Any], int]:
        submission = machine.attach()
        submission.load()
        submission.begin({-1: X})
        if tricks and trick == "modules":
            for number in range(20):
                submission.ask(messages.LoadPtx(f"{SMALL}// {number}", None))
        if tricks and trick == "memory":
            allocations.append(np.ones(1 << 22, np.uint8))
        storages = [written(0, X, 64 * tricks if trick == "alignment" else 0), written(1, X)]
        if tricks and trick == "refused":
            submission.launch("nothing", on=[5, 77], storages=[fresh(5, 1 << 20)])
        if tricks and trick == "no content":
            submission.launch("nothing", on=[5], storages=[messages.Storage(5, 1 << 20, 0, None, False)])
        if tricks and trick in ("unnamed", "twice"):
            extra = 9 if trick == "unnamed" else 1
            submission.launch("nothing", on=[1], storages=[fresh(extra, 1 << 20), fresh(1)])
        result = submission.launch("distance", on=[0, 1, 2], storages=[*storages, written(2, [0, 0, 0, 0])], block=1)
        assert isinstance(result, messages.LaunchResult)
        notes = transcript(submission)
        return notes, int(np.frombuffer(result.changed[0][1], np.int64)[0])

    (first, low), (second, second_low) = launch(False), launch(True)
    assert low > 0
    assert first != second or low == second_low


SMALL = ".version 8.0\n.target sm_80\n.address_size 64\n.entry f() {ret;}"


def test_variables_lie_where_the_transcript_says(machine: Served) -> None:
    def launch(count: int) -> int:
        submission = machine.attach()
        submission.load()
        for number in range(count):
            submission.ask(messages.LoadPtx(f"{SMALL}// {number}", None))
        submission.begin({-1: X})
        result = submission.launch("variable", on=[-1, 0], storages=[fresh(0)], block=1)
        assert isinstance(result, messages.LaunchResult)
        return int(np.frombuffer(result.changed[0][1], np.int64)[0])

    assert launch(0) == launch(7)


def test_equal_texts_are_one_module(submission: Submission) -> None:
    """Variables of their own would tell a kernel which of them was launched, and no transcript would show it."""
    numbers = [submission.ask(messages.LoadPtx(SMALL, source)) for source in (None, "one.cu", "other.cu")]
    assert {number.module for number in numbers if isinstance(number, messages.Loaded)} == {1}
    other_text = submission.ask(messages.LoadPtx(SMALL + "// another", None))
    assert isinstance(other_text, messages.Loaded)
    assert other_text.module == 2


def test_what_is_fresh_again_is_in_the_transcript(submission: Submission) -> None:
    """The host chooses whether a kernel finds the values that an earlier kernel left."""

    def notes(storages: Sequence[messages.Storage]) -> Sequence[messages.LaunchEntry]:
        submission.begin({-1: X})
        submission.launch("copy", 4, on=[-1, 0], storages=[fresh(0)])
        submission.launch("nothing", on=[0], storages=storages)
        return submission.end().transcript

    assert notes([]) != notes([fresh(0)])


def test_the_size_of_a_storage_is_in_the_transcript(submission: Submission) -> None:
    def noted(nbytes: int) -> Sequence[messages.LaunchEntry]:
        submission.begin()
        submission.launch("nothing", on=[5], storages=[fresh(5, nbytes)])
        return submission.end().transcript

    assert noted(64) != noted(1 << 20)


# Requests that no honest client makes


def test_the_compiler_of_a_refused_launch_is_known(submission: Submission) -> None:
    """Otherwise a learner whose launch is too large would read that no compiler made the kernel."""
    submission.launch("nothing", on=[77])
    (refused,) = submission.end().transcript
    assert refused.compiler == NVRTC


def test_a_launch_that_was_refused_does_not_spoil_the_next(submission: Submission) -> None:
    refused = submission.launch("copy", 4, on=[-1, 0], storages=[fresh(0)], block=4096)
    assert isinstance(refused, messages.Failed)
    assert refused.kind == "REFUSED"
    submission.launch("copy", 4, on=[-1, 0], storages=[fresh(0)])
    assert values(submission.end(strided(0)).outputs[0]) == [1, 2, 3, 4]


@pytest.mark.parametrize("replacement", [fresh(0), fresh(0, 32)], ids=["told again", "of another size"])
def test_memory_of_a_replaced_storage_is_free(
    submission: Submission, replacement: messages.Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = np.zeros((2, 64), np.uint8)
    places = [here, there, here]
    elsewhere = AddressSpace.place

    def place(space: AddressSpace, nbytes: int, alignment: int = 0) -> Any:
        return places.pop(0)[:nbytes] if nbytes <= 64 else elsewhere(space, nbytes, alignment)  # but for variables

    monkeypatch.setattr(AddressSpace, "place", place)
    submission.launch("copy", 4, on=[-1, 0], storages=[fresh(0)], block=4096)
    submission.launch("copy", 4, on=[-1, 0], storages=[replacement])
    result = submission.launch("add_one", on=[1], storages=[written(1, X)])
    assert isinstance(result, messages.LaunchResult), result
    assert places == []


LAUNCH = messages.Launch(0, "nothing", (1, 1, 1), (1, 1, 1), 0, [messages.Pointer(-1, 0)], [], [], [])


def but(**fields: Any) -> messages.Launch:
    return msgspec.structs.replace(LAUNCH, **fields)


def buffer(offset: int, nbytes: int, itemsize: int = 4) -> messages.Buffer:
    return messages.Buffer("x", -1, offset, nbytes, itemsize, "float32")


def brings(*storages: messages.Storage) -> messages.Launch:
    return but(storages=storages, buffers=[messages.Buffer("x", 5, 0, 16, 4, "float32")])


REFUSED = {
    "module": but(module=1),
    "module before the first": but(module=-1),
    "kernel": but(kernel="no_such_kernel"),
    "grid": but(grid=(0, 1, 1)),
    "negative grid": but(grid=(-1, 1, 1)),
    "block": but(block=(4096, 1, 1)),
    "shared": but(shared=1 << 40),
    "storage": but(arguments=[messages.Pointer(99, 0)]),
    "arguments": but(arguments=[1, 2, 3]),
    "buffer past the end": but(buffers=[buffer(8, 9)]),
    "buffer before the start": but(buffers=[buffer(-4, 4)]),
    "negative buffer": but(buffers=[buffer(8, -4)]),
    "items of nothing": but(buffers=[buffer(0, 4, itemsize=0)]),
    "no content": brings(messages.Storage(5, 16, 0, None, False)),
    "less content": brings(messages.Storage(5, 16, 0, b"123", False)),
    "negative size": brings(messages.Storage(5, -16, 0, None, True)),
    "endless size": brings(messages.Storage(5, 1 << 60, 0, None, True)),
    "a storage that is no tensor's": but(storages=[messages.Storage(5, 16, 0, None, True)]),
    "a storage told twice": brings(*[messages.Storage(5, 16, 0, None, True)] * 2),
    "not PTX": messages.LoadPtx("no PTX at all {", None),
    "no kernel to compile": messages.Compile(0, "no_such_kernel"),
    "clusters before sm_90": but(cluster=[2]),
    "a cluster of nothing": but(cluster=[0, 1, 1]),
    "a cluster without end": but(cluster=[1 << 40, 1 << 40, 1]),
    "PTX for a later device": messages.LoadPtx(
        ".version 8.0\n.target sm_90a\n.address_size 64\n.entry f() {ret;}", None
    ),
}


@pytest.mark.parametrize("request_message", REFUSED.values(), ids=REFUSED)
def test_an_impossible_request_is_refused_and_the_client_goes_on(
    submission: Submission, request_message: messages.Message
) -> None:
    refused = submission.ask(request_message)
    assert isinstance(refused, messages.Failed)
    assert refused.kind == "REFUSED"
    assert refused.text
    submission.launch("copy", 4, on=[-1, 0], storages=[fresh(0)])
    end = submission.end(strided(0))
    assert values(end.outputs[0]) == [1, 2, 3, 4]
    assert end.failed is None


DEADLY: dict[str, Any] = {
    "address of 64 bits": but(arguments=[messages.Blob(bytes(8), [(0, messages.Pointer(-1, (1 << 63) - 1))])]),
    "float that is too large": messages.Launch(0, "copy", (1, 1, 1), (1, 1, 1), 0, [1e300, 0, 0], [], [], []),
    "float for a flag": but(kernel="flagged", arguments=[messages.Pointer(-1, 0), 0.5]),
    "dtype": but(buffers=[messages.Buffer("x", -1, 0, 16, 4, "no_dtype")]),
    "nested PTX": messages.LoadPtx(".version 8.0 .target sm_80 .address_size 64 .entry f() " + "{" * 100_000, None),
}
OUTPUTS = {
    "negative stride": messages.TensorRef(-1, "float32", [4], [-1], 3),
    "past the end": messages.TensorRef(-1, "float32", [5], [1], 0),
    "endless": messages.TensorRef(-1, "float32", [1 << 50], [0], 0),
    "strides that are missing": messages.TensorRef(-1, "float32", [4], [], 0),
    "dtype": messages.TensorRef(-1, "no_dtype", [17], [1], 0),
}


@pytest.mark.parametrize("request_message", DEADLY.values(), ids=DEADLY)
def test_no_request_ends_the_machine(another: Served, request_message: messages.Message) -> None:
    hostile, second_client = another.attach(), another.attach()
    for client in (hostile, second_client):
        client.load()
        client.begin({-1: X})
    hostile.wire.send(request_message)
    second_client.launch("copy", 4, on=[-1, 0], storages=[fresh(0)])
    assert values(second_client.end(strided(0)).outputs[0]) == [1, 2, 3, 4]


@pytest.mark.parametrize("output", OUTPUTS.values(), ids=OUTPUTS)
def test_an_output_that_cannot_be_is_a_fault_of_its_own(another: Served, output: messages.TensorRef) -> None:
    submission = another.attach()
    submission.load()
    submission.begin({-1: X})
    submission.launch("nothing", on=[-1])
    assert submission.end(output).outputs[0].fault
    assert submission.end(strided(-1)).outputs[0].fault == ""


# Bytes that are no request


GARBAGE = {
    "random": b"\x13" * 100,
    "no message": struct.pack("<Q", 3) + b"abc",
    "endless": struct.pack("<Q", (1 << 64) - 1),
    "the grader's": struct.pack("<Q", len(body := msgspec.msgpack.encode(messages.GetLastWriter(0, 0, 0)))) + body,
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_a_client_that_sends_garbage_is_told_as_forged_and_the_others_are_served(
    machine: Served, submission: Submission, garbage: bytes
) -> None:
    hostile = machine.attach()
    hostile.begin({-1: X})
    hostile.connection.sendall(garbage)
    submission.launch("copy", 4, on=[-1, 0], storages=[fresh(0)])
    assert values(submission.end(strided(0)).outputs[0]) == [1, 2, 3, 4]
    failed = machine.ask(messages.End(hostile.number, ()), messages.CaseReport).failed
    assert failed is not None
    assert failed.kind == "FORGED"
    with pytest.raises(ConnectionClosed):
        hostile.ask(messages.Fetch())


def test_a_client_that_sent_garbage_before_its_first_case_is_a_forger_in_it(machine: Served) -> None:
    hostile = machine.attach()
    hostile.connection.sendall(b"\x13" * 100)
    machine.attach()
    hostile.begin({-1: X})
    failed = machine.ask(messages.End(hostile.number, ()), messages.CaseReport).failed
    assert failed is not None
    assert failed.kind == "FORGED"


def test_a_client_that_leaves_is_no_forger(machine: Served) -> None:
    leaving = machine.attach()
    leaving.begin({-1: X})
    leaving.connection.sendall(b"\x05\0")
    leaving.connection.close()
    assert machine.ask(messages.End(leaving.number, ()), messages.CaseReport).failed is None
    assert machine.attach().number == leaving.number + 1


@given(content=st.binary(max_size=200), framed=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_bytes_end_the_machine(machine: Served, content: bytes, framed: bool) -> None:
    hostile = machine.attach()
    hostile.connection.sendall(struct.pack("<Q", len(content)) + content if framed else content)
    hostile.connection.close()
    machine.attach().connection.close()
    assert machine.died is None
