"""Let PyTorch's autograd engine accept CUDA tensors in a process without CUDA.

The engine asks three things that a CPU build answers with an error: for the device guard of CUDA, for the accelerator
of the build, and whether CUDA has a context. `install` answers them by writing two words of PyTorch's memory:

- The entry of CUDA in `c10::impl::device_guard_impl_registry` becomes the guard without effect that FakeTensorMode
  uses, too. It stays until the process ends.
- The object that `at::detail::getCUDAHooks()` returns gets a copy of its table of virtual functions with other answers:
  the word is the object's first one, which points to the table. `uninstall` restores it.

Why this is safe: both words are aligned pointers in writable memory, so another thread reads the old or the new value;
both values point to memory that lives as long as the process; and a thread without the GIL may call the functions of
the copy, because ctypes acquires the GIL for them. Tensors of the CPU need neither a guard nor an accelerator. The
original table is in read-only memory and stays as it is.

How it is verified: the addresses are those of exported symbols. The guard comes from PyTorch itself. In a CPU build the
object must have the table of `at::CUDAHooksInterface`, and in every build the header of this PyTorch, which is part of
the wheel, says which function is where. Afterwards, PyTorch must name CUDA as its accelerator.

On another version: if something of this is not as expected, `install` raises `hooks.Changed`. Both words are then as
they were, or, if only the last test has failed, the guard stays; it has no effect without CUDA tensors.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch

from warpcheck.hooks import Changed
from warpcheck.hooks import torch_cuda as hooks

__all__ = ["initialized", "install", "uninstall"]

_TORCH = Path(torch.__file__).parent

# c10::DeviceType::CUDA.
_CUDA_INDEX = 1

_REGISTRY = "_ZN3c104impl26device_guard_impl_registryE"  # c10::impl::device_guard_impl_registry
_HOOKS = "_ZN2at6detail12getCUDAHooksEv"  # at::detail::getCUDAHooks()
_HOOKS_TABLE = "_ZTVN2at18CUDAHooksInterfaceE"  # vtable for at::CUDAHooksInterface
_CPU_ALLOCATOR = "_ZN3c1015GetCPUAllocatorEv"  # c10::GetCPUAllocator()

_REQUIRE_INITIALIZATION = "_ZN5torch5utils24set_requires_device_initEN3c1010DeviceTypeEb"

# The words of a table of virtual functions that are copied: more than any version has (50 in PyTorch 2.13).
#
# Whatever is behind the table is copied, too, and never called. It can be read, because many other tables are in the
# same section of the library.
_TABLE_WORDS = 128

_WORD = ctypes.sizeof(ctypes.c_void_p)


# The functions in the table take `this` and at most a device index, and return nothing, a bool, an 8-bit or a 64-bit
# integer. In the calling conventions of x86-64 and aarch64, one function can stand for all of them: arguments that it
# does not expect are in registers, and the caller reads the lower bits of the result.
_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
_return_0 = _FUNCTION(lambda _: 0)
_return_1 = _FUNCTION(lambda _: 1)


def _address(function: object) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]


class _Word:
    """A word of PyTorch's memory that has another value while CUDA is simulated: see the docstring of this module."""

    def __init__(self, address: int, replacement: int) -> None:
        self._word = ctypes.c_uint64.from_address(address)
        self._replacement = replacement
        self._original = 0
        self._is_replaced = False

    def replace(self) -> None:
        if not self._is_replaced:
            self._original = self._word.value
            self._word.value = self._replacement
            self._is_replaced = True

    def restore(self) -> None:
        if self._is_replaced:
            self._word.value = self._original
            self._is_replaced = False


def install() -> None:
    """Answer the autograd engine until `uninstall`. Raises Changed."""
    _require_initialization()
    get_accelerator = hooks.ACCELERATOR.get()
    guard, table = _words()
    guard.replace()
    table.replace()
    if get_accelerator() != torch.device("cuda"):
        uninstall()
        raise Changed(hooks.changed("does not take its accelerator from at::detail::getCUDAHooks()"))


def uninstall() -> None:
    """Restore PyTorch's own answers, except for the device guard.

    A tensor may outlive its scope, and PyTorch ends the process when it creates a node of autograd for a device without
    a guard. No other tensor needs this guard.
    """
    _, table = _words()
    table.restore()
    # PyTorch calls torch.cuda._lazy_init once, before the first CUDA tensor. Let it call the original again.
    _require_initialization()(_CUDA_INDEX, True)


@contextlib.contextmanager
def initialized() -> Iterator[None]:
    """Let PyTorch make CUDA tensors inside the with block, without a call of torch.cuda._lazy_init."""
    _require_initialization()(_CUDA_INDEX, False)
    try:
        yield
    finally:
        _require_initialization()(_CUDA_INDEX, True)


@cache
def _require_initialization() -> Any:
    """Return torch::utils::set_requires_device_init(device_type, value)."""
    address = _symbol(_library("libtorch_python.so"), _REQUIRE_INITIALIZATION)
    return ctypes.CFUNCTYPE(None, ctypes.c_int8, ctypes.c_bool)(address)


@cache
def _words() -> tuple[_Word, _Word]:
    words = _guard_word(), _hooks_word()
    atexit.register(uninstall)  # the functions above do not outlive the interpreter
    return words


def _library(name: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(_TORCH / "lib" / name))
    except OSError as error:
        raise Changed(hooks.changed(f"has no lib/{name}")) from error


def _symbol(library: ctypes.CDLL, name: str) -> int:
    try:
        return ctypes.addressof(ctypes.c_char.in_dll(library, name))
    except ValueError as error:
        raise Changed(hooks.changed(f"does not export {name}")) from error


def _guard_word() -> _Word:
    """Return the entry of CUDA in the registry of device guards, with the guard without effect."""
    registry = _symbol(_library("libc10.so"), _REGISTRY)
    entry = ctypes.c_uint64.from_address(registry + _CUDA_INDEX * _WORD)
    original = entry.value
    ensure_guard = hooks.ENSURE_GUARD.get()  # before the entry changes: it may raise Changed
    # _ensureCUDADeviceGuardSet replaces only a guard that counts no devices, and there is none in a build without CUDA.
    # This one is in the entry for a moment: an object whose functions all return 0. No other thread uses it meanwhile,
    # because there are no CUDA tensors yet.
    table = (ctypes.c_uint64 * _TABLE_WORDS)(*[_address(_return_0)] * _TABLE_WORDS)
    guard = ctypes.c_uint64(ctypes.addressof(table))
    try:
        if not original:
            entry.value = ctypes.addressof(guard)
        ensure_guard()
        replacement = entry.value
    finally:
        entry.value = original
    # The replacement may be the original: in a build with CUDA, a FakeTensorMode may have called the function before.
    if replacement in (0, ctypes.addressof(guard)):
        raise Changed(hooks.changed("has no device guard without effect"))
    return _Word(registry + _CUDA_INDEX * _WORD, replacement)


# The copy of the table of CUDA's hooks. PyTorch reads it, so it has to live as long as the process.
_hooks_table = (ctypes.c_uint64 * _TABLE_WORDS)()


def _hooks_word() -> _Word:
    """Return the pointer of CUDA's hooks to their table of virtual functions, with the table that has other answers."""
    library = _library("libtorch_cpu.so")
    get_hooks = ctypes.CFUNCTYPE(ctypes.c_void_p)(_symbol(library, _HOOKS))
    address = get_hooks()
    table = ctypes.c_uint64.from_address(address).value
    # The functions begin behind the offset to the top and the type information (Itanium C++ ABI, 2.5.2). In a build
    # with CUDA the object may be of a class derived from at::CUDAHooksInterface, whose table begins with the same
    # functions.
    if torch.version.cuda is None and table != _symbol(library, _HOOKS_TABLE) + 2 * _WORD:
        raise Changed(hooks.changed("has other CUDA hooks than at::CUDAHooksInterface"))
    start = table - 2 * _WORD
    ctypes.memmove(_hooks_table, start, ctypes.sizeof(_hooks_table))
    answers = {
        "isBuilt": _address(_return_1),
        "isAvailable": _address(_return_1),
        "hasPrimaryContext": _address(_return_1),
        "deviceCount": _address(_return_1),
        "setCurrentDevice": _address(_return_0),
        "getCurrentDevice": _address(_return_0),
        "exchangeDevice": _address(_return_0),
        "maybeExchangeDevice": _address(_return_0),
        # Pinned memory is memory: this function takes no arguments, and returns the allocator of the CPU.
        "getPinnedMemoryAllocator": _symbol(_library("libc10.so"), _CPU_ALLOCATOR),
    }
    if torch.version.cuda is None:
        # For torch.empty(pin_memory=True). In a build with CUDA, PyTorch would take CUDA for initialized ever after.
        answers["init"] = _address(_return_0)
    order = _virtual_functions()
    for name, answer in answers.items():
        if name in order:
            _hooks_table[2 + order.index(name)] = answer
        elif name in ("isBuilt", "hasPrimaryContext"):
            raise Changed(hooks.changed(f"has no at::AcceleratorHooksInterface::{name}"))
    return _Word(address, ctypes.addressof(_hooks_table) + 2 * _WORD)


def _virtual_functions() -> list[str]:
    """Return the virtual functions of at::AcceleratorHooksInterface in the order of the table."""
    header = _TORCH / "include/ATen/detail/AcceleratorHooksInterface.h"
    try:
        text = header.read_text()
    except OSError as error:
        raise Changed(hooks.changed(f"has no {header.name}")) from error
    body = text.partition("struct TORCH_API AcceleratorHooksInterface")[2]
    names = re.findall(r"^\s*virtual\s[^;{(]*?(~?\w+)\s*\(", body, re.MULTILINE)
    if not names or names[0] != "~AcceleratorHooksInterface":
        raise Changed(hooks.changed(f"has a {header.name} of another form"))
    return ["~AcceleratorHooksInterface", *names]  # a destructor has two entries
