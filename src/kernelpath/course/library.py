"""Declare the requirements on a package of operators besides their values: what it refuses, what its tests find."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    Function = Callable[..., Any]


@dataclass(frozen=True)
class Refusal:
    """Arguments that a function of the package must refuse.

    Attributes:
        error: The exception to be raised, whose message names the argument.
        make: Creates the arguments on a device.
    """

    function: str
    why: str
    error: type[Exception]
    argument: str
    make: Callable[[torch.device], Sequence[Any]]


@dataclass(frozen=True)
class Promise:
    """Arguments that a function of the package must accept, besides those of the cases.

    Attributes:
        make: Creates the arguments on a device.
        expected: Returns the function's outputs for the same arguments in float64.
    """

    function: str
    why: str
    make: Callable[[torch.device], Sequence[Any]]
    expected: Callable[..., tuple[torch.Tensor, ...]]


@dataclass(frozen=True)
class Fault:
    """A wrong version of a function of the package, with which the package's own tests must fail."""

    function: str
    plant: Callable[[Function], Function]


@dataclass(frozen=True)
class Library:
    """A package, as a project in the folder with the exercise's stem, beside the Python file.

    Attributes:
        name: The name of the package, the only one that its wheel installs.
        requires: The distributions in its metadata.
        promises: Arguments in float32.
        faults: Wrong versions by what is wrong.
        benchmark: Arguments with which the package's module `benchmark` measures each function, and the bytes that it
        must report.
        strided: Creates non-contiguous arguments for a function on a device. The outputs must have the strides that the
            function's fake implementation gives.
    """

    name: str
    requires: Sequence[str]
    refusals: Sequence[Refusal]
    promises: Sequence[Promise]
    faults: Mapping[str, Fault]
    benchmark: Mapping[str, tuple[Mapping[str, int], int]]
    strided: Mapping[str, Callable[[torch.device], Sequence[Any]]] = field(default_factory=dict)
