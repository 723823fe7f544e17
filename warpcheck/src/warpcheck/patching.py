"""Replace attributes of other packages, and put them back when a scope ends."""

from __future__ import annotations

import contextlib
import importlib.machinery
import sys
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

__all__ = ["on_exit", "replace", "scope", "when_imported"]

_MISSING = object()
_scopes: list[contextlib.ExitStack] = []


@contextlib.contextmanager
def scope() -> Iterator[None]:
    """Undo every `replace` of the with block when the block ends, in reverse order."""
    with contextlib.ExitStack() as stack:
        _scopes.append(stack)
        try:
            yield
        finally:
            _scopes.remove(stack)


def replace(owner: Any, name: str, value: Any) -> None:
    """Set an attribute of a module or a class. Outside of a scope it stays for the life of the process."""
    # An attribute that a class inherits is not in its own namespace: restoring means deleting the override.
    original = vars(owner).get(name, _MISSING)
    on_exit(lambda: delattr(owner, name) if original is _MISSING else setattr(owner, name, original))
    setattr(owner, name, value)


def on_exit(undo: Callable[[], object]) -> None:
    """Call `undo` when the innermost scope ends; never if there is no scope."""
    if _scopes:
        _scopes[-1].callback(undo)


def when_imported(module: str, action: Callable[[], None]) -> None:
    """Call `action` now if a module has been imported, and otherwise as soon as it is.

    What `action` replaces is put back when the scope ends that is innermost now.
    """
    if module in sys.modules:
        action()
        return
    finder = _Finder(module, _bind_to_scope(action))
    sys.meta_path.insert(0, finder)
    on_exit(lambda: sys.meta_path.remove(finder))


def _bind_to_scope(function: Callable[[], None]) -> Callable[[], None]:
    """Return a function that calls `function`, whose replacements then end with the scope that is innermost now."""
    if not _scopes:
        return function
    stack = _scopes[-1]

    def call() -> None:
        _scopes.append(stack)
        try:
            function()
        finally:
            _scopes.pop()

    return call


class _Finder:
    """A finder that calls a function when a module has been imported. Another finder does the rest."""

    def __init__(self, module: str, action: Callable[[], None]) -> None:
        self._module = module
        self._action = action

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_act(module: ModuleType) -> None:
            execute(module)
            self._action()

        spec.loader.exec_module = execute_and_act  # type: ignore[method-assign]
        return spec
