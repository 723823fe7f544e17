"""Test what this machine can do, lane by lane, by running kernels, and name the command that fixes what is missing."""

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
from warpcheck import cache as compiled
from warpcheck.frontends import Unavailable
from warpcheck.hooks import Changed

_THREADS = 32
_NVIDIA_VENDOR = "0x10de"
_GIB = 1 << 30


@dataclass(frozen=True)
class Diagnosis:
    """A thing that works or does not.

    Attributes:
        remedy: The command that fixes it.
        lane: Whether it is a lane, which can run kernels.
    """

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
_PROGRAM = {
    "probe.cu": """
__global__ void probe(int* out) { out[threadIdx.x] = threadIdx.x; }
extern "C" cudaError_t run(int* out) {
    int* device_out;
    if (cudaError_t status = cudaMalloc(&device_out, 128); status != cudaSuccess) return status;
    probe<<<1, 32>>>(device_out);
    cudaError_t status = cudaGetLastError();
    if (status == cudaSuccess) status = cudaMemcpy(out, device_out, 128, cudaMemcpyDeviceToHost);
    cudaFree(device_out);
    return status;
}
""",
    "probe.py": """
from warpcheck.frontends import host_program

def run(out):
    host_program.build("probe.cu", out.device.type).call("run", out)
""",
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

# The files of a probe of a lane, by name. probe.py defines `run(out)`: a kernel that writes i to out[i] in thread
# i.
Probe = Mapping[str, str]


def examine() -> list[Diagnosis]:
    """Return all diagnoses of this machine. This takes seconds, since kernels are compiled and run."""
    return [place(), python(), *gpus(), versions(), compiler(), headers(), cache(), *confinement(), *lanes()]


def place() -> Diagnosis:
    """Return a diagnosis of the host."""
    return Diagnosis("place", *HostInfo().assessment)


def python() -> Diagnosis:
    """Return a diagnosis of Python."""
    version = platform.python_version()
    description = f"{version} in {sys.prefix}, kernelpath {packages.version('kernelpath')}"
    is_supported = sys.version_info >= (3, 10)
    return Diagnosis("Python", is_supported, description, "" if is_supported else "sudo apt install python3.12")


def gpus() -> Iterator[Diagnosis]:
    """Yield a diagnosis for each GPU: its compute capability, driver, free memory, and other processes on it."""
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
    for neighbor in gpu.neighbors():
        yield Diagnosis("quiet GPU", False, neighbor.description, f"kill {neighbor.pid}, if it is yours")


def versions() -> Diagnosis:
    """Return a diagnosis of the installed versions: whether the course was run with them."""
    if untried := "; ".join(packages.untried()):
        return Diagnosis("versions", False, f"untried: {untried}", packages.install_tried())
    return Diagnosis("versions", True, "tried, Python and every compiler")


_NVRTC = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")


def _no_gpu(torch_cuda: str | None, host: HostInfo) -> Diagnosis:
    if not _has_nvidia_gpu():
        hint = ", or Windows has no driver for it" if host.wsl else ""
        hint = ", or none that was passed in" if host.container else hint
        return Diagnosis("GPU", False, f"no NVIDIA GPU{hint}: everything but speed is graded")
    # The device is on the PCI bus, which a container sees, but the driver's files were not mounted into it.
    if host.container and gpu.driver() == "unknown":
        passing = "podman run --device nvidia.com/gpu=all" if "Podman" in host.container else "docker run --gpus all"
        return Diagnosis("GPU", False, "an NVIDIA GPU that was not passed in", passing)
    if gpu.driver() == "unknown":
        return Diagnosis("GPU", False, "an NVIDIA GPU without a driver", "sudo ubuntu-drivers install")
    if torch_cuda is None:
        reinstall = f"{sys.executable} -m pip install --force-reinstall torch"
        return Diagnosis("GPU", False, "an NVIDIA GPU, but this PyTorch is built without CUDA", reinstall)
    return Diagnosis("GPU", False, "an NVIDIA GPU that PyTorch cannot use", "nvidia-smi")


def _has_nvidia_gpu() -> bool:
    vendors = Path("/sys/bus/pci/devices").glob("*/vendor")
    return shutil.which("nvidia-smi") is not None or any(
        vendor.read_text().strip() == _NVIDIA_VENDOR for vendor in vendors
    )


def compiler() -> Diagnosis:
    """Return a diagnosis of the C compiler, with which Triton builds its launchers."""
    # Triton takes $CC, then gcc, then clang.
    path = next(filter(None, map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang"))), None)
    if path is None:
        return Diagnosis("C compiler", False, "none: Triton needs one on a GPU", "sudo apt install build-essential")
    return Diagnosis("C compiler", True, path)


def headers() -> Diagnosis:
    """Return a diagnosis of Python.h, which the same launchers need."""
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.is_file():
        return Diagnosis("Python headers", False, "none: Triton needs them on a GPU", "sudo apt install python3-dev")
    return Diagnosis("Python headers", True, str(header.parent))


def cache() -> Diagnosis:
    """Return a diagnosis of the folders of compiled kernels and of submissions: their sizes, and write access."""
    folder = compiled.cache_root()
    private = cache_root() / "submissions"
    size = _size(folder)
    submissions_size = _size(private)
    for needed in (folder, cache_root()):
        try:
            needed.mkdir(parents=True, exist_ok=True)
            # Permission bits do not tell whether a read-only or full file system accepts a file, so one is written.
            with tempfile.TemporaryFile(dir=needed):
                pass
        except OSError as error:
            detail = f"{needed}: {error.strerror}; nothing is cached, so every kernel is compiled again"
            return Diagnosis("kernel cache", False, detail, "export KERNELPATH_CACHE=/a/folder/you/can/write")
    with contextlib.suppress(FileNotFoundError):
        # A folder is named SUBMISSION-RANDOM, and one that is being deleted begins with "removed".
        submissions = {name.partition("-")[0] for name in os.listdir(private)}
        count = words.count(len(submissions - {"removed"}), "submission")
        return Diagnosis(
            "kernel cache", True, f"{folder}, {size / 1e6:.1f} MB, {submissions_size / 1e6:.1f} MB from {count}"
        )
    return Diagnosis("kernel cache", True, f"{folder}, {size / 1e6:.1f} MB")


def _size(folder: Path) -> int:
    """Return the bytes of the files below a folder. Files may disappear meanwhile."""
    size = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                size += os.lstat(os.path.join(path, name)).st_size
    return size


def confinement() -> Iterator[Diagnosis]:
    """Yield diagnoses of the mechanisms that confine a submission."""
    yield Diagnosis("confinement", *landlock.describe_support())
    yield Diagnosis("system calls", *seccomp.describe_support())


def lanes() -> Iterator[Diagnosis]:
    """Yield a diagnosis for each lane on each device."""
    probes = {
        "CUDA C++": _CUDA,
        "CUDA C++ programs (nvcc)": _PROGRAM,
        "Triton": _TRITON,
        "CuTe DSL": _CUTE,
        "CuTe in C++": _CUTLASS,
    }
    for name, probe in probes.items():
        for device, suffix in (("cuda", "on a GPU"), ("cpu", "without a GPU")):
            yield try_lane(f"{name} {suffix}", probe, device)
    yield try_lane("Pallas without a GPU", _PALLAS, "cpu")


def try_lane(name: str, probe: Probe, device: str) -> Diagnosis:
    """Run a kernel and return a diagnosis."""
    # Without a GPU, `gpus` has already said so; a lane adds no remedy of its own.
    if device == "cuda" and not _has_gpu():
        return Diagnosis(name, False, "no GPU", lane=True)
    start = time.monotonic()
    try:
        _run(probe, device)
    except ImportError as error:
        return _missing_package(name, error)
    except Unavailable as error:
        missing_part, _, remedy = str(error).partition(": ")
        return Diagnosis(name, False, missing_part, remedy, lane=True)
    except Changed as error:
        return Diagnosis(name, False, str(error), packages.install_tried(), lane=True)
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        return Diagnosis(name, False, f"{type(error).__name__}: {reason}", lane=True)
    return Diagnosis(name, True, f"compiled and ran a kernel in {words.seconds(time.monotonic() - start)}", lane=True)


def _missing_package(name: str, error: ImportError) -> Diagnosis:
    """Return a diagnosis of a lane that lacks a package, with the command that installs it."""
    distribution = packages.distribution_of(error.name or "")
    remedy = packages.install(distribution) if distribution else ""
    return Diagnosis(name, False, str(error).partition("\n")[0], remedy, lane=True)


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
