"""Grade a class on a Ray cluster: a task for each learner and exercise. Ray is optional, the extra `ray`.

Ray decides where and when a task runs, on a processor or a GPU of its own, and restarts it elsewhere when its node is
lost. The submitted files travel with the task. A node needs kernelpath installed as this machine has it, from the same
wheel or with the same checkout; machines share nothing.
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
from kernelpath.course.registry import ExerciseRef, LookupFailed
from kernelpath.files import Unreadable
from kernelpath.grading import devices, grade
from kernelpath.grading.devices import OneDevice
from kernelpath.school import classroom
from kernelpath.school.gradebook import Grade
from kernelpath.school.handed_in import Entry
from kernelpath.verdict import decode, encode
from kernelpath.work import workspace

# The address of the cluster to which this machine belongs.
RUNNING = "auto"

_CONNECT_SECONDS = 5.0

# Grades an Entry, which is the first argument.
GradeFunction = Callable[..., Grade]


def engine_at(address: str) -> classroom.Engine:
    """Return the engine that grades on the cluster at an address such as "10.0.0.5:6379" or "ray://10.0.0.5:10001"."""
    return partial(_join, address)


def _join(address: str, device: grade.Device, jobs: int | None) -> tuple[OneDevice, Executor]:
    """Connect to a cluster; "auto" selects its GPUs if it has any. Raises Usage."""
    if jobs:
        raise grade.Usage("a cluster runs as many in parallel as it has processors or GPUs: leave --jobs out")
    try:
        import ray
    except ImportError as error:
        raise grade.Usage(packages.missing("ray")) from error
    try:
        _require_listener(address)
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
    resolved: OneDevice = "cuda" if device != "cpu" and gpus >= 1 else "cpu"
    return resolved, _ClusterExecutor(resolved)


def _require_listener(address: str) -> None:
    """Raise OSError if nothing listens at the address, since Ray itself would take minutes."""
    url = urlsplit(address if "//" in address else f"//{address}")
    if url.hostname and url.port:
        socket.create_connection((url.hostname, url.port), _CONNECT_SECONDS).close()


@dataclass(frozen=True)
class _ShippedEntry:
    """An entry on its way to a node, with its file relative to its home.

    Attributes:
        contents: The contents of its files, by their paths relative to the home.
        home: The home on the requesting machine, which reports refer to.
        course: A digest that must be the same on the node.
        versions: The versions that must be the same on the node.
    """

    entry: Entry
    contents: Mapping[str, bytes]
    home: str
    device: OneDevice
    course: str
    versions: Mapping[str, str]


class _ClusterExecutor(Executor):
    """An executor that runs each grading as a Ray task with a processor or a GPU of its own."""

    def __init__(self, device: OneDevice) -> None:
        import ray

        self._device = device
        self._remote = ray.remote(num_cpus=1, num_gpus=1 if device == "cuda" else 0)(_grade_on_node)

    def submit(self, grade_function: GradeFunction, /, entry: Entry, *arguments: Any) -> Future[Grade]:  # type: ignore[override]
        """Return a future of `grade_function`'s result, GradingLost, or Usage if a node is unsuitable."""
        graded: Future[Grade] = Future()
        try:
            shipped = self._ship(entry)
        except Unreadable as error:
            entry = replace(entry, file=None, unusable=str(error))
            shipped = None
        except OSError as error:
            graded.set_exception(classroom.GradingLost(str(error)))
            return graded
        if shipped is None:
            graded.set_result(grade_function(entry, *arguments))
        else:
            self._remote.remote(grade_function, shipped, arguments).future().add_done_callback(
                partial(_forward_result, graded)
            )
        return graded

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the cluster, which ends the remaining tasks."""
        import ray

        ray.shutdown()

    def _ship(self, entry: Entry) -> _ShippedEntry | None:
        """Read the files of an entry. Return None if there are none. Raises Unreadable and OSError."""
        if entry.file is None:
            return None
        file = entry.file.absolute()
        item = entry.item
        home = entry.home.absolute() if entry.home else file.parent
        relative_folder = file.parent.relative_to(home)
        portable_entry = replace(
            entry, item=registry.exercise_ref(item.root, item.path_id), file=relative_folder / file.name, home=None
        )
        # The contents travel, because nodes need not share a file system with this machine.
        contents = {str(relative_folder / path): content for path, content in workspace.contents(file).items()}
        return _ShippedEntry(
            portable_entry, contents, str(home), self._device, _exercise_digest(item), grade.versions()
        )


def _forward_result(graded: Future[Grade], done: Future[Grade]) -> None:
    """Forward a task's result to the future of the run.

    The grading function raises nothing. An exception of a task is about its node, and would recur for every entry.
    """
    from ray.exceptions import RayTaskError

    error = done.exception()
    if error is None:
        graded.set_result(done.result())
    elif not isinstance(error, RayTaskError):
        graded.set_exception(classroom.GradingLost(f"the cluster lost it repeatedly: {_first_line(error)}"))
    elif isinstance(error.cause, grade.Usage):
        graded.set_exception(error.cause)
    else:
        graded.set_exception(grade.Usage(f"a node of the cluster cannot grade: {_first_line(error.cause)}"))


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


@places.allow_package_course()
def _grade_on_node(grade_function: GradeFunction, shipped: _ShippedEntry, arguments: tuple[Any, ...]) -> Grade:
    """Grade on this node. Raises Usage if it has no GPU, no course, or different versions."""
    try:
        item = _find_local_item(shipped.entry.item)
        devices.resolve(shipped.device)
        if _exercise_digest(item) != shipped.course:
            raise grade.Usage(_explain_mismatch(shipped.versions))
    except (grade.Usage, LookupFailed) as error:
        raise grade.Usage(f"the node {socket.gethostname()} cannot grade: {error}") from None
    with tempfile.TemporaryDirectory(prefix="kernelpath-") as name:
        for path, content in shipped.contents.items():
            target = Path(name, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        assert shipped.entry.file is not None
        local_entry = replace(shipped.entry, item=item, file=Path(name) / shipped.entry.file, home=Path(name))
        graded = grade_function(local_entry, *arguments)
    # A cause may name a whole path. The text is JSON, so the path is inserted as JSON escapes it, without its quotes.
    text = encode(graded).replace(name, json.dumps(shipped.home)[1:-1])
    return decode(text, Grade)


def _find_local_item(item: ExerciseRef) -> ExerciseRef:
    """Return this node's exercise: at the same path, as containers of one image have it, or in its own course."""
    return item if item.declaration.is_file() else registry.exercise_ref(registry.root(), item.path_id)


def _explain_mismatch(required: Mapping[str, str]) -> str:
    """Explain why the node's course differs."""
    installed = grade.versions()
    for package, version in required.items():
        if installed.get(package) != version:
            return f"it has {package} {installed.get(package, 'not at all')}, this machine has {version}"
    return "its kernelpath or its course differs; install the same version"


@cache
def _exercise_digest(item: ExerciseRef) -> str:
    return classroom.exercise_digest(item)
