"""Test the restrictions on a submission: Python's audit hook, hidden processes, capabilities, and memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernelpath.work import confine

# Attempts of a submission, with the end of each error. An audit hook cannot be removed, so a new process tries them.
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

ATTEMPT_SCRIPT = """
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


def test_the_audit_hook_denies_solutions_and_objects_to_all_threads(tmp_path: Path) -> None:
    for name in ("mine.py", "theirs.py"):
        (tmp_path / name).touch()
    command = [sys.executable, "-c", ATTEMPT_SCRIPT, str(tmp_path), json.dumps(list(ATTEMPTS))]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.stderr == ""
    for errors_of_thread in json.loads(process.stdout):
        for (code, expected_error), error in zip(ATTEMPTS.items(), errors_of_thread, strict=True):
            assert error.endswith(expected_error), code
            assert bool(error) is bool(expected_error), code


PEEK_SCRIPT = """
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


@pytest.mark.parametrize(("mode", "readable_files"), [("seen", "environ mem maps fd/0 "), ("hidden", "")])
def test_a_hidden_process_cannot_be_inspected_by_its_user(mode: str, readable_files: str) -> None:
    process = subprocess.run(
        [sys.executable, "-c", PEEK_SCRIPT, mode], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert (process.stderr, process.stdout) == ("", readable_files)


def test_the_grader_hides_before_a_submission_runs() -> None:
    # PR_GET_DUMPABLE is 3; a process that hides has cleared its dumpable flag.
    code = (
        "import ctypes; from kernelpath.work import forkserver; forkserver.get_server();"
        "print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (process.stderr, process.stdout.strip()) == ("", "0")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has capabilities to give up")
def test_a_submission_of_root_keeps_only_file_capabilities(tmp_path: Path) -> None:
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
    process = subprocess.run([sys.executable, "-c", code, str(tmp_path / "file")], capture_output=True, text=True)
    assert (process.stderr, process.stdout.split()) == ("", ["text", *["refused"] * 4])


def test_the_memory_limit_ends_with_its_context() -> None:
    with confine.memory_limit(256 << 20), pytest.raises(RuntimeError, match="can't allocate"):
        torch.empty(1 << 30, dtype=torch.uint8)
    assert torch.empty(1 << 30, dtype=torch.uint8).numel() == 1 << 30
