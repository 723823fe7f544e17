"""Workers and the server that forks them: how each end is told, and that nothing is left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelpath.course.registry import Item
from kernelpath.work.process import Worker, WorkerGone, WorkerSilent
from tests.conftest import PATIENCE, happens, is_gone

SUBMISSION = "import ctypes, numpy, os, signal, time\ndef double(x):\n    {}\n"

START = "ctypes.CDLL(None).system(b'{program} & echo $! > {told}')"
"""Starts a program where no hook of Python's sees it."""


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.close()


def run(worker: Worker, item: Item, body: str, seconds: float = PATIENCE) -> dict[str, Any]:
    """What the worker answers after calling an entry of that body."""
    item.stub.write_text(SUBMISSION.format(body))
    worker.post({"do": "start", "root": str(item.root), "stem": item.stem, "device": "cpu"})
    worker.post({"do": "load", "file": str(item.stub), "hidden": []})
    worker.post({"do": "run", "case": {"n": 4}, "seed": 1})
    worker.answer(PATIENCE)
    worker.answer(PATIENCE)
    return worker.answer(seconds)[0]


@pytest.mark.parametrize(
    ("body", "status"), [("os._exit(3)", 3), ("os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV)]
)
def test_tells_how_a_worker_ended(worker: Worker, doubling: Item, body: str, status: int) -> None:
    with pytest.raises(WorkerGone) as gone:
        run(worker, doubling, body)
    assert gone.value.status == status


def test_a_silent_worker_ends_with_its_children(doubling: Item, tmp_path: Path) -> None:
    worker = Worker()
    told = tmp_path / "pid"
    body = f"{START.format(program='sleep 600', told=told)}; time.sleep(600)"
    with pytest.raises(WorkerSilent):
        run(worker, doubling, body, seconds=1.0)
    assert happens(lambda: told.exists() and told.read_text() != "")
    worker.close()
    assert happens(lambda: is_gone(int(told.read_text())))
    assert happens(lambda: is_gone(worker.pid))


def test_a_worker_leaves_no_daemon(doubling: Item, tmp_path: Path) -> None:
    worker = Worker()
    told = tmp_path / "pid"
    with pytest.raises(WorkerGone):
        run(worker, doubling, f"{START.format(program='setsid sleep 600', told=told)}; os._exit(0)")
    worker.close()
    assert happens(lambda: is_gone(int(told.read_text())))


def test_a_submission_ends_with_a_grader_that_was_killed(doubling: Item) -> None:
    doubling.stub.write_text(SUBMISSION.format("time.sleep(600)"))
    grader = f"""
import os, signal
from kernelpath.work.process import Worker
worker = Worker()
worker.post({{"do": "start", "root": {str(doubling.root)!r}, "stem": {doubling.stem!r}, "device": "cpu"}})
worker.post({{"do": "load", "file": {str(doubling.stub)!r}, "hidden": []}})
worker.post({{"do": "run", "case": {{"n": 4}}, "seed": 1}})
worker.answer(60.0), worker.answer(60.0)
print(worker.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = subprocess.run([sys.executable, "-c", grader], capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert happens(lambda: is_gone(int(ended.stdout)))


def test_a_submission_that_hoards_memory_is_out_of_it(worker: Worker, doubling: Item) -> None:
    told = run(worker, doubling, "hoard = [numpy.empty(1 << 25) for _ in range(1 << 20)]")
    assert told["complaint"]["verdict"] == "CRASHED"
    assert "out of memory" in told["complaint"]["cause"]


def test_a_submission_cannot_fill_the_disk(worker: Worker, doubling: Item) -> None:
    told = run(worker, doubling, "while True: print('x' * 1_000_000)")
    assert told["complaint"]["verdict"] == "CRASHED"
    assert "64 MiB" in told["complaint"]["cause"]
    assert len(worker.printed) < 100_000


def test_a_submission_that_kills_the_server_harms_itself_alone(worker: Worker, doubling: Item) -> None:
    with pytest.raises(WorkerGone) as gone:
        run(worker, doubling, "os.kill(os.getppid(), signal.SIGKILL); time.sleep(600)")
    assert gone.value.status == -signal.SIGKILL
    after = Worker()
    with pytest.raises(WorkerGone) as gone:
        run(after, doubling, "os._exit(5)")
    assert gone.value.status == 5
    after.close()


def test_a_worker_that_was_never_used_leaves_nothing() -> None:
    worker = Worker()
    pid = worker.pid
    worker.close()
    assert happens(lambda: is_gone(pid))


def test_workers_know_nothing_of_each_other(doubling: Item, tmp_path: Path) -> None:
    """Only its own channel and output are open in a worker: no other worker's, and not the server's."""
    waiting = [Worker() for _ in range(3)]
    told = tmp_path / "sockets"
    body = (
        "names = [os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd') if fd.isdigit()"
        f" and os.path.exists(f'/proc/self/fd/{{fd}}')]; open({str(told)!r}, 'w').write('\\n'.join(names)); os._exit(0)"
    )
    with pytest.raises(WorkerGone):
        run(waiting[-1], doubling, body)
    opened = told.read_text().splitlines()
    assert sum(name.startswith("socket:") for name in opened) == 1
    assert not any(name.startswith("pipe:") for name in opened)
    for worker in waiting:
        worker.close()
