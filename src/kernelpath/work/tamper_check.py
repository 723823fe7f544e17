"""What a submission may have done to the process that measures it: functions replaced, threads left running."""

from __future__ import annotations

import gc
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from operator import is_
from types import FrameType, ModuleType
from typing import Any

import torch

from kernelpath.work.confine import SUBMISSION

_Attributes = Callable[[], Mapping[str, Any]]

_WATCHED = {
    "time": ("time", "monotonic", "perf_counter", "perf_counter_ns", "sleep"),
    "gc": ("collect", "enable", "disable", "isenabled"),
    "threading": ("Thread", "enumerate"),
    "torch": ("empty", "empty_like", "zeros", "full", "Tensor", "Generator", "randn", "randint"),
    "torch.cuda": ("Event", "Stream", "current_stream", "synchronize", "_sleep", "CUDAGraph"),
}


_SAMPLE_SECONDS = 0.5
"""How often a call that goes on says in which line it is."""


class SubmissionThread:
    """Runs the submission's code on a stack of its own, which holds nothing of the grader's.

    running: is told in which line of the submission's module a long call is, again and again.
    """

    def __init__(self, running: Callable[[int], None] = lambda line: None) -> None:
        self._running = running
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
        """`function(*arguments)`, with its exceptions, `SystemExit` included, in a `with` block of `within`.

        Python collects garbage meanwhile, though this thread may have it off: then none of it is collected on this one.
        """
        collects = gc.isenabled()
        gc.enable()
        self._asked.put((function, arguments, within or nullcontext()))
        result, error = self._answer()
        if not collects:
            gc.disable()
        if error is not None:
            raise error
        return result

    def _answer(self) -> tuple[Any, BaseException | None]:
        while True:
            try:
                return self._answered.get(timeout=_SAMPLE_SECONDS)
            except queue.Empty:
                if line := _line_of(self._thread):
                    self._running(line)


def _line_of(thread: threading.Thread) -> int:
    """The innermost line of the submission's module that a thread is in; 0 where it is in none."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None and frame.f_globals.get("__name__") != SUBMISSION:
        frame = frame.f_back
    return frame.f_lineno if frame is not None else 0


class TamperCheck:
    """The functions and classes that measuring rests on, as they were before the submission was loaded."""

    def __init__(self) -> None:
        self._threads = set(threading.enumerate())
        ours = [(name, sys.modules[name]) for name in sys.modules if _is_watched(name)]
        kinds = [
            (f"{name}.{kind.__name__}", kind) for name, module in ours if _is_ours(name) for kind in _classes(module)
        ]
        owners: list[tuple[str, _Attributes, Iterable[str]]] = [
            (name, partial(vars, sys.modules[name]), attributes) for name, attributes in _WATCHED.items()
        ]
        owners += [
            (f"torch.{kind.__name__}", partial(_with_inherited, kind), dir(kind))
            for kind in (torch.Tensor, torch.cuda.Event, torch.profiler.profile)
        ]
        owners += [(name, partial(vars, owner), vars(owner)) for name, owner in (*ours, *kinds)]
        self._known = [
            (name, attributes, {key: value for key in keys if callable(value := there.get(key))})
            for name, attributes, keys in owners
            for there in (attributes(),)
        ]

    def changed(self) -> str | None:
        """In words, what was replaced, or which thread was left running; None where all is as it was."""
        for name, attributes, known in self._known:
            there = attributes()
            if not all(map(is_, map(there.get, known), known.values())):
                attribute = next((key for key, value in known.items() if there.get(key) is not value), "")
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


def _is_watched(module: str) -> bool:
    """Ours, and JAX, which reads and runs what is traced."""
    return _is_ours(module) or module.partition(".")[0] == "jax"


def _with_inherited(kind: type) -> Mapping[str, Any]:
    """The attributes of a class, as they stand there or in a class that it comes from."""
    attributes: dict[str, Any] = {}
    for place in reversed(kind.__mro__):
        attributes.update(vars(place))
    return attributes


def _classes(module: ModuleType) -> list[type]:
    """The classes that a module defines."""
    return [kind for kind in vars(module).values() if isinstance(kind, type) and kind.__module__ == module.__name__]


def _is_submissions(thread: threading.Thread) -> bool:
    target = getattr(thread, "_target", None)
    return not thread.daemon or SUBMISSION in (type(thread).__module__, getattr(target, "__module__", ""))
