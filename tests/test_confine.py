"""What Python's audit hook keeps out of a submission's reach, and the limit on memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernelpath.work import confine

ATTEMPTS = {
    'open(hidden / "theirs.py")': "theirs.py, which is not its own",
    'open(str(hidden / "x/../theirs.py"))': "theirs.py, which is not its own",
    'os.open(hidden / "theirs.py", os.O_RDONLY)': "theirs.py, which is not its own",
    'os.link(hidden / "theirs.py", "/tmp/no_such_link")': "theirs.py, which is not its own",
    'os.symlink(hidden / "theirs.py", "/tmp/no_such_link")': "theirs.py, which is not its own",
    'os.rename(hidden / "theirs.py", "/tmp/no_such_link")': "theirs.py, which is not its own",
    'sys.audit("kernelpath.compiled", ptx)': "theirs.cu, which is not its own",
    'sys.audit("kernelpath.compiled", escaped.replace("mine", "their"))': "theirä.cu, which is not its own",
    'sys.audit("kernelpath.compiled", escaped)': "",
    "gc.get_objects()": "gc.get_objects looks into the process that measures the submission",
    "sys._current_frames()": "sys._current_frames looks into the process that measures the submission",
    'open(hidden / "mine.py").close()': "",
    "open(os.devnull).close()": "",
}
"""What a submission may try, and what it is told. An audit hook stays, so all are tried in one process of their own."""

TRY = """
import gc, json, os, sys
from pathlib import Path
from kernelpath.work import confine, witness

hidden = Path(sys.argv[1])
os.chdir(hidden)  # where the mode of open() is no file of theirs
confine.deny([hidden], [hidden / "mine.py", hidden / "mineä.cu"])
escaped = f'.file\\t1 "{hidden}/mine\\\\303\\\\244.cu"'
ptx = f'.file\\t1 "{hidden}/theirs.cu"'


def attempt(code):
    try:
        exec(code)
    except confine.Trespass as error:
        return str(error)
    return ""


gc.get_objects(), open(hidden / "theirs.py").close()
attempts = json.loads(sys.argv[2])
threads = witness.SubmissionThread(), witness.SubmissionThread()
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


def test_the_memory_limit_holds_inside_alone() -> None:
    with confine.memory_limit(256 << 20), pytest.raises(RuntimeError, match="can't allocate"):
        torch.empty(1 << 30, dtype=torch.uint8)
    assert torch.empty(1 << 30, dtype=torch.uint8).numel() == 1 << 30
