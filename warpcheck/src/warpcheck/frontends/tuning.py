"""What only a GPU can decide about a Triton kernel: the configuration that was fastest, and the registers it takes.

On a GPU `watch` notes both. On the PTX machine beside it `take` makes them hold, so that a grid which follows from
them is the same there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from warpcheck.hooks import triton as hooks


class Tuned(Struct, frozen=True):
    """The configuration of an autotuned kernel for one key, as Triton writes both."""

    kernel: str
    key: str
    configuration: str


class Resources(Struct, frozen=True):
    """What a kernel takes for its constants and signature (variant): registers per thread, and how many are spilled."""

    variant: str
    registers: int
    spills: int


class Chosen(Struct, frozen=True):
    tuned: Sequence[Tuned] = ()
    resources: Sequence[Resources] = ()


_autotuners: dict[int, Any] = {}
_resources: dict[str, Resources] = {}
_told: Chosen = Chosen()


def watch() -> None:
    """Note what is autotuned and loaded from now on, or take what was told. Once in a process, before a submission."""
    run, load = hooks.TUNE.get(), hooks.LOAD.get()

    def run_and_note(self: Any, *arguments: Any, **named: Any) -> Any:
        _autotuners[id(self)] = self
        _prescribe(self)
        return run(self, *arguments, **named)

    def load_and_note(self: Any) -> None:
        if hooks.MODULE.of(self) is not None and not _told.resources:
            return
        load(self)
        variant = _variant(self)
        _resources[variant] = Resources(variant, hooks.REGISTERS.of(self), hooks.SPILLS.of(self))
        for one in _told.resources:
            if one.variant == variant:
                self.n_regs, self.n_spills = one.registers, one.spills

    hooks.TUNE.replace(run_and_note)
    hooks.LOAD.replace(load_and_note)


def chosen() -> Chosen:
    """All that was noted."""
    tuned = [
        Tuned(_name(one), repr(key), str(configuration))
        for one in _autotuners.values()
        for key, configuration in hooks.CHOSEN.of(one).items()
    ]
    return Chosen(tuned, list(_resources.values()))


def take(told: Chosen) -> None:
    """Let kernels be configured as they were on a GPU."""
    global _told
    _told = told


def _prescribe(autotuner: Any) -> None:
    """Put the told configurations that are among the kernel's own where Triton looks for what it has found before."""
    found = hooks.CHOSEN.of(autotuner)
    if isinstance(found, _Prescribed):
        return
    own = {str(one): one for one in hooks.OFFERED.of(autotuner)}
    told = {
        one.key: own[one.configuration]
        for one in _told.tuned
        if one.kernel == _name(autotuner) and one.configuration in own
    }
    if told:
        autotuner.cache = _Prescribed(told, found)


class _Prescribed(dict[Any, Any]):
    """A cache that knows some keys by the way they are written."""

    def __init__(self, told: dict[str, Any], found: dict[Any, Any]) -> None:
        super().__init__(found)
        self._told = told

    def __contains__(self, key: object) -> bool:
        return repr(key) in self._told or super().__contains__(key)

    def __getitem__(self, key: Any) -> Any:
        return self._told[repr(key)] if repr(key) in self._told else super().__getitem__(key)


def _name(autotuner: Any) -> str:
    return str(hooks.TUNED.of(autotuner).__name__)


def _variant(kernel: Any) -> str:
    """The same for the same source, signature, constants and warps, whatever it is compiled for."""
    return f"{hooks.COMPILED_FROM.of(kernel).hash()} {kernel.metadata.num_warps} {kernel.metadata.num_stages}"
