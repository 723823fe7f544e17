"""The reference kernels compiled for cards that are not here: which of them do, and what the others require.

A solution's host code runs as it would beside a card of the architecture: it sees that card's properties, and its
lane's compilers make machine code for it. Launches are held to the card's limits, and nothing is executed.
"""

from __future__ import annotations

import multiprocessing
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch

from kernelpath import packages, simt
from kernelpath.course import registry
from kernelpath.course.inputs import draw_inputs
from kernelpath.course.problem import Case
from kernelpath.course.registry import Item
from kernelpath.course.spec import Exercise
from kernelpath.device import api, gpu
from kernelpath.grading import devices
from kernelpath.lanes import Unavailable
from kernelpath.show import results
from kernelpath.simt.target import KIB, MULTIPROCESSORS, SM_80, SM_90A, Target
from kernelpath.verdict import encode

LARGEST = 500_000_000
"""Compulsory bytes up to which the bench case takes part: larger ones would take minutes to draw on a CPU."""

_PROCESSORS = {"sm_75": 40, "sm_80": 108, "sm_86": 84, "sm_89": 58, "sm_90": 132, "sm_100": 148, "sm_120": 170}
"""Multiprocessors of a T4, an A100, an A40, an L4, an H200, a B200 and an RTX 5090, by their data sheets."""


@dataclass(frozen=True)
class _Card(Target):
    """An architecture that machine code is made for."""

    @property
    def virtual(self) -> str:
        """Not a virtual one: NVRTC then runs its ptxas as well."""
        return self.name


def target(name: str) -> Target:
    """The architecture "sm_75" with its limits, from the table of what a multiprocessor has. Raises KeyError."""
    processor, number = MULTIPROCESSORS[name], int(name.removeprefix("sm_"))
    like = SM_90A if number >= SM_90A.capability else SM_80
    limits = {key: getattr(like, key) for key in Target.__dataclass_fields__}
    limits |= {
        "name": name + "a" * (number >= SM_90A.capability),
        "capability": number,
        "multiprocessors": _PROCESSORS[name],
        "shared": processor.shared - processor.shared_reserved,
    }
    return _Card(**limits)


def properties(card: Target) -> gpu.Properties:
    """What a program sees of such a card, under torch's names."""
    major, minor = divmod(card.capability, 10)
    return {
        **gpu.MODELS[SM_80.name],
        "major": major,
        "minor": minor,
        "multi_processor_count": card.multiprocessors,
        "max_threads_per_multi_processor": 32 * card.multiprocessor.warps,
        "shared_memory_per_block_optin": card.shared,
        "shared_memory_per_multiprocessor": card.multiprocessor.shared,
    }


class Launched(NamedTuple):
    """A kernel that host code launched, and what its compiler made of it."""

    ptx: str
    name: str


class Unexecuted(api.Local):
    """Loads what a compiler made, and launches it on nothing."""

    def __init__(self, launched: list[Launched]) -> None:
        self._launched = launched

    def load(self, text: str, source: str | None = None) -> api.Module:
        return _Module(simt.load(text, source, gpu.target()), text, self._launched)


class _Module:
    def __init__(self, module: simt.Module, text: str, launched: list[Launched]) -> None:
        self.kernels, self._text, self._launched = module.kernels, text, launched

    def compile(self, name: str) -> None:
        pass

    def launch(
        self, name: str, *, grid: api.Dim3, block: api.Dim3, shared: int, cluster: api.Dim3 | None = None, **_: Any
    ) -> api.Ran:
        x, y, z = (cluster or (*self.kernels[name].cluster, 1, 1, 1))[:3]
        if refusal := gpu.target().refusal(grid, block, 0, shared, (x, y, z)):
            raise ValueError(refusal)
        self._launched.append(Launched(self._text, name))
        return api.Ran(0)


def record(item: Item) -> dict[str, str]:
    """Put what keeps an exercise's reference kernel from architectures into results/cards.json; returns it."""
    found = obstacles(item)
    known = {**results.cards(item.root).obstacles, item.name: found}
    ordered = {one.name: known[one.name] for one in registry.exercises(item.root) if one.name in known}
    compiled = results.Cards({**packages.versions()}, ordered)
    (item.root / results.FOLDER / results.CARDS).write_text(encode(compiled, indent=1) + "\n", encoding="utf-8")
    return found


def obstacles(item: Item, names: Iterable[str] = MULTIPROCESSORS, timed: bool = True) -> dict[str, str]:
    """What keeps the reference kernel from each architecture that it does not compile for, or does not fit.

    timed: take the limits and the bench case as well. Each architecture has a process of its own, since a compiler may
    end it.
    """
    declared = registry.load(item)
    drawn: dict[tuple[str, ...], list[Sequence[Any]]] = {}
    found: dict[str, str] = {}
    for name in names:
        card = target(name)
        if lacking := _required(declared, card):
            found[name] = lacking
            continue
        exercise, instead = devices.adapt_exercise(declared, "cpu", card)
        if instead not in drawn:
            drawn[instead] = [draw_inputs(exercise, case, 1, "cpu") for case in _cases(exercise, timed)]
        if failed := run_in_fork(partial(_tried, item, exercise, card, drawn[instead])):
            found[name] = _told(failed)
    return found


def _cases(exercise: Exercise, timed: bool) -> list[Case]:
    """The largest case of each dtype, the limits, and the case that is timed, unless torch has products to make of it.

    Limits take kernels of their own: the longest rows, the largest heads.
    """

    def size(case: Case) -> int:
        return exercise.compulsory_bytes(**case)

    found = list({str(case.get("dtype")): case for case in sorted(exercise.cases, key=size)}.values())
    if not timed:
        return found
    found += [case for case in (*exercise.limits, *exercise.gpu_limits) if size(case) <= LARGEST]
    bench = exercise.bench
    return [*found, bench] if bench and size(bench) <= LARGEST and not exercise.products else found


def _required(exercise: Exercise, card: Target) -> str:
    """What the declaration requires, where the architecture has less or is another one."""
    if not devices.missing_capability(exercise, "cpu", card):
        return ""
    assert exercise.requires is not None
    major, minor = exercise.requires
    return f"requires sm_{major}{minor}" + "a, no other" * exercise.specific


def _told(failed: Sequence[str]) -> str:
    """Of several cases the largest request for shared memory, or else what the first one ended with."""
    asked = [int(found[1]) for one in failed if (found := _SHARED.search(one))]
    if len(asked) == len(failed):
        return f"requires {-(-max(asked) // KIB)} KiB of shared memory in a block"
    return next(one for one in failed if not _SHARED.search(one)).partition("\n")[0]


_SHARED = re.compile(r"(?:shared memory, Required: |^ValueError: )(\d+)")
"""As Triton and the limits of a target tell it."""


def _tried(item: Item, exercise: Exercise, card: Target, drawn: Iterable[Sequence[Any]]) -> list[str]:
    """How the cases ended that did not come to an end."""
    launched: list[Launched] = []
    gpu.show(properties(card), card)
    api.use(Unexecuted(launched))
    entry, failed = load_entry(item, exercise), []
    for inputs in drawn:
        before = len(launched)
        try:
            entry(*inputs)
        except Unavailable as error:
            cause = error.__cause__
            failed.append(f"{type(cause).__name__}: {cause}" if cause else str(error))
        except Exception as error:
            failed.append(f"{type(error).__name__}: {error}")
        else:
            failed += ["no kernel was launched"] * (len(launched) == before)
    return failed


def load_entry(item: Item, exercise: Exercise) -> Callable[..., Any]:
    """Import the solution, and return what takes the problem's inputs."""
    if item.lane == "triton":
        from kernelpath.lanes import triton

        triton.activate("cpu")
    sys.path.insert(0, str(item.solution.with_suffix("") / "src"))  # a library's
    entry: Callable[..., Any] = getattr(registry.import_file(item.solution, f"cards_{item.name}"), exercise.entry)
    if exercise.kind == "kernel":
        return entry
    from kernelpath.work.operators import with_gradient

    return with_gradient(entry, exercise.gradients_of)


def run_in_fork(work: Callable[[], list[str]]) -> list[str]:
    """What the work returns in a process of its own; that it ended the process, where it did."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_sent, args=(theirs, work))
    process.start()
    theirs.close()
    answer: list[str] = []
    with suppress(EOFError):
        answer = ours.recv()
    process.join()
    return answer if process.exitcode == 0 else [f"the compiler ended its process with status {process.exitcode}"]


def _sent(to: Connection, work: Callable[[], list[str]]) -> None:
    torch.set_num_threads(1)  # the parent's pool of threads did not survive the fork
    to.send(work())
    to.close()
