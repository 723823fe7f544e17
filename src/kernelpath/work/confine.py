"""Confine a submission to its own files, a limited amount of memory, and no programs of its own."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import resource
import shutil
import sys
import tempfile
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from kernelpath import course
from kernelpath.course import places, registry
from kernelpath.work import landlock, seccomp
from kernelpath.work.messages import PRODUCT
from warpcheck.cache import use_root

# The name under which the worker imports a submission.
SUBMISSION = "submission"

# The number of leading arguments of an audit event that are paths.
_PATH_EVENTS = {
    **dict.fromkeys(("os.link", "os.rename", "os.symlink"), 2),
    **dict.fromkeys(("open", "os.chmod", "os.listdir", "os.remove", "os.scandir", "os.truncate", "os.utime"), 1),
}

_NETWORK_EVENTS = ("socket.bind", "socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto")
_PROGRAM_EVENTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty")

# Matches the names of the sources in PTX. Source: PTX ISA, "Debugging Directives: .file".
_COMPILED_FROM = re.compile(r'^\s*\.file\s+\d+\s+"([^"]+)"', re.MULTILINE)

# Matches a byte of such a name that a compiler escapes because it is not plain ASCII.
#
# For example, \303\266 is an umlaut in UTF-8.
_ESCAPED = re.compile(rb"\\([0-7]{3}|.)")

# Folders of kernelpath.course that hold the right results. All but the last are packages.
_ANSWERS = ("problems", "traces", "labs", "records")

# Calls by which code finds objects and frames of other threads. The frame of `_Worker.respond` holds the secret.
_FORBIDDEN_EVENTS = ("gc.get_objects", "gc.get_referrers", "gc.get_referents", "sys._current_frames")


_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/proc", "/sys")
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "nvidia*", "dri")


def restrict_process(
    source: Path,
    writable: Path,
    root: Path,
    hidden_modules: Sequence[Path] = (),
    *,
    profile: seccomp.Profile = "machine",
) -> int:
    """Let this process, which has a single thread, reach no more than a submission needs.

    Args:
        source: The folder that the submission is loaded from.
        writable: The folder that it may write to, where compilers keep their output.
        root: The checkout. It is not readable as a whole, though modules may be imported from it.
        hidden_modules: Folders and files of installed modules that the submission must not read.
        profile: The system calls that its libraries need.

    Returns:
        The version of Landlock that holds the process; 0 for none.
    """
    import_folders = [Path(entry).resolve() for entry in sys.path if entry]
    # An import path that contains the checkout is left out: the solutions are below it.
    installed: list[str | Path] = [
        sys.prefix,
        sys.base_prefix,
        *(entry for entry in import_folders if not root.resolve().is_relative_to(entry)),
    ]
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    readable: list[str | Path] = [*_SYSTEM, *_compilers(), *installed, *filter(None, libraries), source]
    devices = [device for name in _DEVICES for device in Path("/dev").glob(name)]
    # Both restrict this thread and everything that it starts from now on, but no other thread that exists already. So
    # the thread for the submission is started afterwards.
    seccomp.restrict(profile)
    return landlock.restrict([Path(path) for path in readable], [writable, *devices], hidden_modules)


def missing_protections() -> tuple[str, ...]:
    """Return the protections that this kernel lacks, as sentences for a report."""
    files = (
        () if landlock.version() else ("confinement: without Landlock it could read and write every file that you can",)
    )
    calls = (
        ()
        if seccomp.is_supported()
        else ("confinement: without a seccomp filter it could use sockets and take the whole disk at once",)
    )
    return files + calls


def _compilers() -> list[Path]:
    """Return the folders of the C compilers that Triton may call for its launchers."""
    programs = [shutil.which(name) for name in (os.environ.get("CC", "cc"), "gcc", "clang")]
    return [
        prefix
        for program in programs
        if program
        # The program on the PATH is often a link. Its headers and libraries are where the link leads.
        for prefix in (Path(program).parent, Path(program).resolve().parent.parent)
    ]


def use_private_folders(folder: Path) -> None:
    """Make compilers, and code that makes temporary files, write below this folder."""
    for name in ("tmp", "cuda", "triton", "torch"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    # A cache that submissions shared would also hold the binaries of reference kernels.
    use_root(folder / "cache")
    os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")
    os.environ["CUDA_CACHE_PATH"] = str(folder / "cuda")
    os.environ["PYTORCH_KERNEL_CACHE_PATH"] = str(folder / "torch")
    # tempfile reads TMPDIR once and keeps the result in `tempdir`, so both are set.
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder / "tmp")
    # The inherited current folder is the user's. Relative paths must lead to the submission's own files.
    os.chdir(folder / "tmp")


class AccessDenied(Exception):
    """The submission used a file, a process or an address that is not its own. The message names it."""


class ReadyMadeWork(Exception):
    """The submission left the work to a program, a library or another language. The message names it."""


_closed: tuple[str, ...] = ()

# Prefixes of the paths that a submission may not use, and of the paths below them that it may use.
#
# `install_audit_hook` sets both.
_permitted: tuple[str, ...] = ()


def install_audit_hook(
    hidden: Iterable[Path],
    allowed: Iterable[Path],
    answers: Iterable[Path] = (),
    language: str = "",
    ready_made: Iterable[Path] = (),
) -> None:
    """Raise AccessDenied or ReadyMadeWork where any thread but this one does what a submission must not do.

    An audit hook cannot be removed, not even by the submission. Raising in the hook makes the audited operation fail.

    AccessDenied is raised where the submission uses a file below `hidden` that is not below `allowed`, searches for the
    grader's objects, or uses the network. ReadyMadeWork is raised where it uses a file of `ready_made`, starts a
    program, which no hook would see, or compiles a kernel in another language than the exercise's.

    Args:
        hidden: Folders whose files the submission must not use.
        allowed: Paths below the hidden folders that it may use.
        answers: Folders with the right results, in which this thread may open nothing either.
        language: The language that kernels must be written in where that is not CUDA C++.
        ready_made: Files and folders that solve the exercise.
    """
    global _closed, _permitted
    answer_prefixes = tuple(str(folder.resolve()) + os.sep for folder in answers)
    hidden_prefixes = (*(str(folder.resolve()) + os.sep for folder in hidden), *answer_prefixes)
    allowed_prefixes = tuple(str(path.resolve()) for path in allowed)
    ready_made_prefixes = tuple(str(path.resolve()) + ("" if path.is_file() else os.sep) for path in ready_made)
    _closed = hidden_prefixes
    _permitted = allowed_prefixes
    # References from before the submission is loaded: it may replace these functions, but not what the hook calls.
    grader_thread = threading.get_ident()
    get_thread_id = threading.get_ident
    real_path = os.path.realpath

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        # Code of the submission may run on the grader's thread as well: a destructor, or a callback of the garbage
        # collector.
        if get_thread_id() == grader_thread:
            if event == "open" and any(
                real_path(file).startswith(answer_prefixes) for file in _files_of(event, arguments)
            ):
                raise AccessDenied("modules that know the right results are withheld")
            return
        if event in _FORBIDDEN_EVENTS:
            raise AccessDenied(f"{event} looks into the process that measures the submission")
        if event in _NETWORK_EVENTS:
            raise AccessDenied(f"{event} accesses the network or another process")
        # Frame 0 is this hook, and 1 is the code whose operation is audited.
        if event in _PROGRAM_EVENTS and _is_submissions_own_doing(sys._getframe(1)):
            raise ReadyMadeWork(
                "the submission starts a program, which could do the work unseen; your kernel has to do it"
            )
        if language and event == "warpcheck.compiled" and arguments[1] != PRODUCT:
            raise ReadyMadeWork(f"{arguments[1]} is a kernel in CUDA C++: solve this exercise in {language}")
        for file in _files_of(event, arguments):
            # A link in the submission's folder may lead to a hidden file, so the prefix of the real path decides.
            path = real_path(file)
            if path.startswith(hidden_prefixes) and not path.startswith(allowed_prefixes):
                raise AccessDenied(f"the submission uses {path}, which is not its own")
            if path.startswith(ready_made_prefixes):
                raise ReadyMadeWork(f"the submission uses {path}, which solves the exercise by itself")

    sys.addaudithook(hook)


def submission_line(frame: FrameType | None) -> int:
    """Return the innermost line of the submission's module on the stack of this frame; 0 where there is none."""
    while frame is not None and frame.f_globals.get("__name__") != SUBMISSION:
        frame = frame.f_back
    return frame.f_lineno if frame is not None else 0


def is_forbidden(path: str | Path) -> bool:
    """Return whether a path leads to a file that the audit hook, or the kernel, denies to a submission."""
    real = os.path.realpath(path)
    closed = real.startswith(_closed) and not real.startswith(_permitted)
    return closed or (os.path.lexists(real) and not _is_readable(real))


def _is_readable(path: str) -> bool:
    """Return whether this process can open a file. os.access does not know of Landlock, so the file is opened."""
    try:
        # Without O_NONBLOCK, opening a named pipe would wait for a writer: fifo(7).
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _is_submissions_own_doing(frame: FrameType | None) -> bool:
    """Return whether the submission itself caused an event, with no frames but Python's standard library between.

    A lane's compiler may start programs, so an event under a library's frame is allowed.
    """
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in sys.stdlib_module_names:
        frame = frame.f_back
    # Without any other frame, a thread runs a function of the standard library directly, such as os.system.
    return frame is None or frame.f_globals.get("__name__") == SUBMISSION


def _files_of(event: str, arguments: tuple[Any, ...]) -> list[str]:
    """Return the paths that an audit event is about."""
    if event == "warpcheck.compiled":
        return [_unescaped(name) for name in _COMPILED_FROM.findall(arguments[0])]
    # A descriptor in place of a path is a file that was already opened, and checked then.
    paths = arguments[: _PATH_EVENTS.get(event, 0)]
    return [os.fsdecode(path) for path in paths if isinstance(path, (str, bytes, os.PathLike))]


def _unescaped(name: str) -> str:
    """Return the name of a source with its escaped bytes decoded."""

    def byte(match: re.Match[bytes]) -> bytes:
        return bytes([int(match[1], 8)]) if len(match[1]) == 3 else match[1]

    return os.fsdecode(_ESCAPED.sub(byte, name.encode()))


@contextlib.contextmanager
def memory_limit(extra_bytes: int) -> Iterator[None]:
    """Limit this process to `extra_bytes` more address space than it has now, inside the `with` block."""
    with open("/proc/self/statm") as statm:
        # The first number is the size of the address space in pages: proc(5). RLIMIT_AS counts the same.
        current_bytes = int(statm.read().split()[0]) * resource.getpagesize()
    previous_limits = resource.getrlimit(resource.RLIMIT_AS)
    # Only the soft limit changes: no unprivileged process can raise a hard limit again, see getrlimit(2). Where the
    # submission raises the soft limit, the limits of `quota.limit` still hold.
    resource.setrlimit(resource.RLIMIT_AS, (current_bytes + extra_bytes, previous_limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, previous_limits)


def unload_answers(keep: Collection[str] = ()) -> list[Path]:
    """Unload every module that holds right results, so that no import can find one. Return their folders.

    Modules that have imported these keep working. `keep` names packages that a submission works with, such as "labs".
    """
    # The cache holds declarations, whose references compute the right results.
    registry.load.cache_clear()
    folders = []
    for package in (f"kernelpath.course.{name}" for name in _ANSWERS if name not in keep):
        for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
            del sys.modules[name]
            # `from package import module` finds an attribute of the package even where sys.modules has no such module.
            parent, _, last = name.rpartition(".")
            if hasattr(sys.modules.get(parent), last):
                delattr(sys.modules[parent], last)
        folders.append(Path(course.__file__).parent / package.rpartition(".")[2])
    return [*folders, places.PACKAGE_DATA]


def unload_modules_in(folders: Collection[Path]) -> None:
    """Unload the modules that were loaded from these folders and files."""
    paths = tuple(map(str, folders))
    below = tuple(f"{path}{os.sep}" for path in paths)
    for name, module in list(sys.modules.items()):
        file = str(getattr(module, "__file__", None) or "")
        if file in paths or file.startswith(below):
            del sys.modules[name]


def freeze_loaded_objects() -> None:
    """Exclude all living objects from future collections. With torch loaded, that saves 0.2 s a case."""
    gc.freeze()


def release_leftovers() -> None:
    """Free what the last call left, so that the next call starts with the same memory."""
    # Destructors of the submission run now and not in the next call, whose time and memory they would change.
    gc.collect()
    # Launches are asynchronous: an illegal address of this call is reported here, and not in the next call.
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
