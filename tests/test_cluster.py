"""A class on a Ray cluster of two nodes on this machine: what is lost, what is done again, and what is said."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernelpath import cli
from kernelpath.course.registry import ExerciseRef
from kernelpath.grading import grade
from kernelpath.school import classroom, cluster, gradebook
from kernelpath.school.gradebook import UNFINISHED, Grade
from kernelpath.school.handed_in import Entry, all_entries
from kernelpath.verdict import Report, Verdict
from tests.waiting import happens

ray = pytest.importorskip("ray", reason="ray is not installed: kp grade --ray needs the extra ray")
Cluster = pytest.importorskip("ray.cluster_utils", reason="ray is without its test cluster").Cluster
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own

SOURCES = {
    "ada": "def double(x):\n    return 2 * x\n",
    "ben": "def double(x):\n    return 3 * x\n",
    "cleo": "def double(x):\n    return x.double() * 2\n",
    "dan": "def double(x):\n    raise NotImplementedError\n",
    "eve": "def double(x)\n",
}


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A cluster whose one node, the head, has one processor."""
    started = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    yield started
    ray.shutdown()
    started.shutdown()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five learners who end in five ways, one who handed in nothing, and one whose file is too large to be graded."""
    for learner, text in (*SOURCES.items(), ("fay", ""), ("gus", "#" * (5 << 20))):
        (tmp_path / "class" / learner).mkdir(parents=True)
        if text:
            (tmp_path / "class" / learner / "w01a_double.py").write_text(text)
    return tmp_path / "class"


def told(one: Grade) -> object:
    """A grade without what differs from run to run: seconds."""
    if one.report is None:
        return one
    cases = tuple(replace(case, seconds=0.0) for case in one.report.cases)
    return replace(one, report=replace(one.report, cases=cases, seconds=0.0, compile_seconds=0.0))


def test_of_two_nodes_one_is_killed(
    nodes: Any, folder: Path, doubling: ExerciseRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = classroom.grade_class(folder, tmp_path / "local", [doubling], device="cpu")
    second = nodes.add_node(num_cpus=1)
    doomed, log, original = second.node_id, tmp_path / "log", classroom._grade

    def on_a_node(entry: Entry, *rest: Any) -> Grade:
        """Grades, but for the second task of the doomed node, which never ends; the head waits until it begins."""
        here = ray.get_runtime_context().get_node_id()
        with log.open("a") as file:
            file.write(f"{here} begins {entry.learner}\n")
        while entry.file and (log.read_text().count(f"{doomed} begins") == 2) == (here == doomed):
            time.sleep(0.1)
        graded = original(entry, *rest)
        with log.open("a") as file:
            file.write(f"{here} ends {entry.learner}\n")
        return graded

    def kill(_: Grade, done: int, of: int) -> None:
        if done == 3:  # the two without a file, and the doomed node's first
            assert happens(lambda: log.read_text().count(f"{doomed} begins") == 2)
            nodes.remove_node(second, allow_graceful=False)

    log.write_text("")
    monkeypatch.setattr(classroom, "_grade", on_a_node)
    out = tmp_path / "out"
    engine = cluster.engine_at(nodes.address)
    grades = classroom.grade_class(folder, out, [doubling], device="cpu", engine=engine, on_graded=kill)

    assert len(grades) == len(local)
    for one, here in zip(grades[:-1], local[:-1], strict=True):
        assert told(one) == told(here)
    gus, too_large = grades[-1].report, local[-1].report  # nothing of it travels
    assert gus
    assert too_large
    assert (gus.verdict, gus.cause) == (too_large.verdict, too_large.cause)
    verdicts = {one.learner: one.report.verdict.value for one in grades if one.report}
    assert verdicts["ada"] == "PASSED"
    assert len(set(verdicts.values())) >= 4
    lines = [line.split() for line in log.read_text().splitlines()]
    ended = Counter(learner for _, what, learner in lines if what == "ends")
    begun = Counter(learner for _, what, learner in lines if what == "begins")
    assert ended == dict.fromkeys((*SOURCES, "fay", "gus"), 1)
    assert sorted(begun.values()) == [1] * 6 + [2]
    assert len(json.loads((out / "grades.json").read_text())["grades"]) == 7

    again = classroom.grade_class(folder, out, [doubling], device="cpu", engine=engine)
    assert again == grades
    assert len(log.read_text().splitlines()) == len(lines)


def test_another_version_on_a_node_ends_the_run_and_keeps_what_is_graded(
    nodes: Any, folder: Path, doubling: ExerciseRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = [entry for entry in all_entries(folder, [doubling]) if entry.learner == "fay"]
    engine = cluster.engine_at(nodes.address)
    classroom.grade_entries(idle, folder, tmp_path / "out", device="cpu", engine=engine)
    with monkeypatch.context() as patch:
        patch.setattr(grade, "versions", lambda: {"python": "3.99.0"})
        with pytest.raises(
            grade.Usage, match=r"the node \S+ cannot grade: it has python 3\.\d+\.\d+, .* asks 3\.99\.0"
        ):
            classroom.grade_class(folder, tmp_path / "out", [doubling], device="cpu", engine=engine)
    kept = json.loads((tmp_path / "out" / "grades.json").read_text())["grades"]
    assert {one["learner"] for one in kept} >= {"fay", "gus"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(classroom, "_grader_digest", lambda: "fixed")
        cluster._exercise_digest.cache_clear()
        with pytest.raises(grade.Usage, match="its kernelpath or its course differs"):
            classroom.grade_class(folder, tmp_path / "out", [doubling], device="cpu", engine=engine)
    cluster._exercise_digest.cache_clear()


def test_no_gpu_in_the_cluster(nodes: Any) -> None:
    with pytest.raises(grade.Usage, match="no node of the Ray cluster has a GPU; --device cpu"):
        cluster.engine_at(nodes.address)("cuda", None)
    where, pool = cluster.engine_at(nodes.address)("auto", None)
    pool.shutdown()
    assert where == "cpu"


@pytest.mark.parametrize("address", ["127.0.0.1:9", "ray://127.0.0.1:9", "vector_add"])
def test_no_cluster_at_the_address(
    address: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray itself would take 200 s to say that nothing answers at an address, so it is not even started there."""
    started: list[str] = []
    init = ray.init

    def start(at: str, **options: Any) -> Any:
        started.append(at)
        return init(at, **options)

    monkeypatch.setattr(ray, "init", start)
    with pytest.raises(SystemExit) as ended:
        cli.main(["grade", str(folder), "vector_add", "--ray", address])
    said = capsys.readouterr().err.strip().splitlines()
    assert ended.value.code == 2
    assert [line.startswith(f"error: there is no Ray cluster at {address} to grade on: ") for line in said] == [True]
    assert bool(started) == (":" not in address)


def test_a_machine_of_no_cluster(folder: Path, doubling: ExerciseRef, tmp_path: Path) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ConnectionError("Could not find any running Ray instance.")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray, "init", refuse)
        with pytest.raises(grade.Usage, match=r"^this machine belongs to no Ray cluster; `ray start` joins one"):
            classroom.grade_class(folder, tmp_path / "out", [doubling], engine=cluster.engine_at(cluster.RUNNING))
    assert not (tmp_path / "out").exists()


def test_a_task_has_a_gpu_of_its_own(
    nodes: Any, folder: Path, doubling: ExerciseRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a node that says it has two, and has none: Ray counts them, and the first task finds that there is none."""
    log = tmp_path / "log"
    log.write_text("")

    def record(run: object, sent: cluster._ShippedEntry, rest: tuple[Any, ...]) -> Grade:
        (own,) = ray.get_runtime_context().get_accelerator_ids()["GPU"]
        for event in ("begins", "ends"):
            with log.open("a") as file:
                file.write(f"{own} {os.environ['CUDA_VISIBLE_DEVICES']} {sent.device} {event}\n")
            time.sleep(0.3)
        return Grade(sent.entry.learner, sent.entry.item.path_id, rest[0], None)

    many = nodes.add_node(num_cpus=4, num_gpus=2)
    try:
        engine = cluster.engine_at(nodes.address)
        with pytest.raises(grade.Usage, match=r"the node \S+ cannot grade: .*GPU"):
            classroom.grade_class(folder, tmp_path / "out", [doubling], device="cuda", engine=engine)
        assert {"fay", "gus"} <= {one.learner for one in gradebook.read_all(tmp_path / "out")}
        monkeypatch.setattr(cluster, "_grade_on_node", record)
        grades = classroom.grade_class(folder, tmp_path / "all", [doubling], engine=engine)
    finally:
        nodes.remove_node(many)
    assert len(grades) == len(SOURCES) + 2
    lines = [line.split() for line in log.read_text().splitlines()]
    assert len(lines) == 2 * len(SOURCES)
    for gpu in {own for own, *_ in lines}:
        events = [(seen, device, event) for own, seen, device, event in lines if own == gpu]
        assert events == [(gpu, "cuda", "begins"), (gpu, "cuda", "ends")] * (len(events) // 2)


def test_a_task_that_is_lost_for_good_is_tried_by_the_next_run(
    nodes: Any, folder: Path, doubling: ExerciseRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(entry: Entry, *rest: Any) -> Grade:
        os._exit(1)

    ada = [entry for entry in all_entries(folder, [doubling]) if entry.learner == "ada"]
    monkeypatch.setattr(classroom, "_grade", ends)
    engine = cluster.engine_at(nodes.address)
    (lost,) = classroom.grade_entries(ada, folder, tmp_path / "out", device="cpu", seed=7, engine=engine)
    assert isinstance(lost.report, Report)
    assert (lost.key, lost.report.verdict, lost.report.seed) == (UNFINISHED, Verdict.UNAVAILABLE, 7)
    assert lost.report.cause.startswith("the cluster lost it repeatedly: ")
