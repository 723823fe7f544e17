"""Fork Jupyter kernels from a process that has imported the packages of the notebooks, instead of starting each kernel.

Jupyter starts a kernel by a command. `install` writes a kernel specification whose command runs this file with the
standard library alone: it sends its arguments, environment, folder, and standard streams to the fork server, and ends
when the kernel ends. The kernel ends when that process does.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

PRELOADED = (
    "ipykernel.kernelapp",
    "ipykernel.ipkernel",
    "matplotlib_inline.backend_inline",
    "matplotlib.pyplot",
    "kernelpath.show.notebook",
    "kernelpath.show.plots",
    "kernelpath.show.answers",
)

_INTERRUPT = b"i"
_LONGEST_REQUEST = 1 << 20


@contextlib.contextmanager
def install(folder: Path) -> Iterator[Path]:
    """Run a fork server inside, and yield a folder for JUPYTER_PATH whose kernel `python3` comes from that server.

    folder: an empty one with a short path, because the path of a socket has at most 107 bytes.
    """
    import kernelpath

    address = folder / "kernels.socket"
    specification = folder / "kernels" / "python3" / "kernel.json"
    specification.parent.mkdir(parents=True)
    command = [sys.executable, "-I", "-S", __file__, "launch", str(address), "-f", "{connection_file}"]
    specification.write_text(json.dumps({"argv": command, "display_name": "forked", "language": "python"}))
    package = Path(kernelpath.__file__).parents[1]
    # Isolated, so that a notebook finds no module in the folder of the tests.
    server = subprocess.Popen([sys.executable, "-I", __file__, "serve", str(address), str(package)])
    try:
        while not address.exists():
            if server.poll() is not None:
                raise RuntimeError(f"the fork server of kernels ended with status {server.returncode}")
            time.sleep(0.01)
        yield folder
    finally:
        server.kill()
        server.wait()


def serve(address: str, package: str) -> NoReturn:
    """Fork a kernel for each connection, until this process is killed."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(address)
    listener.listen()
    sys.path.insert(0, package)
    os.environ["MPLBACKEND"] = (
        "module://matplotlib_inline.backend_inline"  # ipykernel sets this variable before any import
    )
    gc.disable()  # imports create no garbage, so collections would only cost time
    workers = importlib.import_module("kernelpath.grading.workers")
    for module in (*PRELOADED, *(workers.SLOW_IMPORTS[lane] for lane in ("cuda", "triton", "cute"))):
        importlib.import_module(module)
    gc.freeze()
    signal.signal(signal.SIGCHLD, _reap)
    while True:
        connection, _ = listener.accept()
        content, streams, _, _ = socket.recv_fds(connection, _LONGEST_REQUEST, 3)
        if os.fork() == 0:
            listener.close()
            _run_kernel(connection, json.loads(content), streams)
        connection.close()
        for descriptor in streams:
            os.close(descriptor)


def _reap(*_: object) -> None:
    """Wait for all kernels that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def _run_kernel(connection: socket.socket, request: dict[str, Any], streams: list[int]) -> NoReturn:
    """Turn this process into the kernel that a request describes."""
    status = 1
    try:
        gc.enable()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        for target, descriptor in enumerate(streams):
            os.dup2(descriptor, target)
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        searched = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        sys.path[:0] = [entry for entry in searched if entry and entry not in sys.path]
        parent = f"--IPKernelApp.parent_handle={os.getppid()}"  # JPY_PARENT_PID, read at import, names the launcher
        sys.argv = ["ipykernel_launcher", *request["arguments"], parent]
        threading.Thread(target=_follow, args=(connection,), daemon=True).start()
        importlib.import_module("ipykernel.kernelapp").launch_new_instance()
        status = 0
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _follow(connection: socket.socket) -> None:
    """Interrupt this process when its launcher is interrupted, and end it when its launcher ends."""
    while connection.recv(1) == _INTERRUPT:
        os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGKILL)


def launch(address: str, arguments: list[str]) -> None:
    """Have a kernel forked that has this process's streams, folder and environment, and wait until it ends."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(address)

    def interrupt(*_: object) -> None:
        connection.send(_INTERRUPT)

    signal.signal(signal.SIGINT, interrupt)
    request = {"arguments": arguments, "folder": str(Path.cwd()), "environment": dict(os.environ)}
    socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
    connection.recv(1)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(*sys.argv[2:])
    launch(sys.argv[2], sys.argv[3:])
