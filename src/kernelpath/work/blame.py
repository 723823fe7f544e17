"""Turns whatever a submission raised into a verdict, its cause, and the line of the learner's file."""

from __future__ import annotations

import errno
import linecache
import os
import re
import tempfile
import tokenize
import traceback
from pathlib import Path
from types import ModuleType

import torch

from kernelpath.course.errors import SolutionUnavailable
from kernelpath.device.placement import TensorOnHost
from kernelpath.files import source_text
from kernelpath.verdict import Complaint, Verdict
from kernelpath.work import quota
from kernelpath.work.confine import AccessDenied, ReadyMade, is_outside
from warpcheck import errors, simulated_gpu
from warpcheck.frontends import Unavailable, compiler_advice, cute_advice, triton_advice
from warpcheck.hooks import Changed

FAULT_VERDICTS = {
    **{kind: Verdict[kind.name] for kind in errors.FaultKind if kind.name in Verdict.__members__},
    # A missing proxy fence is missing order: to a learner that is a race.
    errors.FaultKind.UNFENCED: Verdict.RACE,
}
"""The verdict on each kind of fault that has one of its own; any other is CRASHED."""

_CHOICE = 'kp check --arch NAME, or where the exercise declares arch="NAME"'
"""What chooses the target of a grading."""

_COMPILERS = (
    "CompileError",
    "KernelNotFound",
    "CompilationError",
    "DSLRuntimeError",
    "DSLUserCodeError",
    "PTXASError",
    "UnsupportedLanguageConstruct",
)


_MOST_CAUSES = 100
_MOST_CHARACTERS = 100_000

PROJECTS: list[Path] = []
"""Folders beside the file with sources of the learner's, as they are in this process."""


def blame(error: BaseException, file: Path, loading: bool = False) -> Complaint:
    """Return the verdict on an exception that came out of the submission in `file`, or out of its kernel.

    Call it on the submission's thread: to ask an exception for its text may run the submission's code. The complaint
    is ours: plain text that can be encoded, whatever the exception's text, names and attributes are.
    """
    try:
        return _plain_complaint(_blame(error, file, loading), loading)
    except BaseException:
        verdict = Verdict.COMPILE_ERROR if loading else Verdict.CRASHED
        kind = _plain_text(_CLASS_NAME.__get__(type(error)))
        return Complaint(verdict, f"{kind}: (its text cannot be made)", str(file), _line_in(error, file))


_TRACEBACK = vars(BaseException)["__traceback__"]
_CLASS_NAME = vars(type)["__name__"]
"""Descriptors of the interpreter, which a class or its metaclass cannot override."""


def _plain_complaint(complaint: Complaint, loading: bool) -> Complaint:
    """Return a complaint of plain values. Parts of it may be attributes of an exception that the submission made."""
    verdict = complaint.verdict
    if not isinstance(verdict, Verdict) or verdict.passed:
        verdict = Verdict.COMPILE_ERROR if loading else Verdict.CRASHED
    line = complaint.line if type(complaint.line) is int and complaint.line >= 0 else 0
    return Complaint(verdict, _plain_text(complaint.cause), _plain_text(complaint.file), line)


def _plain_text(text: object) -> str:
    """Return a text of the submission's as UTF-8 can hold it; what is no text as nothing."""
    if not isinstance(text, str):
        return ""
    plain = str.__str__(text)  # without the methods of a class of the submission's
    if len(plain) > _MOST_CHARACTERS:
        plain = plain[: _MOST_CHARACTERS // 2] + plain[-_MOST_CHARACTERS // 2 :]
    return plain.encode("utf-8", "backslashreplace").decode()


def _blame(error: BaseException, file: Path, loading: bool) -> Complaint:
    line = _line_in(error, file)
    own, own_line = innermost(error, (str(file), 0))
    if loading and (complaint := _not_text(file)):
        return complaint
    if isinstance(error, NotImplementedError) and not loading:
        return Complaint(Verdict.NOT_STARTED, str(error), own, own_line)
    if isinstance(error, errors.Fault):
        verdict = FAULT_VERDICTS.get(error.kind, Verdict.CRASHED)
        return Complaint(verdict, error.message, error.file or str(file), error.line)
    if isinstance(error, errors.Rejected):
        cause = f"{error.message}{simulated_gpu.describe_choice(error.message, _CHOICE)}"
        return Complaint(Verdict.COMPILE_ERROR, cause, error.file or str(file), error.line)
    if isinstance(error, errors.TimedOut):
        verdict = Verdict.DEADLOCK if isinstance(error, errors.Deadlock) else Verdict.TIMED_OUT
        return Complaint(verdict, error.message, error.file or str(file), error.line)
    if isinstance(error, TensorOnHost):
        return Complaint(Verdict.CRASHED, str(error), str(file), error.line or line)
    if isinstance(error, (Unavailable, SolutionUnavailable, Changed, errors.Unsupported)):
        return Complaint(Verdict.UNAVAILABLE, str(error), str(file), line)
    if "Failed to find C compiler" in str(error):
        return Complaint(Verdict.UNAVAILABLE, "Triton needs a C compiler for its launchers, and there is none")
    if isinstance(error, NotTheSubmission):
        return Complaint(Verdict.UNAVAILABLE, str(error))
    if isinstance(error, WrongType):
        return Complaint(Verdict.WRONG_TYPE, str(error), str(file))
    if isinstance(error, Refused):
        return Complaint(error.verdict, str(error), str(file), line)
    if isinstance(error, WrongOperator):
        return Complaint(Verdict.WRONG_OPERATOR, str(error), error.file or str(file), error.line or line)
    if isinstance(error, ReadyMade):
        return Complaint(Verdict.NOT_YOUR_KERNEL, str(error), str(file), line)
    if isinstance(error, AccessDenied):
        return Complaint(Verdict.ACCESS_DENIED, str(error), own, own_line)
    if refused := _refused_by_the_system(error):
        return Complaint(Verdict.ACCESS_DENIED, refused, own, own_line)
    if isinstance(error, SyntaxError):
        where = error.filename or str(file)
        return Complaint(Verdict.COMPILE_ERROR, f"SyntaxError: {error.msg}", where, error.lineno or 0)
    if type(error).__name__ in _COMPILERS or "Unsupported function referenced" in str(error):
        return _compiler_said(error, file, line)
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate" in str(error):
        return Complaint(Verdict.CRASHED, f"out of memory: {_first_line(error)}", str(file), line)
    if isinstance(error, OSError) and error.errno == errno.EFBIG:
        most = f"{quota.FILE_SIZE >> 20} MiB"
        return Complaint(Verdict.CRASHED, f"printed, or wrote to a file, more than {most}", str(file), line)
    verdict = Verdict.COMPILE_ERROR if loading or isinstance(error, EntryError) else Verdict.CRASHED
    if isinstance(error, EntryError):
        return Complaint(verdict, str(error), error.file or str(file), line)
    return Complaint(verdict, _python_said(error, Path(own), own_line), own, own_line)


class NotTheSubmission(Exception):
    """A contestant of ours failed in a measurement. The message says which."""


class WrongType(Exception):
    """The entry returned something other than plain tensors with memory of their own."""


class WrongOperator(Exception):
    """What is registered is not what autograd and torch.compile need. The message says what to change.

    file and line: where, if it is not the submission's file.
    """

    def __init__(self, cause: str, file: str = "", line: int = 0) -> None:
        super().__init__(cause)
        self.file, self.line = file, line


class Refused(Exception):
    """What a submission consists of breaks a rule of its kind. The message says which."""

    def __init__(self, verdict: Verdict, cause: str) -> None:
        super().__init__(cause)
        self.verdict = verdict


class EntryError(Exception):
    """The submission does not define the entry, or not with the arguments that the exercise gives it.

    file: where to change something, if it is not the submission's file.
    """

    def __init__(self, cause: str, file: str = "") -> None:
        super().__init__(cause)
        self.file = file


def _refused_by_the_system(error: BaseException) -> str:
    """Return what Landlock or seccomp kept the submission from; nothing for another error.

    A library may have made a RuntimeError of it. Of the submission's own files the permissions are its own affair.
    """
    if isinstance(error, PermissionError):
        names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, (str, bytes))]
        own = Path(tempfile.gettempdir())
        if names and all(Path(name).absolute().is_relative_to(own) for name in names):
            return ""
        if names:
            return f"the submission uses {' and '.join(names)}, which is not its own"
        return f"{error.strerror or 'permission denied'}: the submission reaches for another process or the network"
    if isinstance(error, (OSError, RuntimeError)) and "ermission denied" in str(error):
        return f"the submission uses what is not its own: {_first_line(error)}"
    return ""


_NOT_OPENED = re.compile(r'(?:cannot|could not) open source file "([^"\n]+)"')


def _included_from_outside(log: str) -> str:
    """Return the file that a compiler was to include and could not open, where it is there but not the submission's."""
    return next((name for name in _NOT_OPENED.findall(log) if os.path.isabs(name) and is_outside(name)), "")


def _compiler_said(error: BaseException, file: Path, line: int) -> Complaint:
    log = _plain(str(error).strip(), file)
    if outside := _included_from_outside(log):
        cause = f"the submission includes {outside}, which is not its own"
        return Complaint(Verdict.ACCESS_DENIED, cause, str(file), _line_below(error, file) or line)
    kernels = {path.name: source_text(path) for path in (file, file.with_suffix(".cu")) if path.is_file()}
    if said := compiler_advice.nvrtc(log, kernels):
        return Complaint(Verdict.COMPILE_ERROR, said[0], str(file.with_name(Path(said[1]).name)), said[2])
    if located := triton_advice.locate(error, kernels.get(file.name, "")) or cute_advice.said(log):
        where = located[1] or _line_below(error, file) or line
        return Complaint(Verdict.COMPILE_ERROR, located[0], str(file), where)
    return Complaint(Verdict.COMPILE_ERROR, log + _like(error), str(file), _line_below(error, file) or line)


def _plain(text: str, file: Path) -> str:
    """Without colors, and without the folder of the copy that is graded, which no learner knows."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text).replace(f"{file.parent}/", "")


def _line_below(error: BaseException, file: Path) -> int:
    """The innermost line of the learner's file on the way to what made a compiler raise the error."""
    lines = [_line_in(cause, file) for cause in _causes(error)]
    return next((line for line in reversed(lines) if line), 0)


def _causes(error: BaseException) -> list[BaseException]:
    """Return what made an error be raised, from the latest to the first. A submission can make a circle of them."""
    causes: list[BaseException] = []
    cause = error.__cause__ or error.__context__
    while cause is not None and len(causes) < _MOST_CAUSES:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    return causes


def _like(error: BaseException) -> str:
    """What may have been meant by an attribute that is not there."""
    cause = next((one for one in (error, *_causes(error)) if isinstance(one, AttributeError)), None)
    owner = getattr(cause, "obj", None)
    name = cause.name if cause else None
    if owner is None or name is None:
        return ""
    inner = [
        key
        for key, value in getattr(owner, "__dict__", {}).items()
        if isinstance(value, ModuleType) and hasattr(value, name)
    ]
    if isinstance(owner, ModuleType) and inner:
        return f"; did you mean {inner[0]}.{name}?"
    return triton_advice.alike(name, dir(owner))


_NO_GPU = "there is no GPU here, and tensors are on the CPU: take the device from an input, as torch.empty_like(x) does"


def _python_said(error: BaseException, file: Path, line: int) -> str:
    """The exception in one line, with what to do; of an assertion that says nothing, what is asserted."""
    source = _source_line(file, line)
    if launch := triton_advice.at_launch(error, "".join(linecache.getlines(str(file))), line):
        return launch
    said = source if isinstance(error, AssertionError) and not str(error) else _plain(_first_line(error), file)
    asks_for_gpu = re.search(r"not compiled with CUDA|No CUDA GPUs are available|Found no NVIDIA driver", said)
    if asks_for_gpu or (isinstance(error, AssertionError) and re.search(r"\bis_cuda\b|cuda['\"]", source)):
        said += f"; {_NO_GPU}"
    elif isinstance(error, NameError) and error.name in compiler_advice.BUILT_IN:
        said += "; only a kernel has it, and this is the launch, which runs once"
    elif isinstance(error, AttributeError):
        said += _like(error)
    elif type(error).__name__ == "DSLCudaRuntimeError":
        said = f"{said.strip()}; lane.run(host, x, out) calls a host function of CuTe DSL, with a GPU and without"
    return f"{type(error).__name__}: {said or '(no message)'}"


def _source_line(file: Path, line: int) -> str:
    return linecache.getline(str(file), line).strip()


def _not_text(file: Path) -> Complaint | None:
    """About a byte that is invalid in the encoding of a file, which is UTF-8 where the file names none."""
    try:
        with tokenize.open(file) as source:
            source.read()
    except UnicodeDecodeError as error:
        content = file.read_bytes()
        number = next(at for at, line in enumerate(content.split(b"\n"), 1) if not _is_text(line, error.encoding))
        cause = f"line {number} is not {error.encoding.upper()}: save the file as UTF-8"
        return Complaint(Verdict.COMPILE_ERROR, cause, str(file), number)
    except (SyntaxError, OSError):
        return None
    return None


def _is_text(line: bytes, encoding: str) -> bool:
    try:
        line.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _line_in(error: BaseException, file: Path) -> int:
    """The innermost line of the learner's file on the way to the error; 0 if it is not on the way."""
    lines = [line for name, line in _frames(error) if Path(name) == file]
    return lines[-1] if lines else 0


def _frames(error: BaseException) -> list[tuple[str, int]]:
    """Return the file and the line of each frame on the way to an error.

    traceback.extract_tb would read these files for their lines, and a submission chooses their names: /dev/zero.
    """
    stack = traceback.walk_tb(_TRACEBACK.__get__(error))
    return [(frame.f_code.co_filename, line or 0) for frame, line in stack]


def innermost(error: BaseException, otherwise: tuple[str, int]) -> tuple[str, int]:
    """The innermost place on the way to an error, in the file of `otherwise` or in a project: its file and its line."""
    folders = [Path(otherwise[0]), *PROJECTS]
    own = [frame for frame in _frames(error) if any(Path(frame[0]).is_relative_to(folder) for folder in folders)]
    return own[-1] if own else otherwise


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else "(no message)"
