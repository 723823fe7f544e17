"""Declare the hooks inside Triton: its compiler, its launches, its autotuner and its driver.

frontends/triton.py has the driver and the launcher that Triton gets on the CPU. `unanswered` reports a question that a
later version of Triton asks of them.
"""

from __future__ import annotations

from warpcheck.hooks import Attribute, Changed, Hook

COMPILE = Hook("triton.runtime.jit", "JITFunction._do_compile", "compiling cannot be told from running")
LAUNCH = Hook(
    "triton.runtime.jit", "JITFunction.run", "a recorded GPU cannot answer launches", takes=("grid", "warmup")
)
PARSE = Hook("triton.runtime.jit", "JITFunction.parse", "a kernel that returns a value cannot be refused")
SOURCE = Attribute("triton.runtime.jit", "JITFunction.src", "a mask that binds otherwise than it looks cannot be told")
FUNCTION = Attribute("triton.runtime.jit", "JITFunction.fn", "an error in a kernel cannot name its file and line")
ARGUMENTS = Attribute("triton.runtime.jit", "JITFunction.arg_names", "a launch cannot be told its arguments by name")

TUNE = Hook("triton.runtime.autotuner", "Autotuner.run", "what an autotuned kernel chose cannot be noted")
TRY = Hook(
    "triton.runtime.autotuner", "Autotuner._bench", "autotuning without a GPU cannot end early", takes=("config",)
)
CLOCK = Hook("triton.runtime.autotuner", "Autotuner.do_bench", "autotuning cannot be given the times of a recorded GPU")
CHOSEN = Attribute("triton.runtime.autotuner", "Autotuner.cache", "a configuration that was chosen cannot be read")
OFFERED = Attribute("triton.runtime.autotuner", "Autotuner.configs", "a configuration cannot be taken from a GPU")
TUNED = Attribute("triton.runtime.autotuner", "Autotuner.base_fn", "an autotuned kernel cannot be named")

LOAD = Hook("triton.compiler.compiler", "CompiledKernel._init_handles", "a kernel's registers cannot be noted")
REGISTERS = Attribute("triton.compiler.compiler", "CompiledKernel.n_regs", "a kernel's registers cannot be noted")
SPILLS = Attribute("triton.compiler.compiler", "CompiledKernel.n_spills", "spilled registers cannot be noted")
COMPILED_FROM = Attribute(
    "triton.compiler.compiler", "CompiledKernel.src", "a compiled kernel cannot be told from others"
)

_LAUNCH = "a kernel cannot be launched on the PTX machine"
NAME = Attribute("triton.compiler.compiler", "KernelMetadata.name", _LAUNCH)
HASH = Attribute("triton.compiler.compiler", "KernelMetadata.hash", "a kernel's PTX cannot be found")
SHARED = Attribute("triton.compiler.compiler", "KernelMetadata.shared", _LAUNCH)
WARPS = Attribute("triton.compiler.compiler", "KernelMetadata.num_warps", _LAUNCH)
CLUSTER = Attribute("triton.compiler.compiler", "KernelMetadata.num_ctas", _LAUNCH)

ENTERED = Hook("triton.knobs", "runtime.launch_enter_hook.add", "launches on a GPU cannot be recorded")
DRIVER = Hook("triton.runtime", "driver", "kernels cannot be sent to the PTX machine")
ACTIVATE = Hook("triton.runtime", "driver.set_active", "kernels cannot be sent to the PTX machine")
RESET = Hook("triton.runtime", "driver.reset_active", "kernels cannot be sent back to the GPU")
TARGET = Hook(
    "triton.backends.compiler",
    "GPUTarget",
    "a kernel cannot be compiled for a GPU that is not here",
    takes=("backend", "arch", "warp_size"),
)
CACHE = Hook("triton.runtime.cache", "get_cache_manager", "a kernel's PTX cannot be found", takes=("key",))
ALLOCATOR = Hook("triton.runtime._allocation", "_allocator.get", "triton.set_allocator's function cannot be asked")

AHEAD = Hook(
    "triton.compiler",
    "ASTSource",
    "a kernel cannot be compiled without being launched",
    takes=("fn", "signature", "constexprs", "attrs"),
)
REFUSED = Hook("triton.compiler.errors", "CompilationError", "what Triton does not compile cannot be told")
OUT_OF_RESOURCES = Hook(
    "triton.runtime.errors",
    "OutOfResources",
    "a recorded GPU cannot refuse a configuration",
    takes=("required", "limit", "name"),
)
# Only speed depends on these two.
DIGEST = Hook("triton.runtime.cache", "triton_key", "every worker computes the digest of Triton again, for 0.4 s")
ASSEMBLE = Hook(
    "triton.backends.nvidia.compiler",
    "CUDABackend.make_cubin",
    "ptxas runs for every alignment of the arguments, which PTX seldom depends on",
)


class _Unanswered(Changed, AttributeError):
    """An attribute that the driver lacks. It is an AttributeError too, so that Triton may test it with hasattr."""


def unanswered(name: str) -> Changed:
    """Return the error for an attribute that Triton reads from its driver and that the driver does not define."""
    return _Unanswered(DRIVER.sentence(f"asks its driver for {name}"))
