"""Provide the headers that a kernel may include without a CUDA toolkit.

NVIDIA's own headers are in pip packages. NVRTC has no C or C++ standard library, so it gets the standard headers that
kernels use in memory. Most of them include a header of libcu++ and import its namespace cuda::std into std.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from cuda import pathfinder

from warpcheck import frontends, packages

# A header of each required package, and the package's name.
_PACKAGES = {
    "cuda_fp16.h": "nvidia-cuda-runtime",
    "crt/mma.h": "nvidia-cuda-crt",
    "cuda/std/cstdint": "nvidia-cuda-cccl",
}

# The header that every source includes first. It declares the names that nvcc declares without an #include.
#
# The first two lines are for CCCL. Every header of libcu++ includes a list of types whose operations are unrolled 10
# times for nvcc and 16 times for other compilers, such as NVRTC. NVRTC parses 16 times in 1 s and 10 times in 0.05 s.
PRELUDE = "warpcheck/nvcc.h"

_NVCC = """
#define CCCL_DISABLE_CTK_COMPATIBILITY_CHECK
#define _CCCL_META_UNROLL_LIMIT 10
#include <cuda/std/cstdint>
namespace std {
template <class T> __host__ __device__ constexpr const T& max(const T& a, const T& b) { return a < b ? b : a; }
template <class T> __host__ __device__ constexpr const T& min(const T& a, const T& b) { return b < a ? b : a; }
}
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#define HUGE_VALF INFINITY
#define HUGE_VAL __longlong_as_double(0x7ff0000000000000)
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LOG10E 0.43429448190325182765
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
#if __CUDA_ARCH__ >= 900  // templates, so that cuda_device_runtime_api.h may define its functions, too
template <class = void> __device__ inline void cudaTriggerProgrammaticLaunchCompletion() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
template <class = void> __device__ inline void cudaGridDependencySynchronize() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}
#endif
"""

# The declarations of the driver's header that kernels use.
_DRIVER = """
typedef unsigned long long CUdeviceptr;
typedef struct alignas(64) CUtensorMap_st { unsigned long long opaque[16]; } CUtensorMap;
"""

# Headers that are empty here, because their device functions are built in or in PRELUDE.
#
# The last two lines are headers for host code.
_BUILT_IN = """
    assert.h inttypes.h limits.h math.h memory.h stdbool.h stdint.h stdio.h stdlib.h string.h sys/types.h time.h
    cassert cmath cstdio cstdlib cstring ctime new
    chrono exception fstream iomanip ios iostream map memory mutex numbers ostream random set sstream stdexcept string
    thread typeinfo unordered_map unordered_set vector
"""

# <cfloat> with the macros that libcu++ of CUDA 13.0 lacks. Later versions define them, and must come first.
_FLOAT = "#include <cuda/std/cfloat>\n" + "".join(
    f"#ifndef {name}\n#define {name} {value}\n#endif\n"
    for name, value in {
        "FLT_DIG": "6",
        "FLT_EPSILON": "1.19209290e-7f",
        "FLT_MANT_DIG": "24",
        "FLT_MAX": "3.40282347e+38f",
        "FLT_MIN": "1.17549435e-38f",
        "DBL_DIG": "15",
        "DBL_EPSILON": "2.2204460492503131e-16",
        "DBL_MANT_DIG": "53",
        "DBL_MAX": "1.7976931348623157e+308",
        "DBL_MIN": "2.2250738585072014e-308",
    }.items()
)

_ALGORITHM = """
#if __has_include(<cuda/std/algorithm>)
#include <cuda/std/algorithm>
#else  // that of CUDA 13.0 has it by another name
#include <cuda/std/__algorithm_>
#include <cuda/std/utility>
#endif
namespace std { using namespace cuda::std; }
"""

# Headers of C++ that libcu++ has.
_STANDARD = """
    array bit climits complex concepts cstddef cstdint functional initializer_list iterator limits
    numeric optional ratio span tuple type_traits utility variant
"""

# Functions of <cmath>, which nvcc includes implicitly.
_MATH = """
    abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs fdim floor fma
    fmax fmin fmod frexp hypot ilogb isfinite isinf isnan ldexp lgamma log log10 log1p log2 logb lrint lround modf
    nearbyint pow remainder rint round signbit sin sinh sqrt tan tanh tgamma trunc
"""

# The headers of <cub/cub.cuh> for device code. NVRTC rejects the complete header, because it contains host code.
_CUB = """
    block/block_adjacent_difference block/block_discontinuity block/block_exchange block/block_histogram
    block/block_load block/block_merge_sort block/block_radix_sort block/block_reduce block/block_scan
    block/block_store thread/thread_load thread/thread_operators thread/thread_reduce thread/thread_store
    warp/warp_exchange warp/warp_load warp/warp_merge_sort warp/warp_reduce warp/warp_scan warp/warp_store
"""


def _bundled_headers() -> Iterator[tuple[str, str]]:
    yield PRELUDE, _NVCC + "namespace std {\n" + "".join(f"using ::{name};\n" for name in _MATH.split()) + "}\n"
    for name in _BUILT_IN.split():
        yield name, ""
    for name in _STANDARD.split():
        yield name, f"#include <cuda/std/{name}>\nnamespace std {{ using namespace cuda::std; }}\n"
    yield "cuda.h", _DRIVER
    yield "algorithm", _ALGORITHM
    yield "cfloat", _FLOAT
    yield "float.h", _FLOAT
    yield "stddef.h", "#include <cuda/std/cstddef>\n"
    yield "cub/cub.cuh", "".join(f"#include <cub/{name}.cuh>\n" for name in _CUB.split())


# The text of each header that NVRTC gets in memory, by name.
BUNDLED = dict(_bundled_headers())


@cache
def folders() -> tuple[str, ...]:
    """Return the folders of NVIDIA's headers, in pip packages or in a toolkit. Raises frontends.Unavailable."""
    header_folders = dict.fromkeys(_holding(header, package) for header, package in _PACKAGES.items())
    return tuple(map(str, header_folders))


def _holding(header: str, package: str) -> Path:
    for folder in _candidates():
        if (folder / header).is_file():
            return folder
    raise frontends.Unavailable(packages.missing(package))


def _candidates() -> Iterator[Path]:
    installed = (pathfinder.find_nvidia_header_directory(name) for name in ("cudart", "cccl"))
    yield from (Path(folder) for folder in installed if folder)
    for toolkit in filter(None, (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")):
        yield from (Path(toolkit, "include"), Path(toolkit, "include", "cccl"))


_SENTENCES = {
    r"A function (?:without execution space|explicitly marked as a __host__).*": "this is host code, and a .cu here is "
    "for kernels: write __device__ before it (a kernel has __global__), or leave it out, or put it between "
    "#ifndef __CUDACC_RTC__ and #endif",
    r"A namespace scope variable without memory space.*": "this is a variable of the host: write __device__, "
    "__constant__ or constexpr before it",
    r'cannot open source file "(curand\w+\.h)"': rf"there is no \1: {packages.missing('nvidia-curand')}",
    r'cannot open source file "([^"]+)"': r"there is no \1 for kernels: leave it out if only host code uses it",
}


def explain_log(log: str, file: str) -> str:
    """Return a compiler's log with explanations of the errors that NVRTC reports about host code.

    If the first error is in a header, an error at the line of `file` that caused it precedes the log.
    """
    for pattern, sentence in _SENTENCES.items():
        # Only the sentence changes: the place in front of it stays, which editors and the grader read.
        log = re.sub(rf"(?<=error: ){pattern}", sentence, log)
    first = re.search(r"^(\S.*?)\(\d+\): (?:catastrophic )?error: (.*)", log, flags=re.MULTILINE)
    # The log names the #include by which the source reached the header: "at line N of FILE".
    include_site = re.search(rf" at line (\d+) of {re.escape(file)}$", log, flags=re.MULTILINE)
    if first is None or include_site is None or first[1] == file:
        return log
    return f"{file}({include_site[1]}): error: {first[2]} (in {Path(first[1]).name})\n{log}"


# A pattern of the functions that nvcc lets a kernel call without __device__: constexpr functions and generic lambdas.
#
# NVRTC rejects constexpr functions. NVRTC 13.0 rejects generic lambdas too, and NVRTC 13.5 accepts them.
_IMPLICIT_DEVICE_CODE = r"\bconstexpr\b|\[[^\]]*\]\s*\([^)]*\bauto\b"


def rejects_only_implicit_device_code(source: str, log: str) -> bool:
    """Return whether all errors are about constexpr functions and generic lambdas, which nvcc lets kernels call."""
    lines = [int(line) for line in re.findall(r"^\S.*?\((\d+)\): (?:catastrophic )?error", log, flags=re.MULTILINE)]
    refused = log.count("error: A function without execution space")
    text = source.splitlines()
    # The declaration may begin up to two lines above the line that NVRTC names.
    return 0 < len(lines) == refused and all(
        re.search(_IMPLICIT_DEVICE_CODE, " ".join(text[max(0, n - 3) : n])) for n in lines
    )
