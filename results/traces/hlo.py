"""Functions that XLA compiles for an H200, whose optimized HLO an exercise reads.

`python results/traces/hlo.py` writes results/traces/hlo/NAME.hlo.gz. It needs JAX with its plugin for CUDA 12 (packages
jax, jax-cuda12-plugin, jax-cuda12-pjrt, and nvidia-cuda-nvcc-cu12) and no GPU: XLA reads the GPU's properties from the
description below. It can't autotune without the GPU, so matrix products are calls of cuBLASLt, and no Triton GEMM
competes with them. Each function has two sets of types and sizes.
"""

import gzip
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = (
    # A command buffer (a CUDA graph) hides the entry's kernels in a computation of its own.
    "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false --xla_gpu_enable_command_buffer="
)

import jax
import jax.numpy as jnp
from jax import lax, nn
from jax.experimental import topologies

FOLDER = Path(__file__).with_suffix("")

# xla/stream_executor/device_description.proto, GpuTargetConfigProto.
H200 = """
gpu_device_info {
  cuda_compute_capability { major: 9 }
  core_count: 132
  fpus_per_core: 128
  clock_rate_ghz: 1.98
  memory_bandwidth: 4800000000000
  device_memory_size: 150000000000
  l2_cache_size: 62914560
  threads_per_warp: 32
  threads_per_block_limit: 1024
  threads_per_core_limit: 2048
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472
  registers_per_block_limit: 65536
  registers_per_core_limit: 65536
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 7 }
runtime_version { major: 12 minor: 8 patch: 0 }
device_description_str: "NVIDIA H200"
"""

# The rows of functions that work on each row by itself. No other extent has this value, so an exercise may change it.
ROWS = 328


def root_mean_square(x: Any, w: Any) -> Any:
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * w


def norm(x: Any, w: Any) -> Any:
    return nn.gelu(root_mean_square(x, w))


def softmax(x: Any) -> Any:
    return nn.softmax(x, -1)


def centered(x: Any) -> Any:
    return nn.softmax(x - x.mean(0), -1)


def two_users(x: Any) -> Any:
    return jnp.exp(x).sum(-1), 2 * jnp.exp(x)


def mlp(x: Any, up: Any, bias: Any, down: Any) -> Any:
    return nn.gelu(x @ up + bias) @ down


def gelu_aux(x: Any, w: Any) -> Any:
    product = x @ w
    return product, nn.gelu(product)


def exact_gelu(x: Any, w: Any, bias: Any) -> Any:
    return nn.gelu(x @ w + bias, approximate=False)


def swiglu(x: Any, w: Any) -> Any:
    gate, value = jnp.split(x @ w, 2, -1)
    return nn.silu(gate) * value


def rope(x: Any, cosine: Any, sine: Any) -> Any:
    first, second = jnp.split(x, 2, -1)
    return jnp.concatenate([first * cosine - second * sine, second * cosine + first * sine], -1)


def cache(keys: Any, new: Any, position: Any) -> Any:
    return lax.dynamic_update_slice(keys, 2 * new, (0, position, 0))


def copied_cache(keys: Any, new: Any, position: Any) -> Any:
    return lax.dynamic_update_slice(keys, 2 * new, (0, position, 0))


def embed(table: Any, tokens: Any, w: Any) -> Any:
    return root_mean_square(table[tokens], w)


def bias_gradient(gradient: Any, x: Any) -> Any:
    return (gradient * nn.sigmoid(x)).sum(0)


def flip(x: Any, y: Any) -> Any:
    return x.T + 2 * y


def adam(p: Any, m: Any, v: Any, gradient: Any) -> Any:
    m = 0.9 * m + 0.1 * gradient
    v = 0.999 * v + 0.001 * gradient * gradient
    return p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), m, v


def entropy(logits: Any, target: Any) -> Any:
    return -jnp.take_along_axis(nn.log_softmax(logits, -1), target[:, None], -1).mean()


def layernorm(x: Any, residual: Any, w: Any, b: Any) -> Any:
    total = x + residual
    centered = total - total.mean(-1, keepdims=True)
    return total, centered * lax.rsqrt(total.var(-1, keepdims=True) + 1e-5) * w + b


def argmax(x: Any) -> Any:
    return jnp.argmax(x, -1), jnp.max(x, -1)


def attention(q: Any, k: Any, v: Any) -> Any:
    return nn.softmax((q @ k.swapaxes(-1, -2)) * 0.125, -1) @ v


def quantized(x: Any) -> Any:
    scale = jnp.abs(x).max(-1, keepdims=True) / 448
    return (x / scale).astype(jnp.float8_e4m3fn), scale


# For each function the shapes of its arguments, twice; a shape with "i" has the type int32.
ARGUMENTS: dict[Callable[..., Any], tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    norm: (((ROWS, 1024), (1024,)), ((ROWS, 4096), (4096,))),
    softmax: (((ROWS, 1000),), ((ROWS, 32000),)),
    centered: (((512, 1000),), ((2048, 768),)),
    two_users: (((ROWS, 1000),), ((ROWS, 2048),)),
    mlp: (((64, 256), (256, 1024), (1024,), (1024, 256)), ((512, 768), (768, 3072), (3072,), (3072, 768))),
    gelu_aux: (((64, 256), (256, 1024)), ((512, 768), (768, 3072))),
    exact_gelu: (((64, 256), (256, 1024), (1024,)), ((512, 768), (768, 3072), (3072,))),
    swiglu: (((64, 256), (256, 2048)), ((512, 1024), (1024, 8192))),
    rope: (((16, ROWS, 128), (ROWS, 64), (ROWS, 64)), ((8, ROWS, 64), (ROWS, 32), (ROWS, 32))),
    cache: (((16, 4096, 128), (16, 1, 128), ("i",)), ((ROWS, 2048, 64), (ROWS, 4, 64), ("i",))),
    copied_cache: (((16, 4096, 128), (16, 1, 128), ("i",)), ((ROWS, 2048, 64), (ROWS, 4, 64), ("i",))),
    embed: (((32000, 1024), (ROWS, "i"), (1024,)), ((50304, 768), (ROWS, "i"), (768,))),
    bias_gradient: (((4096, 1024), (4096, 1024)), ((768, 3072), (768, 3072))),
    flip: (((512, 1024), (1024, 512)), ((1000, 96), (96, 1000))),
    adam: (((1024, ROWS),) * 4, ((ROWS, 3072),) * 4),
    entropy: (((ROWS, 32000), (ROWS, "i")), ((ROWS, 1000), (ROWS, "i"))),
    layernorm: (((ROWS, 1024), (ROWS, 1024), (1024,), (1024,)), ((ROWS, 768), (ROWS, 768), (768,), (768,))),
    argmax: (((ROWS, 32000),), ((ROWS, 1000),)),
    attention: (((8, 512, 64),) * 3, ((16, 256, 128),) * 3),
    quantized: (((ROWS, 1024),), ((ROWS, 4096),)),
}
DTYPES = (jnp.float32, jnp.bfloat16)


def compiled(function: Callable[..., Any], shapes: tuple[Any, ...], dtype: Any, sharding: Any) -> str:
    """Return the optimized HLO of a function, without the places in its source."""
    arguments = []
    for shape in shapes:
        extents = tuple(extent for extent in shape if extent != "i")
        arguments.append(jax.ShapeDtypeStruct(extents, jnp.int32 if "i" in shape else dtype, sharding=sharding))
    # A donated argument's memory may be that of the result.
    jitted = jax.jit(function, donate_argnums=(0,) if function is cache else ())
    text = jitted.trace(*arguments).lower(lowering_platforms=("cuda",)).compile().as_text()
    text = re.sub(r"^(FileNames|FunctionNames|FileLocations|StackFrames)\n(\d.*\n)*\n", "", text, flags=re.M)
    text = re.sub(r', (?:metadata|frontend_attributes|sharding)=\{(?:[^{}"]|"[^"]*"|\{[^{}]*\})*\}', "", text)
    return re.sub(r"\n\n\n+", "\n\n", text)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    jax.devices()  # loads the plugins
    described = topologies.get_topology_desc(
        platform="cuda", topology_name="H200", target_config=H200, topology="1x1x1"
    )
    sharding = jax.sharding.SingleDeviceSharding(described.devices[0])
    for function, variants in ARGUMENTS.items():
        for number, (shapes, dtype) in enumerate(zip(variants, DTYPES, strict=True)):
            packed = gzip.compress(compiled(function, shapes, dtype, sharding).encode(), mtime=0)
            (FOLDER / f"{function.__name__}{number}.hlo.gz").write_bytes(packed)


if __name__ == "__main__":
    main()
