"""Detect what a submission changed in the process that measures it: replaced functions, and threads left running."""

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

from kernelpath.work.confine import SUBMISSION, submission_line

_GetAttributes = Callable[[], Mapping[str, Any]]

# Functions and classes of other packages that measuring and generating inputs rely on, by module.
_WATCHED = {
    "time": ("time", "monotonic", "perf_counter", "perf_counter_ns", "sleep"),
    "gc": ("collect", "enable", "disable", "isenabled"),
    "threading": ("Thread", "enumerate"),
    "torch": ("empty", "empty_like", "zeros", "full", "Tensor", "Generator", "randn", "randint"),
    "torch.cuda": ("Event", "Stream", "current_stream", "synchronize", "_sleep", "CUDAGraph"),
}


# The interval at which a long call reports the line that it is in.
_SAMPLE_SECONDS = 0.5


class SubmissionThread:
    """Runs the submission's code on a stack of its own, which holds nothing of the grader's.

    A submission can walk up its own stack. On this thread it finds no frame with a secret of the grader's.

    Args:
        report_line: Called again and again during a long call, with the line of the submission's module that is
            running.
    """

    def __init__(self, report_line: Callable[[int], None] = lambda line: None) -> None:
        self._report_line = report_line
        self._calls: queue.SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...], AbstractContextManager[Any]]]
        self._calls = queue.SimpleQueue()
        self._results: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def _loop(self) -> None:
        while True:
            function, arguments, context = self._calls.get()
            try:
                with context:
                    result = function(*arguments)
                self._results.put((result, None))
                del result  # otherwise this frame would keep it alive until the next call
            except BaseException as error:
                self._results.put((None, error))

    def call(
        self, function: Callable[..., Any], *arguments: Any, context: AbstractContextManager[Any] | None = None
    ) -> Any:
        """Return `function(*arguments)`, called on this object's thread inside `context`.

        Its exceptions, SystemExit included, are raised here. Garbage collection is on during the call even where the
        caller has it off: the submission's garbage is then collected on the submission's thread, and none on the
        caller's, where a destructor of the submission could see the caller's stack.
        """
        was_enabled = gc.isenabled()
        gc.enable()
        # A queue of C code: it has no frame in which the submission could find the caller's objects.
        self._calls.put((function, arguments, context or nullcontext()))
        result, error = self._wait_for_result()
        if not was_enabled:
            gc.disable()
        if error is not None:
            raise error
        return result

    def _wait_for_result(self) -> tuple[Any, BaseException | None]:
        while True:
            try:
                return self._results.get(timeout=_SAMPLE_SECONDS)
            except queue.Empty:
                if line := submission_line(sys._current_frames().get(self._thread.ident or 0)):
                    self._report_line(line)


class TamperCheck:
    """Compares the functions and classes that measuring relies on with those from before the submission was loaded."""

    def __init__(self) -> None:
        self._threads = set(threading.enumerate())
        modules = [(name, sys.modules[name]) for name in sys.modules if _is_watched(name)]
        classes = [
            (f"{name}.{cls.__name__}", cls)
            for name, module in modules
            if _is_kernelpath(name)
            for cls in _classes_of(module)
        ]
        owners: list[tuple[str, _GetAttributes, Iterable[str]]] = [
            (name, partial(vars, sys.modules[name]), attributes) for name, attributes in _WATCHED.items()
        ]
        owners += [
            (f"torch.{cls.__name__}", partial(_with_inherited, cls), dir(cls))
            for cls in (torch.Tensor, torch.cuda.Event, torch.profiler.profile)
        ]
        owners += [(name, partial(vars, owner), vars(owner)) for name, owner in (*modules, *classes)]
        self._originals = [
            (name, get_attributes, {key: value for key in keys if callable(value := attributes.get(key))})
            for name, get_attributes, keys in owners
            for attributes in (get_attributes(),)
        ]

    def describe_change(self) -> str | None:
        """Describe what was replaced, or which thread was left running; None where nothing changed."""
        for name, get_attributes, originals in self._originals:
            attributes = get_attributes()
            # One pass in C: nearly always nothing has changed.
            if not all(map(is_, map(attributes.get, originals), originals.values())):
                attribute = next((key for key, value in originals.items() if attributes.get(key) is not value), "")
                return f"{name}.{attribute} was replaced"
        leftover = [
            thread for thread in threading.enumerate() if thread not in self._threads and _is_of_submission(thread)
        ]
        if leftover:
            return f"a thread was left running: {leftover[0].name}"
        # A thread that was started by _thread.start_new_thread is in no list of threads: its frames show it.
        return "a thread was left running" if any(map(submission_line, self._frames_of_new_threads())) else None

    def _frames_of_new_threads(self) -> list[FrameType]:
        """Return the innermost frame of each thread that did not exist before."""
        # By number and not by object, because such a thread has no Thread object.
        old_threads = {thread.ident for thread in self._threads}
        return [frame for ident, frame in sys._current_frames().items() if ident not in old_threads]


def _is_kernelpath(module: str) -> bool:
    return module.partition(".")[0] in ("kernelpath", "warpcheck")


def _is_watched(module: str) -> bool:
    """Return whether a module is checked whole: kernelpath's own, and JAX, which reads and runs the traced programs."""
    return _is_kernelpath(module) or module.partition(".")[0] == "jax"


def _with_inherited(cls: type) -> Mapping[str, Any]:
    """Return the attributes of a class and of its bases, without binding any."""
    # getattr binds a class method again at each access, so an identity test would call the method replaced.
    attributes: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        attributes.update(vars(base))
    return attributes


def _classes_of(module: ModuleType) -> list[type]:
    """Return the classes that a module defines."""
    return [cls for cls in vars(module).values() if isinstance(cls, type) and cls.__module__ == module.__name__]


def _is_of_submission(thread: threading.Thread) -> bool:
    # Libraries leave daemon threads running. Such a thread counts only where its class or its function is the
    # submission's.
    target = getattr(thread, "_target", None)
    return not thread.daemon or SUBMISSION in (type(thread).__module__, getattr(target, "__module__", ""))
