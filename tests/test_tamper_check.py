"""Test the thread of a submission, and the check for functions that it replaced or threads that it left running."""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest
import torch

from kernelpath.grading import compare
from kernelpath.work.confine import SUBMISSION
from kernelpath.work.tamper_check import SubmissionThread, TamperCheck


def test_the_submission_thread_returns_results_and_raises_exceptions() -> None:
    thread = SubmissionThread()
    assert thread.call(divmod, 7, 3) == (2, 1)
    assert thread.call(threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        thread.call(divmod, 7, 0)
    with pytest.raises(SystemExit):
        thread.call(sys.exit, 3)
    assert thread.call(threading.get_ident) == thread.call(threading.get_ident)


@pytest.mark.parametrize(
    ("owner", "name", "message"),
    [
        (time, "perf_counter", "time.perf_counter was replaced"),
        (torch.cuda, "synchronize", "torch.cuda.synchronize was replaced"),
        (torch.cuda.Event, "elapsed_time", "torch.Event.elapsed_time was replaced"),
        (torch, "empty_like", "torch.empty_like was replaced"),
        (compare, "mismatches", "kernelpath.grading.compare.mismatches was replaced"),
    ],
)
def test_a_replaced_function_is_detected(
    owner: ModuleType | type, name: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tamper_check = TamperCheck()
    assert tamper_check.describe_change() is None
    monkeypatch.setattr(owner, name, lambda *_: None)
    assert tamper_check.describe_change() == message
    monkeypatch.undo()
    assert tamper_check.describe_change() is None


@pytest.fixture
def submission_that_waits() -> Iterator[tuple[Callable[[], None], queue.SimpleQueue[None]]]:
    """Yield a blocking function of a module named like a submission, and the queue that unblocks it."""
    end: queue.SimpleQueue[None] = queue.SimpleQueue()
    module: dict[str, object] = {"__name__": SUBMISSION, "end": end}
    exec("def wait():\n    end.get()\n", module)
    wait = module["wait"]
    assert callable(wait)
    yield wait, end
    end.put(None)


@pytest.mark.parametrize("daemon", [False, True])
def test_a_thread_that_runs_submission_code_is_detected(
    daemon: bool, submission_that_waits: tuple[Callable[[], None], queue.SimpleQueue[None]]
) -> None:
    wait, end = submission_that_waits
    tamper_check = TamperCheck()
    thread = threading.Thread(target=lambda: wait(), daemon=daemon, name="later")
    thread.start()
    assert (tamper_check.describe_change() or "").startswith("a thread was left running")
    end.put(None)
    thread.join()
    assert tamper_check.describe_change() is None


def test_a_daemon_thread_of_a_library_is_allowed() -> None:
    tamper_check = TamperCheck()
    end = threading.Event()
    thread = threading.Thread(target=end.wait, daemon=True)
    thread.start()
    assert tamper_check.describe_change() is None
    end.set()
    thread.join()
