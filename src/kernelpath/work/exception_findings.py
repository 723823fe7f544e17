"""Turn an exception of a submission into a finding: the verdict, its cause, and the line of the learner's file."""

from __future__ import annotations

import errno
import linecache
import os
import re
import tempfile
import tokenize
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import torch

from kernelpath.course.errors import SolutionUnavailable
from kernelpath.device.placement import TensorOnHost
from kernelpath.files import source_named, source_text
from kernelpath.verdict import Finding, Verdict
from kernelpath.work import quota
from kernelpath.work.confine import AccessDenied, ReadyMadeWork, is_forbidden
from warpcheck import errors, simulated_gpu
from warpcheck.frontends import Unavailable, compiler_advice, cute_advice, triton_advice
from warpcheck.frontends.host_program_errors import HostProgramError
from warpcheck.frontends.shared_arrays import name_shared_element
from warpcheck.hooks import Changed

# The verdict on each kind of fault that has its own verdict. Any other is CRASHED.
FAULT_VERDICTS = {
    **{kind: Verdict[kind.name] for kind in errors.FaultKind if kind.name in Verdict.__members__},
    # Without the proxy fence nothing orders the two accesses, which is a race.
    errors.FaultKind.UNFENCED: Verdict.RACE,
}

# How a learner chooses the target of a grading.
_TARGET_ADVICE = 'kp check --arch NAME, or where the exercise declares arch="NAME"'

# The verdict on what is wrong with a host program. Any other problem is WRONG_VALUES.
_PROGRAM_VERDICTS: Mapping[str, Verdict] = {
    "not started": Verdict.NOT_STARTED,
    "invalid call": Verdict.CRASHED,
    "call failed": Verdict.CRASHED,
    "uninitialized": Verdict.UNINITIALIZED,
}

# Names of the exceptions that compilers raise.
_COMPILER_ERRORS = (
    "CompileError",
    "KernelNotFound",
    "CompilationError",
    "DSLRuntimeError",
    "DSLUserCodeError",
    "PTXASError",
    "UnsupportedLanguageConstruct",
)


_MOST_CAUSES = 100
_MOST_PTXAS_ERRORS = 3
_MOST_CHARACTERS = 100_000

# The largest line number of a line table. A greater number may not fit into a message.
_MAX_LINE = (1 << 32) - 1

# Folders with sources of the learner's besides the submission's folder, as this process sees them.
PROJECTS: list[Path] = []


def classify_exception(error: BaseException, file: Path, loading: bool = False) -> Finding:
    """Return the finding about an exception that the submission in `file`, or its kernel, raised.

    Call this on the submission's thread, since the text of an exception may be computed by the submission's code. The
    finding consists of plain text that can be encoded, whatever the exception's text, names and attributes are.
    """
    try:
        return _plain_finding(_classify(error, file, loading), loading)
    except BaseException:
        verdict = Verdict.COMPILE_ERROR if loading else Verdict.CRASHED
        class_name = _plain_text(_CLASS_NAME.__get__(type(error)))
        return Finding(verdict, f"{class_name}: (its text cannot be made)", str(file), _line_in(error, file))


_TRACEBACK = vars(BaseException)["__traceback__"]

# Descriptors of the interpreter. A class or its metaclass can override the attributes, but not these.
_CLASS_NAME = vars(type)["__name__"]


def _plain_finding(finding: Finding, loading: bool) -> Finding:
    """Return a finding with plain values. Parts of it may be attributes of an exception that the submission made."""
    verdict = finding.verdict
    if not isinstance(verdict, Verdict) or verdict.passed:
        verdict = Verdict.COMPILE_ERROR if loading else Verdict.CRASHED
    line = finding.line if type(finding.line) is int and 0 <= finding.line <= _MAX_LINE else 0
    return Finding(verdict, _plain_text(finding.cause), _plain_text(finding.file), line)


def _plain_text(text: object) -> str:
    """Return a text of the submission as UTF-8 can encode it; an empty text where it is not a string."""
    if not isinstance(text, str):
        return ""
    plain = str.__str__(text)  # a subclass of the submission's could override its methods
    if len(plain) > _MOST_CHARACTERS:
        plain = plain[: _MOST_CHARACTERS // 2] + plain[-_MOST_CHARACTERS // 2 :]
    return plain.encode("utf-8", "backslashreplace").decode()


def _classify(error: BaseException, file: Path, loading: bool) -> Finding:
    line = _line_in(error, file)
    innermost_file, innermost_line = innermost(error, (str(file), 0))
    if loading and (finding := _encoding_finding(file)):
        return finding
    if isinstance(error, NotImplementedError) and not loading:
        return Finding(Verdict.NOT_STARTED, str(error), innermost_file, innermost_line)
    if isinstance(error, errors.Fault):
        verdict = FAULT_VERDICTS.get(error.kind, Verdict.CRASHED)
        cause = explain_fault(error.message, file, error.file, error.line)
        return Finding(verdict, cause, error.file or str(file), error.line)
    if isinstance(error, HostProgramError):
        verdict = _PROGRAM_VERDICTS.get(error.problem, Verdict.WRONG_VALUES)
        return Finding(verdict, error.message, error.file if error.line else str(file), error.line or line)
    if isinstance(error, errors.Rejected):
        cause = f"{error.message}{simulated_gpu.describe_choice(error.message, _TARGET_ADVICE)}"
        return Finding(Verdict.COMPILE_ERROR, cause, error.file or str(file), error.line)
    if isinstance(error, errors.TimedOut):
        verdict = Verdict.DEADLOCK if isinstance(error, errors.Deadlock) else Verdict.TIMED_OUT
        return Finding(verdict, error.message, error.file or str(file), error.line)
    if isinstance(error, TensorOnHost):
        return Finding(Verdict.CRASHED, str(error), str(file), error.line or line)
    if isinstance(error, (Unavailable, SolutionUnavailable, Changed, errors.Unsupported)):
        return Finding(Verdict.UNAVAILABLE, str(error), str(file), line)
    # Triton raises a plain RuntimeError.
    if "Failed to find C compiler" in str(error):
        return Finding(Verdict.UNAVAILABLE, "Triton needs a C compiler for its launchers, and there is none")
    if isinstance(error, BaselineFailed):
        return Finding(Verdict.UNAVAILABLE, str(error))
    if isinstance(error, WrongType):
        return Finding(Verdict.WRONG_TYPE, str(error), str(file))
    if isinstance(error, RuleViolation):
        return Finding(error.verdict, str(error), str(file), line)
    if isinstance(error, WrongOperator):
        return Finding(Verdict.WRONG_OPERATOR, str(error), error.file or str(file), error.line or line)
    if isinstance(error, ReadyMadeWork):
        return Finding(Verdict.NOT_YOUR_KERNEL, str(error), str(file), line)
    if isinstance(error, AccessDenied):
        return Finding(Verdict.ACCESS_DENIED, str(error), innermost_file, innermost_line)
    if denial := _describe_denial(error):
        return Finding(Verdict.ACCESS_DENIED, denial, innermost_file, innermost_line)
    if isinstance(error, SyntaxError):
        error_file = error.filename or str(file)
        return Finding(Verdict.COMPILE_ERROR, f"SyntaxError: {error.msg}", error_file, error.lineno or 0)
    if type(error).__name__ in _COMPILER_ERRORS or "Unsupported function referenced" in str(error):
        return _compiler_finding(error, file, line)
    # torch reports exhausted memory of the host by a RuntimeError: "DefaultCPUAllocator: can't allocate memory".
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate" in str(error):
        return Finding(Verdict.CRASHED, f"out of memory: {_first_line(error)}", str(file), line)
    if isinstance(error, OSError) and error.errno == errno.EFBIG:
        limit_text = f"{quota.FILE_SIZE >> 20} MiB"
        return Finding(Verdict.CRASHED, f"printed, or wrote to a file, more than {limit_text}", str(file), line)
    verdict = Verdict.COMPILE_ERROR if loading or isinstance(error, EntryError) else Verdict.CRASHED
    if isinstance(error, EntryError):
        return Finding(verdict, str(error), error.file or str(file), line)
    return Finding(
        verdict, _describe_python_error(error, Path(innermost_file), innermost_line), innermost_file, innermost_line
    )


def explain_fault(message: str, submission: Path, file: str, line: int) -> str:
    """Return the PTX machine's message about a fault in the words of the source, as far as the source can be read.

    Args:
        message: The message.
        submission: The submission's Python file.
        file: The name or path of the file with the kernel.
        line: The line of the access.
    """
    with suppress(Exception):  # where Python or our parser cannot read the source, only the explanation is lost
        path = source_named(submission, Path(file).name)
        if file and path.is_file():
            explain = name_shared_element if path.suffix == ".cu" else triton_advice.explain_out_of_bounds
            return explain(message, source_text(path), line)
    return message


class BaselineFailed(Exception):
    """A baseline or reference kernel failed in a measurement. The message says which."""


class WrongType(Exception):
    """The entry returned something other than plain tensors with memory of their own."""


class WrongOperator(Exception):
    """A registered operator lacks what autograd and torch.compile need. The message says what to change.

    Attributes:
        file: The file to change, if it is not the submission's.
        line: The line to change.
    """

    def __init__(self, cause: str, file: str = "", line: int = 0) -> None:
        super().__init__(cause)
        self.file = file
        self.line = line


class RuleViolation(Exception):
    """The submission, or what its entry returns, breaks a rule of its kind of exercise. The message says which."""

    def __init__(self, verdict: Verdict, cause: str) -> None:
        super().__init__(cause)
        self.verdict = verdict


class EntryError(Exception):
    """The submission does not define the entry, or defines it with other parameters than the exercise's arguments.

    Attributes:
        file: The file to change, if it is not the submission's.
    """

    def __init__(self, cause: str, file: str = "") -> None:
        super().__init__(cause)
        self.file = file


def _describe_denial(error: BaseException) -> str:
    """Describe what Landlock or seccomp denied to the submission; empty for another error.

    A library may have turned the error into a RuntimeError. Permissions of the submission's own files are its own
    affair.
    """
    if isinstance(error, PermissionError):
        names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, (str, bytes))]
        own_folder = Path(tempfile.gettempdir())
        if names and all(Path(name).absolute().is_relative_to(own_folder) for name in names):
            return ""
        if names:
            return f"the submission uses {' and '.join(names)}, which is not its own"
        return f"{error.strerror or 'permission denied'}: the submission accesses another process or the network"
    if isinstance(error, (OSError, RuntimeError)) and "ermission denied" in str(error):
        return f"the submission uses files that are not its own: {_first_line(error)}"
    return ""


_NOT_OPENED = re.compile(r'(?:cannot|could not) open source file "([^"\n]+)"')


def _included_from_outside(log: str) -> str:
    """Return the file that a compiler could not include because it exists but is not the submission's; else ""."""
    return next((name for name in _NOT_OPENED.findall(log) if os.path.isabs(name) and is_forbidden(name)), "")


def _compiler_finding(error: BaseException, file: Path, line: int) -> Finding:
    log = _clean_log(str(error).strip(), file)
    if outside := _included_from_outside(log):
        cause = f"the submission includes {outside}, which is not its own"
        return Finding(Verdict.ACCESS_DENIED, cause, str(file), _line_of_causes(error, file) or line)
    kernels = {path.name: source_text(path) for path in (file, file.with_suffix(".cu")) if path.is_file()}
    if nvrtc_error := compiler_advice.explain_nvrtc_log(log, kernels):
        cause, kernel_file, kernel_line = nvrtc_error
        return Finding(Verdict.COMPILE_ERROR, cause, str(file.with_name(Path(kernel_file).name)), kernel_line)
    ptxas_errors, quoted_line = compiler_advice.explain_ptxas_log(log, kernels.get(file.name, ""))
    if ptxas_errors:
        choice = simulated_gpu.describe_choice(ptxas_errors[0], _TARGET_ADVICE)
        cause = f"ptxas: {'; '.join(ptxas_errors[:_MOST_PTXAS_ERRORS])}{choice}"
        return Finding(Verdict.COMPILE_ERROR, cause, str(file), quoted_line or _line_of_causes(error, file) or line)
    if located := triton_advice.locate(error, kernels.get(file.name, "")) or cute_advice.explain(log):
        error_line = located[1] or _line_of_causes(error, file) or line
        return Finding(Verdict.COMPILE_ERROR, located[0], str(file), error_line)
    return Finding(
        Verdict.COMPILE_ERROR, log + _suggest_attribute(error), str(file), _line_of_causes(error, file) or line
    )


def _clean_log(text: str, file: Path) -> str:
    """Return a log without colors, and without the folder of the graded copy, which learners do not know."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text).replace(f"{file.parent}/", "")


def _line_of_causes(error: BaseException, file: Path) -> int:
    """Return the innermost line of the learner's file in the tracebacks of the causes of an error; 0 without any."""
    lines = [_line_in(cause, file) for cause in _causes(error)]
    return next((line for line in reversed(lines) if line), 0)


def _causes(error: BaseException) -> list[BaseException]:
    """Return the chain of exceptions that led to an error, from the latest to the first.

    A submission can make the chain a circle, so its length is limited.
    """
    causes: list[BaseException] = []
    cause = error.__cause__ or error.__context__
    while cause is not None and len(causes) < _MOST_CAUSES:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    return causes


def _suggest_attribute(error: BaseException) -> str:
    """Return a suggestion for an attribute that does not exist, as the rest of a sentence; empty without any."""
    chain = (error, *_causes(error))
    cause = next((exception for exception in chain if isinstance(exception, AttributeError)), None)
    owner = getattr(cause, "obj", None)
    name = cause.name if cause else None
    if owner is None or name is None:
        return ""
    submodules = [
        key
        for key, value in getattr(owner, "__dict__", {}).items()
        if isinstance(value, ModuleType) and hasattr(value, name)
    ]
    if isinstance(owner, ModuleType) and submodules:
        return f"; did you mean {submodules[0]}.{name}?"
    return triton_advice.suggest(name, dir(owner))


_NO_GPU = "there is no GPU here, and tensors are on the CPU: take the device from an input, as torch.empty_like(x) does"


def _describe_python_error(error: BaseException, file: Path, line: int) -> str:
    """Return an exception in one line, with advice. An assertion without a message is described by its source."""
    source = _source_line(file, line)
    if launch := triton_advice.explain_launch_error(error, "".join(linecache.getlines(str(file))), line):
        return launch
    is_bare_assertion = isinstance(error, AssertionError) and not str(error)
    message = source if is_bare_assertion else _clean_log(_first_line(error), file)
    needs_gpu = re.search(r"not compiled with CUDA|No CUDA GPUs are available|Found no NVIDIA driver", message)
    if needs_gpu or (isinstance(error, AssertionError) and re.search(r"\bis_cuda\b|cuda['\"]", source)):
        message += f"; {_NO_GPU}"
    elif isinstance(error, NameError) and error.name in compiler_advice.BUILT_IN:
        message += "; only a kernel has it, and this is the launch, which runs once"
    elif isinstance(error, AttributeError):
        message += _suggest_attribute(error)
    elif type(error).__name__ == "DSLCudaRuntimeError":
        message = f"{message.strip()}; lane.run(host, x, out) calls a host function of CuTe DSL, with a GPU and without"
    return f"{type(error).__name__}: {message or '(no message)'}"


def _source_line(file: Path, line: int) -> str:
    return linecache.getline(str(file), line).strip()


def _encoding_finding(file: Path) -> Finding | None:
    """Return a finding about a byte that is invalid in the encoding of a file."""
    try:
        with tokenize.open(file) as source:
            source.read()
    except UnicodeDecodeError as error:
        content = file.read_bytes()
        number = next(
            line_number
            for line_number, line in enumerate(content.split(b"\n"), 1)
            if not _is_text(line, error.encoding)
        )
        cause = f"line {number} is not {error.encoding.upper()}: save the file as UTF-8"
        return Finding(Verdict.COMPILE_ERROR, cause, str(file), number)
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
    """Return the innermost line of the learner's file in the traceback of an error; 0 if it is not there."""
    lines = [line for name, line in _frames(error) if Path(name) == file]
    return lines[-1] if lines else 0


def _frames(error: BaseException) -> list[tuple[str, int]]:
    """Return the file and the line of each frame in the traceback of an error.

    traceback.extract_tb would read these files for their lines, and a submission chooses their names: /dev/zero.
    """
    stack = traceback.walk_tb(_TRACEBACK.__get__(error))
    return [(frame.f_code.co_filename, line or 0) for frame, line in stack]


def innermost(error: BaseException, default: tuple[str, int]) -> tuple[str, int]:
    """Return the file and the line of the innermost frame of an error in the file of `default` or in a project."""
    folders = [Path(default[0]), *PROJECTS]
    own_frames = [frame for frame in _frames(error) if any(Path(frame[0]).is_relative_to(folder) for folder in folders)]
    return own_frames[-1] if own_frames else default


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else "(no message)"
