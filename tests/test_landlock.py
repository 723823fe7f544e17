"""Test that a process restricted by Landlock cannot reach forbidden files, sockets, and processes in any way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelpath.work import landlock

ATTEMPT_SCRIPT = """
import ctypes, json, os, pathlib, shutil, signal, socket, subprocess, sys, threading
import torch
from kernelpath.work import confine, privileges

source, own, outside = map(pathlib.Path, sys.argv[1:4])
secret, libc = outside / "secret", ctypes.CDLL(None, use_errno=True)
listening = socket.create_server(("127.0.0.1", 0))
privileges.drop()  # root may read another's environment in spite of Landlock
held = pathlib.Path(torch.__file__).parent / "testing"
confine.restrict_process(source, own, source, [held])


def by_libc():
    if libc.open(bytes(secret), os.O_RDONLY) < 0:
        raise OSError(ctypes.get_errno(), "libc")


def by_folder(path, name):
    folder = os.open(path, os.O_PATH)
    os.open(name, os.O_RDONLY, dir_fd=folder)


def by_thread():
    told = []
    thread = threading.Thread(target=lambda: told.append(attempt(secret.read_text)))
    thread.start()
    thread.join()
    if told[0]:
        raise PermissionError(told[0])


def by_link():
    os.symlink(secret, own / "link")
    (own / "link").read_text()


def attempt(function):
    try:
        function()
    except (PermissionError, subprocess.CalledProcessError):
        return "refused"
    except OSError as error:
        return "refused" if error.errno in (1, 13, 18) else repr(error)
    except RuntimeError as error:
        return "refused" if "ermission" in str(error) else repr(error)
    return ""


ATTEMPTS = {
    "read": secret.read_text,
    "read as bytes of a folder": lambda: by_folder(outside, "secret"),
    "read upwards": lambda: by_folder(own, f"../{outside.name}/secret"),
    "read by libc": by_libc,
    "read by torch": lambda: torch.from_file(str(secret), size=1, dtype=torch.uint8),
    "read by a thread": by_thread,
    "read by a program": lambda: subprocess.run(["cat", secret], check=True, capture_output=True),
    "read through a link": by_link,
    "read what is withheld": (held / "__init__.py").read_text,
    "read beside it": lambda: (held.parent / "version.py").read_text(),
    "list beside it": lambda: os.listdir(held.parent),
    "list": lambda: os.listdir(outside),
    "read another's environment": lambda: open(f"/proc/{os.getppid()}/environ").read(),
    "read another's memory": lambda: open(f"/proc/{os.getppid()}/mem", "rb"),
    "read another's files": lambda: os.readlink(f"/proc/{os.getppid()}/fd/0"),
    "write": lambda: secret.write_text("changed"),
    "truncate": lambda: os.truncate(secret, 0),
    "create": lambda: (outside / "new").touch(),
    "remove": secret.unlink,
    "rename": lambda: secret.rename(outside / "renamed"),
    "move out": lambda: secret.rename(own / "secret"),
    "move in": lambda: (own / "mine").rename(outside / "mine"),
    "link": lambda: os.link(secret, own / "hard"),
    "write to the source": lambda: (source / "kernel.cu").write_text("changed"),
    "connect": lambda: socket.create_connection(listening.getsockname(), 1),
    "listen": lambda: socket.create_server(("127.0.0.1", 0)),
    "signal": lambda: os.kill(os.getppid(), 0),
    "read the source": (source / "kernel.cu").read_text,
    "write to its own": lambda: (own / "new").write_text("text"),
    "rename its own": lambda: (own / "new").rename(own / "newer"),
    "remove its own": lambda: (own / "newer").unlink(),
    "print nowhere": lambda: open(os.devnull, "w").write("text"),
    "signal itself": lambda: os.kill(os.getpid(), 0),
    "import": lambda: __import__("sqlite3"),
    "multiply": lambda: torch.ones(64, 64) @ torch.ones(64, 64),
}


(own / "mine").touch()
print(json.dumps({name: attempt(function) for name, function in ATTEMPTS.items()}))
"""

# The version of Landlock that first refuses each attempt.
REFUSED_SINCE = {
    "read": 1,
    "read as bytes of a folder": 1,
    "read upwards": 1,
    "read by libc": 1,
    "read by torch": 1,
    "read by a thread": 1,
    "read by a program": 1,
    "read through a link": 1,
    "read what is withheld": 1,
    "list": 1,
    "read another's environment": 1,
    "read another's memory": 1,
    "read another's files": 1,
    "write": 1,
    "truncate": 3,
    "create": 1,
    "remove": 1,
    "rename": 1,
    "move out": 1,
    "move in": 1,
    "link": 1,
    "write to the source": 1,
    "connect": 4,
    "listen": 4,
    "signal": 6,
}

STILL_ALLOWED = (
    *("read the source", "write to its own", "rename its own", "remove its own"),
    *("print nowhere", "signal itself", "import", "multiply"),
    *("read beside it", "list beside it"),
)

pytestmark = pytest.mark.skipif(landlock.version() == 0, reason="this kernel has no Landlock, or forbids it")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the result of each attempt: "" for success, "refused", or the text of another error."""
    folder = tmp_path_factory.mktemp("landlock")
    for name in ("source", "own", "outside"):
        (folder / name).mkdir()
    (folder / "source" / "kernel.cu").write_text("__global__ void kernel() {}")
    secret = folder / "outside" / "secret"
    secret.write_text("secret")
    folders = [str(folder / name) for name in ("source", "own", "outside")]
    process = subprocess.run([sys.executable, "-c", ATTEMPT_SCRIPT, *folders], capture_output=True, text=True)
    assert process.stderr == ""
    results_of_attempts: dict[str, str] = json.loads(process.stdout)
    results_of_attempts["after"] = f"{secret.read_text()} {sorted(os.listdir(secret.parent))}"
    return results_of_attempts


@pytest.mark.parametrize("attempt", REFUSED_SINCE)
def test_forbidden_attempts_are_refused(results: dict[str, str], attempt: str) -> None:
    if landlock.version() < REFUSED_SINCE[attempt]:
        pytest.skip(f"Landlock {landlock.version()} does not hold this")
    assert results[attempt] == "refused"


@pytest.mark.parametrize("attempt", STILL_ALLOWED)
def test_permitted_attempts_succeed(results: dict[str, str], attempt: str) -> None:
    assert results[attempt] == ""


@pytest.mark.skipif(landlock.version() < 3, reason="Landlock restricts truncating from version 3 on")
def test_no_file_outside_has_changed(results: dict[str, str]) -> None:
    assert results["after"] == "secret ['secret']"


def test_querying_the_version_does_not_restrict_the_process(tmp_path: Path) -> None:
    assert landlock.version() == landlock.version() > 0
    (tmp_path / "file").write_text("text")
    assert (tmp_path / "file").read_text() == "text"
