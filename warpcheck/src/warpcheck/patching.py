"""Replace attributes of other packages, and put them back when a scope ends."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["bind_to_scope", "on_exit", "replace", "scope"]

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


def bind_to_scope(function: Callable[[], None]) -> Callable[[], None]:
    """Return a function that calls `function` later, whose replacements end with the scope that is innermost now."""
    if not _scopes:
        return function
    stack = _scopes[-1]

    @functools.wraps(function)
    def call() -> None:
        _scopes.append(stack)
        try:
            function()
        finally:
            _scopes.pop()

    return call
