"""Declare the hooks inside the CuTe DSL for functions that TVM FFI calls; they need the package apache-tvm-ffi."""

from __future__ import annotations

from warpcheck.hooks import Hook

_PROVIDER = "cutlass.cutlass_dsl.tvm_ffi_provider"
_LOST = "a kernel that is compiled with --enable-tvm-ffi cannot run"

CREATE = Hook(_PROVIDER, "TVMFFIJitCompiledFunctionBase._create_tvm_ffi_function", _LOST)
CALL = Hook(_PROVIDER, "TVMFFIJitCompiledFunction.__call__", _LOST)
CALL_WITH_KEYWORDS = Hook(_PROVIDER, "TVMFFIJitCompiledFunctionWithKwargs.__call__", _LOST)
FUNCTION = Hook("tvm_ffi", "Function.__from_extern_c__", _LOST)
