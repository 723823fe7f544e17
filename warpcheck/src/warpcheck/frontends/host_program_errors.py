"""Define the mistakes that a host program can make, and the errors that the CUDA runtime returns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

# The kernels that copy and fill memory on the PTX machine. Each is in a file of its name.
MEMCPY, MEMSET = "cudaMemcpy", "cudaMemset"

# The files that the faults of these kernels name.
COPY_SOURCES = (f"{MEMCPY}.cu", f"{MEMSET}.cu")

# What is wrong with a host program.
Problem = Literal[
    "not started",
    "invalid call",
    "call failed",
    "uninitialized",
    "error ignored",
    "not released",
    "not awaited",
    "wrong time",
]


class HostProgramError(Exception):
    """A host program used the CUDA runtime wrongly.

    Attributes:
        problem: The kind of the mistake.
        message: One sentence that names the call, its line, and what happened.
        file, line: The call in the source.
    """

    def __init__(self, problem: Problem, message: str, file: str, line: int) -> None:
        super().__init__(f"{Path(file).name}, line {line}: {message}")
        self.problem = problem
        self.message = message
        self.file = file
        self.line = line


# Name and description of each error that the runtime returns. Source: driver_types.h of CUDA 13.
ERRORS: Mapping[int, tuple[str, str]] = {
    0: ("cudaSuccess", "no error"),
    1: ("cudaErrorInvalidValue", "invalid argument"),
    2: ("cudaErrorMemoryAllocation", "out of memory"),
    9: ("cudaErrorInvalidConfiguration", "invalid configuration argument"),
    21: ("cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"),
    35: ("cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version"),
    100: ("cudaErrorNoDevice", "no CUDA-capable device is detected"),
    101: ("cudaErrorInvalidDevice", "invalid device ordinal"),
    400: ("cudaErrorInvalidResourceHandle", "invalid resource handle"),
    600: ("cudaErrorNotReady", "device not ready"),
    700: ("cudaErrorIllegalAddress", "an illegal memory access was encountered"),
    719: ("cudaErrorLaunchFailure", "unspecified launch failure"),
    801: ("cudaErrorNotSupported", "operation not supported"),
}

NOT_SUPPORTED = 801


def error_name(status: int) -> str:
    """Return the name of an error, such as "cudaErrorInvalidValue"."""
    return ERRORS[status][0] if status in ERRORS else f"status {status}"
