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
from dataclasses import InitVar, dataclass, field
from functools import partial
from itertools import count, pairwise
from threading import Event
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from warpcheck.layout import LANES, Access, Space
from warpcheck.lowered_kernel import Lowered
from warpcheck.runtime import schedule
from warpcheck.runtime.access_history import ENTRY_BYTES, HEADER_BYTES
from warpcheck.runtime.arrays import FAR, RecordLayout, Records, address_of
from warpcheck.runtime.buffers import Shadow
from warpcheck.runtime.cta import Cta
from warpcheck.runtime.kept_memory import Arena, rounded
from warpcheck.runtime.launch import NEVER, Grid
from warpcheck.runtime.records import BUFFER, COUNTED, MERGE

__all__ = ["Workers", "longest_round", "qualifies"]

R = TypeVar("R")
RunGrid = Callable[[int, int], int]
# A function of history_merge, of the address of a MERGE record and a range of granules.
MergeFunction = Callable[[int, int, int], int]

# The fewest lane-instructions that have to be left: with less, starting the threads is not worth it.
MIN_CLOCK_LEFT = 1 << 22
# An estimate of the time of one lane-instruction, and of the work for a byte of the workers' histories and of memory
# that may have to be restored, in ns.
INSTRUCTION_TIME = 3.0
HISTORY_BYTE_TIME = 0.2
SAVED_BYTE_TIME = 0.6
# All buffers are saved, and not only those that the launch has written so far, if that takes no more than this share of
# the time that the workers are expected to save.
SAVING_SHARE = 0.05
MAX_HISTORY_BYTES = 1 << 30  # of all workers

# The parts of the blocks get smaller towards the end, so that workers end at about the same time, if blocks differ or
# cores are busy. Each takes a worker some 50 µs.
LARGEST_SHARE = 16  # no part has more than one of so many shares of the blocks
SMALLEST_SHARE = 256
# Times, of which a word of the history holds 2**31: of a launch when its workers begin, and of all parts.
MAX_TIME = 1 << 29
PARTS_SHIFT = 30

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
        limit: The time of the worker before which it has to end: the next part may begin then.
    """

    number: int
    blocks: range
    began: int
    limit: int


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
        arena: Has `_size_of_histories` bytes for the histories.

    Attributes:
        histories: The history of each buffer.
        sample_parts: For each access site, the part that its sample is of, or -1.
        is_sample_final: Whether no later request replaces it.
    """

    def __init__(self, grid: Grid, saved: Collection[int], arena: Arena) -> None:
        super().__init__(grid.configuration.layout)
        # Its arrays are its own, but for those that do not change.
        own = self.layout.views.keys() - {"params", "symbols"}
        self.set(**{name: grid.get(name) for name in self.layout.fields.keys() - own})
        # The turns are its own, in memory for one turn of each block: the launch may have had more of them.
        self.set(pause_clock=NEVER, limits_slices=0, is_worker=1, turn_count=0)
        # An atomic operation of an earlier block may have shown that the plain reads of a site are guesses.
        self.array("samples")["is_speculative"] = grid.array("samples")["is_speculative"]
        self.histories = [_empty_history(shadow, arena) for shadow in grid.shadows]
        self.point(buffers=grid.array("buffers").copy())
        rows = self.array("buffers").view(BUFFER)[1:]  # an empty record comes first
        rows["read_only"] = [number not in saved for number in range(len(rows))]
        rows["history"] = [address_of(history) for history in self.histories]
        self._grid = grid
        self.sample_parts = np.full(len(grid.counts), -1)
        self.is_sample_final = np.zeros(len(grid.counts), np.bool_)

    def note_samples(self, part: int, requests: npt.NDArray[np.int64]) -> None:
        """Note which samples are of a part that has just ended; ``requests`` are those of each site before it."""
        counts = self.array("counts")
        is_new = (counts["requests"] != requests) & ~self.is_sample_final
        if is_new.any():
            self.sample_parts[is_new] = part
            self.is_sample_final = is_sample_final(self._grid, counts)


def _empty_history(shadow: Shadow, arena: Arena) -> npt.NDArray[np.uint8]:
    """Return an empty history for the granules of a buffer; see `buffers.empty_history`.

    A kernel that `qualifies` replaces no writes of global memory, so the memory for them is not used.
    """
    header = arena.take(HEADER_BYTES)
    header[-8:].view(np.int64)[0] = address_of(shadow.replaced)
    return arena.take(shadow.history.size, is_cleared=True)


def _size_of_histories(grid: Grid) -> int:
    """Return the bytes that a worker needs for its histories of the buffers."""
    return sum(HEADER_BYTES + rounded(shadow.history.size) for shadow in grid.shadows)


def is_sample_final(grid: Grid, counts: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    """Return for each access site whether no later request replaces its sample; see `memory.access`."""
    has_cost = (counts["sectors"] != 0) | (counts["wavefronts"] != 0)
    is_final: npt.NDArray[np.bool_] = (counts["requests"] != 0) & (~grid.configuration.generic_sites | has_cost)
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
        launch: Its record of the launch.
        stopping: Set when all workers have to stop.

    Attributes:
        ends: The ends of its parts, by their numbers.
    """

    def __init__(
        self, grid: Grid, run_grid: RunGrid, launch: _WorkerLaunch, allowance: _Allowance, stopping: Event
    ) -> None:
        self.launch = launch
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
        if launch.get("time") >= part.limit:
            raise _Abandoned
        turns = [launch.array(name)[first_turn : launch.get("turn_count")] for name in ("turns", "turn_blocks")]
        self.ends[part.number] = _PartEnd(launch.get("time"), np.array(turns))
        launch.note_samples(part.number, requests)


@dataclass
class _Original:
    """The bytes of a buffer, and their states, as they were before the workers began."""

    shadow: Shadow
    arena: InitVar[Arena]
    contents: npt.NDArray[np.uint8] = field(init=False)
    states: npt.NDArray[np.uint8] = field(init=False)

    def __post_init__(self, arena: Arena) -> None:
        self.contents = arena.take(self.shadow.buffer.nbytes)
        self.contents[:] = _bytes_of(self.shadow)
        self.states = arena.take(self.shadow.state.size)
        self.states[:] = self.shadow.state

    @staticmethod
    def size(shadow: Shadow) -> int:
        """Return the bytes that the original of a buffer needs in the arena."""
        return rounded(shadow.buffer.nbytes) + rounded(shadow.state.size)

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
        return (
            len(grid.residents.resident) == 1
            and grid.get("block_count") - grid.get("block_next") > 1
            and MIN_CLOCK_LEFT <= _clock_left(grid) <= limit
            and self._gain(grid) > 2 * self._cost(grid)
            and self._history_bytes(grid) <= MAX_HISTORY_BYTES
            and grid.get("time") < MAX_TIME
            and all(shadow.buffer.nbytes < FAR for shadow in grid.shadows)
        )

    def next_pause(self, grid: Grid) -> int:
        """Return the clock at which to estimate again whether workers are worthwhile, if they are not yet.

        The estimate needs some more blocks before it can change so much.
        """
        factor = 2 * self._cost(grid) / max(self._gain(grid), 1)
        return int(grid.get("clock") * max(2.0, factor))

    def _history_bytes(self, grid: Grid) -> int:
        """Return the bytes of the workers' histories."""
        return self.count * sum(shadow.history.size for shadow in grid.shadows)

    def _cost(self, grid: Grid) -> float:
        """Return the time in ns that the workers cost, however many instructions they execute."""
        saving_time = _saving_time(grid, np.flatnonzero(_buffers(grid)["written"]))
        return self._history_bytes(grid) * HISTORY_BYTE_TIME + saving_time

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
        parts = _divide(blocks, self.count, grid.get("time"))
        saved = self._buffers_to_save(grid)
        worker_count = min(self.count, len(parts))
        stopping = Event()
        originals: list[_Original] = []
        launches: list[_WorkerLaunch] = []
        has_run = False
        try:
            size = sum(_Original.size(grid.shadows[number]) for number in saved)
            arena = Arena(size + worker_count * _size_of_histories(grid))
            originals += [_Original(grid.shadows[number], arena) for number in saved]
            launches += [_WorkerLaunch(grid, saved, arena) for _ in range(worker_count)]
            workers = [_Worker(grid, run_grid, launch, allowance, stopping) for launch in launches]
            # The pool waits for its threads, also when an exception leaves the block. This thread is one of them.
            with ThreadPoolExecutor(max(worker_count - 1, 1)) as pool:
                try:
                    self._run_in(pool, grid, workers, parts)
                    has_run = True
                finally:
                    stopping.set()
        except (_Abandoned, MemoryError):
            self.has_abandoned = True
        finally:
            if not has_run:
                for number, original in zip(saved, originals, strict=False):
                    original.restore([launch.histories[number] for launch in launches])
        if launches:
            arena.release(clears_everything=not has_run)
        return has_run

    def _buffers_to_save(self, grid: Grid) -> list[int]:
        """Return the numbers of the buffers whose bytes are saved: all of them if that takes little time."""
        everything = np.arange(len(grid.shadows))
        saves_everything = _saving_time(grid, everything) <= SAVING_SHARE * self._gain(grid)
        numbers: list[int] = (everything if saves_everything else np.flatnonzero(_buffers(grid)["written"])).tolist()
        return numbers

    def _run_in(self, pool: ThreadPoolExecutor, grid: Grid, workers: Sequence[_Worker], parts: Sequence[_Part]) -> None:
        """Run the parts, and merge what the workers have recorded. Raises _Abandoned before anything is merged."""
        numbers = partial(next, count())
        _run_all(pool, [partial(worker.run, parts, numbers) for worker in workers])
        if not all(_differs_as_expected(grid, worker.launch) for worker in workers):
            raise _Abandoned
        ends = {number: end for worker in workers for number, end in worker.ends.items()}
        times = np.array([ends[part.number].time - part.began for part in parts])
        # How much later a part began in the time of the launch than in the one of its worker.
        delays = np.cumsum(times) - times - (np.arange(len(parts)) << _part_shift(len(parts)))
        merges = _merge_records(grid, [worker.launch for worker in workers], delays)

        def merge_shares(function: MergeFunction) -> list[bool]:
            """Call a function for all granules. Each thread has a range of those of each buffer."""
            granules = [shadow.history.size // ENTRY_BYTES for shadow in grid.shadows]

            def merge_share(thread: int) -> bool:
                shares = [range(n * thread // len(workers), n * (thread + 1) // len(workers)) for n in granules]
                return any(
                    function(merge.address, share.start, share.stop)
                    for merge, share in zip(merges, shares, strict=True)
                )

            return _run_all(pool, [partial(merge_share, thread) for thread in range(len(workers))])

        if any(merge_shares(self.find_conflict)):
            raise _Abandoned
        merge_shares(self.merge_entries)
        _add_records(grid, workers)
        moves = [np.array([[delay], [0]]) for delay in delays.tolist()]
        _append_turns(grid, [ends[part.number].turns + move for part, move in zip(parts, moves, strict=True)])
        grid.set(time=grid.get("time") + int(times.sum()), block_next=grid.get("block_count"))


def _run_all(pool: ThreadPoolExecutor, tasks: Sequence[Callable[[], R]]) -> list[R]:
    """Run tasks at the same time, the first of them in this thread, and return their results.

    Raises:
        _Abandoned: No further thread can start.
    """
    first, *others = tasks
    try:
        futures = [pool.submit(task) for task in others]
    except RuntimeError as error:
        raise _Abandoned from error
    return [first(), *(future.result() for future in futures)]


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


def _divide(blocks: range, worker_count: int, time: int) -> list[_Part]:
    """Return the parts: each is half of what a worker would get of the blocks that are left, within bounds."""
    largest = max(len(blocks) // LARGEST_SHARE, 1)
    smallest = max(len(blocks) // SMALLEST_SHARE, 1)
    starts = [blocks.start]
    while starts[-1] < blocks.stop:
        left = blocks.stop - starts[-1]
        starts.append(starts[-1] + min(max(min(left // (2 * worker_count), largest), smallest), left))
    shift = _part_shift(len(starts) - 1)
    return [
        _Part(number, range(start, stop), time + (number << shift), time + (number + 1 << shift))
        for number, (start, stop) in enumerate(pairwise(starts))
    ]


def _part_shift(count: int) -> int:
    """Return the binary logarithm of the times that each of so many parts may take."""
    return PARTS_SHIFT - (count - 1).bit_length()


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


def _merge_records(grid: Grid, launches: Sequence[_WorkerLaunch], delays: npt.NDArray[np.int64]) -> list[Records]:
    """Return a MERGE record for each buffer. ``delays`` are those of the parts."""
    arrays = {"histories": (np.int64, len(launches)), "delays": (np.int64, len(delays))}
    values = {
        "worker_count": len(launches),
        "part_shift": _part_shift(len(delays)),
        "launch_began": grid.get("launch_began"),
        "began": grid.get("time"),
    }
    layout = RecordLayout(MERGE, arrays, values)
    merges = []
    for number, shadow in enumerate(grid.shadows):
        merge = Records(layout)
        merge.set(history=address_of(shadow.history))
        merge.array("histories")[:] = [address_of(launch.histories[number]) for launch in launches]
        merge.array("delays")[:] = delays
        merges.append(merge)
    return merges


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
