"""What is held against a package of operators besides their values: what it refuses, what its tests find."""

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

    error: the exception that it raises, whose message names the argument. make: the arguments, on a device.
    """

    function: str
    why: str
    error: type[Exception]
    argument: str
    make: Callable[[torch.device], Sequence[Any]]


@dataclass(frozen=True)
class Promise:
    """Arguments that a function of the package must take, beside those of the cases.

    make: the arguments, on a device. expected: what the function gives, from the same arguments in float64.
    """

    function: str
    why: str
    make: Callable[[torch.device], Sequence[Any]]
    expected: Callable[..., tuple[torch.Tensor, ...]]


@dataclass(frozen=True)
class Fault:
    """A wrong version of a function of the package, which the package's own tests must fail with."""

    function: str
    plant: Callable[[Function], Function]


@dataclass(frozen=True)
class Library:
    """A package that lies as a project in the folder with the exercise's stem, beside the Python file.

    name: of the package, the only one that its wheel installs. requires: distributions that its metadata name.
    promises: in float32. faults: by what is wrong. benchmark: arguments with which its module `benchmark` measures each
    function, and the bytes that it must tell. strided: of a function, arguments that are not contiguous, on a device:
    its outputs have the strides that its fake implementation gives.
    """

    name: str
    requires: Sequence[str]
    refusals: Sequence[Refusal]
    promises: Sequence[Promise]
    faults: Mapping[str, Fault]
    benchmark: Mapping[str, tuple[Mapping[str, int], int]]
    strided: Mapping[str, Callable[[torch.device], Sequence[Any]]] = field(default_factory=dict)
