"""The counts of the checks, in machine code, against one line of Python each."""

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
from warpcheck.native import compile_function, compile_noinline, native, parameter_names
from warpcheck.native.language import NOINLINE
from warpcheck.runtime import memory, memory_transactions

LANES = range(32)


def in_machine_code(function: Callable[..., int], *constants: int) -> Any:
    """A function of an address and a mask."""
    code = compiler.machine_code(compile_function(function, constants, "tested"), speed=3)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), compiler._new_target_machine(1))
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    called = ctypes.CFUNCTYPE(*[ctypes.c_int64] * 3)(engine.get_function_address("tested"))
    called.engine = engine  # type: ignore[attr-defined]  # whose code it is
    return called


def requests() -> Iterator[tuple[np.ndarray[Any, Any], int]]:
    """The addresses of 32 lanes and the active ones: runs, rows of 16, any order; all lanes and some."""
    rng = np.random.default_rng(0)
    lanes = np.arange(32)
    for _ in range(50):
        for places in (lanes, lanes % 16, lanes // 5, lanes * 9, lanes[::-1], rng.integers(0, 40, 32), 0 * lanes):
            mask = int(rng.choice([(1 << 32) - 1, int(rng.integers(1, 1 << 32)), 0xFFFF0000]))
            yield (1 << 46) + 4 * (int(rng.integers(64)) + places.astype(np.int64)), mask


def test_sectors_and_wavefronts_are_those_of_all_active_lanes() -> None:
    sectors = in_machine_code(memory_transactions.count_sectors)
    served = np.zeros(32, np.int64)
    wavefronts = in_machine_code(memory_transactions.count_wavefronts, 4, 0, served.ctypes.data)
    for addresses, mask in requests():
        active = [int(addresses[lane]) for lane in LANES if mask >> lane & 1]
        place = addresses.ctypes.data
        words = {address // 4 for address in active}
        busiest = max(sum(word % 32 == bank for word in words) for bank in LANES)
        assert sectors(place, mask) == memory_transactions.count_sectors(place, mask) == len({a // 32 for a in active})
        assert wavefronts(place, mask) == busiest


def test_two_lanes_of_a_run_that_read_one_address_are_judged() -> None:
    first_two = in_machine_code(memory.first_two_readers)
    for addresses, mask in requests():
        numbers = [int(address) if mask >> lane & 1 else -1 - lane for lane, address in enumerate(addresses)]
        third = [lane >= 2 and numbers[lane - 2 : lane] == [numbers[lane]] * 2 for lane in LANES]
        expected = sum(1 << lane for lane in LANES if mask >> lane & 1 and not third[lane])
        assert (
            first_two(addresses.ctypes.data, mask) == memory.first_two_readers(addresses.ctypes.data, mask) == expected
        )


def test_noinline_functions_are_compiled_once_and_linked() -> None:
    """A copy of it in each of the ten checks of a kernel took LLVM longer than the kernel."""
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
    """Return the interval further up."""
    return Interval(end=interval.end + distance, start=interval.start + distance)


@native
def count_in_interval(number: int, end: int, interval: Interval) -> int:
    """Count which of two intervals hold a number; the variable holds first one and then the other."""
    chosen = interval
    count = chosen.start <= number and number < chosen.end
    chosen = shift_interval(chosen, end)
    return count + 2 * (chosen.start <= number and number < chosen.end)


def test_tuples_are_passed_returned_and_assigned_by_value() -> None:
    count = in_machine_code(count_in_interval, 3, 7)  # the fields of the last parameter
    for number in range(20):
        expected = (3 <= number < 7) + 2 * (8 <= number < 12)
        assert count(number, 5) == count_in_interval(number, 5, Interval(3, 7)) == expected
    assert parameter_names(count_in_interval) == ["number", "end", "interval.start", "interval.end"]


def test_a_function_is_compiled_as_it_was_imported(tmp_path: Path) -> None:
    """The file may have changed since, so that its lines are those of another function."""
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
    assert in_machine_code(module.edited)(3, 4) == 7
