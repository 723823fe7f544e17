"""Transfer an autotuner's choices and a kernel's register usage from a GPU to the PTX machine.

On a GPU `watch` records both. On the PTX machine `take` prescribes them, so that a grid that depends on them is the
same there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from warpcheck.hooks import triton as hooks


class Tuned(Struct, frozen=True):
    """The configuration that autotuning chose for a kernel and a key, both as Triton prints them."""

    kernel: str
    key: str
    configuration: str


class Resources(Struct, frozen=True):
    """The registers per thread, and the spilled ones, of a kernel's variant: its source, signature and constants."""

    variant: str
    registers: int
    spills: int


class Chosen(Struct, frozen=True):
    """The decisions of a GPU about all kernels of a process."""

    tuned: Sequence[Tuned] = ()
    resources: Sequence[Resources] = ()


_autotuners: dict[int, Any] = {}
_resources: dict[str, Resources] = {}
_choices: Chosen = Chosen()


def watch() -> None:
    """Record autotuning and loading from now on, and apply the choices of `take`.

    Call this function once in a process, before the submission is imported.
    """
    run = hooks.TUNE.get()
    load = hooks.LOAD.get()

    def run_and_note(self: Any, *arguments: Any, **keywords: Any) -> Any:
        _autotuners[id(self)] = self
        _prescribe(self)
        return run(self, *arguments, **keywords)

    def load_and_note(self: Any) -> None:
        # Triton loads a kernel at every launch that has no module, and the PTX machine gives it none: Triton would
        # unload a module when the scope may have ended. A kernel whose registers are known has been loaded.
        is_loaded = hooks.REGISTERS.is_set(self)
        if is_loaded and not _choices.resources:  # no GPU has prescribed anything: nothing is left to record
            return
        if not is_loaded:
            load(self)
        variant = _variant(self)
        _resources[variant] = Resources(variant, hooks.REGISTERS.of(self), hooks.SPILLS.of(self))
        for resources in _choices.resources:
            if resources.variant == variant:
                self.n_regs = resources.registers
                self.n_spills = resources.spills

    hooks.TUNE.replace(run_and_note)
    hooks.LOAD.replace(load_and_note)


def chosen() -> Chosen:
    """Return all choices that this process recorded."""
    tuned = [
        Tuned(_name(autotuner), repr(key), str(configuration))
        for autotuner in _autotuners.values()
        for key, configuration in hooks.CHOSEN.of(autotuner).items()
    ]
    return Chosen(tuned, list(_resources.values()))


def take(choices: Chosen) -> None:
    """Prescribe the choices of a GPU for the kernels of this process."""
    global _choices
    _choices = choices


def _prescribe(autotuner: Any) -> None:
    """Put the prescribed configurations that the kernel offers into the cache of its autotuner."""
    cache = hooks.CHOSEN.of(autotuner)
    # A launch of a prescribed kernel must not wrap the cache once more.
    if isinstance(cache, _Prescribed):
        return
    offered = {str(configuration): configuration for configuration in hooks.OFFERED.of(autotuner)}
    prescribed = {
        choice.key: offered[choice.configuration]
        for choice in _choices.tuned
        if choice.kernel == _name(autotuner) and choice.configuration in offered
    }
    if prescribed:
        autotuner.cache = _Prescribed(prescribed, cache)


class _Prescribed(dict[Any, Any]):
    """An autotuner's cache with prescribed configurations by the repr of their keys.

    Keys travel between processes as text, and a dtype in a key cannot be restored from its repr.
    """

    def __init__(self, prescribed: dict[str, Any], cache: dict[Any, Any]) -> None:
        super().__init__(cache)
        self._prescribed = prescribed

    def __contains__(self, key: object) -> bool:
        return repr(key) in self._prescribed or super().__contains__(key)

    def __getitem__(self, key: Any) -> Any:
        return self._prescribed[repr(key)] if repr(key) in self._prescribed else super().__getitem__(key)


def _name(autotuner: Any) -> str:
    return str(hooks.TUNED.of(autotuner).__name__)


def _variant(kernel: Any) -> str:
    """Identify a kernel by source, signature, constants, warps and stages, independent of the target."""
    return f"{hooks.COMPILED_FROM.of(kernel).hash()} {kernel.metadata.num_warps} {kernel.metadata.num_stages}"
