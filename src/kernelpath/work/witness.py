"""What a submission may have done to the process that measures it: functions replaced, threads left running."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from types import FrameType, ModuleType
from typing import Any

import torch

from kernelpath.work.confine import SUBMISSION

_WATCHED = {
    "time": ("time", "monotonic", "perf_counter", "perf_counter_ns", "sleep"),
    "gc": ("collect",),
    "threading": ("Thread", "enumerate"),
    "torch": ("empty", "empty_like", "zeros", "full", "Tensor", "Generator", "randn", "randint"),
    "torch.cuda": ("Event", "Stream", "current_stream", "synchronize", "_sleep", "CUDAGraph"),
}


class SubmissionThread:
    """Runs the submission's code on a stack of its own, which holds nothing of the grader's."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...], AbstractContextManager[Any]]]
        self._asked = queue.SimpleQueue()
        self._answered: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def _loop(self) -> None:
        while True:
            function, arguments, within = self._asked.get()
            try:
                with within:
                    result = function(*arguments)
                self._answered.put((result, None))
                del result
            except BaseException as error:
                self._answered.put((None, error))

    def call(
        self, function: Callable[..., Any], *arguments: Any, within: AbstractContextManager[Any] | None = None
    ) -> Any:
        """`function(*arguments)`, with its exceptions, `SystemExit` included, in a `with` block of `within`."""
        self._asked.put((function, arguments, within or nullcontext()))
        result, error = self._answered.get()
        if error is not None:
            raise error
        return result


class Snapshot:
    """The functions and classes that measuring rests on, as they were before the submission was loaded."""

    def __init__(self) -> None:
        self._threads = set(threading.enumerate())
        owners: list[tuple[str, Any, Iterable[str]]] = [
            (name, sys.modules[name], attributes) for name, attributes in _WATCHED.items()
        ]
        owners += [
            (f"torch.{kind.__name__}", kind, dir(kind))
            for kind in (torch.Tensor, torch.cuda.Event, torch.profiler.profile)
        ]
        ours = [(name, sys.modules[name]) for name in sys.modules if _is_ours(name)]
        owners += [(name, module, vars(module)) for name, module in ours]
        owners += [(f"{name}.{kind.__name__}", kind, vars(kind)) for name, module in ours for kind in _classes(module)]
        self._known = [
            (name, owner, {key: found for key in keys if callable(found := _found(owner, key))})
            for name, owner, keys in owners
        ]

    def changed(self) -> str | None:
        """In words, what was replaced, or which thread was left running; None where all is as it was."""
        for name, owner, known in self._known:
            for attribute, value in known.items():
                if _found(owner, attribute) is not value:
                    return f"{name}.{attribute} was replaced"
        left = [thread for thread in threading.enumerate() if thread not in self._threads and _is_submissions(thread)]
        if left:
            return f"a thread was left running: {left[0].name}"
        return "a thread was left running" if any(map(_runs_submission, self._strangers())) else None

    def _strangers(self) -> list[FrameType]:
        """The innermost frames of the threads that were not there before."""
        known = {thread.ident for thread in self._threads}
        return [frame for thread, frame in sys._current_frames().items() if thread not in known]


def _runs_submission(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__") == SUBMISSION:
            return True
        frame = frame.f_back
    return False


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "kernelpath"


def _found(owner: Any, attribute: str) -> Any:
    """What an attribute of a module or a class is, as it stands there or in a class that it comes from."""
    places = owner.__mro__ if isinstance(owner, type) else (owner,)
    return next((vars(place)[attribute] for place in places if attribute in vars(place)), None)


def _classes(module: ModuleType) -> list[type]:
    """The classes that a module defines."""
    return [kind for kind in vars(module).values() if isinstance(kind, type) and kind.__module__ == module.__name__]


def _is_submissions(thread: threading.Thread) -> bool:
    target = getattr(thread, "_target", None)
    return not thread.daemon or SUBMISSION in (type(thread).__module__, getattr(target, "__module__", ""))
