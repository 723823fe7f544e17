"""Grades a class on a Ray cluster: a task for each learner and exercise. Ray is optional, the extra `ray`.

Ray decides where and when a task runs, on a processor or a GPU of its own, and starts it again elsewhere when its node
is lost. What was handed in travels with the task. A node needs kernelpath installed as this machine has it, from the
same wheel or with the same checkout; nothing is shared between machines.
"""

from __future__ import annotations

import json
import socket
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kernelpath import packages
from kernelpath.course import places, registry
from kernelpath.course.registry import Item, LookupFailed
from kernelpath.files import Unreadable
from kernelpath.grading import devices, grade
from kernelpath.grading.workers import OneDevice
from kernelpath.school import classroom
from kernelpath.school.gradebook import Grade
from kernelpath.school.handed_in import Entry
from kernelpath.verdict import decode, encode
from kernelpath.work import workspace

RUNNING = "auto"
"""The address of the cluster that this machine belongs to."""

_ANSWER_SECONDS = 5.0

Run = Callable[..., Grade]
"""Grades an Entry, given before other arguments."""


def at(address: str) -> classroom.Engine:
    """The engine that grades on the cluster of this address, such as "10.0.0.5:6379" or "ray://10.0.0.5:10001"."""
    return partial(_join, address)


def _join(address: str, device: grade.Device, jobs: int | None) -> tuple[OneDevice, Executor]:
    """Connect to a cluster; "auto" takes its GPUs where it has any. Raises Usage."""
    if jobs:
        raise grade.Usage("a cluster runs as many in parallel as it has processors or GPUs: leave --jobs out")
    try:
        import ray
    except ImportError as error:
        raise grade.Usage(packages.missing("ray")) from error
    try:
        _knock(address)
        ray.init(address, log_to_driver=False, logging_level="ERROR")
    except (OSError, RuntimeError, ValueError, SystemExit) as error:  # Ray exits where a cluster does not answer
        if address == RUNNING:
            raise grade.Usage(
                "this machine belongs to no Ray cluster; `ray start` joins one, or give --ray ADDRESS"
            ) from error
        raise grade.Usage(f"there is no Ray cluster at {address} to grade on: {_first_line(error)}") from error
    gpus = ray.cluster_resources().get("GPU", 0)
    if device == "cuda" and gpus < 1:
        ray.shutdown()
        raise grade.Usage("no node of the Ray cluster has a GPU; --device cpu grades without")
    where: OneDevice = "cuda" if device != "cpu" and gpus >= 1 else "cpu"
    return where, _Cluster(where)


def _knock(address: str) -> None:
    """Raise OSError where nothing listens: Ray itself would take minutes to say so."""
    place = urlsplit(address if "//" in address else f"//{address}")
    if place.hostname and place.port:
        socket.create_connection((place.hostname, place.port), _ANSWER_SECONDS).close()


@dataclass(frozen=True)
class _Sent:
    """An entry on its way to a node, its file named from its home. contents: of its files, by their paths from there.

    home: where it lies on the machine that asks, for what a report says of it.
    course, versions: what the node must have as well.
    """

    entry: Entry
    contents: Mapping[str, bytes]
    home: str
    device: OneDevice
    course: str
    versions: Mapping[str, str]


class _Cluster(Executor):
    """Runs what grades an entry as Ray tasks, each alone on a processor or a GPU."""

    def __init__(self, device: OneDevice) -> None:
        import ray

        self._device = device
        self._remote = ray.remote(num_cpus=1, num_gpus=1 if device == "cuda" else 0)(_on_a_node)

    def submit(self, run: Run, /, entry: Entry, *rest: Any) -> Future[Grade]:  # type: ignore[override]
        """What `run` returns for the entry and the rest of its arguments, Lost, or Usage where a node is unfit."""
        graded: Future[Grade] = Future()
        try:
            sent = self._sent(entry)
        except Unreadable as error:
            entry, sent = replace(entry, file=None, unusable=str(error)), None
        except OSError as error:
            graded.set_exception(classroom.Lost(str(error)))
            return graded
        if sent is None:
            graded.set_result(run(entry, *rest))
        else:
            self._remote.remote(run, sent, rest).future().add_done_callback(partial(_hand_over, graded))
        return graded

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the cluster, which ends the tasks that are left."""
        import ray

        ray.shutdown()

    def _sent(self, entry: Entry) -> _Sent | None:
        """None where there is nothing to send. Raises Unreadable and OSError."""
        if entry.file is None:
            return None
        file, item = entry.file.absolute(), entry.item
        home = entry.home.absolute() if entry.home else file.parent
        below = file.parent.relative_to(home)
        bare = replace(entry, item=registry.item(item.root, item.stem), file=below / file.name, home=None)
        contents = {str(below / path): content for path, content in workspace.contents(file).items()}
        return _Sent(bare, contents, str(home), self._device, _course(item), grade.versions())


def _hand_over(graded: Future[Grade], done: Future[Grade]) -> None:
    """A task's result. `run` raises nothing: what a task raises is about its node, where all others would end so."""
    from ray.exceptions import RayTaskError

    error = done.exception()
    if error is None:
        graded.set_result(done.result())
    elif not isinstance(error, RayTaskError):
        graded.set_exception(classroom.Lost(f"the cluster lost it again and again: {_first_line(error)}"))
    elif isinstance(error.cause, grade.Usage):
        graded.set_exception(error.cause)
    else:
        graded.set_exception(grade.Usage(f"a node of the cluster cannot grade: {_first_line(error.cause)}"))


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


@places.anywhere()
def _on_a_node(run: Run, sent: _Sent, rest: tuple[Any, ...]) -> Grade:
    """Grade on this node. Raises Usage where it has no GPU, no course, or another version of anything."""
    try:
        item = _own(sent.entry.item)
        devices.resolve(sent.device)
        if _course(item) != sent.course:
            raise grade.Usage(_difference(sent.versions))
    except (grade.Usage, LookupFailed) as error:
        raise grade.Usage(f"the node {socket.gethostname()} cannot grade: {error}") from None
    with tempfile.TemporaryDirectory(prefix="kernelpath-") as name:
        for path, content in sent.contents.items():
            place = Path(name, path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        assert sent.entry.file is not None
        here = replace(sent.entry, item=item, file=Path(name) / sent.entry.file, home=Path(name))
        graded = run(here, *rest)
    placed = encode(graded).replace(name, json.dumps(sent.home)[1:-1])  # a cause may name a whole path
    return decode(placed, Grade)


def _own(item: Item) -> Item:
    """This node's: at the same place, as containers of one image have it, or in its own course."""
    return item if item.declaration.is_file() else registry.item(registry.root(), item.stem)


def _difference(wanted: Mapping[str, str]) -> str:
    """Why the node's course is another one."""
    own = grade.versions()
    for package, version in wanted.items():
        if own.get(package) != version:
            return f"it has {package} {own.get(package, 'not at all')}, the machine that asks {version}"
    return "its kernelpath or its course is another one; install the same"


@cache
def _course(item: Item) -> str:
    return classroom.course(item)
