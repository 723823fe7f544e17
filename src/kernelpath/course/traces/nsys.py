"""Parse Nsight Systems' SQLite export: kernels with names in a table of strings, in nanoseconds.

Source: Nsight Systems, "SQLite Export Schema Reference". A database written here, from another tool's recording, has
the columns of CUPTI_ACTIVITY_KIND_KERNEL that the schema documents, StringIds, and NVTX_EVENTS.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from kernelpath.course.traces import Malformed
from kernelpath.course.traces.chrome import ChromeTrace

# The eventType of nvtxRangePush and nvtxRangePop.
PUSH_POP_RANGE = 59

_SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
    demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, registersPerThread INTEGER NOT NULL,
    gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL,
    blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL,
    staticSharedMemory INTEGER NOT NULL, dynamicSharedMemory INTEGER NOT NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT,
    globalTid INTEGER, textId INTEGER, domainId INTEGER);
"""

_KERNELS = """
SELECT value, end - start, gridX * gridY * gridZ, blockX * blockY * blockZ, registersPerThread
FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON StringIds.id = demangledName
"""


@dataclass(frozen=True)
class Kernel:
    """A launch; `registers` are per thread."""

    name: str
    nanoseconds: float
    blocks: int
    threads: int
    registers: int


def read(content: bytes) -> Sequence[Kernel]:
    """Return the kernels. Raises Malformed."""
    try:
        with _open_database(content) as database:
            kernels = [Kernel(*row) for row in database.execute(_KERNELS)]
    except sqlite3.Error as error:
        raise Malformed(f"the SQLite export of nsys cannot be read: {error}") from error
    if not kernels:
        raise Malformed("the SQLite export of nsys holds no kernel; profile with --trace=cuda")
    return kernels


def export(timeline: ChromeTrace) -> bytes:
    """Return a database with the schema above, from the kernels and ranges of a Chrome trace."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.sqlite"
        with closing(sqlite3.connect(path)) as database:
            database.executescript(_SCHEMA)
            _fill(database, timeline)
            database.commit()
        return path.read_bytes()


def _fill(database: sqlite3.Connection, timeline: ChromeTrace) -> None:
    strings: dict[str, int] = {}
    for kernel in timeline.kernels:
        arguments = kernel.arguments
        # nsys's short name has no return type, namespaces, template arguments, and parameters.
        short = kernel.name.partition("<")[0].partition("(")[0].rpartition("::")[2].rpartition(" ")[2]
        names = [strings.setdefault(name, len(strings) + 1) for name in (kernel.name, short)]
        times = (round(1e3 * kernel.start), round(1e3 * kernel.end))
        location = (
            int(arguments.get("device", 0)),
            int(arguments.get("context", 1)),
            kernel.stream,
            kernel.correlation,
            0,
        )
        shape = (
            int(arguments["registers per thread"]),
            *arguments["grid"],
            *arguments["block"],
            0,
            int(arguments.get("shared memory", 0)),
        )
        row = (*times, *location, *names, *shape)
        database.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({', '.join('?' * len(row))})", row)
    for timed_range in timeline.ranges:
        thread = int(timed_range.thread[1]) if timed_range.thread[1].isdigit() else 0
        event = (
            round(1e3 * timed_range.start),
            round(1e3 * timed_range.end),
            PUSH_POP_RANGE,
            timed_range.name,
            thread,
            None,
            0,
        )
        database.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?, ?)", event)
    database.executemany("INSERT INTO StringIds VALUES (?, ?)", ((id, value) for value, id in strings.items()))


@contextmanager
def _open_database(content: bytes) -> Iterator[sqlite3.Connection]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.sqlite"
        path.write_bytes(content)
        with closing(sqlite3.connect(path)) as database:
            yield database
