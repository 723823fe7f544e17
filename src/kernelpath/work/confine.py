"""What a submission may reach: its own files, a limited amount of memory, no programs."""

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

SUBMISSION = "submission"
"""The name under which the worker imports a submission."""

_PATH_EVENTS = {
    **dict.fromkeys(("os.link", "os.rename", "os.symlink"), 2),
    **dict.fromkeys(("open", "os.chmod", "os.listdir", "os.remove", "os.scandir", "os.truncate", "os.utime"), 1),
}
"""How many of an audit event's arguments are files. The next one of `open` is its mode, as in "r"."""

_NETWORK_EVENTS = ("socket.bind", "socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto")
_PROGRAM_EVENTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty")
_COMPILED_FROM = re.compile(r'^\s*\.file\s+\d+\s+"([^"]+)"', re.MULTILINE)
"""Names of the sources in PTX. Source: PTX ISA, "Debugging Directives: .file"."""
_ESCAPED = re.compile(rb"\\([0-7]{3}|.)")
"""How a compiler writes a byte of such a name that is not plain ASCII: \\303\\266 is an umlaut in UTF-8."""
_ANSWERS = ("problems", "traces", "labs", "records")
"""Folders of kernelpath.course that know the right results; all but the last are packages."""
_FORBIDDEN_EVENTS = ("gc.get_objects", "gc.get_referrers", "gc.get_referents", "sys._current_frames")


_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/proc", "/sys")
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "nvidia*", "dri")


def give_up(
    source: Path, own: Path, root: Path, withheld: Sequence[Path] = (), *, profile: seccomp.Profile = "machine"
) -> int:
    """Let this process, which has one thread, reach no more than a submission needs. Returns landlock.version().

    source: the folder that it is loaded from. own: the folder that it may write to, where compilers keep their output.
    root: the checkout, which is not read as a whole though modules may be imported from it.
    withheld: folders and files of installed ones that it must not read. profile: what its libraries need of the kernel.
    """
    searched = [Path(entry).resolve() for entry in sys.path if entry]
    installed: list[str | Path] = [
        sys.prefix,
        sys.base_prefix,
        *(entry for entry in searched if not root.resolve().is_relative_to(entry)),
    ]
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    readable: list[str | Path] = [*_SYSTEM, *_compilers(), *installed, *filter(None, libraries), source]
    devices = [device for name in _DEVICES for device in Path("/dev").glob(name)]
    seccomp.restrict(profile)
    return landlock.restrict([Path(one) for one in readable], [own, *devices], withheld)


def not_held() -> tuple[str, ...]:
    """What `give_up` cannot take from a submission here, for a report to say."""
    files = () if landlock.version() else ("confinement: without Landlock it could read and write what you can",)
    calls = (
        ()
        if seccomp.known()
        else ("confinement: without a seccomp filter it could use sockets and take the whole disk at once",)
    )
    return files + calls


def _compilers() -> list[Path]:
    """Where the C compilers are installed that Triton may call for its launchers."""
    found = [shutil.which(name) for name in (os.environ.get("CC", "cc"), "gcc", "clang")]
    return [prefix for one in found if one for prefix in (Path(one).parent, Path(one).resolve().parent.parent)]


def keep_in(own: Path) -> None:
    """Let compilers, and what asks for a temporary file, write below this folder."""
    for name in ("tmp", "cuda", "triton", "torch"):
        (own / name).mkdir(parents=True, exist_ok=True)
    use_root(own / "cache")
    os.environ["TRITON_CACHE_DIR"] = str(own / "triton")
    os.environ["CUDA_CACHE_PATH"] = str(own / "cuda")
    os.environ["PYTORCH_KERNEL_CACHE_PATH"] = str(own / "torch")
    os.environ["TMPDIR"] = tempfile.tempdir = str(own / "tmp")
    os.chdir(own / "tmp")


class AccessDenied(Exception):
    """The submission reached for a file, a process or an address that is not its own. The message says which."""


class ReadyMade(Exception):
    """The submission leaves the work to a program, a library or another language. The message says to which."""


_closed: tuple[str, ...] = ()
_permitted: tuple[str, ...] = ()
"""The beginnings of the paths that a submission may not use, and of those below them that it may; `deny` sets them."""


def deny(
    hidden: Iterable[Path],
    allowed: Iterable[Path],
    answers: Iterable[Path] = (),
    language: str = "",
    ready_made: Iterable[Path] = (),
) -> None:
    """Raise AccessDenied or ReadyMade in what another thread than this one does that a submission must not.

    AccessDenied: it uses a file below one of the folders `hidden` that is not below one of the paths `allowed`, looks
    for our objects, or reaches for the network. Below `answers` this thread may open nothing either. ReadyMade: it
    uses a file of `ready_made`, starts a program, which no hook would see, or compiles a kernel of ours that is not in
    the language of the exercise. language: the one that kernels have to be written in where that is not CUDA C++.

    An audit hook cannot be removed, not even by the submission.
    """
    global _closed, _permitted
    known = tuple(str(folder.resolve()) + os.sep for folder in answers)
    closed = (*(str(folder.resolve()) + os.sep for folder in hidden), *known)
    permitted = tuple(str(path.resolve()) for path in allowed)
    solving = tuple(str(path.resolve()) + ("" if path.is_file() else os.sep) for path in ready_made)
    _closed, _permitted = closed, permitted
    ours, current, real = threading.get_ident(), threading.get_ident, os.path.realpath

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if current() == ours:
            if event == "open" and any(real(file).startswith(known) for file in _files_of(event, arguments)):
                raise AccessDenied("what knows the right results is withheld")
            return
        if event in _FORBIDDEN_EVENTS:
            raise AccessDenied(f"{event} looks into the process that measures the submission")
        if event in _NETWORK_EVENTS:
            raise AccessDenied(f"{event} reaches for the network or for another process")
        if event in _PROGRAM_EVENTS and _is_submissions_own_doing(sys._getframe(1)):
            raise ReadyMade("the submission starts a program, which could do the work unseen; your kernel has to do it")
        if language and event == "warpcheck.compiled" and arguments[1] != PRODUCT:
            raise ReadyMade(f"{arguments[1]} is a kernel in CUDA C++: this exercise is to be solved in {language}")
        for file in _files_of(event, arguments):
            path = real(file)
            if path.startswith(closed) and not path.startswith(permitted):
                raise AccessDenied(f"the submission uses {path}, which is not its own")
            if path.startswith(solving):
                raise ReadyMade(f"the submission uses {path}, which solves the exercise by itself")

    sys.addaudithook(hook)


def is_outside(path: str | Path) -> bool:
    """Return whether a path leads to a file that `deny`, or the kernel, keeps from a submission."""
    real = os.path.realpath(path)
    closed = real.startswith(_closed) and not real.startswith(_permitted)
    return closed or (os.path.lexists(real) and not _is_readable(real))


def _is_readable(path: str) -> bool:
    """Return whether this process can open a file. Landlock does not change what os.access says."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _is_submissions_own_doing(frame: FrameType | None) -> bool:
    """Whether a submission asked for this, and no library but Python's own: a lane's compiler may start programs."""
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in sys.stdlib_module_names:
        frame = frame.f_back
    return frame is None or frame.f_globals.get("__name__") == SUBMISSION


def _files_of(event: str, arguments: tuple[Any, ...]) -> list[str]:
    """The files that an audit event is about."""
    if event == "warpcheck.compiled":
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


def forget_answers(but: Collection[str] = ()) -> list[Path]:
    """Let no import find what knows the right results any more; what has imported it goes on. Returns its folders.

    but: packages that a submission works with, such as "labs".
    """
    registry.load.cache_clear()
    folders = []
    for package in (f"kernelpath.course.{name}" for name in _ANSWERS if name not in but):
        for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
            del sys.modules[name]
            parent, _, last = name.rpartition(".")
            if hasattr(sys.modules.get(parent), last):
                delattr(sys.modules[parent], last)
        folders.append(Path(course.__file__).parent / package.rpartition(".")[2])
    return [*folders, places.PACKAGE_DATA]


def forget_what_lies_in(folders: Collection[Path]) -> None:
    """Let an import find nothing of these folders and files, though this process had it loaded before."""
    paths = tuple(map(str, folders))
    below = tuple(f"{path}{os.sep}" for path in paths)
    for name, module in list(sys.modules.items()):
        file = str(getattr(module, "__file__", None) or "")
        if file in paths or file.startswith(below):
            del sys.modules[name]


def spare_what_is_loaded() -> None:
    """Let `settle` pass over everything that is alive now: with torch loaded that saves 0.2 s a case."""
    gc.freeze()


def settle() -> None:
    """Free what the last call left, so that the next one starts from the same memory."""
    gc.collect()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
