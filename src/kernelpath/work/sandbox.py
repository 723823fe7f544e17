"""What surrounds a submission's call in the worker: a thread, guarded memory, and a watch on what it does.

It stops accidents and tricks at Python level. A submission that attacks the process itself is out of scope.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import hashlib
import os
import queue
import re
import resource
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from kernelpath import simt
from kernelpath.grading import compare
from kernelpath.lanes import Launched

SUBMISSION = "submission"
"""The name under which the worker imports a submission."""

GUARD = 512
"""Bytes of poison before and behind every buffer. A multiple of every alignment that a kernel may ask for."""

_FACTORIES = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
_FILLED = ("zeros", "zeros_like", "new_zeros", "ones", "ones_like", "full", "full_like", "new_full")
_FREE = (
    *_FACTORIES,
    *_FILLED,
    *("zero_", "fill_"),
    *("view", "_unsafe_view", "reshape", "as_strided", "slice", "select", "unbind", "split", "chunk", "narrow"),
    *("t", "transpose", "permute", "expand", "unsqueeze", "squeeze", "flatten", "detach", "alias", "lift_fresh"),
    *("unflatten", "is_pinned", "is_same_size", "sym_size", "sym_stride", "_reshape_alias", "view_as_real"),
)
_PATH_EVENTS = {"open": 1, "os.link": 2, "os.rename": 2, "os.symlink": 2}
"""How many of an audit event's arguments are files. The next one of `open` is its mode, as in "r"."""
_PROGRAM_EVENTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty")
_COMPILED_FROM = re.compile(r'^\s*\.file\s+\d+\s+"([^"]+)"', re.MULTILINE)
"""Names of the sources in PTX. Source: PTX ISA, "Debugging Directives: .file"."""
_ESCAPED = re.compile(rb"\\([0-7]{3}|.)")
"""How a compiler writes a byte of such a name that is not plain ASCII: \\303\\266 is an umlaut in UTF-8."""
_FORBIDDEN_EVENTS = ("gc.get_objects", "gc.get_referrers", "gc.get_referents", "sys._current_frames")
_WATCHED = {
    "time": ("time", "monotonic", "perf_counter", "perf_counter_ns", "sleep"),
    "gc": ("collect",),
    "threading": ("Thread", "enumerate"),
    "torch": ("empty", "empty_like", "zeros", "full", "Tensor", "Generator", "randn", "randint"),
    "torch.cuda": ("Event", "Stream", "current_stream", "synchronize", "_sleep", "CUDAGraph"),
}


class Trespass(Exception):
    """The submission reached for something that is not its own. The message says what."""


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


@dataclass
class Notes:
    """What a submission did in a call.

    operators: those that compute. given: every launch with its numbers. written: digests of what its kernels were
    given that is neither an input nor the work of another kernel or of an operator that fills: the host wrote it.
    """

    operators: list[str] = field(default_factory=list)
    launches: list[Launched] = field(default_factory=list)
    given: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)


class Journal:
    """Takes notes of what is told through `sys.audit`: a submission cannot reach the hook, nor the notes behind it."""

    def __init__(self) -> None:
        self._notes: Notes | None = None
        sys.addaudithook(self._hear)

    @contextlib.contextmanager
    def noting(self, notes: Notes) -> Iterator[None]:
        """Take these notes inside the `with` block."""
        self._notes = notes
        try:
            yield
        finally:
            self._notes = None

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._notes is None or not event.startswith("kernelpath."):
            return
        kept: dict[str, list[Any]] = vars(self._notes)
        if (name := _NOTED.get(event)) is not None:
            kept[name].append(arguments[0])


_NOTED = {f"kernelpath.{name.removesuffix('s')}": name for name in ("operators", "given", "written")}
_NOTED["kernelpath.launched"] = "launches"


class Watch(TorchDispatchMode):
    """Tells of the operators that a call dispatches and gives every allocation guard bands.

    poison: fill fresh memory with the poison pattern; timed calls poison it before instead. memory: is told what
    operators write on the CPU, and what nothing has written yet.
    """

    def __init__(self, poison: bool, memory: Provenance) -> None:
        TorchDispatchMode.__init__(self)
        self.poison = poison
        self.memory = memory
        self._guarded: list[torch.Tensor] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True, torch's default, imports torch._dynamo at the first call, which takes 2 s

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        arguments = dict(kwargs or {})
        if name in _FACTORIES:
            wanted = func(*args, **arguments)
            if wanted.is_meta or wanted.layout is not torch.strided:
                return wanted
            return self._allocate(wanted)
        if name not in _FREE:
            sys.audit("kernelpath.operator", name)
        values = (*args, *arguments.values())
        changed = [value for value in values if isinstance(value, torch.Tensor)] if func._schema.is_mutable else []
        for tensor in changed:
            self.memory.uses(tensor)
        result = func(*args, **arguments)
        if changed or name in _FILLED:
            tell_given(name, *(value for value in values if type(value) in (int, float)))
        for tensor in changed or ([result] if name in _FILLED else []):
            self.memory.written(tensor.data_ptr())
            self.memory.keep(tensor)
        return result

    def _allocate(self, wanted: torch.Tensor) -> torch.Tensor:
        """A guarded tensor like `wanted`, which is dropped unused."""
        size, stride, dtype, device = wanted.size(), wanted.stride(), wanted.dtype, wanted.device
        nbytes = wanted.untyped_storage().nbytes()
        del wanted
        storage = guarded_storage(nbytes, device, self.poison)
        self._guarded.append(storage)
        if device.type == "cpu":
            self.memory.allocated(storage.data_ptr() + GUARD, nbytes)
            self.memory.keep(storage)
        return storage[GUARD : GUARD + nbytes].view(dtype).as_strided(size, stride, GUARD // dtype.itemsize)

    def broken_guard(self) -> str | None:
        """In words, a guard band that was written to."""
        return next((found for found in map(guard_broken, self._guarded) if found), None) if self.poison else None


def guarded_storage(nbytes: int, device: torch.device, poison: bool = True) -> torch.Tensor:
    """A uint8 tensor of nbytes with guard bands, poisoned as a whole if asked."""
    storage = torch.empty(nbytes + nbytes % 2 + 2 * GUARD, dtype=torch.uint8, device=device)
    return compare.poison_(storage) if poison else storage


def guard_broken(storage: torch.Tensor) -> str | None:
    """In words, whether a guard band of a poisoned storage was written to."""
    for place, band in (("before the start", storage[:GUARD]), ("past the end", storage[-GUARD:])):
        if bool((band.view(torch.int16) != compare.POISON).any()):
            return f"wrote {place} of a tensor of {storage.numel() - 2 * GUARD:,} bytes"
    return None


def guard_input(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A copy of the tensor, strides and storage offset kept, inside guard bands; and the storage that holds it."""
    source = tensor.untyped_storage()
    storage = guarded_storage(source.nbytes(), tensor.device)
    body = storage[GUARD : GUARD + source.nbytes()]
    body.copy_(torch.tensor([], dtype=torch.uint8, device=tensor.device).set_(source))
    offset = tensor.storage_offset() + GUARD // tensor.element_size()
    return storage.view(tensor.dtype).as_strided(tensor.size(), tensor.stride(), offset), storage


class Contents:
    """The bytes of storages on the CPU, as kernels or operators left them: what differs was written by something else.

    Holds for a worker's life, since a submission may keep tensors from call to call.
    """

    def __init__(self) -> None:
        self._left: dict[int, tuple[StorageWeakRef, npt.NDArray[np.uint8]]] = {}

    def keep(self, tensor: torch.Tensor) -> None:
        """Remember the tensor's whole storage as it is."""
        self._left = {address: left for address, left in self._left.items() if not left[0].expired()}
        storage = tensor.untyped_storage()
        self._left[storage.data_ptr()] = StorageWeakRef(storage), _bytes_of(storage).copy()

    def foreign(self, tensor: torch.Tensor) -> npt.NDArray[np.bool_]:
        """For each byte of the tensor's storage, whether something else wrote it."""
        storage = tensor.untyped_storage()
        reference, left = self._left.get(storage.data_ptr(), (None, None))
        now = _bytes_of(storage)
        if reference is None or left is None or reference.expired() or left.size != now.size:
            return np.ones(now.size, np.bool_)
        return np.not_equal(left, now)


class Provenance(simt.Memory):
    """What one call's kernels are given, and whether the outputs are their work."""

    def __init__(self, contents: Contents | None = None) -> None:
        super().__init__()
        self._contents = contents or Contents()
        self._launched: set[int] = set()

    def launching(self, kernel: str, args: Sequence[int | float | bytes], buffers: Sequence[simt.Buffer]) -> None:
        """Tell what the kernel is given: numbers, but for addresses, and bytes that something else wrote."""
        spans = [(buffer.address, buffer.address + buffer.nbytes) for buffer in buffers]
        numbers = [arg for arg in args if not isinstance(arg, bytes)]
        tell_given(kernel, *(arg for arg in numbers if not any(start <= arg <= end for start, end in spans)))
        for buffer in buffers:
            if _on_cpu(buffer.owner):
                self.uses(buffer.owner)
            else:
                tell_written(_bytes_at(buffer.address, buffer.nbytes))

    def launched(self, buffers: Sequence[simt.Buffer]) -> None:
        """Remember what the kernel left."""
        for buffer in buffers:
            if _on_cpu(buffer.owner):
                self._launched.add(buffer.owner.untyped_storage().data_ptr())
                self.keep(buffer.owner)

    def uses(self, tensor: Any) -> None:
        """A kernel or an operator is about to work on this tensor. Tell what the host wrote there, if anything."""
        if not _on_cpu(tensor):
            return
        foreign = self._contents.foreign(tensor)
        if foreign.any():
            storage = tensor.untyped_storage()
            tell_written(np.where(foreign, _bytes_of(storage), 0))
            self.written(storage.data_ptr() + GUARD)  # all of it: a byte may equal the poison by chance

    def keep(self, tensor: torch.Tensor) -> None:
        """What the tensor holds now is the work of kernels or operators, or an input."""
        if _on_cpu(tensor):
            self._contents.keep(tensor)

    def complaint(self, output: torch.Tensor) -> str | None:
        """Why this output is not the work of the kernels launched; None where it is."""
        if output.untyped_storage().data_ptr() not in self._launched:
            return "no kernel of yours was given the tensor that was returned"
        if self._contents.foreign(output).any():
            return "the output was changed after your last kernel, by something that is no kernel of yours"
        return None


def tell_given(what: str, *numbers: float) -> None:
    """Tell the journal of a kernel, or an operator that fills, and the numbers that it is given."""
    sys.audit("kernelpath.given", repr((what, numbers)))


def tell_written(content: npt.NDArray[np.uint8]) -> None:
    """Tell the journal of bytes that the host wrote and a kernel is given."""
    sys.audit("kernelpath.written", hashlib.blake2b(content.tobytes(), digest_size=16).hexdigest())


def _on_cpu(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.device.type == "cpu"


def _bytes_of(storage: torch.UntypedStorage) -> npt.NDArray[np.uint8]:
    """A view of a storage on the CPU, made without PyTorch's operators, which are watched."""
    return _bytes_at(storage.data_ptr(), storage.nbytes())


def _bytes_at(address: int, nbytes: int) -> npt.NDArray[np.uint8]:
    if not nbytes:
        return np.empty(0, np.uint8)
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))


class Snapshot:
    """The functions and classes that measuring rests on, as they were before the submission was loaded."""

    def __init__(self) -> None:
        self._threads = set(threading.enumerate())
        owners: list[tuple[str, Any, Iterable[str]]] = [
            (name, sys.modules[name], attributes) for name, attributes in _WATCHED.items()
        ]
        owners += [(f"torch.{kind.__name__}", kind, vars(kind)) for kind in (torch.Tensor, torch.cuda.Event)]
        ours = [(name, sys.modules[name]) for name in sys.modules if _is_ours(name)]
        owners += [(name, module, vars(module)) for name, module in ours]
        owners += [(f"{name}.{kind.__name__}", kind, vars(kind)) for name, module in ours for kind in _classes(module)]
        self._known = [
            (name, owner, {key: vars(owner)[key] for key in keys if callable(vars(owner).get(key))})
            for name, owner, keys in owners
        ]

    def changed(self) -> str | None:
        """In words, what was replaced, or which thread was left running; None where all is as it was."""
        for name, owner, known in self._known:
            now = vars(owner)
            for attribute, value in known.items():
                if now.get(attribute) is not value:
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


def _classes(module: ModuleType) -> list[type]:
    """The classes that a module defines."""
    return [kind for kind in vars(module).values() if isinstance(kind, type) and kind.__module__ == module.__name__]


def _is_submissions(thread: threading.Thread) -> bool:
    target = getattr(thread, "_target", None)
    return not thread.daemon or SUBMISSION in (type(thread).__module__, getattr(target, "__module__", ""))


def deny(hidden: Iterable[Path], allowed: Iterable[Path]) -> None:
    """Raise Trespass when another thread than this one opens, links, moves or compiles a file below one of the folders
    `hidden` that is not below one of the paths `allowed`, hunts for our objects, or when a submission starts a program,
    which no hook would see.

    An audit hook cannot be removed, not even by the submission.
    """
    closed = tuple(str(folder.resolve()) + os.sep for folder in hidden)
    permitted = tuple(str(path.resolve()) for path in allowed)
    ours, current, real = threading.get_ident(), threading.get_ident, os.path.realpath

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if current() == ours:
            return
        if event in _FORBIDDEN_EVENTS:
            raise Trespass(f"{event} looks into the process that measures the submission")
        if event in _PROGRAM_EVENTS and _is_submissions_own_doing(sys._getframe(1)):
            raise Trespass(
                "the submission starts a program, which may do anything unseen; your kernel has to do the work"
            )
        for file in _files_of(event, arguments):
            path = real(file)
            if path.startswith(closed) and not path.startswith(permitted):
                raise Trespass(f"the submission uses {path}, which is not its own")

    sys.addaudithook(hook)


def _is_submissions_own_doing(frame: FrameType | None) -> bool:
    """Whether a submission asked for this, and no library but Python's own: a lane's compiler may start programs."""
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in sys.stdlib_module_names:
        frame = frame.f_back
    return frame is None or frame.f_globals.get("__name__") == SUBMISSION


def _files_of(event: str, arguments: tuple[Any, ...]) -> list[str]:
    """The files that an audit event is about."""
    if event == "kernelpath.compiled":
        return [_unescaped(name) for name in _COMPILED_FROM.findall(arguments[0])]
    paths = arguments[: _PATH_EVENTS.get(event, 0)]
    return [os.fsdecode(path) for path in paths if isinstance(path, (str, bytes, os.PathLike))]


def _unescaped(name: str) -> str:
    def byte(match: re.Match[bytes]) -> bytes:
        return bytes([int(match[1], 8)]) if len(match[1]) == 3 else match[1]

    return os.fsdecode(_ESCAPED.sub(byte, name.encode()))


@contextlib.contextmanager
def memory_limit(extra_bytes: int) -> Iterator[None]:
    """Let this process take at most `extra_bytes` of address space more than it has now."""
    with open("/proc/self/statm") as statm:
        taken = int(statm.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (taken + extra_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def spare_what_is_loaded() -> None:
    """Let `settle` pass over everything that is alive now: with torch loaded that saves 0.2 s a case."""
    gc.freeze()


def settle() -> None:
    """Free what the last call left, so that the next one starts from the same memory."""
    gc.collect()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
