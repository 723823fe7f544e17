"""What surrounds a submission's call: guard bands, the watch on operators, the snapshot, and what is out of reach."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from kernelpath.work.sandbox import GUARD

from kernelpath import simt
from kernelpath.grading import compare
from kernelpath.work import sandbox

JOURNAL = sandbox.Journal()

GUARDED = {
    "empty": lambda x: torch.empty(3, 5),
    "empty_like": torch.empty_like,
    "empty_strided": lambda x: torch.empty_strided((3, 5), (1, 3)),
    "new_empty": lambda x: x.new_empty(7, dtype=torch.bfloat16),
    "odd": lambda x: torch.empty(7, dtype=torch.uint8),
}


@pytest.mark.parametrize("make", GUARDED.values(), ids=GUARDED)
def test_fresh_memory_is_poisoned_and_has_the_form_asked_for(make: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.randn(3, 5).t()
    plain = make(x)
    notes = sandbox.Notes()
    with JOURNAL.noting(notes), sandbox.Watch(poison=True, memory=sandbox.Provenance()) as watch:
        guarded = make(x)
    assert (guarded.shape, guarded.stride(), guarded.dtype) == (plain.shape, plain.stride(), plain.dtype)
    assert guarded.data_ptr() % 64 == guarded.untyped_storage().data_ptr() % 64
    assert compare.is_poison(guarded).all() or guarded.element_size() == 1
    assert notes.operators == []
    assert watch.broken_guard() is None


@pytest.mark.parametrize(
    ("place", "said"),
    [(-1, "wrote before the start of a tensor of 40 bytes"), (10, "wrote past the end of a tensor of 40 bytes")],
)
def test_a_write_beside_an_allocation_is_found(place: int, said: str) -> None:
    with sandbox.Watch(poison=True, memory=sandbox.Provenance()) as watch:
        out = torch.empty(10)
        torch.empty(4)
    torch.as_strided(out, (1,), (1,), out.storage_offset() + place).fill_(1.0)
    assert watch.broken_guard() == said


@pytest.mark.parametrize("bytes_past", [1, 2, GUARD])
def test_a_write_past_an_input_is_found(bytes_past: int) -> None:
    _, storage = sandbox.guard_input(torch.randn(10))
    assert sandbox.guard_broken(storage) is None
    storage[-GUARD + bytes_past - 1] ^= 1
    assert sandbox.guard_broken(storage) == "wrote past the end of a tensor of 40 bytes"


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.t(), lambda x: x[2:, 1::2], lambda x: x[:0]])
def test_a_guarded_input_has_values_strides_and_a_storage_of_its_own(
    view: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    tensor = view(torch.randn(6, 8))
    copy, storage = sandbox.guard_input(tensor)
    assert torch.equal(copy, tensor)
    assert (copy.stride(), copy.dtype) == (tensor.stride(), tensor.dtype)
    assert copy.storage_offset() * 4 == tensor.storage_offset() * 4 + GUARD
    assert copy.untyped_storage().data_ptr() == storage.data_ptr() != tensor.untyped_storage().data_ptr()


@pytest.mark.parametrize(
    ("call", "noted"),
    [
        (lambda x: x + x, ["add"]),
        (lambda x: torch.softmax(x, 0), ["_softmax"]),
        (lambda x: x.clone().mul_(2), ["clone", "mul_"]),
        (lambda x: torch.add(x, x, out=torch.empty_like(x)), ["add"]),
        (lambda x: x.sum().item(), ["sum", "_local_scalar_dense"]),
        (lambda x: x.view(2, 2).t().reshape(4), ["_unsafe_view", "clone"]),
        (lambda x: torch.zeros_like(x).fill_(3.0).view(2, 2).t(), []),
        (lambda x: x.new_zeros(3)[1:].unsqueeze(0), []),
    ],
)
def test_operators_that_compute_are_noted(call: Callable[[torch.Tensor], object], noted: list[str]) -> None:
    notes = sandbox.Notes()
    with JOURNAL.noting(notes), sandbox.Watch(poison=True, memory=sandbox.Provenance()):
        call(torch.ones(4))
    assert [name for name in notes.operators if name != "ones"] == [name for name in noted if name != "_unsafe_view"]


def test_provenance_tells_the_work_of_a_kernel_from_what_came_later() -> None:
    provenance, out, other = sandbox.Provenance(), torch.zeros(10), torch.zeros(10)
    assert provenance.complaint(out) == "no kernel of yours was given the tensor that was returned"
    provenance.launched([simt.Buffer.of("out", out)])
    assert provenance.complaint(out) is None
    assert provenance.complaint(out.view(2, 5)) is None
    out.numpy()[3] = 1.0
    assert "changed after your last kernel" in (provenance.complaint(out) or "")
    assert "no kernel of yours was given" in (provenance.complaint(other) or "")


def given(*tensors: torch.Tensor, contents: sandbox.Contents) -> tuple[list[str], list[str]]:
    """What is told of a launch on these tensors with the number 10: what it is given, and what the host wrote."""
    notes, provenance = sandbox.Notes(), sandbox.Provenance(contents)
    buffers = [simt.Buffer.of("tensor", tensor) for tensor in tensors]
    with JOURNAL.noting(notes):
        provenance.launching("kernel", [10, *(tensor.data_ptr() for tensor in tensors)], buffers)
    provenance.launched(buffers)
    return notes.given, notes.written


def test_what_the_host_writes_is_told_from_the_work_of_kernels() -> None:
    contents, table = sandbox.Contents(), torch.arange(10)
    told, first = given(table, contents=contents)
    assert told == ["('kernel', (10,))"]
    assert given(torch.arange(10), contents=contents) == (told, first)
    assert given(table[2:], contents=contents) == (told, [])
    table.numpy()[3] += 1
    _, changed = given(table, contents=contents)
    assert len(first) == len(changed) == 1
    assert changed != first


def test_what_operators_fill_in_is_told_with_its_numbers() -> None:
    contents, notes = sandbox.Contents(), sandbox.Notes()
    with JOURNAL.noting(notes), sandbox.Watch(poison=True, memory=sandbox.Provenance(contents)):
        tensors = torch.zeros(4), torch.empty(4), torch.full((4,), 2.5)
        tensors[1].fill_(1.5)
    assert notes.given == ["('zeros', ())", "('full', (2.5,))", "('fill_', (1.5,))"]
    assert given(*tensors, contents=contents)[1] == []


def test_what_the_host_writes_into_fresh_memory_counts_as_written() -> None:
    memory = sandbox.Provenance()
    with sandbox.Watch(poison=True, memory=memory):
        fresh = torch.empty(4)
    buffer = simt.Buffer.of("fresh", fresh)
    fresh.numpy()[0] = 1.0
    memory.launching("kernel", [fresh.data_ptr()], [buffer])
    assert not memory.shadow(buffer, 2).state.any()


def test_the_submissions_thread_passes_results_and_exceptions() -> None:
    thread = sandbox.SubmissionThread()
    assert thread.call(divmod, 7, 3) == (2, 1)
    assert thread.call(threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        thread.call(divmod, 7, 0)
    with pytest.raises(SystemExit):
        thread.call(sys.exit, 3)
    assert thread.call(threading.get_ident) == thread.call(threading.get_ident)


@pytest.mark.parametrize(
    ("owner", "name", "said"),
    [
        (time, "perf_counter", "time.perf_counter was replaced"),
        (torch.cuda, "synchronize", "torch.cuda.synchronize was replaced"),
        (torch.cuda.Event, "elapsed_time", "torch.Event.elapsed_time was replaced"),
        (torch, "empty_like", "torch.empty_like was replaced"),
        (compare, "mismatches", "kernelpath.grading.compare.mismatches was replaced"),
    ],
)
def test_a_replaced_function_is_noticed(
    owner: ModuleType | type, name: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = sandbox.Snapshot()
    assert snapshot.changed() is None
    monkeypatch.setattr(owner, name, lambda *_: None)
    assert snapshot.changed() == said
    monkeypatch.undo()
    assert snapshot.changed() is None


@pytest.fixture
def submission_that_waits() -> Iterator[tuple[Callable[[], None], queue.SimpleQueue[None]]]:
    """A function of a module named like a submission, and what ends its waiting."""
    end: queue.SimpleQueue[None] = queue.SimpleQueue()
    module: dict[str, object] = {"__name__": sandbox.SUBMISSION, "end": end}
    exec("def wait():\n    end.get()\n", module)
    wait = module["wait"]
    assert callable(wait)
    yield wait, end
    end.put(None)


@pytest.mark.parametrize("daemon", [False, True])
def test_a_thread_that_runs_the_submission_is_noticed(
    daemon: bool, submission_that_waits: tuple[Callable[[], None], queue.SimpleQueue[None]]
) -> None:
    wait, end = submission_that_waits
    snapshot = sandbox.Snapshot()
    thread = threading.Thread(target=lambda: wait(), daemon=daemon, name="later")
    thread.start()
    assert (snapshot.changed() or "").startswith("a thread was left running")
    end.put(None)
    thread.join()
    assert snapshot.changed() is None


def test_a_librarys_daemon_thread_is_none_of_the_submissions() -> None:
    snapshot, end = sandbox.Snapshot(), threading.Event()
    thread = threading.Thread(target=end.wait, daemon=True)
    thread.start()
    assert snapshot.changed() is None
    end.set()
    thread.join()


ATTEMPTS = {
    'open(hidden / "theirs.py")': "theirs.py, which is not its own",
    'open(str(hidden / "x/../theirs.py"))': "theirs.py, which is not its own",
    'os.open(hidden / "theirs.py", os.O_RDONLY)': "theirs.py, which is not its own",
    'os.link(hidden / "theirs.py", "/tmp/no_such_link")': "theirs.py, which is not its own",
    'os.symlink(hidden / "theirs.py", "/tmp/no_such_link")': "theirs.py, which is not its own",
    'os.rename(hidden / "theirs.py", "/tmp/no_such_link")': "theirs.py, which is not its own",
    'sys.audit("kernelpath.compiled", ptx)': "theirs.cu, which is not its own",
    'sys.audit("kernelpath.compiled", escaped.replace("mine", "their"))': "theirä.cu, which is not its own",
    'sys.audit("kernelpath.compiled", escaped)': "",
    "gc.get_objects()": "gc.get_objects looks into the process that measures the submission",
    "sys._current_frames()": "sys._current_frames looks into the process that measures the submission",
    'open(hidden / "mine.py").close()': "",
    "open(os.devnull).close()": "",
}
"""What a submission may try, and what it is told. An audit hook stays, so all are tried in one process of their own."""

TRY = """
import gc, json, os, sys
from pathlib import Path
from kernelpath.work import sandbox

hidden = Path(sys.argv[1])
os.chdir(hidden)  # where the mode of open() is no file of theirs
sandbox.deny([hidden], [hidden / "mine.py", hidden / "mineä.cu"])
escaped = f'.file\\t1 "{hidden}/mine\\\\303\\\\244.cu"'
ptx = f'.file\\t1 "{hidden}/theirs.cu"'


def attempt(code):
    try:
        exec(code)
    except sandbox.Trespass as error:
        return str(error)
    return ""


gc.get_objects(), open(hidden / "theirs.py").close()
attempts = json.loads(sys.argv[2])
threads = sandbox.SubmissionThread(), sandbox.SubmissionThread()
print(json.dumps([[thread.call(attempt, code) for code in attempts] for thread in threads]))
"""


def test_the_solutions_and_our_objects_are_out_of_reach_of_every_other_thread(tmp_path: Path) -> None:
    for name in ("mine.py", "theirs.py"):
        (tmp_path / name).touch()
    command = [sys.executable, "-c", TRY, str(tmp_path), json.dumps(list(ATTEMPTS))]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.stderr == ""
    for told in json.loads(ran.stdout):
        for (code, said), answer in zip(ATTEMPTS.items(), told, strict=True):
            assert answer.endswith(said), code
            assert bool(answer) is bool(said), code


def test_the_memory_limit_holds_inside_alone() -> None:
    with sandbox.memory_limit(256 << 20), pytest.raises(RuntimeError, match="can't allocate"):
        torch.empty(1 << 30, dtype=torch.uint8)
    assert torch.empty(1 << 30, dtype=torch.uint8).numel() == 1 << 30


def test_what_nothing_has_written_is_known_byte_by_byte() -> None:
    memory = sandbox.Provenance()
    with sandbox.Watch(poison=True, memory=memory):
        fresh, filled, zeroed = torch.empty(8), torch.empty(8).fill_(1.0), torch.zeros(8)
        part = torch.empty(8)
        part[2:4] = 0.0
    whole = [memory.shadow(simt.Buffer.of("x", tensor), 2) for tensor in (fresh, filled, zeroed, part)]
    assert [bool(shadow.state.any()) for shadow in whole] == [True, False, False, False]
    half = memory.shadow(simt.Buffer.of("x", fresh[4:]), 2)
    half.state[:] = 0
    assert whole[0].state[:16].all()
    assert not whole[0].state[16:].any()
