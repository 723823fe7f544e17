"""Test ranks in processes: simulated link times, the rank blamed for a hang, and cleanup of processes."""

from __future__ import annotations

import contextlib
import io
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from rich.console import Console
from torch._C._distributed_c10d import FileStore

from kernelpath.course import registry
from kernelpath.course.labs.fabric import NVLINK, Links, Log, Step, Transfer, timeline
from kernelpath.course.problems import all_reduce, overlap
from kernelpath.grading import grade, network
from kernelpath.show import network as network_table
from kernelpath.show import view
from kernelpath.verdict import Report, Verdict
from kernelpath.wire import ConnectionClosed, Wire
from kernelpath.work import fabric_messages as fabric
from kernelpath.work import process_group, runner
from kernelpath.work.exchange import Exchange, perturb
from kernelpath.work.tensors import from_bytes, to_bytes
from kernelpath.work.workspace import Workspace
from tests import fresh_process, planted

ROOT = Path(__file__).parents[1]

LINKS = Links(latency=2.0, bandwidth=10.0)

# The limit of a case where a rank never answers. Of these seconds the ranks have two less.
CASE_SECONDS = 4.0


def message(source: int, number: int, target: int, received: int, size: int) -> Transfer:
    return Transfer("send", ((source, number), (target, received)), size)


def post(number: int) -> Step:
    return Step("post", number)


def wait(number: int) -> Step:
    return Step("wait", number)


def compute(seconds: float) -> Step:
    return Step("compute", seconds=seconds)


def c(seconds: float) -> Step:
    return Step("compute", seconds=seconds, line=1)


def p(number: int) -> Step:
    return Step("post", number, line=2)


def w(number: int, line: int) -> Step:
    return Step("wait", number, line=line)


def test_a_message_takes_its_latency_and_its_bytes() -> None:
    log = Log([[post(1), wait(1)], [post(1), wait(1)]], [message(0, 1, 1, 1, 50)])
    assert timeline(log, LINKS).end == 7.0


def test_a_message_waits_for_its_receive() -> None:
    log = Log([[post(1), wait(1)], [compute(100.0), post(1), wait(1)]], [message(0, 1, 1, 1, 50)])
    assert timeline(log, LINKS).end == 107.0


def test_messages_of_a_port_are_pipelined_without_latency() -> None:
    steps = [[post(1), post(2), wait(1), wait(2)], [post(1), wait(1)], [post(1), wait(1)]]
    log = Log(steps, [message(0, 1, 1, 1, 50), message(0, 2, 2, 1, 50)])
    assert timeline(log, LINKS).end == 12.0


def test_a_link_is_full_duplex() -> None:
    steps = [[post(1), post(2), wait(1), wait(2)], [post(1), post(2), wait(1), wait(2)]]
    log = Log(steps, [message(0, 1, 1, 2, 50), message(1, 1, 0, 2, 50)])
    assert timeline(log, LINKS).end == 7.0


@pytest.mark.parametrize("seed", range(5))
def test_the_time_does_not_depend_on_the_order_of_the_transfers(seed: int) -> None:
    """In each of 3 steps, all 4 ranks send to different receivers: 3 messages of 5 seconds, plus the latency."""
    steps = [[*map(post, range(1, 7)), *map(wait, range(1, 7))]] * 4
    sent = [message(rank, 2 * step - 1, (rank + step) % 4, 2 * step, 50) for step in (1, 2, 3) for rank in range(4)]
    random.Random(seed).shuffle(sent)
    assert timeline(Log(steps, sent), LINKS).end == 17.0


def test_communication_overlapped_by_compute_is_hidden() -> None:
    """An all-reduce of 2 ranks takes 2 * (2 + 50 / 2 / 10) = 9; the second starts when the first has ended."""
    rank = [post(1), compute(10.0), post(2), compute(6.0), wait(1), wait(2)]
    reduced = [Transfer("all_reduce", ((0, number), (1, number)), 50) for number in (1, 2)]
    times = timeline(Log([rank, rank], reduced), LINKS)
    assert times.end == 19.0
    assert times.hidden == pytest.approx(1 - 3 / 18)


def test_a_message_overlapped_by_compute_is_hidden() -> None:
    """A message of 50 bytes takes 5, plus a latency of 2; of these 7, the compute hides 4."""
    rank = [post(1), post(2), compute(4.0), wait(1), wait(2)]
    sent = [message(0, 1, 1, 2, 50), message(1, 1, 0, 2, 50)]
    assert timeline(Log([rank, rank], sent), LINKS).hidden == pytest.approx(1 - 3 / 7)
    assert timeline(Log([[compute(4.0)], []], []), LINKS).hidden == 1.0


@pytest.mark.parametrize(
    ("sent", "verdict"),
    [
        ([], Verdict.NOT_YOUR_KERNEL),
        ([message(0, 1, 1, 2, 16), message(1, 1, 0, 2, 12)], Verdict.NOT_YOUR_KERNEL),
        ([message(0, 1, 1, 2, 16), message(1, 1, 0, 2, 16)], None),
    ],
    ids=["no message", "one that is short", "all"],
)
def test_a_rank_must_receive_the_data_of_other_ranks(sent: list[Transfer], verdict: Verdict | None) -> None:
    """With 4 float32 on each of 2 ranks, half of the two-shot bytes must arrive even if ranks share memory."""
    rank = [post(1), post(2), wait(1), wait(2)]
    exercise = registry.load(registry.find("all_reduce"))
    finding = network.check_case(exercise, all_reduce.case(2, 4, "float32", "two_shot"), Log([rank, rank], sent))
    assert (finding.verdict if finding else None) is verdict
    if finding:
        assert "but at least 16 bytes of its result are known only to other ranks" in finding.cause


def ring_of(size: int, steps: int, reach: int = 1) -> Log:
    """Return a log in which every rank sends `steps` messages of one float to the rank `reach` places to its right."""
    numbers = range(1, 2 * steps + 1)
    programs = [[Step("post", number, line=30 + number) for number in numbers] for _ in range(size)]
    sent = [
        Transfer("send", ((rank, 2 * step + 1), ((rank + reach) % size, 2 * step + 2)), 4)
        for step in range(steps)
        for rank in range(size)
    ]
    return Log(programs, sent)


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (ring_of(4, 6), None),
        (ring_of(4, 6, reach=3), None),
        (ring_of(4, 6, reach=2), "rank 0 sends a message to rank 2; in a ring a rank sends to a neighbor alone"),
        (ring_of(4, 5), "rank 0 sends 5 messages; a ring of 4 takes 6, one for each step"),
        (ring_of(4, 7), "rank 0 sends 7 messages; a ring of 4 takes 6, one for each step"),
    ],
    ids=["to the right", "to the left", "across", "a step too few", "a step too many"],
)
def test_a_ring_sends_to_neighbors_once_a_step(log: Log, cause: str | None) -> None:
    allowed = all_reduce.ring_messages(4, 8, "float32", "ring")
    assert allowed is not None
    violation = network.check_ring(log, allowed)
    assert (violation[0] if violation else None) == cause
    if violation:
        assert violation[1] == 31
    assert all_reduce.ring_messages(4, 8, "float32", "two_shot") is None


def test_a_message_of_an_empty_chunk_may_be_left_out() -> None:
    allowed = all_reduce.ring_messages(4, 3, "float32", "ring")
    assert allowed is not None
    assert network.check_ring(ring_of(4, 5), allowed) is None
    assert network.check_ring(ring_of(4, 7), allowed) is not None


def test_the_report_counts_and_times_messages() -> None:
    item = registry.find("all_reduce")
    report = grade.grade(item, item.solution, device="cpu", seed=3)
    assert report.verdict is Verdict.PASSED
    rows_by_algorithm = {row["algorithm"]: row for row in map(_cells, network_table.rows(report.network))}
    bytes_of_a_chunk = 4 * 10_001  # of 40,003 floats on 4 ranks
    assert rows_by_algorithm["ring"]["messages"] == rows_by_algorithm["two_shot"]["messages"] == 6
    assert 0 <= 6 * bytes_of_a_chunk - rows_by_algorithm["ring"]["bytes"] <= 4 * 6
    by_case = {(entry.case["algorithm"], entry.case["n"]): entry for entry in report.network}
    ring = by_case["ring", 40_003]
    two_shot = by_case["two_shot", 40_003]
    moving = 6 * bytes_of_a_chunk / NVLINK.bandwidth
    assert ring.seconds == pytest.approx(6 * NVLINK.latency + moving, rel=1e-3)
    # The threads of a rank post its chunks in any order, so a chunk may wait for another chunk on a link.
    fastest = 2 * NVLINK.latency + moving
    waiting = bytes_of_a_chunk / NVLINK.bandwidth
    assert 0.999 * fastest <= two_shot.seconds <= 1.001 * (fastest + 2 * waiting)
    assert ring.hidden is None
    assert Report.from_json(report.to_json()).network == report.network
    text = Console(width=80, file=io.StringIO())
    view.report(text, item, report)
    assert "messages" in text.file.getvalue()  # type: ignore[attr-defined]
    assert '<td class="number">240,0' in view.page(item, report)


def _cells(row: list[str]) -> dict[str, Any]:
    """Return the cells of a row of the table, with the algorithm."""
    case, messages, sent, _ = row
    return {
        "algorithm": case.rpartition("algorithm=")[2],
        "messages": int(messages),
        "bytes": int(sent.replace(",", "")),
    }


def serve_ranks(exchange: Exchange, seconds: float, *ranks: Callable[[Wire[fabric.ToRank]], None]) -> None:
    """Serve these ranks, each in a thread, until the exchange is done."""
    wires: list[Wire[fabric.ToRank]] = [Wire(end, fabric.ToRank) for end in exchange.ends]
    threads = [threading.Thread(target=rank, args=(wire,)) for rank, wire in zip(ranks, wires, strict=True)]
    for thread in threads:
        thread.start()
    exchange.serve(seconds)
    exchange.close()
    for thread in threads:
        thread.join()


def test_a_send_is_complete_when_it_is_received() -> None:
    received_objects: list[object] = []

    def sender(wire: Wire[fabric.ToRank]) -> None:
        wire.send(fabric.Post(1, "send", 1, dtype="int8", count=3, content=b"abc"))
        wire.send(fabric.Await(1))
        received_objects.append(wire.receive())
        wire.send(fabric.Leave(False))

    def receiver(wire: Wire[fabric.ToRank]) -> None:
        time.sleep(0.05)
        received_objects.append("not before")
        wire.send(fabric.Post(1, "recv", 0, dtype="int8", count=3))
        wire.send(fabric.Await(1))
        received_objects.append(wire.receive())
        wire.send(fabric.Leave(False))

    exchange = Exchange(2)
    serve_ranks(exchange, 5.0, sender, receiver)
    assert exchange.finding is None
    assert received_objects[0] == "not before"
    assert fabric.Completion(b"abc") in received_objects
    assert exchange.log().sent(0) == 3


def test_a_computed_part_is_answered_with_its_result() -> None:
    received_objects: list[object] = []

    def rank(wire: Wire[fabric.ToRank]) -> None:
        wire.send(fabric.ComputePart(1))
        received_objects.append(wire.receive())
        wire.send(fabric.Leave(False))

    exchange = Exchange(1, parts=(1.0, 2.0), results=[[b"first", b"second"]])
    serve_ranks(exchange, 5.0, rank)
    assert received_objects == [fabric.Completion(b"second")]
    assert exchange.computed(0) == [1]


def rank_that_posts(*messages: fabric.Post) -> Callable[[Wire[fabric.ToRank]], None]:
    """Return a rank that posts these messages and then waits for the first."""

    def rank(wire: Wire[fabric.ToRank]) -> None:
        with contextlib.suppress(ConnectionClosed, OSError):  # the ended group has closed its end
            for message_post in messages:
                wire.send(message_post)
            wire.send(fabric.Await(1))
            wire.receive()

    return rank


def send(number: int, to: int, line: int = 7) -> fabric.Post:
    return fabric.Post(number, "send", to, dtype="int8", count=1, content=b"a", line=line)


def receive(number: int, source: int, line: int = 8) -> fabric.Post:
    return fabric.Post(number, "recv", source, dtype="int8", count=1, line=line)


@pytest.mark.parametrize(
    ("ranks", "expected_cause"),
    [
        (
            (rank_that_posts(send(1, 1)), rank_that_posts(send(1, 0))),
            "nobody has posted a receive: post both messages of a step",
        ),
        (
            (rank_that_posts(receive(1, 1)), rank_that_posts(receive(1, 0))),
            "nobody has posted a send: post both messages of a step",
        ),
        (
            (rank_that_posts(send(1, 1)), rank_that_posts(receive(1, 2)), rank_that_posts(receive(1, 0))),
            "rank 1 has posted a receive from rank 2 (line 8) instead",
        ),
    ],
)
def test_a_deadlock_says_which_message_is_missing(
    ranks: Sequence[Callable[[Wire[fabric.ToRank]], None]], expected_cause: str
) -> None:
    exchange = Exchange(len(ranks))
    serve_ranks(exchange, 5.0, *ranks)
    assert exchange.finding is not None
    assert exchange.finding.verdict is Verdict.DEADLOCK
    assert expected_cause in exchange.finding.cause


@pytest.mark.parametrize(
    ("peer", "expected_cause"),
    [(0, "which is itself"), (2, "the ranks are 0 to 1: take the neighbor modulo"), (-1, "0 to 1")],
)
def test_a_message_to_an_invalid_rank_says_why(peer: int, expected_cause: str) -> None:
    exchange = Exchange(2)
    serve_ranks(exchange, 5.0, rank_that_posts(send(1, peer)), rank_that_posts(receive(1, 0)))
    assert exchange.finding is not None
    assert expected_cause in exchange.finding.cause
    assert exchange.finding.line == 7


def test_dependent_messages_are_counted() -> None:
    """In a ring of 3 ranks and 2 steps, each rank forwards the chunk that it has waited for."""
    rank = [post(1), post(2), wait(1), wait(2), post(3), post(4), wait(3), wait(4)]
    sent = [message(r, s, (r + 1) % 3, s + 1, 4) for s in (1, 3) for r in range(3)]
    assert network.longest_chain(Log([rank] * 3, sent)) == 2
    at_once = [post(1), post(2), post(3), post(4), wait(1), wait(2), wait(3), wait(4)]
    assert network.longest_chain(Log([at_once] * 3, sent)) == 1


def test_a_chain_goes_through_a_rank_that_waits_for_another() -> None:
    """Rank 0 sends to rank 1, which forwards the message to rank 2, which sends it back to rank 0."""
    steps = [[post(1), post(2), wait(2)], [post(1), wait(1), post(2), wait(2)], [post(1), wait(1), post(2), wait(2)]]
    log = Log(steps, [message(0, 1, 1, 1, 4), message(1, 2, 2, 1, 4), message(2, 2, 0, 2, 4)])
    assert network.longest_chain(log) == 3


@pytest.mark.parametrize(
    ("rank", "expected_cause", "line"),
    [
        ([c(20.0), p(1), w(1, 3), c(20.0)], "begin with async_op=True", 3),
        ([c(20.0), c(20.0), p(1), w(1, 3)], "none begins before the last", 2),
        ([c(1.0), p(1), c(1.0), p(2), w(1, 3), w(2, 3)], "fewer and larger all-reduces", 2),
        ([c(9.0), p(1), c(20.0), p(2), w(1, 3), w(2, 3)], "make its bucket smaller", 2),
    ],
)
def test_exposed_communication_has_a_cause(rank: Sequence[Step], expected_cause: str, line: int) -> None:
    count = sum(step.kind == "post" for step in rank)
    reduced = [Transfer("all_reduce", ((0, number), (1, number)), 50) for number in range(1, count + 1)]
    log = Log([rank, rank], reduced)
    cause, cause_line = network.explain_exposed_communication(log, timeline(log, LINKS))
    assert expected_cause in cause
    assert cause_line == line


@pytest.mark.parametrize(
    ("outputs", "explanation"),
    [
        (lambda x: (x.sum(0)[3:], x.sum(0)[:3]), "rank 0's output is chunk 1 of the sum, expected chunk 0"),
        (lambda x: (x[1, :3], x.sum(0)[3:]), "rank 0's output is chunk 0 of rank 1's own vector, expected chunk 0"),
    ],
)
def test_a_wrong_chunk_is_recognized(
    outputs: Callable[[torch.Tensor], Sequence[torch.Tensor]], explanation: str
) -> None:
    x = torch.randn(2, 6, generator=torch.Generator().manual_seed(0))
    assert (all_reduce.explain_output((x, "reduce_scatter"), outputs(x)) or "").startswith(explanation)
    assert all_reduce.explain_output((x, "reduce_scatter"), x.sum(0).tensor_split(2)) is None


def test_a_rank_missing_from_the_sum_is_named() -> None:
    x = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
    explanation = all_reduce.explain_output((x, "ring"), [x[:2].sum(0)] * 3)
    assert explanation is not None
    assert explanation.startswith("chunk 0 of rank 0's output is chunk 0 of the sum of ranks 0 and 1 alone")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_ranks_disagree_where_zeros_have_other_signs(dtype: torch.dtype) -> None:
    x = torch.full((2, 4), -0.0, dtype=dtype)
    total = x.sum(0).copysign(torch.tensor(-1.0))
    assert all_reduce.explain_output((x, "ring"), [total, total]) is None
    explanation = all_reduce.explain_output((x, "ring"), [total, total + 0.0])
    assert explanation is not None
    assert explanation.startswith("the ranks disagree: element 0 is -0 on rank 0, 0 on rank 1")


def test_a_rank_that_forges_frames_is_tampering() -> None:
    def forge_frame(wire: Wire[fabric.ToRank]) -> None:
        wire.send(fabric.Post(7, "send", 1, dtype="int8", count=3, content=b"abc"))

    exchange = Exchange(2)
    serve_ranks(exchange, 5.0, forge_frame, lambda wire: None)
    assert exchange.finding is not None
    assert exchange.finding.verdict is Verdict.TAMPERED


def test_ring_all_reduce_byte_limit() -> None:
    """A ring has two phases of world - 1 chunks, here of 251 float32."""
    assert all_reduce.most_bytes(4, 1003, "float32", "ring") == 2 * 3 * 251 * 4


def test_overlap_byte_limit_counts_a_bucket_once() -> None:
    assert overlap.most_bytes(4, 32, 8192) < 2 * 4 * 32 * 8192


def grade_source(name: str, source: str, folder: Path) -> Report:
    item = registry.find(name)
    file = folder / f"{item.path_id.partition('/')[2]}.py"
    file.write_text(source)
    return grade.grade(item, file, device="cpu", seed=1, brief=True)


HEAD = "import os, time\nimport torch\nimport torch.distributed as dist\n\n\ndef collective(x, algorithm):\n"


@pytest.mark.parametrize(
    ("body", "verdict", "expected_cause"),
    [
        ("if dist.get_rank() == 1: os.kill(os.getpid(), 9)\n    dist.recv(x.clone(), 1)", "CRASHED", "rank 1: "),
        ("if dist.get_rank() == 1: time.sleep(60)\n    else: dist.recv(x.clone(), 1)", "TIMED_OUT", "rank 1 does not"),
        ("if dist.get_rank() == 0: dist.recv(x.clone(), 1)\n    return x.clone()", "DEADLOCK", "rank 1 does not come"),
        ("dist.barrier()\n    return torch.empty_like(x)", "WRONG_SHAPE", "rank 0's output has shape"),
        ("return x.clone(), None", "WRONG_TYPE", "rank 0: collective returned None in place 1 of its tuple"),
    ],
)
def test_a_lost_rank_is_named(
    body: str, verdict: str, expected_cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "CASE_SECONDS", CASE_SECONDS)
    collective_body = "    if dist.get_world_size() == 1: return x.clone()\n    " + body
    report = grade_source("all_reduce", f"{HEAD}{collective_body}\n", tmp_path)
    assert report.verdict.value == verdict, report.cause
    assert expected_cause in report.cause


def test_no_rank_survives_a_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "CASE_SECONDS", CASE_SECONDS)
    body = (
        "    print('pid', os.getpid(), flush=True)\n    if dist.get_rank() == 1: time.sleep(60)\n    dist.barrier()\n"
    )
    report = grade_source("all_reduce", f"{HEAD}    if dist.get_world_size() == 1: return x.clone()\n{body}", tmp_path)
    pids = {int(line.split()[1]) for line in report.printed.splitlines() if line.startswith("pid ")}
    assert len(pids) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def _run_on_gloo(rank: int, size: int, store: str, file: str, results: str) -> None:
    module = registry.import_file(Path(file), "on_gloo")
    dist.init_process_group("gloo", store=FileStore(store, size), rank=rank, world_size=size)
    x = torch.arange(1003.0) * (rank + 1)
    for algorithm in ("ring", "two_shot"):
        torch.save(module.collective(x, algorithm), f"{results}/{algorithm}{rank}")
    dist.destroy_process_group()


@pytest.mark.parametrize("size", [2, 4])
def test_the_reference_runs_on_gloo(size: int, tmp_path: Path) -> None:
    """The reference must be a program that torch.distributed itself runs, not only the course's process group."""
    file = str(registry.find("all_reduce").solution)
    arguments = (size, str(tmp_path / "store"), file, str(tmp_path))
    fresh_process.context()  # the fork server has imported torch, so that no rank has to
    processes.start_processes(  # type: ignore[attr-defined, no-untyped-call]
        _run_on_gloo, arguments, nprocs=size, start_method="forkserver"
    )
    expected = torch.arange(1003.0) * sum(range(1, size + 1))
    results = [torch.load(tmp_path / f"{name}{rank}") for name in ("ring", "two_shot") for rank in range(size)]
    assert all(torch.equal(result, expected) for result in results)


def test_a_rank_cannot_open_a_port(tmp_path: Path) -> None:
    """Landlock denies sockets to a rank; the process group needs none."""
    body = "    import socket\n    socket.create_server(('127.0.0.1', 0))\n"
    report = grade_source("all_reduce", HEAD + body, tmp_path)
    assert report.verdict is Verdict.CRASHED or not os.path.exists("/sys/kernel/security/landlock")


def test_the_group_does_not_coalesce_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """From torch 2.15 on, batch_isend_irecv checks whether a group's backend coalesces messages."""
    monkeypatch.setattr(process_group, "_current", [None])
    backend = process_group._Group(0, 1)._get_backend(torch.device("cpu"))
    assert not getattr(backend, "supports_coalescing", False)


# Perturbed messages: a rank's result must depend on the messages that the exchange delivers.


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_perturbed_floats_all_increase(dtype: str) -> None:
    values = torch.tensor([-4.0, -1.0, 0.0, 2.0, 100.0]).to(getattr(torch, dtype))
    content = perturb(dtype, to_bytes(values), "floats")
    perturbed = from_bytes(dtype, [5], content, "cpu")
    assert bool((perturbed > values).all())


def test_integers_that_may_be_lengths_are_not_perturbed() -> None:
    lengths = bytes(range(64))
    data = bytes(range(65))
    assert perturb("int64", lengths, "floats") == perturb("int64", lengths, "all") == lengths
    assert perturb("uint8", data, "floats") == data
    assert all(
        perturbed_byte != original_byte
        for perturbed_byte, original_byte in zip(perturb("uint8", data, "all"), data, strict=True)
    )


def test_a_result_that_ignores_its_messages_is_not_your_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that stays correct for perturbed messages was passed around the exchange, as by a shared folder."""
    monkeypatch.setattr(Workspace, "of_rank", lambda self, rank: self)
    submission = planted.named(ROOT, "w16b_all_reduce/CRASHED_through_a_shared_folder").submission(tmp_path)
    report = grade.grade(registry.find("all_reduce"), submission, device="cpu", seed=1, brief=True)
    assert report.verdict is Verdict.NOT_YOUR_KERNEL, report.cause
    assert "the same values for all messages" in report.cause
