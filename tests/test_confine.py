"""What Python's audit hook keeps out of a submission's reach, and the limit on memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernelpath.work import confine

# What a submission may try, and what it is told. An audit hook stays, so all are tried in one process of their own.
ATTEMPTS = {
    'open(hidden / "theirs.py")': "theirs.py, which is not its own",
    'open(str(hidden / "x/../theirs.py"))': "theirs.py, which is not its own",
    'os.open(hidden / "theirs.py", os.O_RDONLY)': "theirs.py, which is not its own",
    'os.link(hidden / "theirs.py", "/tmp/no_such_link")': "theirs.py, which is not its own",
    'os.symlink(hidden / "theirs.py", "/tmp/no_such_link")': "theirs.py, which is not its own",
    'os.rename(hidden / "theirs.py", "/tmp/no_such_link")': "theirs.py, which is not its own",
    'sys.audit("warpcheck.compiled", ptx)': "theirs.cu, which is not its own",
    'sys.audit("warpcheck.compiled", escaped.replace("mine", "their"))': "theirä.cu, which is not its own",
    'sys.audit("warpcheck.compiled", escaped)': "",
    "gc.get_objects()": "gc.get_objects looks into the process that measures the submission",
    "sys._current_frames()": "sys._current_frames looks into the process that measures the submission",
    'open(hidden / "mine.py").close()': "",
    "open(os.devnull).close()": "",
}

TRY = """
import gc, json, os, sys
from pathlib import Path
from kernelpath.work import confine, tamper_check

hidden = Path(sys.argv[1])
os.chdir(hidden)  # where the mode of open() is no file of theirs
confine.install_audit_hook([hidden], [hidden / "mine.py", hidden / "mineä.cu"])
escaped = f'.file\\t1 "{hidden}/mine\\\\303\\\\244.cu"'
ptx = f'.file\\t1 "{hidden}/theirs.cu"'


def attempt(code):
    try:
        exec(code)
    except (confine.AccessDenied, confine.ReadyMadeWork) as error:
        return str(error)
    return ""


gc.get_objects(), open(hidden / "theirs.py").close()
attempts = json.loads(sys.argv[2])
threads = tamper_check.SubmissionThread(), tamper_check.SubmissionThread()
print(json.dumps([[thread.call(attempt, code) for code in attempts] for thread in threads]))
"""


def test_the_solutions_and_our_objects_are_out_of_reach_of_every_other_thread(tmp_path: Path) -> None:
    for name in ("mine.py", "theirs.py"):
        (tmp_path / name).touch()
    command = [sys.executable, "-c", TRY, str(tmp_path), json.dumps(list(ATTEMPTS))]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.stderr == ""
    for told in json.loads(ran.stdout):
        for (code, said), answer in zip(ATTEMPTS.items(), told, strict=True):
            assert answer.endswith(said), code
            assert bool(answer) is bool(said), code


LOOK = """
import ctypes, os, sys
from kernelpath.work import privileges

down, up = os.pipe(), os.pipe()


def nobody():
    if os.geteuid() == 0:
        os.setuid(65534)
    ctypes.CDLL(None).prctl(4, 1)  # as before setuid


target = os.fork()
if target == 0:
    nobody()
    if sys.argv[1] == "hidden":
        privileges.hide()
    os.write(up[1], b"x")
    os.read(down[0], 1)
    os._exit(0)
os.read(up[0], 1)
looker = os.fork()
if looker == 0:
    nobody()
    for path in ("environ", "mem", "maps", "fd/0"):
        try:
            os.close(os.open(f"/proc/{target}/{path}", os.O_RDONLY))
            os.write(1, f"{path} ".encode())
        except PermissionError:
            pass
    os._exit(0)
os.waitpid(looker, 0)
os.write(down[1], b"x")
"""


@pytest.mark.parametrize(("how", "seen"), [("seen", "environ mem maps fd/0 "), ("hidden", "")])
def test_a_process_that_hides_is_not_looked_into_by_another_of_its_user(how: str, seen: str) -> None:
    ran = subprocess.run([sys.executable, "-c", LOOK, how], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert (ran.stderr, ran.stdout) == ("", seen)


def test_the_grader_hides_before_a_submission_runs() -> None:
    code = (
        "import ctypes; from kernelpath.work import forkserver; forkserver.get_server();"
        "print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ran.stderr, ran.stdout.strip()) == ("", "0")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has capabilities to give up")
def test_roots_submission_has_no_capabilities_but_to_files(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "file").chmod(0)
    code = (
        "import os, sys, time; from kernelpath.work import privileges; privileges.drop()\n"
        "print(open(sys.argv[1]).read())\n"
        "for attempt in (lambda: time.clock_settime(time.CLOCK_REALTIME, time.time()), lambda: os.chroot('/'),"
        " lambda: os.setuid(65534), lambda: os.nice(-1)):\n"
        "    try:\n        attempt()\n        print('allowed')\n"
        "    except PermissionError:\n        print('refused')\n"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(tmp_path / "file")], capture_output=True, text=True)
    assert (ran.stderr, ran.stdout.split()) == ("", ["text", *["refused"] * 4])


def test_the_memory_limit_holds_inside_alone() -> None:
    with confine.memory_limit(256 << 20), pytest.raises(RuntimeError, match="can't allocate"):
        torch.empty(1 << 30, dtype=torch.uint8)
    assert torch.empty(1 << 30, dtype=torch.uint8).numel() == 1 << 30
