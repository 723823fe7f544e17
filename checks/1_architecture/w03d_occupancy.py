"""Occupancy: how many blocks a multiprocessor holds at once.

Week 3. Kernels of all kinds on five architectures, from NVIDIA's published limits; and kernels that a driver was asked
about: on a GPU its own driver, elsewhere that of an H200, whose answers are recorded.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

import torch

from kernelpath.course.spec import EXACT, Exercise, Question
from kernelpath.lanes.nvrtc import compile_kernel, device_architecture
from kernelpath.simt.occupancy import MULTIPROCESSORS, occupancy

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90")

# fmt: off
RECORDED: tuple[tuple[int, int, int, int], ...] = (
    (181, 64, 909, 5), (3, 64, 11700, 18), (384, 64, 0, 2), (32, 128, 28014, 8), (128, 64, 140, 8),
    (480, 168, 103979, 0), (111, 128, 109, 4), (352, 255, 4589, 0), (32, 128, 60440, 3), (43, 255, 203648, 1),
    (32, 254, 0, 8), (32, 254, 45202, 5), (19, 128, 0, 16), (32, 128, 0, 16), (13, 254, 1734, 8), (32, 64, 1011, 32),
    (224, 254, 0, 1), (32, 64, 0, 32), (189, 254, 0, 1), (128, 255, 136726, 1), (117, 128, 77606, 2),
    (45, 128, 446, 8), (64, 254, 31546, 4), (32, 96, 0, 20), (217, 96, 258, 2), (188, 255, 6980, 1),
    (32, 255, 20625, 8), (544, 64, 5228, 1), (30, 96, 117024, 1), (32, 96, 60, 20), (52, 168, 34492, 6),
    (32, 168, 0, 12), (11, 64, 42431, 5), (31, 20, 42079, 5), (96, 96, 29884, 6), (2, 128, 0, 16), (3, 20, 0, 32),
    (32, 96, 1328, 20), (224, 96, 80, 2), (663, 255, 0, 0), (145, 254, 3691, 1), (8, 96, 191382, 1),
    (32, 20, 17042, 12), (154, 254, 80718, 1), (96, 168, 150, 4),
)
# fmt: on
"""Threads, registers, bytes of shared memory, and the blocks that the driver of an H200 (580) said."""

HOLD = r"""
template <int VALUES>
__global__ void hold(float* x) {
    float held[VALUES];
    #pragma unroll
    for (int k = 0; k < VALUES; ++k) held[k] = x[k * blockDim.x + threadIdx.x];
    #pragma unroll
    for (int k = 0; k < VALUES; ++k) x[k * blockDim.x + threadIdx.x] = held[VALUES - 1 - k];
}
"""
"""Has all its values in registers at once, because the addresses may be the same."""

HELD = (4, 20, 28, 36, 52, 76, 100, 124, 156, 180, 220)

Sm = dict[str, Any]


def inputs(rng: torch.Generator, architecture: str, kernels: int) -> tuple[torch.Tensor, Sm]:
    """Rows of threads a block, registers a thread, bytes of shared memory a block; and what a multiprocessor has."""
    if architecture in MULTIPROCESSORS:
        sm = {"name": architecture, **asdict(MULTIPROCESSORS[architecture])}
        rows = draw_kernels(rng, kernels, sm["shared"], torch.arange(16, 256, device=rng.device))
    elif rng.device.type == "cuda":
        sm = this_gpu()
        registers = torch.tensor(sorted(functions()), device=rng.device)
        rows = draw_kernels(rng, kernels, sm["shared"] - sm["shared_reserved"], registers)
    else:
        sm = {"name": "H200", **asdict(MULTIPROCESSORS["sm_90"])}
        rows = torch.tensor([row[:3] for row in RECORDED])[torch.randperm(len(RECORDED), generator=rng)]
    return rows, sm


def draw_kernels(rng: torch.Generator, count: int, most_shared: int, registers: torch.Tensor) -> torch.Tensor:
    """Small blocks and large ones, whole warps and others, little shared memory and nearly all of it."""

    def uniform(low: float, high: float) -> torch.Tensor:
        return low + (high - low) * torch.rand(count, generator=rng, device=rng.device, dtype=torch.float64)

    threads = torch.exp2(uniform(0, 10)).long()
    threads = torch.where(uniform(0, 1) < 0.5, (threads + 31) // 32 * 32, threads)
    chosen = registers[torch.randint(registers.numel(), (count,), generator=rng, device=rng.device)]
    shared = (uniform(0, 1) ** 4 * most_shared).long()
    shared = torch.where(uniform(0, 1) < 0.3, 0, shared)
    return torch.stack((threads, chosen, shared), 1)


def reference(kernels: torch.Tensor, sm: Sm) -> torch.Tensor:
    answer = oracle(sm["name"])
    return torch.tensor([answer(*row) for row in kernels.tolist()], device=kernels.device)


def complaint(inputs: Sequence[Any], outputs: Sequence[torch.Tensor]) -> str | None:
    """The first kernel whose blocks are wrong, and what limits them."""
    kernels, sm = inputs
    expected = reference(kernels, sm)
    wrong = (outputs[0] != expected).nonzero().flatten().tolist()
    if not wrong:
        return None
    row = wrong[0]
    threads, registers, shared = kernels[row].tolist()
    found, right = int(outputs[0][row]), int(expected[row])
    kernel = f"{threads} threads, {registers} registers and {shared:,} bytes of shared memory on {sm['name']}"
    return (
        f"{len(wrong)} of {len(kernels)} kernels are wrong. Row {row}, {kernel}: {blocks_in_words(found)}, expected"
        f" {right}{sign(sm['name'], threads, registers, shared, found, right)}"
    )


def blocks_in_words(count: int) -> str:
    return "1 block" if count == 1 else f"{count} blocks"


def sign(name: str, threads: int, registers: int, shared: int, found: int, right: int) -> str:
    """Why it is neither more nor less. A driver does not tell."""
    if name not in MULTIPROCESSORS:
        return ""
    if found < right:
        return "; none of the four limits is so low"
    try:
        return f", limited by {occupancy(threads, registers, shared, name).limit}"
    except ValueError as reason:
        return f"; {reason}"


def oracle(name: str) -> Callable[[int, int, int], int]:
    """Who knows the answer for a multiprocessor: the published limits, the record, or the driver."""
    if name == "this GPU":
        return ask_driver
    if name == "H200":
        known = {row[:3]: row[3] for row in RECORDED}
        return lambda *row: known[row]
    return lambda *row: published(name, *row)


def published(architecture: str, threads: int, registers: int, shared: int) -> int:
    try:
        return occupancy(threads, registers, shared, architecture).blocks
    except ValueError:
        return 0


def ask_driver(threads: int, registers: int, shared: int) -> int:
    """cuOccupancyMaxActiveBlocksPerMultiprocessor for a kernel with so many registers."""
    from cuda.bindings import driver

    return call(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor, functions()[registers], threads, shared)


def this_gpu() -> Sm:
    from cuda.bindings import driver

    attribute = driver.CUdevice_attribute
    device = call(driver.cuDeviceGet, torch.cuda.current_device())

    def limit(name: str) -> int:
        return call(driver.cuDeviceGetAttribute, getattr(attribute, f"CU_DEVICE_ATTRIBUTE_{name}"), device)

    return {
        "name": "this GPU",
        "warps": limit("MAX_THREADS_PER_MULTIPROCESSOR") // 32,
        "blocks": limit("MAX_BLOCKS_PER_MULTIPROCESSOR"),
        "registers": limit("MAX_REGISTERS_PER_MULTIPROCESSOR"),
        "shared": limit("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        "shared_unit": 128 if limit("COMPUTE_CAPABILITY_MAJOR") >= 8 else 256,
        "shared_reserved": limit("RESERVED_SHARED_MEMORY_PER_BLOCK"),
    }


@cache
def functions() -> dict[int, Any]:
    """Compiled kernels of this GPU by their registers a thread, free to use all shared memory that a block may have."""
    from cuda.bindings import driver

    torch.cuda.synchronize()  # makes torch's context the current one
    architecture = device_architecture(*torch.cuda.get_device_capability())
    attribute = driver.CUfunction_attribute
    most = torch.cuda.get_device_properties().shared_memory_per_block_optin
    found = {}
    for held in HELD:
        binary = compile_kernel(HOLD, "hold.cu", f"hold<{held}>", architecture)
        module = call(driver.cuModuleLoadData, binary.cubin)
        function = call(driver.cuModuleGetFunction, module, binary.mangled.encode())
        call(driver.cuFuncSetAttribute, function, attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most)
        found[call(driver.cuFuncGetAttribute, attribute.CU_FUNC_ATTRIBUTE_NUM_REGS, function)] = function
    return found


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """A call of the driver's interface. Raises RuntimeError with its name if it fails."""
    status, *results = function(*arguments)
    if status != 0:
        raise RuntimeError(f"{function.__name__} failed: {status.name}")
    return results[0] if results else None


EXERCISE = Exercise(
    entry="active_blocks",
    inputs=inputs,
    cases=(
        *({"architecture": architecture, "kernels": 199} for architecture in ARCHITECTURES),
        {"architecture": "driver", "kernels": len(RECORDED)},
    ),
    reference=reference,
    tolerance={"int64": EXACT},
    bytes_moved=lambda architecture, kernels: 32 * kernels,
    kind="python",
    check=complaint,
    hints=(
        "A block is let in only if there is room for all of it. Find for each of the four things (warps, blocks,"
        " registers, shared memory) how many blocks it has room for. Which of the four numbers counts?",
        "Everything is handed out in units, and a unit is never shared. 33 threads are two warps. A warp's registers"
        " are rounded up to a multiple of 256, a block's shared memory, with what the system takes of it, to a multiple"
        " of shared_unit. Only then divide, rounding down.",
        "Registers take one step more. A warp lives in one of four partitions, each with a quarter of the registers:"
        " `warps_by_registers = sm['registers'] // 4 // registers_of_warp * 4`, and"
        " `warps_by_registers // warps_of_block` blocks. The answer is the least of that, of"
        " `sm['warps'] // warps_of_block`, of `sm['blocks']` and of `sm['shared'] // shared_of_block`.",
    ),
    questions=(
        Question(
            ask="A kernel has 256 threads a block, 40 registers a thread and no shared memory. How many per cent of its"
            " 64 warps does a multiprocessor of sm_90 hold?",
            answer=75.0,
            why="A warp takes 1280 registers. A partition with 16384 has room for 12 warps, so the multiprocessor for"
            " 48: six blocks of 8 warps. 48 / 64 = 75 %.",
            predict=True,
        ),
        Question(
            ask="A kernel has 256 threads a block, 41 registers a thread and no shared memory. How many per cent of its"
            " 64 warps does a multiprocessor of sm_90 hold?",
            answer=62.5,
            why="41 * 32 = 1312 is rounded up to 1536. A partition has room for 10 warps: 40, so five blocks of 8. One"
            " register more than 40 costs a block. 33 to 40 registers cost the same, 41 to 48 as well.",
            predict=True,
        ),
        Question(
            ask="Blocks of 32 threads, 16 registers, no shared memory, sm_80 (64 warps, 32 blocks). How many warps are"
            " on a multiprocessor at once?",
            answer=32.0,
            why="No more than 32 blocks are let in, whatever they need. With one warp each that is half of the warps.",
        ),
        Question(
            ask="A kernel runs at 50 % occupancy and moves 97 % of what a copy moves. You find a way to 100 %. What do"
            " you gain?",
            choices=(
                "next to nothing: enough loads are under way already",
                "it becomes twice as fast, as twice the warps run",
                "it becomes about 3 % slower, because of the caches",
            ),
            answer="next to nothing: enough loads are under way already",
            why="Occupancy is a means: other warps work while one waits. What memory needs is enough bytes under way,"
            " and a thread with four 16-byte loads at once brings as many as sixteen threads with one float each.",
        ),
    ),
    explain="Occupancy answers one question: how many warps are there to switch to while one waits? Little's law says"
    " how many are needed: bytes under way = latency times bandwidth. With 0.7 to 0.8 us, when memory is busy, that is"
    " 23 to 26 KB for each multiprocessor of an H200. They can come from many warps with a load each, or from few with"
    " many. So experts do not chase 100 %; they look which of the four limits binds, and whether the next step is near:"
    " 41 registers cost a block that 40 do not. __launch_bounds__(256, 6) asks the compiler to stay below the step; if"
    " the values then spill to local memory, the price was too high. The fastest matrix products run at 12 to 25 % of"
    " the warps, with nearly all registers in use.",
)
