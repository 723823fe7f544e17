"""Workers and the server that forks them: how each end is told, and that nothing is left behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelpath.process import Worker, WorkerGone, WorkerSilent
from kernelpath.registry import Item

SUBMISSION = "import os, signal, subprocess, time\ndef double(x):\n    {}\n"


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.close()


def run(worker: Worker, item: Item, body: str, seconds: float = 5.0) -> None:
    """Let the worker call an entry of that body."""
    item.stub.write_text(SUBMISSION.format(body))
    worker.post({"do": "start", "root": str(item.root), "stem": item.stem, "device": "cpu"})
    worker.post({"do": "load", "file": str(item.stub), "hidden": []})
    worker.post({"do": "run", "case": {"n": 4}, "seed": 1})
    worker.answer(60.0)
    worker.answer(60.0)
    worker.answer(seconds)


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
    body = f"open({str(told)!r}, 'w').write(str(subprocess.Popen(['sleep', '600']).pid)); time.sleep(600)"
    with pytest.raises(WorkerSilent):
        run(worker, doubling, body, seconds=1.0)
    worker.close()
    assert gone_soon(int(told.read_text()))
    assert gone_soon(worker.pid)


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
    assert gone_soon(pid)


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


def gone_soon(pid: int) -> bool:
    deadline = time.monotonic() + 2.0
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.02)
    return False
