"""Test pointers that a kernel reads from memory: on the PTX machine of this process, and on that of the grader."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kernelpath.device import links, messages
from kernelpath.device.client import Client, ToClient
from kernelpath.wire import Wire
from kernelpath.work.dispatch_monitor import DispatchMonitor
from tests import fresh_process
from tests.machines import Served, Submission
from warpcheck import backend, pointers, simt
from warpcheck.frontends import cuda

SOURCE = """
extern "C" __global__ void gather(const float* const* tables, float* out, int n) {
    out[blockIdx.x * n + threadIdx.x] = tables[blockIdx.x][threadIdx.x];
}
extern "C" __global__ void scatter(float* const* tables, float x) { tables[blockIdx.x][threadIdx.x] = x + blockIdx.x; }
extern "C" __global__ void deep(const float* const* const* tables, float* out) {
    out[threadIdx.x] = tables[1][0][threadIdx.x];
}
extern "C" __global__ void turn(const float** tables) {
    const float* first = tables[0];
    tables[0] = tables[1];
    tables[1] = first;
}
extern "C" __global__ void add(const float* x, const float* const* tables, const float* y, float* out) {
    out[threadIdx.x] = x[threadIdx.x] + y[threadIdx.x] + tables[0][threadIdx.x];
}
struct Pair { const float* x; int n; float* out; };
extern "C" __global__ void pair(Pair p, float* keep) {
    if (threadIdx.x < p.n) p.out[threadIdx.x] = p.x[threadIdx.x] * 2;
}
"""


@pytest.fixture(params=["here", "there"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Submission | None]:
    if request.param == "here":
        yield None
        return
    served = Served()
    submission = served.attach()
    submission.begin()
    client = Client(Wire(submission.connection, ToClient))
    monkeypatch.setattr(backend, "_device", client)
    with DispatchMonitor(lambda tensor: tensor, client.observe):
        yield submission
    served.close()


@pytest.fixture
def kernel(tmp_path: Path) -> Any:
    path = tmp_path / "pointers.cu"
    path.write_text(SOURCE)
    return lambda name: cuda.kernel(path, name)


def table(*tensors: torch.Tensor) -> torch.Tensor:
    return torch.tensor([tensor.data_ptr() for tensor in tensors])


def test_a_pointer_table_may_lead_to_tensors_that_are_not_arguments(device: Submission | None, kernel: Any) -> None:
    parts = [torch.full((32,), float(i)) for i in range(4)]
    out = torch.zeros(4, 32)
    kernel("gather")[4, 32](table(*parts), out, 32)
    assert torch.equal(out, torch.stack(parts))
    kernel("scatter")[4, 32](table(*parts), 7.0)
    assert [part.tolist() for part in parts] == [[7.0 + i] * 32 for i in range(4)]


def test_a_pointer_table_may_lead_into_a_tensor(device: Submission | None, kernel: Any) -> None:
    x = torch.arange(128.0).view(4, 32)
    out = torch.zeros(4, 16)
    rows = torch.tensor([x.data_ptr() + 4 * offset for offset in (3, 64, 0, 96)])
    kernel("gather")[4, 16](rows, out, 16)
    assert out[:, 0].tolist() == [3, 64, 0, 96]
    assert out[:, 15].tolist() == [18, 79, 15, 111]


def test_a_pointer_table_may_lead_to_pointer_tables(device: Submission | None, kernel: Any) -> None:
    x = torch.arange(32.0)
    y = torch.arange(32.0) + 100
    out = torch.zeros(32)
    inner = [table(x, y), table(y, x)]
    kernel("deep")[1, 32](table(*inner), out)
    assert torch.equal(out, y)


def test_pointers_written_by_a_kernel_are_host_addresses_again(device: Submission | None, kernel: Any) -> None:
    x = torch.arange(32.0)
    y = torch.arange(32.0) + 100
    out = torch.zeros(2, 32)
    pointer_table = table(x, y)
    kernel("gather")[2, 32](pointer_table, out, 32)
    assert pointer_table.tolist() == [x.data_ptr(), y.data_ptr()]
    pointer_table[1] = x.data_ptr()
    kernel("gather")[2, 32](pointer_table, out, 32)
    assert torch.equal(out, torch.stack([x, x]))
    pointer_table[1] = y.data_ptr()
    kernel("turn")[1, 1](pointer_table)
    kernel("gather")[2, 32](pointer_table, out, 32)
    assert torch.equal(out, torch.stack([y, x]))


def test_an_unchanged_table_sees_changes_of_its_tensor(device: Submission | None, kernel: Any) -> None:
    memory = torch.arange(64.0)
    x = memory[:32]
    out = torch.zeros(1, 32)
    pointer_table = table(x)
    kernel("gather")[1, 32](pointer_table, out, 32)
    memory += 1
    kernel("gather")[1, 32](pointer_table, out, 32)
    assert torch.equal(out[0], memory[:32])


def test_a_struct_argument_may_contain_pointers(device: Submission | None, kernel: Any) -> None:
    class Pair(ctypes.Structure):
        _fields_ = (("x", ctypes.c_void_p), ("n", ctypes.c_int), ("out", ctypes.c_void_p))

    x = torch.arange(32.0)
    out = torch.zeros(32)
    keep = torch.zeros(1)
    kernel("pair")[1, 32](Pair(x.data_ptr(), 20, out.data_ptr()), keep)
    assert out.tolist() == [2.0 * i for i in range(20)] + [0.0] * 12


@pytest.mark.parametrize("first", [0, 1, 2])
def test_a_pointer_between_adjacent_tensors_belongs_to_the_second(
    device: Submission | None, kernel: Any, first: int
) -> None:
    """Some allocators place tensors without a gap. Each of the three may be the first that the machine knows."""
    memory = bytearray(np.arange(48, dtype=np.float32).tobytes())
    tensors = [
        torch.frombuffer(memory, dtype=torch.float32, count=16, offset=64 * index).view(16) for index in range(3)
    ]
    x, y, pointed_to = tensors[first:] + tensors[:first]
    out = torch.zeros(16)
    kernel("add")[1, 16](x, table(pointed_to), y, out)
    assert out.tolist() == [48.0 + 3 * i for i in range(16)]


def test_an_access_outside_all_tensors_is_out_of_bounds(device: Submission | None, kernel: Any) -> None:
    x = torch.zeros(16)
    out = torch.zeros(2, 32)
    with pytest.raises(simt.Fault, match=r"64 bytes past|past the end|16 float32") as caught:
        kernel("gather")[1, 32](table(x), out, 32)
    assert caught.value.kind is simt.FaultKind.OUT_OF_BOUNDS
    assert caught.value.line == 3
    with pytest.raises(simt.Fault) as caught:
        # 1 << 45 is a plausible address, but no tensor is there.
        kernel("gather")[1, 32](torch.tensor([1 << 45]), out, 32)
    assert caught.value.kind is simt.FaultKind.OUT_OF_BOUNDS


def test_integers_that_are_not_addresses_are_unchanged(device: Submission | None, tmp_path: Path) -> None:
    path = tmp_path / "copy.cu"
    path.write_text("__global__ void copy(const long long* x, long long* out) { out[threadIdx.x] = x[threadIdx.x]; }")
    x = torch.tensor([1 << 45, -1, 1 << 62, 5])
    out = torch.zeros(4, dtype=torch.int64)
    cuda.kernel(path, "copy")[1, 4](x, out)
    assert torch.equal(x, out)


# Pointers in the transcript


def test_the_transcript_lists_only_what_the_host_changed(device: Submission | None, kernel: Any) -> None:
    y = torch.arange(32.0)
    out = torch.zeros(1, 32)
    pointer_table = table(y)
    for value in (7.0, 8.0):
        kernel("scatter")[1, 32](pointer_table, value)
        kernel("gather")[1, 32](pointer_table, out, 32)
    if device is not None:
        assert [[name for name, _ in entry.host] for entry in device.end().transcript] == [
            ["tables", "tables[0]"],
            ["out"],
            [],
            [],
        ]
    assert out.tolist() == [[8.0] * 32]


def digest_of_links(
    submission: Submission, content: list[int], links: list[messages.Link], target: messages.Storage | None = None
) -> Any:
    submission.begin()
    words = np.array(content, np.int64).tobytes()
    targets = [target or messages.Storage(3, 16, 0, bytes(16), False), messages.Storage(5, 16, 0, bytes(16), False)]
    storage = messages.Storage(4, len(words), 0, words, False, links)
    answer = submission.launch("nothing", on=[4], storages=[storage, *targets], dropped=[3, 4, 5], reachable=[3, 5])
    assert isinstance(answer, messages.LaunchResult), answer
    digests = dict(submission.end().transcript[0].host)["tensor4"]
    return digests.split()[-1]


@pytest.fixture
def submission() -> Iterator[Submission]:
    served = Served()
    attached = served.attach()
    attached.load()
    yield attached
    served.close()


def link(base: int, *places: int) -> messages.Link:
    return messages.Link(3, base, np.array(places, np.int64).tobytes())


def test_the_transcript_does_not_depend_on_absolute_addresses(submission: Submission) -> None:
    """Two copies of a process may have their tensors at different addresses, and must have equal transcripts."""
    first = digest_of_links(submission, [5, (1 << 40) + 8], [link(1 << 40, 1)])
    assert digest_of_links(submission, [5, (1 << 41) + 8], [link(1 << 41, 1)]) == first
    assert digest_of_links(submission, [5, (1 << 41) + 4], [link(1 << 41, 1)]) != first, "another offset"
    assert digest_of_links(submission, [6, (1 << 41) + 8], [link(1 << 41, 1)]) != first, (
        "another integer next to the pointer"
    )


@pytest.mark.parametrize(
    ("number", "target"),
    [
        (5, messages.Storage(3, 16, 0, bytes(16), False)),
        (3, messages.Storage(3, 16, 4, bytes(16), False)),
        (3, messages.Storage(3, 32, 0, bytes(32), False)),
    ],
    ids=["another one", "alignment", "size"],
)
def test_the_target_of_a_pointer_is_in_the_transcript(
    submission: Submission, number: int, target: messages.Storage
) -> None:
    """Otherwise host code could pass results to a kernel by choosing among storages."""
    first = digest_of_links(submission, [(1 << 40) + 8, 5], [link(1 << 40, 0)])
    second_submission = submission.machine.attach()
    second_submission.load()
    assert digest_of_links(second_submission, [(1 << 40) + 8, 5], [link(1 << 40, 0)]) == first
    changed_link = messages.Link(number, 1 << 40, bytes(8))
    assert digest_of_links(second_submission, [(1 << 40) + 8, 5], [changed_link], target) != first


def test_no_integer_has_the_digest_of_a_pointer(submission: Submission) -> None:
    first = digest_of_links(submission, [(1 << 40) + 8, 5], [link(1 << 40, 0)])
    for number in (8, 3, 3 << 47 | 8, (1 << 40) + 8, 3 << 37 | 8):
        assert digest_of_links(submission, [number, 5], []) != first


def test_the_targets_of_pointers_in_a_struct_are_in_the_transcript(submission: Submission) -> None:
    def arguments(alignment: int, nbytes: int) -> Any:
        submission.begin()
        target = messages.Storage(3, nbytes, alignment, bytes(nbytes), False)
        submission.ask(
            messages.Launch(
                module=0,
                kernel="nothing",
                grid=(1, 1, 1),
                block=(1, 1, 1),
                shared=0,
                arguments=[messages.Blob(bytes(8), [(0, messages.Pointer(3, 0))])],
                buffers=[messages.Buffer("x", 3, 0, nbytes, 1, "uint8")],
                storages=[target],
                dropped=[3],
            )
        )
        return submission.end().transcript[0].arguments

    assert arguments(0, 16) == arguments(0, 16)
    assert len({tuple(arguments(*layout)) for layout in ((0, 16), (4, 16), (0, 32))}) == 3


def test_a_changed_pointer_counts_as_a_changed_word() -> None:
    """Which bytes of a pointer differ depends on the address of the storage in this process."""
    content = np.array([5, (1 << 40) + 8], np.int64).view(np.uint8)
    linked = links.RelocatedContent(content, [link(1 << 40, 1)], lambda number: (0x7F0000001000, 16, "tensor 0"))
    assert linked.local.view(np.int64).tolist() == [5, 0x7F0000001008]
    before = np.array([6, 0x7F0000001010], np.int64).view(np.uint8)
    assert linked.extend_to_words(before != linked.local).tolist() == [True] + [False] * 7 + [True] * 8
    assert not linked.extend_to_words(np.zeros(16, bool)).any()


@pytest.mark.parametrize(
    ("content", "links"),
    [
        ([0, 5000], [link(4096, 2)]),
        ([0, 5000], [link(4096, -1)]),
        ([0, 5000], [link(4096, 1)]),
        ([0, 4000], [link(4096, 1)]),
        ([0, 4096], [messages.Link(77, 4096, bytes(8))]),
        ([0, 4096], [messages.Link(3, -(1 << 63), bytes(8))]),
    ],
    ids=["no such word", "before", "past the storage", "before the storage", "no such storage", "far"],
)
def test_forged_links_are_refused(submission: Submission, content: list[int], links: Any) -> None:
    submission.begin()
    words = np.array(content, np.int64).tobytes()
    storages = [messages.Storage(3, 16, 0, bytes(16), False), messages.Storage(4, 16, 0, words, False, links)]
    answer = submission.launch("nothing", on=[4], storages=storages)
    assert isinstance(answer, messages.Failed)
    assert answer.kind == "REFUSED"


@pytest.mark.parametrize("lowest_address", [0x7F0000000000, 0x4000000000])
def test_in_a_low_heap_only_the_start_of_a_storage_is_an_address(lowest_address: int) -> None:
    """The Python of Debian and Ubuntu has its heap at low addresses, which are plausible as indices."""
    low = 0x2000000
    high = lowest_address
    words = np.array([low, low + 4, 33_554_433, high, high + 4, 7], np.int64)
    found_links = links.find_links(words, [(1, low, 100), (2, high, 100)])
    assert [(link.storage, np.frombuffer(link.words, np.int64).tolist()) for link in found_links] == [
        (1, [0]),
        (2, [3, 4]),
    ]


def find_allocation_and_heap() -> tuple[int, range]:
    """Return the address of an allocation of another thread, and the addresses of the heap."""
    x = pointers.above_the_heap(torch.empty)(16)
    heap = next(line for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith("[heap]"))
    first, last = (int(address, 16) for address in heap.split()[0].split("-"))
    return x.data_ptr(), range(first, last)


def test_an_allocation_of_a_thread_is_outside_the_heap() -> None:
    # glibc gives each thread its own arena only up to 8 arenas per core. The threads of other tests may have used all
    # of them, but a worker has few threads.
    address, heap = fresh_process.call(find_allocation_and_heap)
    assert address not in heap


def test_reachable_tensors_are_in_the_order_of_the_table() -> None:
    """Two processes have their tensors at different addresses and in different order, but equal transcripts."""
    x, y, z = (torch.zeros(16) for _ in range(3))
    table = torch.tensor([y.data_ptr(), x.data_ptr() + 8, z.data_ptr(), x.data_ptr()])
    spans = [pointers.Span.of(tensor) for tensor in (x, y, z)]
    orders = [spans, spans[::-1], [spans[2], spans[0], spans[1]]]
    reachable_by_order = [
        pointers.reachable([], [("table", pointers.Span.of(table))], lambda: order)  # noqa: B023
        for order in orders
    ]
    names = [[(name, span.start) for name, span in reachable] for reachable in reachable_by_order]
    assert (
        names[0]
        == names[1]
        == names[2]
        == [
            ("table[0]", y.data_ptr()),
            ("table[1]", x.data_ptr()),
            ("table[2]", z.data_ptr()),
        ]
    )


def test_extents_are_distinguished_from_addresses_without_listing_tensors() -> None:
    """Listing all tensors takes longer than a small launch, and a struct often has two extents in one 64-bit word."""
    x = torch.zeros(1 << 20)
    extents = 512 | 768 << 32
    words = np.array([extents, x.data_ptr(), x.data_ptr() + 4], np.int64)
    assert pointers.keep_mapped(words).tolist() == [x.data_ptr(), x.data_ptr() + 4]

    def list_candidates() -> list[pointers.Span]:
        raise AssertionError("no word is an address")

    struct_bytes = np.array([extents], np.int64).tobytes()
    assert pointers.reachable([struct_bytes], [], list_candidates, pointers.keep_mapped) == []
