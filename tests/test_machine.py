"""Test the PTX machine in its own process: its storages, its transcript, and its resistance to forged requests."""

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
def second_machine() -> Iterator[Served]:
    """Yield a second PTX machine, which the test may terminate."""
    served = Served()
    yield served
    served.close()


@pytest.fixture
def submission(machine: Served) -> Submission:
    attached = machine.attach()
    attached.load()
    attached.begin({-1: X})
    return attached


def storage_from_host(number: int, content: Any, alignment: int = 0) -> messages.Storage:
    """Return a storage whose bytes the host wrote."""
    content = np.asarray(content, np.float32).tobytes()
    return messages.Storage(number, len(content), alignment, content, False)


def unwritten_storage(number: int, nbytes: int = 16) -> messages.Storage:
    """Return a storage that nothing has written to."""
    return messages.Storage(number, nbytes, 0, None, True)


def values(output: messages.Output) -> list[float]:
    assert output.fault == ""
    return [float(value) for value in np.frombuffer(output.content, np.float32)]


# The writer of a byte


def test_an_output_is_what_the_kernel_wrote(submission: Submission) -> None:
    result = submission.launch("copy", 4, on=[-1, 0], storages=[unwritten_storage(0)])
    assert isinstance(result, messages.LaunchResult)
    assert [(number, content) for number, content in result.changed] == [(0, X.tobytes())]
    assert result.cost > 0
    end = submission.end(strided(0))
    assert values(end.outputs[0]) == [1, 2, 3, 4]
    assert (end.mutated, end.failed) == ([], None)
    assert [(entry.kernel, entry.arguments, entry.host) for entry in end.transcript] == [
        ("copy", ["input 0 (16 bytes) + 0", "tensor 0 (16 bytes) + 0", "4"], [])
    ]


def test_an_output_that_no_kernel_received_is_not_attributed_to_a_kernel(submission: Submission) -> None:
    submission.launch("copy", 4, on=[-1, 0], storages=[unwritten_storage(0)])
    assert submission.end(strided(7)).outputs[0] == messages.Output(b"", NOT_FROM_KERNEL)


def test_an_output_that_the_host_changed_last_is_not_attributed_to_a_kernel(submission: Submission) -> None:
    submission.launch("copy", 4, on=[-1, 0], storages=[unwritten_storage(0)])
    end = submission.end(strided(0), written=[storage_from_host(0, [1, 2, 3, 5])])
    assert end.outputs[0] == messages.Output(b"", CHANGED_BY_HOST)
    assert values(submission.end(strided(0)).outputs[0]) == [1, 2, 3, 4], "a change is reported in its own case only"


def test_host_changes_outside_the_output_are_allowed(submission: Submission) -> None:
    submission.launch("copy", 2, on=[-1, 0], storages=[unwritten_storage(0)])
    view = messages.TensorRef(0, "float32", [2], [1], 0)
    assert values(submission.end(view, written=[storage_from_host(0, [1, 2, 9, 9])]).outputs[0]) == [1, 2]


def test_the_transcript_holds_what_the_host_wrote_before_a_launch(submission: Submission) -> None:
    def entry_after_writing(content: list[float]) -> Any:
        submission.begin({-1: X})
        submission.launch("nothing", on=[3], storages=[storage_from_host(3, content)])
        (entry,) = submission.end().transcript
        return entry.host

    entry_after_writing([0, 0, 0, 0])
    assert entry_after_writing([0, 0, 0, 0]) == entry_after_writing([0, 0, 0, 0])
    first = entry_after_writing([1, 0, 0, 0])
    second = entry_after_writing([2, 0, 0, 0])
    assert [name for name, _ in first] == ["tensor3"]
    assert first != second


def test_a_change_of_the_host_is_reported_once(submission: Submission) -> None:
    submission.launch("nothing", on=[3], storages=[storage_from_host(3, [1, 2, 3, 4])])
    submission.launch("nothing", on=[3])
    assert [len(entry.host) for entry in submission.end().transcript] == [1, 0]


@pytest.mark.parametrize("way", ["in one without it", "in one that is refused"])
def test_bytes_announced_twice_before_a_launch_count_as_written_by_the_host(submission: Submission, way: str) -> None:
    """A second announcement of the same bytes must not hide that they differ between values."""

    def run_and_get_digests(content: list[float]) -> set[str]:
        submission.begin({-1: X})
        submission.launch("nothing", on=[3], storages=[storage_from_host(3, [0, 0, 0, 0])])
        storages = [storage_from_host(3, content)]
        submission.launch("nothing", on=[-1] if way == "in one without it" else [3, 77], storages=storages)
        submission.launch("nothing", on=[3], storages=storages)
        ((_, names),) = submission.end().transcript[-1].host
        return set(names.split())

    assert run_and_get_digests([1, 2, 3, 4]) == run_and_get_digests([1, 2, 3, 4])
    assert not run_and_get_digests([1, 2, 3, 4]) & run_and_get_digests([5, 6, 7, 8])


def test_an_input_that_a_kernel_changes_is_reported(submission: Submission) -> None:
    submission.launch("add_one", on=[-1])
    assert submission.end().mutated == [-1]


def test_an_input_that_is_changed_and_restored_is_only_in_the_transcript(submission: Submission) -> None:
    submission.launch("copy", 4, on=[-1, 0], storages=[storage_from_host(-1, [9, 9, 9, 9]), unwritten_storage(0)])
    end = submission.end(strided(0), written=[storage_from_host(-1, X)])
    assert end.mutated == []
    assert values(end.outputs[0]) == [9, 9, 9, 9]
    assert [name for name, _ in end.transcript[0].host] == ["tensor-1"]


def test_an_input_that_the_host_changes_after_the_last_kernel_is_mutated(submission: Submission) -> None:
    submission.launch("nothing", on=[-1])
    assert submission.end(written=[storage_from_host(-1, [0, 0, 0, 0])]).mutated == [-1]


# Memory


def test_unwritten_bytes_are_returned_as_poison(submission: Submission) -> None:
    submission.launch("copy", 3, on=[-1, 0], storages=[unwritten_storage(0)])
    content = submission.end(strided(0)).outputs[0].content
    assert np.frombuffer(content, np.float32)[:3].tolist() == [1, 2, 3]
    assert np.frombuffer(content, np.uint16)[6:].tolist() == [messages.POISON, messages.POISON]


def test_reading_unwritten_bytes_is_a_fault(submission: Submission) -> None:
    failed = submission.launch("copy", 4, on=[0, 1], storages=[unwritten_storage(0), unwritten_storage(1)])
    assert isinstance(failed, messages.Failed)
    assert (failed.kind, failed.kernel, failed.file) == ("UNINITIALIZED", "copy", "kernels.cu")
    assert submission.end().failed == failed


@pytest.mark.parametrize("content", [X.tolist(), [0, 0, 0, 0]])
def test_bytes_that_the_host_wrote_may_be_read(submission: Submission, content: list[float]) -> None:
    submission.launch("nothing", on=[0], storages=[unwritten_storage(0)])
    submission.launch("copy", 4, on=[0, 1], storages=[storage_from_host(0, content), unwritten_storage(1)])
    assert values(submission.end(strided(1)).outputs[0]) == content


def test_a_storage_persists_between_calls(submission: Submission) -> None:
    submission.launch("copy", 4, on=[-1, 0], storages=[unwritten_storage(0)])
    submission.begin({-2: X})
    submission.launch("add_one", on=[0])
    assert values(submission.end(strided(0)).outputs[0]) == [2, 3, 4, 5]


def test_reusing_a_dropped_number_creates_a_new_storage(submission: Submission) -> None:
    submission.launch("copy", 4, on=[-1, 0], storages=[unwritten_storage(0)])
    failed = submission.launch("copy", 4, on=[0, 1], storages=[unwritten_storage(0), unwritten_storage(1)], dropped=[0])
    assert isinstance(failed, messages.Failed)
    assert failed.kind == "UNINITIALIZED"


def test_an_output_of_a_dropped_storage_is_attributed_to_no_kernel(submission: Submission) -> None:
    submission.launch("copy", 4, on=[-1, 0], storages=[unwritten_storage(0)])
    submission.launch("nothing", on=[-1], dropped=[0])
    assert submission.end(strided(0)).outputs[0].fault == NOT_FROM_KERNEL


def test_the_writer_of_a_byte_is_recorded(submission: Submission) -> None:
    submission.launch("copy", 4, on=[-1, 0], storages=[unwritten_storage(0)])
    ask = submission.machine.ask
    writer = ask(messages.GetLastWriter(submission.number, 0, 4 * 2), messages.LastWriter)
    assert (writer.thread, writer.block, writer.file, writer.line) == ("2", "0", "kernels.cu", 3)
    assert ask(messages.GetLastWriter(submission.number, -1, 0), messages.Acknowledged) == messages.Acknowledged()
    assert ask(messages.GetLastWriter(submission.number, 99, 0), messages.Acknowledged) == messages.Acknowledged()


def test_static_variables_persist_for_a_client_and_are_fresh_for_another(
    machine: Served, submission: Submission
) -> None:
    def count_calls(submission: Submission) -> int:
        result = submission.launch("count", on=[0], storages=[storage_from_host(0, [0, 0, 0, 0])], block=1)
        assert isinstance(result, messages.LaunchResult)
        return int(np.frombuffer(result.changed[0][1], np.int32)[0])

    assert [count_calls(submission), count_calls(submission)] == [1, 2]
    second_client = machine.attach()
    second_client.load()
    second_client.begin()
    assert count_calls(second_client) == 1


def test_clients_do_not_see_each_others_storages(machine: Served, submission: Submission) -> None:
    submission.launch("copy", 4, on=[-1, 0], storages=[unwritten_storage(0)])
    second_client = machine.attach()
    second_client.load()
    second_client.begin({-1: floats(5, 6, 7, 8)})
    for number in (-1, 0):
        second_client.launch("copy", 4, on=[-1, 0], storages=[unwritten_storage(0)])
        answer = second_client.launch("nothing", on=[number])
        assert isinstance(answer, messages.LaunchResult)
    assert values(second_client.end(strided(0)).outputs[0]) == [5, 6, 7, 8]
    assert values(submission.end(strided(0)).outputs[0]) == [1, 2, 3, 4]
    second_client.begin()
    assert second_client.end(strided(3)).outputs[0].fault == NOT_FROM_KERNEL


# Information that a kernel may have


def end_and_get_transcript(submission: Submission) -> list[messages.LaunchEntry]:
    return [*submission.end().transcript]


@pytest.mark.parametrize("trick", ["alignment", "unnamed", "twice", "refused", "no content", "modules", "memory"])
def test_launches_with_equal_transcripts_have_equal_results(machine: Served, trick: str) -> None:
    """A kernel must not learn more from addresses than the transcript shows, however the host moves storages."""
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
        storages = [storage_from_host(0, X, 64 * tricks if trick == "alignment" else 0), storage_from_host(1, X)]
        if tricks and trick == "refused":
            submission.launch("nothing", on=[5, 77], storages=[unwritten_storage(5, 1 << 20)])
        if tricks and trick == "no content":
            submission.launch("nothing", on=[5], storages=[messages.Storage(5, 1 << 20, 0, None, False)])
        if tricks and trick in ("unnamed", "twice"):
            extra = 9 if trick == "unnamed" else 1
            submission.launch("nothing", on=[1], storages=[unwritten_storage(extra, 1 << 20), unwritten_storage(1)])
        result = submission.launch(
            "distance", on=[0, 1, 2], storages=[*storages, storage_from_host(2, [0, 0, 0, 0])], block=1
        )
        assert isinstance(result, messages.LaunchResult)
        notes = end_and_get_transcript(submission)
        return notes, int(np.frombuffer(result.changed[0][1], np.int64)[0])

    (first, low), (second, second_low) = launch(False), launch(True)
    assert low > 0
    assert first != second or low == second_low


SMALL = ".version 8.0\n.target sm_80\n.address_size 64\n.entry f() {ret;}"


def test_the_addresses_of_variables_are_in_the_transcript(machine: Served) -> None:
    def launch(count: int) -> int:
        submission = machine.attach()
        submission.load()
        for number in range(count):
            submission.ask(messages.LoadPtx(f"{SMALL}// {number}", None))
        submission.begin({-1: X})
        result = submission.launch("variable", on=[-1, 0], storages=[unwritten_storage(0)], block=1)
        assert isinstance(result, messages.LaunchResult)
        return int(np.frombuffer(result.changed[0][1], np.int64)[0])

    assert launch(0) == launch(7)


def test_equal_ptx_texts_share_a_module(submission: Submission) -> None:
    """With separate variables, a kernel could detect which module was launched, which no transcript would show."""
    numbers = [submission.ask(messages.LoadPtx(SMALL, source)) for source in (None, "one.cu", "other.cu")]
    assert {number.module for number in numbers if isinstance(number, messages.Loaded)} == {1}
    other_text = submission.ask(messages.LoadPtx(SMALL + "// another", None))
    assert isinstance(other_text, messages.Loaded)
    assert other_text.module == 2


def test_a_reset_storage_is_in_the_transcript(submission: Submission) -> None:
    """Otherwise the host could choose, without a trace, whether a kernel reads values of an earlier kernel."""

    def run_and_get_entries(storages: Sequence[messages.Storage]) -> Sequence[messages.LaunchEntry]:
        submission.begin({-1: X})
        submission.launch("copy", 4, on=[-1, 0], storages=[unwritten_storage(0)])
        submission.launch("nothing", on=[0], storages=storages)
        return submission.end().transcript

    assert run_and_get_entries([]) != run_and_get_entries([unwritten_storage(0)])


def test_the_size_of_a_storage_is_in_the_transcript(submission: Submission) -> None:
    def run_and_get_entries(nbytes: int) -> Sequence[messages.LaunchEntry]:
        submission.begin()
        submission.launch("nothing", on=[5], storages=[unwritten_storage(5, nbytes)])
        return submission.end().transcript

    assert run_and_get_entries(64) != run_and_get_entries(1 << 20)


# Forged requests


def test_the_compiler_of_a_refused_launch_is_known(submission: Submission) -> None:
    """Otherwise a learner whose launch is too large would read that no compiler made the kernel."""
    submission.launch("nothing", on=[77])
    (refused,) = submission.end().transcript
    assert refused.compiler == NVRTC


def test_a_refused_launch_does_not_affect_the_next(submission: Submission) -> None:
    refused = submission.launch("copy", 4, on=[-1, 0], storages=[unwritten_storage(0)], block=4096)
    assert isinstance(refused, messages.Failed)
    assert refused.kind == "REFUSED"
    submission.launch("copy", 4, on=[-1, 0], storages=[unwritten_storage(0)])
    assert values(submission.end(strided(0)).outputs[0]) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "replacement", [unwritten_storage(0), unwritten_storage(0, 32)], ids=["told again", "of another size"]
)
def test_the_memory_of_a_replaced_storage_is_freed(
    submission: Submission, replacement: messages.Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = np.zeros((2, 64), np.uint8)
    places = [here, there, here]
    elsewhere = AddressSpace.place

    def place(space: AddressSpace, nbytes: int, alignment: int = 0) -> Any:
        return (
            places.pop(0)[:nbytes] if nbytes <= 64 else elsewhere(space, nbytes, alignment)
        )  # larger requests are for variables

    monkeypatch.setattr(AddressSpace, "place", place)
    submission.launch("copy", 4, on=[-1, 0], storages=[unwritten_storage(0)], block=4096)
    submission.launch("copy", 4, on=[-1, 0], storages=[replacement])
    result = submission.launch("add_one", on=[1], storages=[storage_from_host(1, X)])
    assert isinstance(result, messages.LaunchResult), result
    assert places == []


LAUNCH = messages.Launch(0, "nothing", (1, 1, 1), (1, 1, 1), 0, [messages.Pointer(-1, 0)], [], [], [])


def change_launch(**fields: Any) -> messages.Launch:
    return msgspec.structs.replace(LAUNCH, **fields)


def create_buffer(offset: int, nbytes: int, itemsize: int = 4) -> messages.Buffer:
    return messages.Buffer("x", -1, offset, nbytes, itemsize, "float32")


def launch_with_storages(*storages: messages.Storage) -> messages.Launch:
    return change_launch(storages=storages, buffers=[messages.Buffer("x", 5, 0, 16, 4, "float32")])


REFUSED = {
    "module": change_launch(module=1),
    "module before the first": change_launch(module=-1),
    "kernel": change_launch(kernel="no_such_kernel"),
    "grid": change_launch(grid=(0, 1, 1)),
    "negative grid": change_launch(grid=(-1, 1, 1)),
    "block": change_launch(block=(4096, 1, 1)),
    "shared": change_launch(shared=1 << 40),
    "storage": change_launch(arguments=[messages.Pointer(99, 0)]),
    "arguments": change_launch(arguments=[1, 2, 3]),
    "buffer past the end": change_launch(buffers=[create_buffer(8, 9)]),
    "buffer before the start": change_launch(buffers=[create_buffer(-4, 4)]),
    "negative buffer": change_launch(buffers=[create_buffer(8, -4)]),
    "items of nothing": change_launch(buffers=[create_buffer(0, 4, itemsize=0)]),
    "no content": launch_with_storages(messages.Storage(5, 16, 0, None, False)),
    "less content": launch_with_storages(messages.Storage(5, 16, 0, b"123", False)),
    "negative size": launch_with_storages(messages.Storage(5, -16, 0, None, True)),
    "endless size": launch_with_storages(messages.Storage(5, 1 << 60, 0, None, True)),
    "a storage that is no tensor's": change_launch(storages=[messages.Storage(5, 16, 0, None, True)]),
    "a storage told twice": launch_with_storages(*[messages.Storage(5, 16, 0, None, True)] * 2),
    "not PTX": messages.LoadPtx("no PTX at all {", None),
    "no kernel to compile": messages.Compile(0, "no_such_kernel"),
    "clusters before sm_90": change_launch(cluster=[2]),
    "a cluster of nothing": change_launch(cluster=[0, 1, 1]),
    "a cluster without end": change_launch(cluster=[1 << 40, 1 << 40, 1]),
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
    submission.launch("copy", 4, on=[-1, 0], storages=[unwritten_storage(0)])
    end = submission.end(strided(0))
    assert values(end.outputs[0]) == [1, 2, 3, 4]
    assert end.failed is None


DEADLY: dict[str, Any] = {
    "address of 64 bits": change_launch(
        arguments=[messages.Blob(bytes(8), [(0, messages.Pointer(-1, (1 << 63) - 1))])]
    ),
    "float that is too large": messages.Launch(0, "copy", (1, 1, 1), (1, 1, 1), 0, [1e300, 0, 0], [], [], []),
    "float for a flag": change_launch(kernel="flagged", arguments=[messages.Pointer(-1, 0), 0.5]),
    "dtype": change_launch(buffers=[messages.Buffer("x", -1, 0, 16, 4, "no_dtype")]),
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
def test_no_request_ends_the_machine(second_machine: Served, request_message: messages.Message) -> None:
    hostile = second_machine.attach()
    second_client = second_machine.attach()
    for client in (hostile, second_client):
        client.load()
        client.begin({-1: X})
    hostile.wire.send(request_message)
    second_client.launch("copy", 4, on=[-1, 0], storages=[unwritten_storage(0)])
    assert values(second_client.end(strided(0)).outputs[0]) == [1, 2, 3, 4]


@pytest.mark.parametrize("output", OUTPUTS.values(), ids=OUTPUTS)
def test_an_impossible_output_is_refused(second_machine: Served, output: messages.TensorRef) -> None:
    submission = second_machine.attach()
    submission.load()
    submission.begin({-1: X})
    submission.launch("nothing", on=[-1])
    assert submission.end(output).outputs[0].fault
    assert submission.end(strided(-1)).outputs[0].fault == ""


# Bytes that are not a request


GARBAGE = {
    "random": b"\x13" * 100,
    "no message": struct.pack("<Q", 3) + b"abc",
    "endless": struct.pack("<Q", (1 << 64) - 1),
    "the grader's": struct.pack("<Q", len(body := msgspec.msgpack.encode(messages.GetLastWriter(0, 0, 0)))) + body,
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_a_client_that_sends_garbage_is_reported_and_other_clients_are_served(
    machine: Served, submission: Submission, garbage: bytes
) -> None:
    hostile = machine.attach()
    hostile.begin({-1: X})
    hostile.connection.sendall(garbage)
    submission.launch("copy", 4, on=[-1, 0], storages=[unwritten_storage(0)])
    assert values(submission.end(strided(0)).outputs[0]) == [1, 2, 3, 4]
    failed = machine.ask(messages.End(hostile.number, ()), messages.CaseReport).failed
    assert failed is not None
    assert failed.kind == "FORGED"
    with pytest.raises(ConnectionClosed):
        hostile.ask(messages.Fetch())


def test_garbage_before_the_first_case_is_reported_in_this_case(machine: Served) -> None:
    hostile = machine.attach()
    hostile.connection.sendall(b"\x13" * 100)
    machine.attach()
    hostile.begin({-1: X})
    failed = machine.ask(messages.End(hostile.number, ()), messages.CaseReport).failed
    assert failed is not None
    assert failed.kind == "FORGED"


def test_a_client_that_disconnects_is_not_reported_as_forged(machine: Served) -> None:
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
