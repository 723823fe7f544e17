"""Convert exceptions of the machine to messages, and messages to exceptions in the submission's process."""

from __future__ import annotations

from kernelpath.device import messages
from warpcheck import errors, simt


def encode_failure(error: Exception) -> messages.Failed:
    """Return the message for an exception that a request raised on the machine."""
    match error:
        case simt.Fault():
            location = (error.kernel, error.file, error.line)
            return messages.Failed(error.kind.name, error.message, *location, error.block, error.thread)
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


def decode_failure(failed: messages.Failed) -> Exception:
    """Return the exception to raise in the submission's process."""
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
