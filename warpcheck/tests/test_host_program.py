"""Test host programs: compiled with nvcc, run with warpcheck's CUDA runtime, and checked for mistakes in calls."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from warpcheck import Uninitialized, frontends, initcheck, patching
from warpcheck.frontends import host_program
from warpcheck.frontends.host_program import CompileError, HostProgramError

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU runs the program with NVIDIA's runtime")

PROGRAM = """
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

struct Pair { float* target; float factor; };
__device__ float twice(float x) { return 2 * x; }
__global__ void scale(const float* x, Pair pair, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) pair.target[i] = pair.factor * twice(x[i]);
}
// BEFORE
extern "C" cudaError_t run(const float* x, float* out, int n) {
    float* memory = nullptr;
    cudaError_t status = cudaMalloc(&memory, 2 * n * sizeof(float));
    if (status == cudaSuccess) status = cudaMemcpy(memory, x, n * sizeof(float), cudaMemcpyHostToDevice);
    if (status == cudaSuccess) {
        scale<<<(n + 127) / 128, 128>>>(memory, {memory + n, 1.5f}, n);  // LAUNCH
        status = cudaGetLastError();
    }
    if (status == cudaSuccess) status = cudaMemcpy(out, memory + n, n * sizeof(float), cudaMemcpyDeviceToHost);
    cudaFree(memory);
    return status;
}
int main(int argc, char** argv) {
    std::vector<float> x(3, 1.0f), out(3);
    cudaError_t status = run(x.data(), out.data(), 3);
    printf("%s: %g %d\\n", cudaGetErrorString(status), out[2], argc);
    return 7;
}
"""


@pytest.fixture(autouse=True)
def _watched_memory() -> Iterator[None]:
    with patching.scope():
        initcheck.watch()
        yield


def run(source: str, with_failures: bool = True) -> torch.Tensor:
    x = torch.arange(1, 301, dtype=torch.float32)
    out = torch.empty(300)
    host_program.build(source).call("run", x, out, 300, with_failures=with_failures)
    return out


def line_of(source: str, text: str) -> int:
    return source[: source.index(text)].count("\n") + 1


def plant_mistake(old: str, new: str) -> tuple[HostProgramError, str]:
    """Replace a part of the program. Return the error of its run, and the source."""
    assert PROGRAM.count(old) == 1
    source = PROGRAM.replace(old, new)
    with pytest.raises(HostProgramError) as caught:
        run(source)
    return caught.value, source


def test_a_program_computes_through_device_memory() -> None:
    assert torch.equal(run(PROGRAM), 3 * torch.arange(1, 301, dtype=torch.float32))


def test_main_runs_with_its_own_memory(capfd: pytest.CaptureFixture[str]) -> None:
    assert host_program.build(PROGRAM).main("argument") == 7
    assert capfd.readouterr().out == "no error: 3 2\n"


def test_bytes_that_are_not_copied_are_uninitialized() -> None:
    with pytest.raises(Uninitialized, match="x\\[150\\]"):
        run(PROGRAM.replace("(memory, x, n * sizeof(float)", "(memory, x, n / 2 * sizeof(float)"))


COPY_IN = "x, n * sizeof(float), cudaMemcpyHostToDevice"
COPY_OUT = (
    "    if (status == cudaSuccess) status = cudaMemcpy(out, memory + n, n * sizeof(float), cudaMemcpyDeviceToHost);\n"
)
FREE = "    cudaFree(memory);\n"
LAUNCH_FAILED = "the launch failed with cudaErrorInvalidConfiguration"


LAUNCH = """        scale<<<(n + 127) / 128, 128>>>(memory, {memory + n, 1.5f}, n);  // LAUNCH
        status = cudaGetLastError();
"""
LAUNCH_BY_FUNCTION = """        const float* source = memory;
        Pair pair = {memory + n, 1.5f};
        void* parameters[] = {&source, &pair, &n};
        status = cudaLaunchKernel((const void*)scale, dim3((n + 127) / 128), dim3(128), parameters, 0, 0);
"""


def test_cuda_launch_kernel_returns_the_error_of_the_launch() -> None:
    assert PROGRAM.count(LAUNCH) == 1
    source = PROGRAM.replace(LAUNCH, LAUNCH_BY_FUNCTION)
    assert torch.equal(run(source), 3 * torch.arange(1, 301, dtype=torch.float32))
    source = source.replace("status = cudaLaunchKernel", "cudaLaunchKernel")
    with pytest.raises(HostProgramError, match=LAUNCH_FAILED) as caught:
        run(source)
    assert (caught.value.problem, caught.value.line) == ("error ignored", line_of(source, "cudaLaunchKernel"))


@pytest.mark.parametrize(
    ("old", "new", "problem", "line_text", "message"),
    [
        (
            COPY_IN,
            COPY_IN.replace("HostToDevice", "DeviceToHost"),
            "invalid call",
            "cudaMemcpy(memory, x",
            "that direction is cudaMemcpyHostToDevice",
        ),
        ("(memory, {", "(x, {", "invalid call", "// LAUNCH", "memory of the host (argument 1) as x"),
        (
            "memory + n, n * sizeof",
            "memory + n, 2 * n * sizeof",
            "invalid call",
            "cudaMemcpyDeviceToHost",
            "writes 2,400 bytes, and 1,200 are there",
        ),
        (FREE, "", "not released", "cudaMalloc", "nothing frees the 2,400 bytes"),
        (FREE, FREE.strip() + FREE, "invalid call", "cudaFree", "has freed already"),
        (FREE, FREE.replace("memory", "memory + 1"), "invalid call", "cudaFree", "into the middle"),
        (FREE, "out[0] = memory[1];" + FREE, "invalid call", "out[0]", "host code reads or writes the 2,400 bytes"),
        ("        status = cudaGetLastError();\n", "", "error ignored", "// LAUNCH", LAUNCH_FAILED),
        (COPY_OUT, "", "not awaited", "// LAUNCH", "no call after the launch returns the kernel's errors"),
        (
            "return status;\n}\nint",
            "return cudaSuccess;\n}\nint",
            "error ignored",
            "cudaMalloc",
            "returned cudaSuccess",
        ),
        ("128, 128>>>", "128, 2048>>>", "call failed", "// LAUNCH", LAUNCH_FAILED),
    ],
)
def test_a_mistake_is_reported_with_its_line(old: str, new: str, problem: str, line_text: str, message: str) -> None:
    error, source = plant_mistake(old, new)
    assert (error.problem, error.line) == (problem, line_of(source, line_text))
    assert message in error.message


def test_an_event_has_a_time_after_synchronization() -> None:
    timed = """
    cudaEvent_t start, stop;
    cudaEventCreate(&start); cudaEventCreate(&stop);
    cudaEventRecord(start);
    scale<<<1, 1>>>(memory, {memory + n, 1.5f}, 0);
    cudaEventRecord(stop);
    WAIT
    float milliseconds = -1;
    cudaError_t reading = cudaEventElapsedTime(&milliseconds, start, stop);  // READ
    cudaEventDestroy(start); cudaEventDestroy(stop);
    if (status == cudaSuccess) status = reading;
    cudaFree(memory);"""
    source = PROGRAM.replace("    cudaFree(memory);", timed)
    with pytest.raises(HostProgramError, match="cudaErrorNotReady") as caught:
        run(source.replace("WAIT", ""), with_failures=False)
    assert caught.value.line == line_of(source, "// READ")
    run(source.replace("WAIT", "cudaEventSynchronize(stop);"), with_failures=False)


def test_an_unsupported_runtime_function_is_a_compile_error() -> None:
    with pytest.raises(frontends.NotSimulated, match="does not have cudaMallocManaged"):
        host_program.build(PROGRAM.replace("cudaMalloc(&", "cudaMallocManaged(&"))


def test_errors_of_both_compilers_name_the_line() -> None:
    with pytest.raises(CompileError, match=rf"program\.cu\({line_of(PROGRAM, '// BEFORE')}\): error: .*float32"):
        host_program.build(PROGRAM.replace("// BEFORE", "__device__ float32 one;"))
    calling = PROGRAM.replace("// BEFORE", "int missing();").replace("return 7;", "return missing();")
    place = rf"program\.cu\({line_of(calling, 'return missing')}\)"
    with pytest.raises(CompileError, match=f"{place}: undefined reference"):
        host_program.build(calling)


def test_a_function_needs_c_linkage() -> None:
    with pytest.raises(CompileError, match='has no function run with C linkage: extern "C"'):
        run(PROGRAM.replace('extern "C" ', ""))


def test_a_stub_is_not_started() -> None:
    error, source = plant_mistake("    float* memory", "    return cudaErrorNotSupported;\n    float* memory")
    assert (error.problem, error.line) == ("not started", line_of(source, "cudaError_t run"))
    assert error.message == "run returns cudaErrorNotSupported"


def test_a_previously_loaded_cuda_runtime_gets_no_calls(tmp_path: Path) -> None:
    """PyTorch's build for CUDA loads libcudart, whose functions fail without a driver."""
    runtime = tmp_path / "runtime.cpp"
    program = tmp_path / "program.cu"
    runtime.write_text('extern "C" int cudaMalloc(void**, unsigned long) { return 35; }')
    program.write_text(PROGRAM)
    subprocess.run(["g++", "-shared", "-fPIC", "-o", tmp_path / "runtime.so", runtime], check=True)
    script = (
        "import ctypes, sys, torch\n"
        "ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)\n"
        "from warpcheck.frontends import host_program\n"
        "x, out = torch.ones(3), torch.empty(3)\n"
        "host_program.build(open(sys.argv[2]).read()).call('run', x, out, 3, with_failures=False)\n"
        "print(out.tolist())\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "runtime.so"), str(program)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[3.0, 3.0, 3.0]\n"


MORE_SHARED = """        scale<<<(n + 127) / 128, 128, 64 << 10>>>(memory, {memory + n, 1.5f}, n);
        status = cudaGetLastError();
"""


def test_more_than_48_kib_of_shared_memory_needs_the_function_attribute() -> None:
    source = PROGRAM.replace(LAUNCH, MORE_SHARED)
    with pytest.raises(HostProgramError, match="the launch failed with cudaErrorInvalidValue"):
        run(source, with_failures=False)
    allow = "cudaFuncSetAttribute(scale, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10);\n"
    run(source.replace(MORE_SHARED, allow + MORE_SHARED), with_failures=False)


TENSOR_MAP_PROGRAM = """
#include <cuda.h>
#include <cuda_runtime.h>

__global__ void look(const __grid_constant__ CUtensorMap map, float* memory, int* out) {
    const unsigned long long* words = reinterpret_cast<const unsigned long long*>(&map);
    out[0] = words[0] == reinterpret_cast<unsigned long long>(memory);
}
extern "C" cudaError_t run(int* out) {
    float* memory = nullptr;
    int* device_out = nullptr;
    cudaMalloc(&memory, 64 * 64 * sizeof(float));
    cudaMalloc(&device_out, sizeof(int));
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
    CUtensorMap map;
    const cuuint64_t extents[] = {64, 64}, strides[] = {256};
    const cuuint32_t box[] = {32, 8}, steps[] = {1, 1};
    reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)(
        &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, memory, extents, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
        CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    look<<<1, 1>>>(map, memory, device_out);
    cudaError_t status = cudaMemcpy(out, device_out, sizeof(int), cudaMemcpyDeviceToHost);
    cudaFree(memory);
    cudaFree(device_out);
    return status;
}
"""


def test_a_tensor_map_has_the_device_address() -> None:
    out = torch.zeros(1, dtype=torch.int32)
    host_program.build(TENSOR_MAP_PROGRAM).call("run", out)
    assert out.item() == 1


def test_a_box_that_is_too_large_is_named_with_its_line() -> None:
    source = TENSOR_MAP_PROGRAM.replace("{32, 8}", "{32, 512}")
    with pytest.raises(HostProgramError, match="boxDim\\[1\\] is 512, it must be 1 to 256"):
        host_program.build(source).call("run", torch.zeros(1, dtype=torch.int32))


IM2COL_MAP_PROGRAM = """
#include <cuda.h>
#include <cuda_runtime.h>

__global__ void look(const __grid_constant__ CUtensorMap map, float* memory, int* out) {
    const unsigned* words = reinterpret_cast<const unsigned*>(&map);
    out[0] = *reinterpret_cast<const unsigned long long*>(&map) == reinterpret_cast<unsigned long long>(memory);
    out[1] = words[14];  // the corners
    out[2] = words[15];  // the pixels
}
extern "C" cudaError_t run(int* out) {
    float* memory = nullptr;
    int* device_out = nullptr;
    cudaMalloc(&memory, 2 * 4 * 4 * 8 * sizeof(float));
    cudaMalloc(&device_out, 3 * sizeof(int));
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeIm2col", &function, 12000, cudaEnableDefault, &found);
    CUtensorMap map;
    const cuuint64_t extents[] = {8, 4, 4, 2}, strides[] = {32, 128, 512};
    const cuuint32_t steps[] = {1, 1, 1, 1};
    const int lower[] = {-1, -2}, upper[] = {-3, 0};
    reinterpret_cast<decltype(&cuTensorMapEncodeIm2col)>(function)(
        &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, memory, extents, strides, lower, upper, 8, 16, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    look<<<1, 1>>>(map, memory, device_out);
    cudaError_t status = cudaMemcpy(out, device_out, 3 * sizeof(int), cudaMemcpyDeviceToHost);
    cudaFree(memory);
    cudaFree(device_out);
    return status;
}
"""


def test_a_tensor_map_in_im2col_mode() -> None:
    out = torch.zeros(3, dtype=torch.int32)
    host_program.build(IM2COL_MAP_PROGRAM).call("run", out)
    assert out.tolist() == [1, 0x00FDFEFF, 15]


def test_a_corner_that_does_not_fit_is_named_with_its_line() -> None:
    source = IM2COL_MAP_PROGRAM.replace("{-1, -2}", "{-1, -200}")
    with pytest.raises(HostProgramError, match="pixelBoxLowerCorner\\[1\\] is -200, it must be -128 to 127"):
        host_program.build(source).call("run", torch.zeros(3, dtype=torch.int32))


def test_the_headers_of_the_runtime_may_be_older_than_nvcc() -> None:
    """PyTorch's build for CUDA installs the headers that it needs, and CCCL compares the versions."""
    older = "#undef CUDART_VERSION\n#define CUDART_VERSION 12000\n#include <cuda/std/utility>\n"
    assert run(older + PROGRAM).tolist() == [3.0 * n for n in range(1, 301)]
