"""Run the blocks of a launch on several cores, with the outcome of one core.

A launch begins on one core. When it has run for a while and much is left, and its kernel qualifies (see
``qualifies``), the remaining blocks are divided into parts of consecutive blocks. Workers, one in each thread, take one
part after another. A worker has records of its own for everything that a block changes (the record of the launch with
its counters, the record of a block, the histories of the buffers), except for the bytes of the buffers and their
states, which all workers share.

The blocks of a kernel that qualifies cannot communicate without a race. So the workers speculate that blocks access
different memory, or only read it. Their run is abandoned if that is wrong (``history_merge.find_conflict``), and
whenever a worker meets anything that one core would handle outside of generated code: a fault, a deferred fault at its
barrier, printf, a block that waits for another one or lets it run. Then the bytes that the workers have changed are
restored, and one core runs these blocks, as if there had been no workers. So it does if they spend more instructions
than the launch has left before it comes near its limit. Otherwise the records of the workers are merged into those
of the launch. Times are relative to a worker at first; afterwards they are those of one core, and so are the histories,
word by word.

The bytes are saved before the workers begin. If saving all buffers would take too long, only those are saved that the
launch has stored to by then. A worker's store to any other buffer is a fault (``BufferRecord.read_only``), before the
bytes are written.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import count, pairwise
from threading import Event
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from warpcheck.layout import LANES, Access, Space
from warpcheck.lowered_kernel import Lowered
from warpcheck.runtime import schedule
from warpcheck.runtime.access_history import ENTRY_BYTES
from warpcheck.runtime.arrays import FAR, RecordLayout, Records, address_of
from warpcheck.runtime.buffers import Shadow, empty_history
from warpcheck.runtime.cta import Cta
from warpcheck.runtime.launch import NEVER, Grid
from warpcheck.runtime.records import BUFFER, COUNTED, MERGE

__all__ = ["Workers", "longest_round", "qualifies"]

RunGrid = Callable[[int, int], int]
# A function of history_merge, of the address of a MERGE record and a range of granules.
MergeFunction = Callable[[int, int, int], int]

# The fewest lane-instructions that have to be left: with less, starting the threads is not worth it.
MIN_CLOCK_LEFT = 1 << 22
# An estimate of the time of one lane-instruction, and of the work for a byte of the workers' histories and of memory
# that may have to be restored, in ns.
INSTRUCTION_TIME = 3.0
HISTORY_BYTE_TIME = 0.3
SAVED_BYTE_TIME = 0.6
# All buffers are saved, and not only those that the launch has written so far, if that takes no more than this share of
# the time that the workers are expected to save.
SAVING_SHARE = 0.05
MAX_HISTORY_BYTES = 1 << 30  # of all workers

# The parts of the blocks: enough of them that workers end at about the same time, if blocks differ or cores are busy.
MAX_PARTS = 64
PART_SHIFT = 23  # log2 of the times that a part may take; MAX_PARTS of them are far below the 2**31 that a word holds
MAX_TIME = 1 << 30  # of a launch when its workers begin

TURN = 1 << 22  # lane-instructions of a worker after which it looks whether it has to stop
# A block that runs longer than this, and far longer than the blocks before it, may read what another worker writes in a
# loop without end.
MIN_RUNAWAY_CLOCK = 1 << 26
RUNAWAY_FACTOR = 64

# Instructions by which blocks communicate, or that depend on the state of the whole launch. Those of tensor memory and
# of the asynchronous proxy access global memory without `memory.access`.
_ORDERING_OPCODES = {"griddepcontrol", "clusterlaunchcontrol", "tcgen05", "multimem", "nanosleep"}
_FENCES = {"fence", "membar"}

# The fields of a launch's record that workers add to, and those that may differ afterwards.
_SUMS = ("clock", "clock_before_trigger", "clock_before_exit", "sectors_before_wait")
_OWN = {
    *("block_next", "block_stop", "pause_clock", "time", "turn_count", "turns", "turn_blocks"),
    *("budget", "host_budget", "unused_budget", "timeouts_expire", "limits_slices"),
    *("conflict_id", "conflict_time", "buffers", "chunks", "is_worker"),
}


def qualifies(lowered: Lowered) -> bool:
    """Return whether the blocks of a kernel can only communicate by a race: by plain accesses to the same memory."""
    for site in lowered.sites:
        if site.is_bulk:
            return False
        is_global = site.space in (Space.GLOBAL, Space.GENERIC, Space.CLUSTER)
        if is_global and (site.access == Access.ATOMIC or site.strong):
            return False
    names = {name.lstrip("@") for block in lowered.blocks for _, name in block}
    return not any(_orders_blocks(name.split(".")) for name in names)


def _orders_blocks(words: Sequence[str]) -> bool:
    if words[0] in _FENCES:
        return "cta" not in words and "proxy" not in words
    return words[0] in _ORDERING_OPCODES or "cluster" in words


def longest_round(grid: Grid) -> int:
    """Return by how many lane-instructions a block may exceed its turn: a slice of each warp."""
    x, y, z = grid.block
    return schedule.SLICE * -(-x * y * z // LANES)


class _Part(NamedTuple):
    """Consecutive blocks that a worker runs.

    Attributes:
        number: The parts with lower numbers have the blocks before these.
        blocks: The numbers of the blocks.
        began: The time of the worker when it began.
    """

    number: int
    blocks: range
    began: int


class _PartEnd(NamedTuple):
    """The end of a part.

    Attributes:
        time: The time of the worker.
        turns: The turns of its blocks: a row of times, and a row of the numbers of blocks.
    """

    time: int
    turns: npt.NDArray[np.int64]


class _Abandoned(Exception):
    """The workers' run is abandoned."""


class _WorkerLaunch(Records):
    """The record of a launch as a worker has it.

    Args:
        saved: The numbers of the buffers that may be written, because their bytes can be restored.

    Attributes:
        histories: The history of each buffer, and the memory for replaced writes; see `empty_history`.
        sample_parts: For each access site, the part that its sample is of, or -1.
        is_sample_final: Whether no later request replaces it.
    """

    def __init__(self, grid: Grid, saved: Collection[int]) -> None:
        super().__init__(grid.configuration.layout)
        # Its arrays are its own, but for those that do not change.
        own = self.layout.views.keys() - {"params", "symbols"}
        self.set(**{name: grid.get(name) for name in self.layout.fields.keys() - own})
        # The turns are its own, in memory for one turn of each block: the launch may have had more of them.
        self.set(pause_clock=NEVER, limits_slices=0, is_worker=1, turn_count=0)
        grid.place_counts(self)
        # An atomic operation of an earlier block may have shown that the plain reads of a site are guesses.
        self.array("samples")["is_speculative"] = grid.array("samples")["is_speculative"]
        self.histories = [empty_history(shadow.history.size // ENTRY_BYTES) for shadow in grid.shadows]
        self.point(buffers=grid.array("buffers").copy())
        rows = self.array("buffers").view(BUFFER)[1:]  # an empty record comes first
        rows["read_only"] = [number not in saved for number in range(len(rows))]
        rows["history"] = [address_of(history) for history, _ in self.histories]
        self._grid = grid
        self.sample_parts = np.full(len(grid.counts), -1)
        self.is_sample_final = np.zeros(len(grid.counts), np.bool_)

    def note_samples(self, part: int, requests: npt.NDArray[np.int64]) -> None:
        """Note which samples are of a part that has just ended; ``requests`` are those of each site before it."""
        counts = self.array("counts")
        is_new = (counts["requests"] != requests) & ~self.is_sample_final
        self.sample_parts[is_new] = part
        self.is_sample_final = is_sample_final(self._grid, counts)


def is_sample_final(grid: Grid, counts: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    """Return for each access site whether no later request replaces its sample; see `memory.access`."""
    is_generic = np.array([*(site.space == Space.GENERIC for site in grid.lowered.sites), False])
    has_cost = (counts["sectors"] != 0) | (counts["wavefronts"] != 0)
    is_final: npt.NDArray[np.bool_] = (counts["requests"] != 0) & (~is_generic | has_cost)
    return is_final


@dataclass
class _Allowance:
    """The lane-instructions that workers may spend.

    Attributes:
        block: The most of a block.
        together: The most of all blocks of all workers.
        spent: Those of each worker so far.
    """

    block: int
    together: int
    spent: list[int] = field(default_factory=list)

    def is_spent(self) -> bool:
        """Return whether all workers together have spent more than they may."""
        return sum(self.spent) > self.together


class _Worker:
    """Runs parts of the blocks of a launch, in ascending order.

    Args:
        saved: The numbers of the buffers that it may write.
        stopping: Set when all workers have to stop.

    Attributes:
        ends: The ends of its parts, by their numbers.
    """

    def __init__(
        self, grid: Grid, run_grid: RunGrid, saved: Collection[int], allowance: _Allowance, stopping: Event
    ) -> None:
        self.launch = _WorkerLaunch(grid, saved)
        self.cta = Cta(grid.configuration.cta_layout)
        self.ends: dict[int, _PartEnd] = {}
        self._run_grid = run_grid
        self._allowance = allowance
        self._number = len(allowance.spent)
        allowance.spent.append(0)
        self._stopping = stopping

    def run(self, parts: Sequence[_Part], numbers: Callable[[], int]) -> None:
        """Run parts until none is left.

        Args:
            parts: All parts.
            numbers: Returns the number of the next part that no worker has taken.

        Raises:
            _Abandoned: One core has to run the blocks.
        """
        try:
            while (number := numbers()) < len(parts):
                self._run_part(parts[number])
        except BaseException:
            self._stopping.set()
            raise

    def _run_part(self, part: _Part) -> None:
        launch = self.launch
        requests = launch.array("counts")["requests"].copy()
        first_turn = launch.get("turn_count")
        launch.set(time=part.began, block_next=part.blocks.start, block_stop=part.blocks.stop)
        block_spent = 0
        stopped = schedule.HOST
        while stopped != schedule.DONE:
            block = launch.get("block_next")
            launch.set(host_budget=TURN)
            stopped = self._run_grid(launch.address, self.cta.address)
            spent = TURN - launch.get("host_budget")
            self._allowance.spent[self._number] += spent
            block_spent = spent + (block_spent if launch.get("block_next") == block else 0)
            has_used_turn = stopped == schedule.HOST and launch.get("host_budget") < 0
            is_regular = stopped == schedule.DONE or (has_used_turn and not self.cta.get("deferred_address"))
            is_over = block_spent > self._allowance.block or self._allowance.is_spent()
            if not is_regular or is_over or self._stopping.is_set():
                raise _Abandoned
        if launch.get("time") - part.began >= 1 << PART_SHIFT:
            raise _Abandoned
        turns = [launch.array(name)[first_turn : launch.get("turn_count")] for name in ("turns", "turn_blocks")]
        self.ends[part.number] = _PartEnd(launch.get("time"), np.array(turns))
        launch.note_samples(part.number, requests)


@dataclass
class _Original:
    """The bytes of a buffer, and their states, as they were before the workers began."""

    shadow: Shadow
    contents: npt.NDArray[np.uint8] = field(init=False)
    states: npt.NDArray[np.uint8] = field(init=False)

    def __post_init__(self) -> None:
        self.contents = _bytes_of(self.shadow).copy()
        self.states = self.shadow.state.copy()

    def restore(self, histories: Sequence[npt.NDArray[np.uint8]]) -> None:
        """Restore what differs in the granules that are in one of the workers' histories.

        Other threads of this process may have written elsewhere in the buffer meanwhile. A granule that a worker has
        only read, and maybe written in a race, is among them. But a byte that has not changed must not be stored to:
        its page may be write-protected, as in a file that is mapped for reading.
        """
        accessed = np.zeros(len(self.shadow.history) // ENTRY_BYTES, np.bool_)
        for history in histories:
            accessed |= (history.view(np.int64).reshape(-1, ENTRY_BYTES // 8)[:, :2] != 0).any(axis=1)
        is_accessed = np.repeat(accessed, 1 << self.shadow.granule)[: self.contents.size]
        for present, original in ((_bytes_of(self.shadow), self.contents), (self.shadow.state, self.states)):
            differs = is_accessed & (present != original)
            present[differs] = original[differs]


def _bytes_of(shadow: Shadow) -> npt.NDArray[np.uint8]:
    memory = (ctypes.c_uint8 * shadow.buffer.nbytes).from_address(shadow.buffer.address)
    contents: npt.NDArray[np.uint8] = np.ctypeslib.as_array(memory)
    return contents


@dataclass
class Workers:
    """Threads that may run the remaining blocks of launches.

    Args:
        count: The number of threads.
        find_conflict: The compiled `history_merge.find_conflict`.
        merge_entries: The compiled `history_merge.merge_entries`.

    Attributes:
        has_abandoned: Whether a run has been abandoned. It would be in vain to try again with the same kernel.
    """

    count: int
    find_conflict: MergeFunction
    merge_entries: MergeFunction
    has_abandoned: bool = False

    def may_run(self, grid: Grid) -> bool:
        """Return whether workers may run blocks of a launch. Its kernel `qualifies`."""
        is_plain = grid.blocks is None and not grid.get("cooperative") and grid.get("cluster_size") == 1
        return is_plain and not grid.has_array("events") and not grid.overlapped and not self.has_abandoned

    def are_worthwhile(self, grid: Grid, limit: int) -> bool:
        """Return whether the remaining blocks of a launch are likely to take less time on several cores.

        If they are likely to come to ``limit`` lane-instructions, the workers' run would be in vain.
        """
        history_bytes = self.count * sum(shadow.history.size for shadow in grid.shadows)
        cost = history_bytes * HISTORY_BYTE_TIME + _saving_time(grid, np.flatnonzero(_buffers(grid)["written"]))
        return (
            len(grid.residents.resident) == 1
            and grid.get("block_count") - grid.get("block_next") > 1
            and MIN_CLOCK_LEFT <= _clock_left(grid) <= limit
            and self._gain(grid) > 2 * cost
            and history_bytes <= MAX_HISTORY_BYTES
            and grid.get("time") < MAX_TIME
            and all(shadow.buffer.nbytes < FAR for shadow in grid.shadows)
        )

    def _gain(self, grid: Grid) -> float:
        """Return the time in ns that the workers are expected to save, without their own cost."""
        return _clock_left(grid) * INSTRUCTION_TIME * (1 - 1 / self.count)

    def run(self, grid: Grid, run_grid: RunGrid, limit: int, block_limit: int) -> bool:
        """Run the remaining blocks of a launch, whose last block has ended.

        Args:
            limit: The most lane-instructions of these blocks.
            block_limit: The most lane-instructions of a block.

        Returns:
            Whether the blocks have run. If not, nothing has changed.
        """
        first = grid.get("block_next")
        blocks = range(first, grid.get("block_count"))
        average = grid.get("clock") // max(first, 1)
        allowance = _Allowance(min(max(MIN_RUNAWAY_CLOCK, RUNAWAY_FACTOR * average), block_limit), limit)
        parts = _divide(blocks, grid.get("time"))
        stopping = Event()
        workers: list[_Worker] = []
        originals: dict[int, _Original] = {}
        has_run = False
        try:
            everything = np.arange(len(grid.shadows))
            written = np.flatnonzero(_buffers(grid)["written"])
            saves_everything = _saving_time(grid, everything) <= SAVING_SHARE * self._gain(grid)
            for number in (everything if saves_everything else written).tolist():
                originals[number] = _Original(grid.shadows[number])
            for _ in range(min(self.count, len(parts))):
                workers.append(_Worker(grid, run_grid, originals.keys(), allowance, stopping))
            # The pool waits for its threads, also when an exception leaves the block.
            with ThreadPoolExecutor(len(workers)) as pool:
                try:
                    self._run_in(pool, grid, workers, parts)
                    has_run = True
                finally:
                    stopping.set()
        except (_Abandoned, MemoryError):
            self.has_abandoned = True
        finally:
            if not has_run:
                for number, original in originals.items():
                    original.restore([worker.launch.histories[number][0] for worker in workers])
        return has_run

    def _run_in(self, pool: ThreadPoolExecutor, grid: Grid, workers: Sequence[_Worker], parts: Sequence[_Part]) -> None:
        """Run the parts, and merge what the workers have recorded. Raises _Abandoned before anything is merged."""
        numbers = partial(next, count())
        try:
            futures = [pool.submit(worker.run, parts, numbers) for worker in workers]
        except RuntimeError as error:  # no further thread can start
            raise _Abandoned from error
        for future in futures:
            future.result()
        if not all(_differs_as_expected(grid, worker.launch) for worker in workers):
            raise _Abandoned
        ends = {number: end for worker in workers for number, end in worker.ends.items()}
        times = np.array([ends[part.number].time - part.began for part in parts])
        # How much later a part began in the time of the launch than in the one of its worker.
        delays = np.cumsum(times) - times - (np.arange(len(parts)) << PART_SHIFT)
        merges = [
            _merge_record(grid, shadow, [worker.launch.histories[number][0] for worker in workers], delays)
            for number, shadow in enumerate(grid.shadows)
        ]
        # Each thread has a range of the granules of each buffer.
        pieces: list[tuple[int, int, int]] = []
        for merge, shadow in zip(merges, grid.shadows, strict=True):
            granules = shadow.history.size // ENTRY_BYTES
            bounds = [granules * thread // len(workers) for thread in range(len(workers) + 1)]
            pieces += [(merge.address, first, stop) for first, stop in pairwise(bounds)]
        if any(pool.map(lambda piece: self.find_conflict(*piece), pieces)):
            raise _Abandoned
        list(pool.map(lambda piece: self.merge_entries(*piece), pieces))
        _add_records(grid, workers)
        moves = [np.array([[delay], [0]]) for delay in delays.tolist()]
        _append_turns(grid, [ends[part.number].turns + move for part, move in zip(parts, moves, strict=True)])
        grid.set(time=grid.get("time") + int(times.sum()), block_next=grid.get("block_count"))


def _buffers(grid: Grid) -> npt.NDArray[np.void]:
    """Return the records of the buffers, in the order of ``grid.shadows``."""
    rows: npt.NDArray[np.void] = grid.array("buffers").view(BUFFER)[1:]  # an empty record comes first
    return rows


def _saving_time(grid: Grid, numbers: npt.NDArray[np.intp]) -> float:
    """Return the time in ns for saving the bytes and states of these buffers."""
    return 2 * int(_buffers(grid)["bytes"][numbers].sum()) * SAVED_BYTE_TIME


def _clock_left(grid: Grid) -> int:
    """Return the lane-instructions that the remaining blocks take, if they are like those before."""
    blocks_done = grid.get("block_next")
    return grid.get("clock") * (grid.get("block_count") - blocks_done) // max(blocks_done, 1)


def _divide(blocks: range, time: int) -> list[_Part]:
    parts = min(len(blocks), MAX_PARTS)
    bounds = [blocks.start + len(blocks) * number // parts for number in range(parts + 1)]
    return [
        _Part(number, range(start, stop), time + (number << PART_SHIFT))
        for number, (start, stop) in enumerate(pairwise(bounds))
    ]


def _differs_as_expected(grid: Grid, launch: _WorkerLaunch) -> bool:
    """Return whether only those fields of a worker's record have changed that `_run_in` merges."""
    fields = launch.layout.fields.keys() - launch.layout.views.keys() - {*_SUMS, *_OWN}
    has_published = launch.array("published_at").any() or launch.array("acquired_at_exit").any()
    # A site of guesses (races.forgive_cas_guess) is one for the blocks behind it, too.
    guesses, own_guesses = (records.array("samples")["is_speculative"] for records in (grid, launch))
    return (
        all(launch.get(name) == grid.get(name) for name in fields)
        and not has_published
        and np.array_equal(guesses, own_guesses)
    )


def _merge_record(
    grid: Grid, shadow: Shadow, histories: Sequence[npt.NDArray[np.uint8]], delays: npt.NDArray[np.int64]
) -> Records:
    arrays = {"histories": (np.int64, len(histories)), "delays": (np.int64, len(delays))}
    merge = Records(RecordLayout(MERGE, arrays, {"worker_count": len(histories), "part_shift": PART_SHIFT}))
    merge.array("histories")[:] = [address_of(history) for history in histories]
    merge.array("delays")[:] = delays
    merge.set(history=address_of(shadow.history), launch_began=grid.get("launch_began"), began=grid.get("time"))
    return merge


def _add_records(grid: Grid, workers: Sequence[_Worker]) -> None:
    """Add the counters of the workers to those of the launch, and take over samples of accesses."""
    launches = [worker.launch for worker in workers]
    for name in _SUMS:
        before = grid.get(name)
        grid.set(**{name: before + sum(launch.get(name) - before for launch in launches)})
    _take_samples(grid, launches)
    for launch in launches:
        grid.block_counts += launch.array("blocks")
        for name in COUNTED:
            grid.counts[name] += launch.array("counts")[name]
    # The samples have addresses in the shared memory of the workers' blocks.
    grid.residents.all_ctas += [worker.cta for worker in workers]


def _take_samples(grid: Grid, launches: Sequence[_WorkerLaunch]) -> None:
    """Take over the sample of each site that the blocks would have left on one core."""
    is_final = is_sample_final(grid, grid.counts)
    for site in np.flatnonzero(~is_final).tolist():
        candidates = [launch for launch in launches if launch.sample_parts[site] >= 0]
        final = [launch for launch in candidates if launch.is_sample_final[site]]
        if final:
            chosen = min(final, key=lambda launch: int(launch.sample_parts[site]))
        elif candidates:
            chosen = max(candidates, key=lambda launch: int(launch.sample_parts[site]))
        else:
            continue
        grid.array("samples")[site] = chosen.array("samples")[site]


def _append_turns(grid: Grid, turns: Sequence[npt.NDArray[np.int64]]) -> None:
    """Append the turns of the parts, in order."""
    rows = np.concatenate(turns, axis=1)
    start = grid.get("turn_count")
    stop = start + rows.shape[1]
    for name, row in zip(("turns", "turn_blocks"), rows, strict=True):
        grid.array(name)[start:stop] = row
    grid.set(turn_count=stop)
