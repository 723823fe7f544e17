"""Compare functions compiled to machine code with Python."""

from __future__ import annotations

import ctypes
import importlib.util
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numpy as np

from warpcheck import compiler
from warpcheck.layout import Access, Space
from warpcheck.native import compile_function, compile_noinline, native, offset_bits, parameter_names
from warpcheck.native.language import NOINLINE
from warpcheck.runtime import memory, memory_transactions

LANES = range(32)


@native
def distance_bits(address: int, mask: int) -> int:
    """Return `offset_bits`, as a function that `compile_natively` can compile."""
    return offset_bits(address) | mask


def compile_natively(function: Callable[..., int], *constants: int) -> Any:
    """Compile a function of two integers, such as an address and a mask, to machine code."""
    code = compiler.machine_code(compile_function(function, constants, "tested"), speed=3)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), compiler._new_target_machine(1))
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    compiled = ctypes.CFUNCTYPE(*[ctypes.c_int64] * 3)(engine.get_function_address("tested"))
    compiled.engine = engine  # type: ignore[attr-defined]  # keeps the code alive
    return compiled


def generate_requests() -> Iterator[tuple[np.ndarray[Any, Any], int]]:
    """Yield the addresses of 32 lanes and the mask of active ones.

    The addresses are contiguous, rows of 16, random and so on. All lanes or some are active.
    """
    rng = np.random.default_rng(0)
    lanes = np.arange(32)
    for _ in range(50):
        for offsets in (
            lanes,
            lanes % 16,
            lanes // 5,
            lanes * 9,
            lanes * 99,
            lanes[::-1],
            rng.integers(0, 40, 32),
            0 * lanes,
        ):
            mask = int(rng.choice([(1 << 32) - 1, int(rng.integers(1, 1 << 32)), 0xFFFF0000]))
            # The addresses exceed 32 bits, as those of a process do.
            yield (1 << 46) + 4 * (int(rng.integers(64)) + offsets.astype(np.int64)), mask


def test_sectors_and_wavefronts_of_the_active_lanes() -> None:
    sectors = compile_natively(memory_transactions.count_sectors)
    scratch = np.zeros(32, np.int64)
    wavefronts = compile_natively(memory_transactions.count_wavefronts, 4, 0, scratch.ctypes.data)
    for addresses, mask in generate_requests():
        active = [int(addresses[lane]) for lane in LANES if mask >> lane & 1]
        pointer = addresses.ctypes.data
        words = {address // 4 for address in active}
        max_bank_words = max(sum(word % 32 == bank for word in words) for bank in LANES)
        assert (
            sectors(pointer, mask) == memory_transactions.count_sectors(pointer, mask) == len({a // 32 for a in active})
        )
        assert wavefronts(pointer, mask) == max_bank_words


def test_offset_bits_are_those_of_all_distances() -> None:
    bits = compile_natively(distance_bits)
    for addresses, _ in generate_requests():
        expected = int(np.bitwise_or.reduce(addresses - addresses[0]))
        assert bits(addresses.ctypes.data, 0) == offset_bits(addresses.ctypes.data) == expected


def test_the_first_two_lanes_of_a_run_with_one_address_are_checked() -> None:
    first_two = compile_natively(memory.first_two_readers)
    for addresses, mask in generate_requests():
        numbers = [int(address) if mask >> lane & 1 else -1 - lane for lane, address in enumerate(addresses)]
        third = [lane >= 2 and numbers[lane - 2 : lane] == [numbers[lane]] * 2 for lane in LANES]
        expected = sum(1 << lane for lane in LANES if mask >> lane & 1 and not third[lane])
        assert (
            first_two(addresses.ctypes.data, mask) == memory.first_two_readers(addresses.ctypes.data, mask) == expected
        )


def test_noinline_functions_are_compiled_once_and_linked() -> None:
    """Copies of them in each of a kernel's ten checks took LLVM longer than the kernel itself."""
    names = sorted(f"noinline_{function.__name__}" for function in NOINLINE)
    assert re.findall(r'^define i64 @"(\w+)"', compile_noinline(), re.MULTILINE) == names
    for kind in Access:
        check = compile_function(memory.access, (Space.SHARED, kind, 4, 1, 0, 0, 0, 0, 0), "tested")
        assert re.findall(r'^declare i64 @"(noinline_\w+)"', check, re.MULTILINE)
        assert not re.findall(r'^define .*@"noinline_', check, re.MULTILINE)


class Interval(NamedTuple):
    """A half-open range of integers."""

    start: int
    end: int


@native
def shift_interval(interval: Interval, distance: int) -> Interval:
    """Return the interval, moved up by a distance."""
    return Interval(end=interval.end + distance, start=interval.start + distance)


@native
def count_in_interval(number: int, end: int, interval: Interval) -> int:
    """Return flags that say which of two intervals contain a number.

    The variable `chosen` holds one interval after the other, to test assignment.
    """
    chosen = interval
    count = chosen.start <= number and number < chosen.end
    chosen = shift_interval(chosen, end)
    return count + 2 * (chosen.start <= number and number < chosen.end)


def test_tuples_are_passed_returned_and_assigned_by_value() -> None:
    count = compile_natively(count_in_interval, 3, 7)  # the constants are the fields of `interval`
    for number in range(20):
        expected = (3 <= number < 7) + 2 * (8 <= number < 12)
        assert count(number, 5) == count_in_interval(number, 5, Interval(3, 7)) == expected
    assert parameter_names(count_in_interval) == ["number", "end", "interval.start", "interval.end"]


def test_a_function_is_compiled_as_it_was_imported(tmp_path: Path) -> None:
    """The file may have changed since the import, so its lines may belong to another function."""
    file = tmp_path / "edited_module.py"
    source = """from warpcheck.native import native

@native
def edited(first: int, second: int) -> int:
    return {}
"""
    file.write_text(source.format("first + second"))
    spec = importlib.util.spec_from_file_location("edited_module", file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    file.write_text("import math\n" + source.format("first * second"))
    assert compile_natively(module.edited)(3, 4) == 7
