"""Map PTX symbols to the names in the source: C++ mangles them with namespaces, template arguments and types.

The C++ runtime library, which numpy, llvmlite and torch load anyway, has a demangler. Where it cannot be loaded, only
names outside of namespaces are read.
"""

from __future__ import annotations

import ctypes
import re
from functools import cache

from warpcheck.layout import SCRATCH

__all__ = ["demangle", "exclude_compiler_variables", "find_shared_variable", "source_name"]

_NAMED_BY_COMPILERS = rf"{SCRATCH}|__dynamic_shmem__\d+"

_OPENING = "<("
_CLOSING = ">)"
_ANONYMOUS = "(anonymous namespace)::"


@cache
def source_name(symbol: str) -> str:
    """Return the source name of a kernel, or of a variable of one: ``_ZZ7softmaxIfEvPfE3red`` is ``red``.

    A kernel in a namespace is named with it, and without template arguments: ``_ZN1n1kILi3EEEvPf`` is ``n::k``.
    """
    if not symbol.startswith("_Z"):
        return symbol
    declaration = demangle(symbol)
    # No demangler: a name outside of namespaces follows its length, _Z7softmax...; a local variable's is last.
    if declaration == symbol:
        match = re.fullmatch(r"_ZZ.*E(\d+)(\w+)", symbol) or re.fullmatch(r"_Z(\d+)(\w+)", symbol)
        return match[2][: int(match[1])] if match else symbol
    name = _without_brackets(declaration.replace(_ANONYMOUS, "")).split(" ")[-1]
    is_local = symbol.startswith("_ZZ")  # of a function: its variables are known by their own names
    return name.rpartition("::")[2] if is_local else name


def demangle(symbol: str) -> str:
    """Return the declaration of a mangled symbol, or the symbol itself if it cannot be demangled."""
    library = _runtime()
    if library is None:
        return symbol
    status = ctypes.c_int()
    address = library.__cxa_demangle(symbol.encode(), None, None, ctypes.byref(status))
    if not address:
        return symbol
    text = ctypes.string_at(address).decode()
    library.free(address)
    return text


@cache
def _runtime() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libstdc++.so.6")
        library.__cxa_demangle.restype = ctypes.c_void_p
        library.free.argtypes = [ctypes.c_void_p]
    except (OSError, AttributeError):
        return None
    return library


def _without_brackets(declaration: str) -> str:
    """Return a declaration without template arguments, function parameters, and what comes after them."""
    characters = []
    depth = 0
    for character in declaration.partition(" [clone")[0]:
        depth += character in _OPENING
        if depth == 0:
            characters.append(character)
        depth -= character in _CLOSING
    return "".join(characters)


def exclude_compiler_variables(variables: dict[str, range]) -> dict[str, range]:
    """Return the variables in shared memory without those that Triton or the CuTe DSL has named."""
    return {name: span for name, span in variables.items() if not re.fullmatch(_NAMED_BY_COMPILERS, name)}


def find_shared_variable(offset: int, variables: dict[str, range]) -> tuple[int, str]:
    """Return the start and the symbol of the variable that holds an offset in shared memory; (0, "") if none does."""
    return max(((span.start, name) for name, span in variables.items() if span.start <= offset), default=(0, ""))
