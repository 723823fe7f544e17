"""Test the CUDA lane: compilation, cache, arguments, errors, and launches on the PTX machine and on a GPU."""

from __future__ import annotations

import ctypes
import runpy
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from warpcheck import Trap, backend, frontends
from warpcheck.backend import LaunchResult
from warpcheck.frontends import cuda, headers, nvrtc

SOURCE = """\
// __global__ void commented_out(int a) {}
template <typename T, int SCALE>
__global__ void __launch_bounds__(256) scale(const T* __restrict__ x, T* out, float by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = T(float(x[i]) * by * SCALE);
}

extern "C" __global__ void wide(double* out, long long big, unsigned char small /* a byte, */, double d, bool flag) {
  out[0] = double(big); out[1] = small; out[2] = d; out[3] = flag;
}

__global__ void shared_bytes(float* out, int n) {
  extern __shared__ float buffer[];
  __shared__ float last;
  if (threadIdx.x == 0) last = n;
  buffer[threadIdx.x + n - blockDim.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = buffer[int(last) - 1 - threadIdx.x];
}
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WARPCHECK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "cuda"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "kernels.cu"
    path.write_text(SOURCE)
    return path


@pytest.fixture
def recorded_launches(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Replace the PTX machine by one that only records launches, and return the list of them."""
    launches: list[dict[str, Any]] = []

    def record_launch(name: str, **arguments: Any) -> LaunchResult:
        launches.append({"name": name, **arguments})
        return LaunchResult(7)

    module = SimpleNamespace(compile=lambda name: None, launch=record_launch)
    monkeypatch.setattr(backend, "_device", SimpleNamespace(load=lambda ptx, source: module))
    return launches


def test_a_real_architecture_yields_a_cubin_and_a_virtual_one_only_ptx(source: Path) -> None:
    kernel = cuda.kernel(source, "scale<float, 2>")
    assert kernel.binary("sm_90a").cubin.startswith(b"\x7fELF")
    assert ".target sm_90a" in kernel.binary("sm_90a").ptx
    assert kernel.binary("compute_80").cubin == b""
    assert ".target sm_80" in kernel.binary("compute_80").ptx


def test_ptx_carries_the_learners_file_and_lines(source: Path) -> None:
    ptx = cuda.kernel(source, "scale<float, 2>").binary("compute_80").ptx
    assert f'"{source}"' in ptx
    assert ".loc\t1 5 " in ptx


def test_parameters_have_names_from_the_source_and_types_from_ptx(source: Path) -> None:
    scale_parameters = cuda.kernel(source, "scale<float, 2>").parameters("compute_80")
    wide_parameters = cuda.kernel(source, "wide").parameters("sm_90a")
    assert [(p.name, p.type) for p in scale_parameters] == [("x", "ptr"), ("out", "ptr"), ("by", "f32"), ("n", "u32")]
    assert [(p.name, p.type) for p in wide_parameters] == [
        ("out", "ptr"),
        ("big", "u64"),
        ("small", "u8"),
        ("d", "f64"),
        ("flag", "u8"),
    ]


def test_grid_constants_keep_their_types(tmp_path: Path) -> None:
    """PTX declares these parameters as arrays of bytes."""
    path = tmp_path / "constants.cu"
    path.write_text(
        """struct Pair { int first, second; };
        __global__ void constants(float* out, const __grid_constant__ int n, const __grid_constant__ float by,
                                  const __grid_constant__ size_t m, float* const __grid_constant__ y,
                                  const __grid_constant__ Pair pair) {
            out[0] = n + by + m + pair.first + y[0];
        }"""
    )
    parameters = cuda.kernel(path, "constants").parameters("compute_80")
    assert [parameter.type for parameter in parameters] == ["ptr", "u32", "f32", "u64", "ptr", "b8[8]"]


def test_a_declaration_from_a_macro_still_gives_types(tmp_path: Path) -> None:
    path = tmp_path / "macro.cu"
    path.write_text("#define KERNEL(NAME) __global__ void NAME(float* a, int n)\nKERNEL(hidden) { a[n] = 0; }\n")
    parameters = cuda.kernel(path, "hidden").parameters("compute_80")
    assert [(p.name, p.type) for p in parameters] == [("parameter_0", "u64"), ("parameter_1", "u32")]


def test_compile_error_names_the_learners_line(source: Path) -> None:
    source.write_text(SOURCE.replace("i < n", "i < m"))
    with pytest.raises(cuda.CompileError, match=rf'{source}\(5\): error: identifier "m" is undefined'):
        cuda.kernel(source, "scale<float, 2>").binary("compute_80")


@pytest.mark.parametrize("name", ["scal<float, 2>", "commented_out"])
def test_an_error_about_a_missing_kernel_lists_the_existing_ones(source: Path, name: str) -> None:
    with pytest.raises(cuda.KernelNotFound, match=rf"no kernel {name} in .*: scale, wide, shared_bytes$"):
        cuda.kernel(source, name).binary("compute_80")


NAMES = {
    "scale": r'^scale is a template: name an instance of it, such as "scale<float, 32>"$',
    "scale<float>": r'"scale<float>" is no instance of template <typename T, int SCALE> scale.*: cannot determine',
    "scale<half, 2>": r'such as "scale<float, 32>": identifier "half" is undefined$',
    "wide<2>": r'^"wide<2>" names no kernel: wide is not a template; call it "wide"$',
}


@pytest.mark.parametrize(("name", "sentence"), NAMES.items(), ids=NAMES)
def test_an_invalid_instance_name_is_explained(source: Path, name: str, sentence: str) -> None:
    with pytest.raises(cuda.KernelNotFound, match=sentence):
        cuda.kernel(source, name).binary("compute_80")


HOST = {
    "int main() { return 0; }": r"k.cu\(2\): error: this is host code, and a .cu here is for kernels: write __device__",
    "float bias = 1;": r"k.cu\(2\): error: this is a variable of the host: write __device__, __constant__",
    '#include "helper_cuda.h"': r"k.cu\(2\): catastrophic error: there is no helper_cuda.h for kernels: leave it out",
    "#include <curand_kernel.h>": r"no curand_kernel.h: nvidia-curand is not installed: .* -m pip install 'nvidia-c",
}


@pytest.mark.parametrize(("line", "sentence"), HOST.items(), ids=HOST)
def test_host_code_is_reported_with_its_line(tmp_path: Path, line: str, sentence: str) -> None:
    path = tmp_path / "k.cu"
    path.write_text(f"__global__ void k(float* x) {{ x[0] = 1; }}\n{line}\n")
    with pytest.raises(cuda.CompileError, match=sentence):
        cuda.kernel(path, "k").binary("compute_80")


def test_a_template_of_an_unknown_type_is_reported_although_nvrtc_crashes(tmp_path: Path) -> None:
    (tmp_path / "half.cu").write_text("\ntemplate <int N> __global__ void halves(half* x) { x[N] = 0; }\n")
    with pytest.raises(cuda.CompileError, match=r'half\.cu\(2\): error: identifier "half" is undefined'):
        cuda.kernel(tmp_path / "half.cu", "halves<4>").binary("compute_80")


def test_a_kernel_name_may_span_several_lines(tmp_path: Path) -> None:
    (tmp_path / "two.cu").write_text("template <int M, int N> __global__ void two(float* x) { x[M] = N; }\n")
    assert "two" in cuda.kernel(tmp_path / "two.cu", "two<2,\n    3>").binary("compute_80").mangled


def test_an_error_in_a_header_names_the_learners_line(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text(
        "#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;\n__global__ void k(int* x) {\n"
        "  x[0] = cg::tiled_partition<33>(cg::this_thread_block()).size();\n}"
    )
    with pytest.raises(cuda.CompileError, match=r"k.cu\(4\): error: static assertion .* \(in cooperative_groups.h\)"):
        cuda.kernel(path, "k").binary("compute_80")


def test_constexpr_functions_are_usable_in_kernels(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    function = "constexpr int\nceil_div(int a, int b) { return (a + b - 1) / b; }\n"
    path.write_text(function + "__global__ void k(int* x) { x[0] = ceil_div(4999, 2); }")
    assert "2500" in cuda.kernel(path, "k").binary("compute_80").ptx


def test_generic_lambdas_are_device_code(tmp_path: Path) -> None:
    """NVRTC 13.0 rejects generic lambdas as host code."""
    path = tmp_path / "k.cu"
    path.write_text(
        "template <class F> __device__ float applied(F f, float x) { return f(x, 2); }\n__global__ void k(float* x) {\n"
        "  auto scaled = [&](auto v, int by) {\n    return v * by + x[1];\n  };\n  x[0] = applied(scaled, x[0]);\n}"
    )
    assert ".entry" in cuda.kernel(path, "k").binary("compute_80").ptx
    refused = "k.cu({}): error: A function without execution space annotations is considered a host function\n"
    assert headers.rejects_only_implicit_device_code(path.read_text(), refused.format(3))
    assert not headers.rejects_only_implicit_device_code(path.read_text(), refused.format(3) + refused.format(7))


def test_infinity_and_nan_need_no_header(tmp_path: Path) -> None:
    path = tmp_path / "infinity.cu"
    path.write_text("__global__ void fill(float* x) { x[0] = -INFINITY; x[1] = NAN; }")
    assert "-8388608" in cuda.kernel(path, "fill").binary("compute_80").ptx


def test_headers_for_half_precision_are_found(tmp_path: Path) -> None:
    path = tmp_path / "half.cu"
    path.write_text("#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n__global__ void k(__nv_bfloat16* x, half y) {}")
    parameters = cuda.kernel(path, "k").parameters("compute_80")
    assert [(p.name, p.type) for p in parameters] == [("x", "ptr"), ("y", "b8[2]")]


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        cuda.kernel(tmp_path / "nowhere.cu", "scale")


def test_a_relative_path_is_relative_to_the_calling_file(source: Path) -> None:
    caller = source.with_name("caller.py")
    caller.write_text('from warpcheck.frontends import cuda\nkernel = cuda.kernel("kernels.cu", "wide")\n')
    assert runpy.run_path(str(caller))["kernel"].file == str(source)


def test_a_kernel_is_reused_until_its_file_changes(source: Path) -> None:
    first = cuda.kernel(source, "wide")
    assert cuda.kernel(source, "wide") is first
    source.write_text(SOURCE + "// changed")
    assert cuda.kernel(source, "wide").source.endswith("// changed")


def test_a_source_that_was_read_ahead_need_not_be_readable(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda.read_ahead(source)
    monkeypatch.setattr(cuda, "source_text", None)
    assert cuda.kernel(source, "wide").source == SOURCE


# The cache


def fail_to_compile(*arguments: Any) -> nvrtc.Binary:
    raise AssertionError("compiled again")


def compile_wide(source: Path, *options: str) -> nvrtc.Binary:
    return cuda.compile_kernel(source.read_text(), str(source), "wide", "compute_80", options)


def test_a_cached_kernel_is_not_compiled_again(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = compile_wide(source)
    monkeypatch.setattr(nvrtc, "_compile", fail_to_compile)
    assert compile_wide(source) == binary


@pytest.mark.parametrize("change", ["source", "options", "version"])
def test_a_change_misses_the_cache(source: Path, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_wide(source)
    monkeypatch.setattr(nvrtc, "_compile", fail_to_compile)
    if change == "source":
        source.write_text(SOURCE + "\n")
    if change == "version":
        monkeypatch.setattr(nvrtc, "_version", lambda: (99, 0))
    with pytest.raises(AssertionError, match="compiled again"):
        compile_wide(source, *(["--use_fast_math"] if change == "options" else []))


def test_a_damaged_cache_entry_is_replaced(source: Path, cache: Path) -> None:
    binary = compile_wide(source)
    (entry,) = (file for file in cache.rglob("*") if file.is_file())
    content = entry.read_bytes()
    entry.write_bytes(content[:100])
    assert compile_wide(source) == binary
    assert entry.read_bytes() == content


def test_an_unwritable_cache_is_no_error(source: Path, cache: Path) -> None:
    cache.parent.write_text("a file where the folder should be")
    assert compile_wide(source).mangled == "wide"


def test_a_failed_compilation_leaves_no_cache_entry(source: Path, cache: Path) -> None:
    source.write_text("broken")
    with pytest.raises(cuda.CompileError):
        compile_wide(source)
    assert not cache.exists()


def test_a_changed_own_header_recompiles_the_kernel(tmp_path: Path) -> None:
    path = tmp_path / "kernels.cu"
    path.write_text('#include "value.h"\n__global__ void wide(int* x) { *x = VALUE; }')
    for value in ("1234", "5678"):
        (tmp_path / "value.h").write_text(f"#define VALUE {value}\n")
        assert value in compile_wide(path).ptx


# Launches


def test_a_launch_passes_addresses_numbers_and_spans(source: Path, recorded_launches: list[dict[str, Any]]) -> None:
    x = torch.arange(10.0)[1:]
    out = torch.empty(4, 9)[:, ::2]
    cuda.kernel(source, "scale<float, 2>")[(3, 2), 64, 100](x, out, 3, 9)
    (launch,) = recorded_launches
    assert launch["name"].startswith("_Z5scaleIfLi2EE")
    assert (launch["grid"], launch["block"], launch["shared"]) == ((3, 2, 1), (64, 1, 1), 100)
    first, second, *numbers = launch["arguments"]
    assert first is x
    assert second is out
    assert numbers == [3.0, 9]
    assert [type(value) for value in numbers] == [float, int]
    assert launch["tensors"] == [("x", x), ("out", out)]


def test_every_launch_is_recorded(source: Path, recorded_launches: list[dict[str, Any]]) -> None:
    launches: list[frontends.Launched] = []
    x = torch.zeros(4)
    with frontends.observe(launches.append):
        cuda.kernel(source, "scale<float, 2>")[1, 4](x, x, 1.0, 4)
    assert [(launched.lane, launched.name, launched.device) for launched in launches] == [("cuda", "scale", "cpu")]
    assert launches[0].arguments == (x, x, 1.0, 4)
    assert launches[0].cost == 7


def test_tensors_must_share_a_device(source: Path) -> None:
    with pytest.raises(ValueError, match=r"scale needs its tensors on one device, got cpu and meta"):
        cuda.kernel(source, "scale<float, 2>")[1, 1](torch.zeros(1), torch.zeros(1, device="meta"), 1.0, 1)


def test_a_struct_may_contain_all_pointers_of_a_kernel(tmp_path: Path, recorded_launches: list[dict[str, Any]]) -> None:
    path = tmp_path / "struct.cu"
    path.write_text(
        "struct P { float* x; int n; };\n__global__ void fill(P p) { if (threadIdx.x < p.n) p.x[threadIdx.x] = 1; }"
    )
    x = torch.zeros(4)
    content = struct.pack("Pixxxx", x.data_ptr(), 4)
    cuda.kernel(path, "fill")[1, 32](content)
    (launch,) = recorded_launches
    assert (launch["tensors"], launch["arguments"]) == ([], [content])


def test_a_numpy_array_is_rejected_by_name(source: Path) -> None:
    x = np.zeros(4, np.float32)
    with pytest.raises(TypeError, match=r"scale is given a NumPy array: pass a torch tensor, .*from_numpy"):
        cuda.kernel(source, "scale<float, 2>")[1, 4](x, x, 1.0, 4)


X = torch.zeros(4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (X, X, 1.0),
            r"scale takes 4 arguments \(const T\* __restrict__ x, T\* out, float by, int n\), got 3, none for int n",
        ),
        ((X, 5, 1.0, 1), r"out of scale takes a tensor, got 5"),
        ((X, X, X, 1), r"by of scale takes a number, got Tensor"),
        ((X, X, "1", 1), r"by of scale takes a number, got str"),
        ((X, X, 1.0, 1.5), r"n of scale takes an integer, got 1.5"),
        ((X, X, 1.0, X), r"n of scale takes an integer, got Tensor"),
        ((X, X, 1.0, 1 << 32), r"n of scale takes an integer of 32 bits, got 4294967296"),
    ],
)
def test_an_error_about_an_argument_names_parameter_and_kernel(
    source: Path, arguments: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        cuda.kernel(source, "scale<float, 2>")[1, 4](*arguments)


def test_a_struct_is_passed_as_bytes(tmp_path: Path, recorded_launches: list[dict[str, Any]]) -> None:
    class Pair(ctypes.Structure):
        _fields_ = (("a", ctypes.c_int), ("b", ctypes.c_int))

    path = tmp_path / "struct.cu"
    path.write_text("struct Pair { int a, b; };\n__global__ void k(int* x, Pair pair) { *x = pair.b; }")
    x = torch.zeros(1, dtype=torch.int32)
    cuda.kernel(path, "k")[1, 1](x, Pair(3, 4))
    assert recorded_launches[0]["arguments"] == [x, struct.pack("ii", 3, 4)]
    with pytest.raises(TypeError, match=r"Pair pair of k takes 8 bytes \(a ctypes.Structure, say\), got 5"):
        cuda.kernel(path, "k")[1, 1](x, 5)


def test_a_number_for_a_parameter_of_16_bits_is_rounded(
    tmp_path: Path, recorded_launches: list[dict[str, Any]]
) -> None:
    path = tmp_path / "halves.cu"
    path.write_text(
        "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\nstruct Pair { char a, b; };\n"
        "__global__ void k(float* x, const half h, __nv_bfloat16 b) { x[0] = __half2float(h) + float(b); }\n"
        "__global__ void pair(float* x, Pair p) { x[0] = p.a; }"
    )
    x = torch.zeros(1)
    numbers = (0.1, 1 + 2**-8), (70000, 1 + 3 * 2**-8), (np.float32(2), float("nan"))
    for half, bfloat in numbers:
        cuda.kernel(path, "k")[1, 1](x, half, bfloat)
        rounded = torch.tensor([half], dtype=torch.float16), torch.tensor([bfloat], dtype=torch.bfloat16)
        assert recorded_launches[-1]["arguments"][1:] == [
            value.view(torch.uint8).numpy().tobytes() for value in rounded
        ]
    with pytest.raises(TypeError, match="Pair p of pair takes 2 bytes"):
        cuda.kernel(path, "pair")[1, 1](x, 5)


SPELLINGS = """
typedef const float* Input;
template <typename T> struct Of { using type = T*; };
#define OUT float* out
__global__ void k(Input x, Of<float>::type y, float z[], float *__restrict__ w, size_t n, const float*, int) {}
__global__ void from_a_macro(OUT, long long n) {}
"""


def test_pointers_are_recognized_by_their_arguments(tmp_path: Path, recorded_launches: list[dict[str, Any]]) -> None:
    path = tmp_path / "spellings.cu"
    path.write_text(SPELLINGS)
    x, y, z, w, v = torch.zeros(5, 4)
    cuda.kernel(path, "k")[1, 1](x, y, z, w, 4, v, 5)
    cuda.kernel(path, "from_a_macro")[1, 1](x, 4)
    assert [name for name, _ in recorded_launches[0]["tensors"]] == ["x", "y", "z", "w", "parameter_5"]
    assert recorded_launches[0]["arguments"][4:] == [4, v, 5]
    assert recorded_launches[1]["tensors"] == [("parameter_0", x)]


def test_a_pointer_parameter_takes_no_number(tmp_path: Path, recorded_launches: list[dict[str, Any]]) -> None:
    path = tmp_path / "spellings.cu"
    path.write_text("__global__ void k(const float*, float x[4]) {}")
    kernel = cuda.kernel(path, "k")
    kernel[1, 1](None, X)
    assert recorded_launches[0]["arguments"] == [0, X]
    with pytest.raises(TypeError, match=rf"const float\* of k takes a tensor, got {1 << 40}: an address alone does"):
        kernel[1, 1](1 << 40, X)
    with pytest.raises(TypeError, match=r"float x\[4\] of k takes a tensor, got 7: .* another order"):
        kernel[1, 1](X, 7)


def test_a_tensor_with_another_dtype_than_the_pointer_is_a_warning(
    tmp_path: Path, recorded_launches: list[dict[str, Any]], recwarn: pytest.WarningsRecorder
) -> None:
    path = tmp_path / "types.cu"
    path.write_text("// k\n__global__ void k(const int* x, const unsigned* bits, float4* wide, float* y) {}")
    cuda.kernel(path, "k")[1, 1](X, X, X, X.bfloat16())
    assert [str(warning.message) for warning in recwarn] == [
        "const int* x is given a float32 tensor: the kernel takes its bits for int",
        "float* y is given a bfloat16 tensor: the kernel takes its bits for float",
    ]
    assert {(warning.filename, warning.lineno) for warning in recwarn} == {("types.cu", 2)}


def test_a_tensor_with_another_dtype_than_the_pointer_is_a_warning_on_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    path = tmp_path / "types.cu"
    path.write_text("__global__ void k(const float* x, float* y) {}")
    kernel = cuda.kernel(path, "k")
    launched = []
    loaded = SimpleNamespace(
        parameters=kernel.parameters("compute_80"), launch=lambda launcher, arguments: launched.append(arguments)
    )
    monkeypatch.setattr(cuda.Kernel, "loaded", lambda kernel, index: loaded)

    def tensor(dtype: torch.dtype) -> SimpleNamespace:
        return SimpleNamespace(device=torch.device("cuda:0"), dtype=dtype, data_ptr=lambda: 1 << 20)

    for dtype in (torch.float32, torch.int32, torch.int32, torch.float32):
        kernel[1, 1](tensor(dtype), tensor(torch.float32))
    assert len(launched) == 4
    assert [str(warning.message) for warning in recwarn] == [
        "const float* x is given an int32 tensor: the kernel takes its bits for float"
    ]


def test_numpy_scalars_are_numbers(source: Path, recorded_launches: list[dict[str, Any]]) -> None:
    out = torch.zeros(4, dtype=torch.float64)
    arguments = (out, np.int64(-(1 << 40)), np.uint8(200), np.float32(0.5), np.bool_(True))
    cuda.kernel(source, "wide")[np.int64(1), (np.int32(4),)](*arguments)
    assert recorded_launches[0]["arguments"] == [out, -(1 << 40), 200, 0.5, 1]
    assert recorded_launches[0]["block"] == (4, 1, 1)


@pytest.mark.parametrize("grid", [[3, 2], torch.Size([3, 2]), np.array([3, 2]), (np.int64(3), 2)])
def test_a_grid_may_be_any_sequence(source: Path, recorded_launches: list[dict[str, Any]], grid: Any) -> None:
    cuda.kernel(source, "scale<float, 2>")[grid, [64]](X, X, 1.0, 4)
    assert (recorded_launches[0]["grid"], recorded_launches[0]["block"]) == ((3, 2, 1), (64, 1, 1))


TEXT = "// gr\u00f6\u00dfe\n\t__global__ void k(float* x) {\r\n\tx[0] = 1; }\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16"])
def test_a_source_is_read_in_any_common_encoding(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "k.cu"
    path.write_bytes(TEXT.encode(encoding))
    kernel = cuda.kernel(path, "k")
    assert kernel.source == TEXT.replace("\r\n", "\n")
    assert "\t.loc\t1 3 " in kernel.binary("compute_80").ptx


@pytest.mark.parametrize(
    "launch", [1, (1,), (1, 2, 3, 4), (-1, 1), (1, (1, 1, 1, 1)), ((), 1), (1, (4, -1)), (2.5, 1), ("8", 1)]
)
def test_an_invalid_launch_configuration_is_an_error(source: Path, launch: Any) -> None:
    with pytest.raises(ValueError, match=r"kernel\[grid, block\]|one to three positive integers|not of whole numbers"):
        cuda.kernel(source, "wide")[launch]


@pytest.mark.parametrize(("launch", "empty"), [(((2, 0), 1), "grid has 0 blocks"), ((1, 0), "block has 0 threads")])
def test_an_empty_launch_names_the_empty_extent(source: Path, launch: Any, empty: str) -> None:
    with pytest.raises(ValueError, match=f"the {empty}: round up"):
        cuda.kernel(source, "wide")[launch]


gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=[gpu, pytest.mark.gpu])]


@pytest.mark.parametrize("device", DEVICES)
def test_scalars_are_converted_to_the_declared_types(source: Path, device: str) -> None:
    out = torch.empty(4, dtype=torch.float64, device=device)
    cuda.kernel(source, "wide")[1, 1](out, -(1 << 40), 200, 3, True)
    assert out.tolist() == [-(2.0**40), 200.0, 3.0, 1.0]


@pytest.mark.parametrize("device", DEVICES)
def test_an_integer_for_a_float_parameter_keeps_its_value(source: Path, device: str) -> None:
    x = torch.arange(300.0, device=device)
    out = torch.zeros_like(x)
    cuda.kernel(source, "scale<float, 2>")[2, 256](x, out, 3, 300)
    assert torch.equal(out, 6 * x)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("nbytes", [4 * 256, 48 * 1024, 64 * 1024])
def test_dynamic_shared_memory_below_and_above_48_kib(source: Path, device: str, nbytes: int) -> None:
    out = torch.zeros(256, device=device)
    cuda.kernel(source, "shared_bytes")[1, 256, nbytes](out, nbytes // 4)
    assert out.tolist() == list(range(255, -1, -1))


@gpu
@pytest.mark.gpu
def test_a_launch_uses_the_current_stream_of_torch(source: Path) -> None:
    x = torch.ones(1 << 24, device="cuda")
    out = torch.zeros_like(x)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    kernel = cuda.kernel(source, "scale<float, 1>")
    with torch.cuda.stream(stream):
        torch.cuda._sleep(10_000_000)
        x.mul_(2)
        kernel[x.numel() // 256, 256](x, out, 1.0, x.numel())
        total = out.sum()
    stream.synchronize()
    assert total.item() == 2.0 * x.numel()


@gpu
@pytest.mark.gpu
def test_a_too_large_block_is_a_launch_error(source: Path) -> None:
    x = torch.zeros(4, device="cuda")
    with pytest.raises(Exception, match="INVALID_VALUE"):
        cuda.kernel(source, "scale<float, 1>")[1, 2048](x, x, 1.0, 4)


@gpu
@pytest.mark.gpu
def test_more_shared_memory_than_the_gpu_has_is_an_error(source: Path) -> None:
    x = torch.zeros(4, device="cuda")
    with pytest.raises(ValueError, match="shared_bytes asks for 1000000 bytes"):
        cuda.kernel(source, "shared_bytes")[1, 4, 1_000_000](x, 4)


@pytest.mark.parametrize(("capability", "name"), [((7, 5), "sm_75"), ((8, 9), "sm_89"), ((9, 0), "sm_90a")])
def test_architecture_names(capability: tuple[int, int], name: str) -> None:
    assert nvrtc.device_architecture(*capability) == name


def test_a_gpu_that_the_compiler_does_not_know_is_unavailable() -> None:
    with pytest.raises(frontends.Unavailable, match=r"compute capability 6\.1; NVRTC 13\.\d+ does not compile for it"):
        nvrtc.device_architecture(6, 1)


def test_observers_learn_when_a_compilation_begins_and_ends(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_compiling: list[bool] = []
    monkeypatch.setattr(frontends, "_compilation_observers", [is_compiling.append])
    compile_wide(source)
    compile_wide(source)
    assert is_compiling == [True, False]


def test_a_cooperative_kernel_is_launched_cooperatively(source: Path, recorded_launches: list[dict[str, Any]]) -> None:
    x = torch.zeros(8)
    for cooperative in (False, True):
        cuda.kernel(source, "scale<float, 2>", cooperative=cooperative)[1, 8](x, x, 2.0, 8)
    assert [launch["cooperative"] for launch in recorded_launches] == [False, True]


def test_the_shared_memory_window_is_aligned() -> None:
    """CUTLASS converts a null pointer to a shared address, and asserts that its lower bits are zero."""
    out = torch.zeros(1, dtype=torch.int32)
    text = """
__global__ void f(int* out, const char* pointer) { out[0] = (unsigned)__cvta_generic_to_shared(pointer) & 1023; }
"""
    cuda.kernel(text, "f")[1, 1, 4096](out, None)
    assert out.item() == 0


def test_a_breakpoint_traps() -> None:
    out = torch.zeros(1, dtype=torch.int32)
    text = """
__global__ void f(int* out) { out[0] = 1; __brkpt(); }
"""
    with pytest.raises(Trap):
        cuda.kernel(text, "f")[1, 1](out)
