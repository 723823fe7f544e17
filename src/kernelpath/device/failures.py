"""How a kernel, or the request for it, ended: from an exception on the machine to a message and back."""

from __future__ import annotations

from kernelpath.device import messages
from warpcheck import errors, simt


def told(error: Exception) -> messages.Failed:
    match error:
        case simt.Fault():
            kind, where = error.kind.name, (error.kernel, error.file, error.line)
            return messages.Failed(kind, error.message, *where, error.block, error.thread)
        case simt.TimedOut():
            kind = "DEADLOCK" if isinstance(error, simt.Deadlock) else "TIMED_OUT"
            return messages.Failed(kind, error.message, error.kernel, error.file, error.line)
        case simt.Rejected():
            return messages.Failed("REJECTED", error.message, "", error.file, error.line)
        case simt.Unsupported():
            return messages.Failed("UNSUPPORTED", error.instruction, "", error.file, error.line)
        case MemoryError():
            return messages.Failed("REFUSED", "out of memory on the PTX machine")
    return messages.Failed("REFUSED", str(error))


def raised(failed: messages.Failed) -> Exception:
    if failed.kind == "DEADLOCK":
        return simt.Deadlock(failed.text, failed.kernel, failed.file, failed.line)
    if failed.kind == "TIMED_OUT":
        return simt.TimedOut(failed.text, failed.kernel, failed.file, failed.line)
    if failed.kind == "REJECTED":
        return simt.Rejected(failed.text, failed.file, failed.line)
    if failed.kind == "UNSUPPORTED":
        return simt.Unsupported(failed.text, failed.file, failed.line)
    if failed.kind == "REFUSED":
        return ValueError(failed.text)
    kind = errors.FaultKind[failed.kind]
    return simt.Fault(kind, failed.text, failed.kernel, failed.file, failed.line, failed.block, failed.thread)
