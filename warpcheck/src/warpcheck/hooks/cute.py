"""Declare the hooks inside the CuTe DSL: its compiler, the PTX it compiles to, and its calls to the CUDA runtime.

frontends/cute_host.py redirects the functions of the CUDA runtime that host code calls. A function that is not
redirected there is called for real, and fails without a GPU.
"""

from __future__ import annotations

from warpcheck.hooks import Attribute, Hook

_EXECUTOR = "cutlass.base_dsl.jit_executor"
_HOST = "the host code that the DSL compiles cannot be run"
_ENGINE = "its calls to the CUDA runtime cannot be redirected"

ARCH = Hook("cutlass.base_dsl.enums", "Arch", "a kernel cannot be compiled for a GPU that is not here")
CONSTEXPR = Hook("cutlass.base_dsl.typing", "Constexpr", "what is compiled in cannot be told from what is passed")
PLACEHOLDER = Hook(
    "cutlass.cute.runtime",
    "make_fake_tensor",
    "a kernel cannot be compiled for tensors of any size",
    takes=("assumed_align",),
)

DSL = Hook("cutlass.cutlass_dsl", "CuTeDSL._get_dsl", "the DSL's compiler cannot be found")
LIBRARIES = Attribute("cutlass.cutlass_dsl", "CuTeDSL.get_shared_libs", "its CUDA runtime cannot be found")
COMPILER = Attribute("cutlass.cutlass_dsl", "CuTeDSL.compiler_provider", "what it compiles cannot be kept")
PASSES = Hook(
    "cutlass.base_dsl.compiler", "Compiler.compile", "what it compiles cannot be kept", takes=("module", "pipeline")
)
POST_COMPILE = Attribute("cutlass.base_dsl.compiler", "Compiler._post_compile_hook", "what it compiles cannot be kept")
PARSE = Hook("cutlass._mlir.ir", "Module.parse", "what it compiled before cannot be read again")

ENGINE = Hook("cutlass._mlir.execution_engine", "ExecutionEngine", _HOST)
REDIRECT = Hook("cutlass._mlir.execution_engine", "ExecutionEngine.raw_register_runtime", _ENGINE)
LOOKUP = Hook("cutlass._mlir.execution_engine", "ExecutionEngine.lookup", _HOST)
RAW_LOOKUP = Hook("cutlass._mlir.execution_engine", "ExecutionEngine.raw_lookup", "its kernels cannot be asked for")

KERNELS = Attribute(_EXECUTOR, "JitCompiledFunction.kernel_info", "its kernels cannot be named")
MODULE = Attribute(_EXECUTOR, "JitCompiledFunction.ir_module", _HOST)
FUNCTION = Attribute(_EXECUTOR, "JitCompiledFunction.function_name", _HOST)
PASSED = Attribute(_EXECUTOR, "JitCompiledFunction.generate_execution_args", "its host code cannot be called")
PTX = Attribute(_EXECUTOR, "JitCompiledFunction.__ptx__", "its kernels cannot be sent to the PTX machine")
LOADED = Attribute(_EXECUTOR, "JitCompiledFunction._load_cuda_library", "its kernels cannot be loaded on a GPU")

_DIRECT = "a kernel that a program compiles and launches by the DSL itself cannot run"
SELECTED_ARCH = Hook("cutlass.base_dsl.env_manager", "EnvironmentVarManager.arch", _DIRECT)
SETTINGS = Hook(
    "cutlass.base_dsl.compiler", "CompileOptions.apply_envar_settings", _DIRECT, takes=("envar", "function_name")
)
KEEP_PTX = Hook("cutlass.base_dsl.compiler", "KeepPTX", _DIRECT)
LINE_INFO = Hook("cutlass.base_dsl.compiler", "GenerateLineInfo", _DIRECT)
DUMP_FOLDER = Hook("cutlass.base_dsl.compiler", "DumpDir", _DIRECT)
FILE_CACHE = Hook("cutlass.base_dsl.compile_backend", "load_cache_from_path", _DIRECT)
WRAP = Hook("cutlass.cute.runtime", "_Tensor.__init__", _DIRECT, takes=("tensor",))
TRACE = Hook("cutlass.base_dsl.dsl", "BaseDSL._func", _DIRECT, takes=("funcBody",))
CALL = Hook("cutlass.cutlass_dsl.cuda_jit_executor", "CudaDialectJitCompiledFunction.__call__", _DIRECT)
RUN = Hook(
    "cutlass.cutlass_dsl.cuda_jit_executor",
    "CudaDialectJitCompiledFunction.run_compiled_program",
    _DIRECT,
    takes=("exe_args",),
)
BIND = Hook("cutlass.cutlass_dsl.cuda_jit_executor", "CudaDialectJitCompiledFunction.to", _DIRECT, takes=("device",))

_GPU = "a program cannot read the properties of the simulated GPU"
CONNECT = Hook("cutlass.utils.hardware_info", "HardwareInfo.__init__", _GPU, takes=("device_id",))
MULTIPROCESSORS = Hook("cutlass.utils.hardware_info", "HardwareInfo.get_device_multiprocessor_count", _GPU)
L2_CACHE = Hook("cutlass.utils.hardware_info", "HardwareInfo.get_l2_cache_size_in_bytes", _GPU)
ACTIVE_CLUSTERS = Hook(
    "cutlass.utils.hardware_info", "HardwareInfo.get_max_active_clusters", _GPU, takes=("cluster_size",)
)

_CLOCK = "a program that measures its kernels calls the driver"
BENCHMARK = Hook("cutlass.testing", "benchmark", _CLOCK, takes=("callable", "kernel_arguments", "workspace_generator"))
DEPRECATED_BENCHMARK = Hook("cutlass.cute.testing", "benchmark", _CLOCK)
BENCHMARK_TUNED = Hook("cutlass.testing", "_benchmark_for_autotune", _CLOCK, takes=("callable", "args", "kwargs"))
ARGUMENTS = Hook("cutlass.testing", "JitArguments", _CLOCK)

# Only speed depends on these two.
FRAMEWORK = Hook(
    "cutlass._mlir_helpers.op", "_is_framework_module", "tracing takes twice as long", takes=("module_name",)
)
PLACE = Hook("cutlass._mlir_helpers.op", "_fast_frameinfo", "tracing takes twice as long", takes=("frame",))
