"""Test that every access outside of a submission's permissions has the same verdict."""

from __future__ import annotations

import csv
import textwrap
from pathlib import Path

import pytest

from kernelpath.course.registry import ExerciseRef
from kernelpath.grading import grade
from kernelpath.school import classroom
from kernelpath.verdict import Verdict
from kernelpath.work import landlock, seccomp
from tests.conftest import GradeText

ACTS = {
    "the solution": "open({solution!r}).read()",
    "the solution by libc": "torch.from_file({solution!r}, size=1, dtype=torch.uint8)",
    "its folder": "os.listdir({solutions!r})",
    "a neighbor's file": "open({neighbor!r}).read()",
    "a neighbor's file by libc": "torch.from_file({neighbor!r}, size=1, dtype=torch.uint8)",
    "the grades": "open({grades!r}, 'w')",
    "a new file": "open({grades!r} + '.new', 'w')",
    "its folder's permissions": "os.chmod({neighbor!r}, 0o777)",
    "a password": "open({private!r}).read()",
    "the grader": "os.kill(os.getppid(), 0)",
    "the fork server's memory": "open(f'/proc/{{os.getppid()}}/mem', 'rb')",
    "an address": "socket.create_connection(('127.0.0.1', 9), 1)",
    "a name": "socket.getaddrinfo('localhost', 80)",
    "UDP": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))",
    "a Unix socket": "socket.socket(socket.AF_UNIX).connect({neighbor!r})",
    "shared memory": "shared_memory()",
    "our objects": "gc.get_objects()",
}
NEEDS = {
    "a password": landlock.version() > 0,
    "its folder's permissions": landlock.version() > 0,
    "the grader": landlock.version() >= 6,
    "shared memory": seccomp.is_supported(),
    "a new file": landlock.version() > 0,
}

PRELUDE = """
import ctypes, gc, os, socket
import torch


def shared_memory():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.shmget(0, 4096, 0o1600) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


"""
WHEN = {
    "as it is loaded": PRELUDE + "{act}\n\n\ndef double(x):\n    return 2 * x\n",
    "as it is called": PRELUDE + "def double(x):\n    {act}\n    return 2 * x\n",
}


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("act", ACTS)
def test_access_outside_the_permissions_is_denied(act: str, when: str, doubling: ExerciseRef, tmp_path: Path) -> None:
    if not NEEDS.get(act, True):
        pytest.skip("nothing holds it on this kernel")
    folder = tmp_path / "class"
    out = tmp_path / "class-grades"
    neighbor = folder / "bob" / "w01a_double.py"
    for path in (neighbor, out / "grades.csv"):
        path.parent.mkdir(parents=True)
        path.write_text("def double(x):\n    return 2 * x\n")
    private = tmp_path / "private"
    private.write_text("secret")
    places = {"solution": doubling.solution, "solutions": doubling.solution.parent, "neighbor": neighbor}
    places["private"] = private
    code = ACTS[act].format(**{name: str(path) for name, path in places.items()}, grades=str(out / "grades.csv"))
    submission = folder / "ada" / "w01a_double.py"
    submission.parent.mkdir()
    submission.write_text(WHEN[when].format(act=code))
    job = grade.Job.create(doubling, submission, device="cpu", hidden=(folder, out), keep=False)
    with grade.Session(job) as check:
        report = check(seed=1)
    assert report.verdict is Verdict.ACCESS_DENIED, report.cause
    assert report.cause
    source = submission.read_text().splitlines()
    assert source[report.line - 1].strip() in (
        code,
        "raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))",
    )


def test_a_submission_may_change_the_permissions_of_its_own_file(grade_text: GradeText) -> None:
    report = grade_text(
        textwrap.dedent(
            """
            def double(x):
                raise PermissionError(13, "Permission denied", "mine.txt")
            """
        )
    )
    assert report.verdict is Verdict.CRASHED
    assert report.cause == "PermissionError: [Errno 13] Permission denied: 'mine.txt'"


def test_a_submission_may_create_a_socket_pair(grade_text: GradeText) -> None:
    body = (
        "    one, other = __import__('socket').socketpair()\n    one.send(b'x')\n    other.recv(1)\n    return 2 * x\n"
    )
    assert grade_text(f"def double(x):\n{body}").verdict is Verdict.PASSED


def test_the_table_of_a_class_has_a_column_for_it(doubling: ExerciseRef, tmp_path: Path) -> None:
    folder = tmp_path / "class"
    out = tmp_path / "out"
    bodies = {"ada": "2 * x", "bob": f"open({str(doubling.solution)!r})", "eve": "3 * x"}
    for learner, body in bodies.items():
        (folder / learner).mkdir(parents=True)
        (folder / learner / "w01a_double.py").write_text(f"def double(x):\n    return {body}\n")
    classroom.grade_class(folder, out, [doubling], device="cpu", jobs=1)
    with (out / "grades.csv").open(newline="", encoding="utf-8") as file:
        rows = {row["learner"]: row["outside"] for row in csv.DictReader(file)}
    assert rows == {"ada": "", "bob": "yes", "eve": ""}
