"""Turns whatever a submission raised into a verdict, its cause, and the line of the learner's file."""

from __future__ import annotations

import errno
import re
import traceback
from pathlib import Path

import torch

from kernelpath.course.errors import Withheld
from kernelpath.lanes import Unavailable, triton
from kernelpath.simt import errors
from kernelpath.verdict import Complaint, Verdict
from kernelpath.work import forkserver
from kernelpath.work.confine import Trespass

_FAULTS = {kind: Verdict[kind.name] for kind in errors.FaultKind if kind.name in Verdict.__members__}
_COMPILERS = ("CompileError", "KernelNotFound", "CompilationError", "DSLRuntimeError", "DSLUserCodeError", "PTXASError")
_NVRTC_ERROR = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): (?:catastrophic )?error:? (?P<text>.*)", re.MULTILINE)


def blame(error: BaseException, file: Path, loading: bool = False) -> Complaint:
    """The verdict on an exception that came out of the submission in `file`, or out of its kernel."""
    line = _line_in(error, file)
    if isinstance(error, NotImplementedError) and not loading:
        return Complaint(Verdict.NOT_STARTED, str(error), str(file), line)
    if isinstance(error, errors.Fault):
        verdict = _FAULTS.get(error.kind, Verdict.CRASHED)
        return Complaint(verdict, error.message, error.file or str(file), error.line)
    if isinstance(error, errors.TimedOut):
        cause = f"still running after {error.instructions:,} instructions: a loop that does not end?"
        return Complaint(Verdict.TIMED_OUT, cause, error.file or str(file), error.line)
    if isinstance(error, (Unavailable, Withheld, errors.Unsupported)):
        return Complaint(Verdict.UNAVAILABLE, str(error), str(file), line)
    if "Failed to find C compiler" in str(error):
        return Complaint(Verdict.UNAVAILABLE, "Triton needs a C compiler for its launchers, and there is none")
    if isinstance(error, NotTheSubmission):
        return Complaint(Verdict.UNAVAILABLE, str(error))
    if isinstance(error, WrongType):
        return Complaint(Verdict.WRONG_TYPE, str(error), str(file))
    if isinstance(error, Trespass):
        return Complaint(Verdict.NOT_YOUR_KERNEL, str(error), str(file), line)
    if isinstance(error, SyntaxError):
        where = error.filename or str(file)
        return Complaint(Verdict.COMPILE_ERROR, f"SyntaxError: {error.msg}", where, error.lineno or 0)
    if type(error).__name__ in _COMPILERS:
        return _compiler_said(error, file, line)
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate" in str(error):
        return Complaint(Verdict.CRASHED, f"out of memory: {_first_line(error)}", str(file), line)
    if isinstance(error, OSError) and error.errno == errno.EFBIG:
        most = f"{forkserver.FILE_SIZE >> 20} MiB"
        return Complaint(Verdict.CRASHED, f"printed, or wrote to a file, more than {most}", str(file), line)
    verdict = Verdict.COMPILE_ERROR if loading or isinstance(error, EntryError) else Verdict.CRASHED
    cause = str(error) if isinstance(error, EntryError) else f"{type(error).__name__}: {_first_line(error)}"
    return Complaint(verdict, cause, str(file), line)


class NotTheSubmission(Exception):
    """A contestant of ours failed in a measurement. The message says which."""


class WrongType(Exception):
    """The entry returned something else than plain tensors with memory of their own."""


class EntryError(Exception):
    """The submission does not define the entry, or not with the arguments that the exercise gives it."""


def _compiler_said(error: BaseException, file: Path, line: int) -> Complaint:
    log = str(error).strip()
    if found := _NVRTC_ERROR.search(log):
        source = file.with_name(Path(found["file"]).name)
        return Complaint(Verdict.COMPILE_ERROR, found["text"], str(source), int(found["line"]))
    text, line = triton.locate(error, file.read_text(encoding="utf-8")) or (log, line)
    return Complaint(Verdict.COMPILE_ERROR, text, str(file), line)


def _line_in(error: BaseException, file: Path) -> int:
    """The innermost line of the learner's file on the way to the error; 0 if it is not on the way."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == file]
    return (frames[-1].lineno or 0) if frames else 0


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else "(no message)"
