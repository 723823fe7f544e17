"""What this machine can do, lane by lane, tested by doing it, and the command that fixes what is missing."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernelpath import packages, words
from kernelpath.course.registry import import_file
from kernelpath.device import gpu
from kernelpath.files import cache_root
from kernelpath.host_info import HostInfo
from kernelpath.work import landlock, seccomp
from warpcheck.frontends import Unavailable
from warpcheck.hooks import Changed

_THREADS = 32
_NVIDIA = "0x10de"
_GIB = 1 << 30


@dataclass(frozen=True)
class Diagnosis:
    """One thing that works or not. `remedy` is the command that fixes it; `lane` marks what can run kernels."""

    what: str
    works: bool
    detail: str
    remedy: str = ""
    lane: bool = False


_CUDA = {
    "probe.cu": "__global__ void probe(int* out) { out[threadIdx.x] = threadIdx.x; }\n",
    "probe.py": """
from warpcheck.frontends import cuda

def run(out):
    cuda.kernel("probe.cu", "probe")[1, 32](out)
""",
}
_TRITON = {
    "probe.py": """
import triton
import triton.language as tl
from warpcheck.frontends.triton import activate

@triton.jit
def probe(out):
    lanes = tl.arange(0, 32)
    tl.store(out + lanes, lanes)

def run(out):
    activate(out.device.type)
    probe[(1,)](out)
""",
}
_CUTE = {
    "probe.py": """
from cutlass import cute
from warpcheck.frontends import cute as lane

@cute.kernel
def kernel(out: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    out[thread] = thread

@cute.jit
def probe(out: cute.Tensor):
    kernel(out).launch(grid=(1, 1, 1), block=(32, 1, 1))

def run(out):
    lane.run(probe, out)
""",
}

_CUTLASS = {
    "probe.cu": "#include <cute/tensor.hpp>\n"
    "__global__ void probe(int* out) { cute::make_tensor(out, cute::Int<32>{})(threadIdx.x) = threadIdx.x; }\n",
    "probe.py": _CUDA["probe.py"],
}
_PALLAS = {
    "probe.py": """
import jax
import torch
from jax.experimental import pallas
from kernelpath.work import pallas as on_the_cpu  # as a submission has it: JAX without its plugins for GPUs

def probe(out):
    out[...] = jax.numpy.arange(32, dtype="int32")

def run(out):
    shape = jax.ShapeDtypeStruct(out.shape, "int32")
    out.copy_(torch.from_dlpack(pallas.pallas_call(probe, out_shape=shape, interpret=True)()))
""",
}

Probe = Mapping[str, str]
"""Files of a lane by name, of which probe.py defines `run(out)`: a kernel that writes thread i's number to out[i]."""


def examine() -> list[Diagnosis]:
    """Everything there is to say about this machine. Takes seconds: the lanes are tried, not only looked for."""
    return [place(), python(), *gpus(), versions(), compiler(), headers(), cache(), *confinement(), *lanes()]


def place() -> Diagnosis:
    """What this runs on."""
    return Diagnosis("place", *HostInfo().judged)


def python() -> Diagnosis:
    version = platform.python_version()
    where = f"{version} in {sys.prefix}, kernelpath {packages.version('kernelpath')}"
    fine = sys.version_info >= (3, 10)
    return Diagnosis("Python", fine, where, "" if fine else "sudo apt install python3.12")


def gpus() -> Iterator[Diagnosis]:
    """Every GPU with its compute capability, driver and free memory, and who else is on it."""
    try:
        import torch
    except ImportError as error:
        yield Diagnosis("PyTorch", False, str(error), packages.install("torch"))
        return
    compilers = f"Triton {packages.version('triton')}, NVRTC {packages.version(*_NVRTC)}"
    yield Diagnosis("PyTorch", True, f"{torch.__version__}, {compilers}")
    if not torch.cuda.is_available():
        yield _no_gpu(torch.version.cuda, HostInfo())
    for index in range(torch.cuda.device_count()):
        major, minor = torch.cuda.get_device_capability(index)
        free, total = torch.cuda.mem_get_info(index)
        detail = f"sm_{major}{minor}, driver {gpu.driver()}, {free / _GIB:.1f} of {total / _GIB:.1f} GiB free"
        yield Diagnosis(torch.cuda.get_device_name(index), True, detail)
    if torch.cuda.device_count() > 1 and (room := HostInfo().shared_bytes) < _GIB:
        detail = f"{room >> 20} MiB in /dev/shm, as containers have: NCCL may need more"
        yield Diagnosis("shared memory", False, detail, "docker run --shm-size 1g")
    for one in gpu.neighbors():
        yield Diagnosis("quiet GPU", False, one.told, f"kill {one.pid}, if it is yours")


def versions() -> Diagnosis:
    """Whether the course was run with what is installed."""
    if untried := "; ".join(packages.untried()):
        return Diagnosis("versions", False, f"untried: {untried}", packages.install_tried())
    return Diagnosis("versions", True, "tried, Python and every compiler")


_NVRTC = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")


def _no_gpu(torch_cuda: str | None, here: HostInfo) -> Diagnosis:
    if not _nvidia_card():
        hidden = ", or Windows has no driver for it" if here.wsl else ""
        hidden = ", or none that was passed in" if here.container else hidden
        return Diagnosis("GPU", False, f"no NVIDIA GPU{hidden}: everything but speed is graded")
    if here.container and gpu.driver() == "unknown":
        passing = "podman run --device nvidia.com/gpu=all" if "Podman" in here.container else "docker run --gpus all"
        return Diagnosis("GPU", False, "an NVIDIA GPU that was not passed in", passing)
    if gpu.driver() == "unknown":
        return Diagnosis("GPU", False, "an NVIDIA GPU without a driver", "sudo ubuntu-drivers install")
    if torch_cuda is None:
        again = f"{sys.executable} -m pip install --force-reinstall torch"
        return Diagnosis("GPU", False, "an NVIDIA GPU, but this PyTorch is built without CUDA", again)
    return Diagnosis("GPU", False, "an NVIDIA GPU that PyTorch cannot use", "nvidia-smi")


def _nvidia_card() -> bool:
    vendors = Path("/sys/bus/pci/devices").glob("*/vendor")
    return shutil.which("nvidia-smi") is not None or any(vendor.read_text().strip() == _NVIDIA for vendor in vendors)


def compiler() -> Diagnosis:
    """The C compiler, with which Triton builds its launchers."""
    found = next(filter(None, map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang"))), None)
    if found is None:
        return Diagnosis("C compiler", False, "none: Triton needs one on a GPU", "sudo apt install build-essential")
    return Diagnosis("C compiler", True, found)


def headers() -> Diagnosis:
    """Python.h, for the same launchers."""
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.is_file():
        return Diagnosis("Python headers", False, "none: Triton needs them on a GPU", "sudo apt install python3-dev")
    return Diagnosis("Python headers", True, str(header.parent))


def cache() -> Diagnosis:
    """The folder of compiled kernels, its size, and whether it can be written."""
    folder = cache_root()
    private = folder / "submissions"
    size, of_submissions = _size(folder), _size(private)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        detail = f"{folder}: {error.strerror}; nothing is cached, so every kernel is compiled again"
        return Diagnosis("kernel cache", False, detail, "export KERNELPATH_CACHE=/a/folder/you/can/write")
    with contextlib.suppress(FileNotFoundError):
        submissions = {name.partition("-")[0] for name in os.listdir(private)}
        count = words.count(len(submissions - {"removed"}), "submission")
        return Diagnosis(
            "kernel cache", True, f"{folder}, {size / 1e6:.1f} MB, {of_submissions / 1e6:.1f} MB from {count}"
        )
    return Diagnosis("kernel cache", True, f"{folder}, {size / 1e6:.1f} MB")


def _size(folder: Path) -> int:
    """Bytes of the files below it, of which some may go away meanwhile."""
    found = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                found += os.lstat(os.path.join(place, name)).st_size
    return found


def confinement() -> Iterator[Diagnosis]:
    """What a submission is kept from."""
    yield Diagnosis("confinement", *landlock.describe_support())
    yield Diagnosis("disk", *seccomp.describe_support())


def lanes() -> Iterator[Diagnosis]:
    """Each lane on each device."""
    for name, probe in (("CUDA C++", _CUDA), ("Triton", _TRITON), ("CuTe DSL", _CUTE), ("CuTe in C++", _CUTLASS)):
        for device, where in (("cuda", "on a GPU"), ("cpu", "without a GPU")):
            yield try_lane(f"{name} {where}", probe, device)
    yield try_lane("Pallas without a GPU", _PALLAS, "cpu")


def try_lane(what: str, probe: Probe, device: str) -> Diagnosis:
    """Run a kernel and say how it went."""
    if device == "cuda" and not _has_gpu():
        return Diagnosis(what, False, "no GPU", lane=True)
    begun = time.monotonic()
    try:
        _run(probe, device)
    except ImportError as error:
        return _lacking(what, error)
    except Unavailable as error:
        what_is_missing, _, remedy = str(error).partition(": ")
        return Diagnosis(what, False, what_is_missing, remedy, lane=True)
    except Changed as error:
        return Diagnosis(what, False, str(error), packages.install_tried(), lane=True)
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        return Diagnosis(what, False, f"{type(error).__name__}: {reason}", lane=True)
    return Diagnosis(what, True, f"compiled and ran a kernel in {words.seconds(time.monotonic() - begun)}", lane=True)


def _lacking(what: str, error: ImportError) -> Diagnosis:
    """A lane that cannot run for lack of a package, with the command that installs it."""
    distribution = packages.distribution_of(error.name or "")
    remedy = packages.install(distribution) if distribution else ""
    return Diagnosis(what, False, str(error).partition("\n")[0], remedy, lane=True)


def _has_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


def _run(probe: Probe, device: str) -> None:
    import torch

    out = torch.empty(_THREADS, dtype=torch.int32, device=device)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in probe.items():
            (Path(folder) / name).write_text(text)
        import_file(Path(folder) / "probe.py", "kernelpath_probe").run(out)
    if out.tolist() != list(range(_THREADS)):
        raise RuntimeError("the probe kernel gave a wrong answer")
