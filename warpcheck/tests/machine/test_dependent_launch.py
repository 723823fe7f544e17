"""Test programmatic dependent launch: which reads may precede griddepcontrol.wait, and what the wait orders."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import warpcheck
from machine.launching import FILE, aligned, buffer
from warpcheck import simt
from warpcheck.frontends import cuda
from warpcheck.runtime.buffers import Memory
from warpcheck.simt import FaultKind

SOURCE = """
__device__ void wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
"""
BLOCKS, THREADS = 4, 32


class Stream:
    """Launch kernels in order on the same shadow memory, as in one stream."""

    def __init__(self, reverse: int = 0) -> None:
        self.memory = Memory()
        self.reverse = reverse
        self.a = aligned(BLOCKS * THREADS)
        self.b = aligned(BLOCKS * THREADS)

    def launch(self, body: str, *, overlaps: bool = True, **options: Any) -> simt.Launch:
        """Launch a kernel of (float* a, float* b) with this body, by default with the launch attribute."""
        source = f'{SOURCE}extern "C" __global__ void kernel(float* a, float* b) {{ {body} }}'
        binary = cuda.compile_kernel(source, FILE, "kernel", "compute_90a")
        return simt.load(binary.ptx, FILE).launch(
            "kernel",
            **({"grid": (BLOCKS,), "block": (THREADS,)} | options),
            args=[self.a.ctypes.data, self.b.ctypes.data],
            buffers=[buffer("a", self.a), buffer("b", self.b)],
            memory=self.memory,
            reverse=self.reverse,
            programmatic_stream_serialization=overlaps,
        )


INDEX = "int i = threadIdx.x + blockIdx.x * blockDim.x; "
WRITE_A = INDEX + "a[i] = i;"
READ_A = INDEX + "b[i] = a[i];"
WAIT_READ_A = INDEX + "wait(); b[i] = a[i];"


def find_race(stream: Stream, body: str, **options: Any) -> simt.Fault:
    """Launch a kernel that must have a race, and return the fault."""
    with pytest.raises(simt.Fault) as caught:
        stream.launch(body, **options)
    assert caught.value.kind == FaultKind.RACE
    return caught.value


@pytest.mark.parametrize("reverse", [0, 1, 1_000_003])
def test_a_read_before_the_wait_is_a_race(reverse: int) -> None:
    stream = Stream(reverse)
    stream.launch(WRITE_A, overlaps=False)
    message = find_race(stream, READ_A + "wait();").message
    assert message.endswith("that earlier launch may still run before griddepcontrol.wait")


def test_a_read_after_the_wait_is_ordered() -> None:
    stream = Stream()
    stream.launch(WRITE_A, overlaps=False)
    stream.launch(WAIT_READ_A)
    assert stream.b.tolist() == list(range(BLOCKS * THREADS))


def test_without_the_attribute_the_previous_launch_has_ended() -> None:
    stream = Stream()
    stream.launch(WRITE_A + "launch_dependents();", overlaps=False)
    stream.launch(READ_A, overlaps=False)


def test_the_first_launch_overlaps_no_other() -> None:
    Stream().launch(READ_A)


def test_reading_unrelated_memory_before_the_wait_is_no_race() -> None:
    stream = Stream()
    stream.launch(WRITE_A, overlaps=False)
    stream.launch(INDEX + "float v = b[i]; wait(); b[i] = a[i] + v;")


def test_a_write_before_the_wait_races_with_a_read_of_the_previous_launch() -> None:
    stream = Stream()
    stream.launch(READ_A, overlaps=False)
    find_race(stream, WRITE_A + "wait();")


def test_writes_of_two_overlapping_launches_race() -> None:
    stream = Stream()
    stream.launch(WRITE_A, overlaps=False)
    find_race(stream, INDEX + "a[i] = 2 * i + 1; wait();")


def test_an_atomic_operation_of_the_previous_launch_races_with_a_plain_write() -> None:
    stream = Stream()
    stream.launch(INDEX + "atomicAdd(a, 1.0f);", overlaps=False)
    find_race(stream, "if (threadIdx.x == 0 && blockIdx.x == 0) a[0] = 0; wait();")


@pytest.mark.parametrize(
    "body",
    [
        INDEX + "if (threadIdx.x == 0) wait(); __syncthreads(); b[i] = a[i];",
        INDEX + "if (threadIdx.x == 0) wait(); __syncwarp(); b[i] = a[i];",
        INDEX + "if (threadIdx.x < 16) wait(); if (threadIdx.x < 16) b[i] = a[i];",
    ],
)
def test_the_wait_of_a_thread_orders_threads_that_synchronize_with_it(body: str) -> None:
    stream = Stream()
    stream.launch(WRITE_A, overlaps=False)
    stream.launch(body)


@pytest.mark.parametrize(
    "body",
    [
        INDEX + "if (threadIdx.x == 0) wait(); b[i] = a[i];",
        INDEX + "if (threadIdx.x < 32) wait(); b[i] = a[i];",
        INDEX + "__syncthreads(); if (threadIdx.x < 32) wait(); b[i] = a[i];",
    ],
)
def test_the_wait_of_a_thread_does_not_order_unsynchronized_threads(body: str) -> None:
    stream = Stream()
    stream.launch(WRITE_A, overlaps=False)
    find_race(stream, body, grid=(2,), block=(64,))


def test_a_flag_passes_the_wait_to_another_block() -> None:
    wait = "if (blockIdx.x == 0) { wait(); __threadfence(); atomicAdd(&b[32], 1.0f); } "
    read = "else { while (atomicAdd(&b[32], 0.0f) == 0) {} __threadfence(); b[0] = a[0]; }"
    stream = Stream()
    stream.launch(WRITE_A, overlaps=False)
    stream.launch(wait + read, grid=(2,), block=(1,))
    stream = Stream()
    stream.launch(WRITE_A, overlaps=False)
    find_race(stream, wait.replace("wait();", "") + read, grid=(2,), block=(1,))


def test_a_launch_overlaps_all_earlier_launches_that_may_still_run() -> None:
    # The second launch lets the third one begin before it has waited for the first.
    early = INDEX + "launch_dependents(); wait(); b[i] = 1;"
    stream = Stream()
    stream.launch(WRITE_A, overlaps=False)
    stream.launch(early)
    find_race(stream, INDEX + "float v = a[i]; wait(); b[i] = v;")


def test_a_trigger_after_the_wait_orders_the_launch_before_it() -> None:
    for trigger in ("launch_dependents();", ""):
        stream = Stream()
        stream.launch(WRITE_A, overlaps=False)
        stream.launch(INDEX + f"wait(); {trigger} b[i] = 1;")
        stream.launch(INDEX + "float v = a[i]; wait(); b[i] = v;")


def test_a_launch_without_a_wait_does_not_order_earlier_launches() -> None:
    stream = Stream()
    stream.launch(WRITE_A, overlaps=False)
    stream.launch(INDEX + "b[i] = 1;")
    # The third launch waits for the second one, which may have ended before the first one.
    find_race(stream, WAIT_READ_A)


def test_a_launch_without_the_attribute_orders_all_earlier_launches() -> None:
    stream = Stream()
    stream.launch(WRITE_A, overlaps=False)
    stream.launch(INDEX + "b[i] = 1;")
    stream.launch(READ_A, overlaps=False)


def test_a_race_between_accesses_of_different_widths_and_views() -> None:
    """The history of a byte survives when the next launch has other buffers and access widths."""
    vector_store = INDEX + "if (i < 32) reinterpret_cast<float4*>(a)[i] = make_float4(1, 2, 3, 4);"
    byte_store = INDEX + "reinterpret_cast<char*>(a)[i] = 1;"
    for previous in (vector_store, byte_store):
        stream = Stream()
        stream.launch(previous, overlaps=False)
        stream.a = stream.a[5:40]
        fault = find_race(stream, "float v = a[threadIdx.x % 2]; wait(); b[threadIdx.x] = v;", grid=(1,))
        assert fault.address is not None


def test_the_share_of_instructions_before_the_trigger() -> None:
    work = 'for (int k = 0; k < 100; k++) asm volatile("add.s32 %0, %0, 1;" : "+r"(i)); '
    stream = Stream()
    early = stream.launch(INDEX + "launch_dependents();" + work + "a[0] = i;", grid=(1,), block=(1,))
    late = stream.launch(INDEX + work + "launch_dependents(); b[0] = i;", grid=(1,), block=(1,))
    never = stream.launch(INDEX + work + "wait(); a[1] = i;", grid=(1,), block=(1,))
    assert early.share_before_trigger < 0.1
    assert 0.9 < late.share_before_trigger < 1
    assert never.share_before_trigger == 1


def test_the_share_of_sectors_before_the_wait() -> None:
    stream = Stream()
    stream.launch(WRITE_A, overlaps=False)
    assert stream.launch(INDEX + "float v = b[i]; wait(); b[i] = v + a[i];").share_before_wait == pytest.approx(1 / 3)
    stream.launch(WRITE_A, overlaps=False)
    assert stream.launch(WAIT_READ_A).share_before_wait == 0
    several = INDEX + "float v = b[i]; {} wait(); __syncthreads(); b[i] = v + a[i];"
    for waiting in ("", "if (threadIdx.x == 0)"):
        stream.launch(WRITE_A, overlaps=False)
        launch = stream.launch(several.format(waiting), grid=(2,), block=(64,))
        assert launch.share_before_wait == pytest.approx(1 / 3)
    stream.launch(WRITE_A, overlaps=False)
    assert stream.launch("b[threadIdx.x] = 1;", grid=(1,)).share_before_wait == 1


HOST_SOURCE = f"""{SOURCE}
__global__ void write(float* a) {{ a[threadIdx.x] = 2; }}
__global__ void read_early(const float* a, float* b) {{ b[threadIdx.x] = a[threadIdx.x]; wait(); }}
__global__ void read_late(const float* a, float* b) {{ wait(); b[threadIdx.x] = a[threadIdx.x]; }}
"""


def test_the_cuda_front_end_passes_the_launch_attribute() -> None:
    a = torch.zeros(32)
    b = torch.zeros(32)
    with warpcheck.gpu("sm_90a"):
        cuda.kernel(HOST_SOURCE, "write")[1, 32](a)
        cuda.kernel(HOST_SOURCE, "read_late", programmatic_stream_serialization=True)[1, 32](a, b)
        assert b.eq(2).all()
        cuda.kernel(HOST_SOURCE, "write")[1, 32](a)
        cuda.kernel(HOST_SOURCE, "read_early")[1, 32](a, b)
        cuda.kernel(HOST_SOURCE, "write")[1, 32](a)
        with pytest.raises(simt.Fault, match=r"which thread 0 of block 0 of write writes in line 5: that earlier"):
            cuda.kernel(HOST_SOURCE, "read_early", programmatic_stream_serialization=True)[1, 32](a, b)


def test_the_triton_front_end_passes_launch_pdl() -> None:
    a = torch.zeros(32)
    b = torch.zeros(32)
    with warpcheck.gpu("sm_90a"):
        write_ones[(1,)](a)
        copy_after_wait[(1,)](a, b, True, launch_pdl=True)
        write_ones[(1,)](a)
        with pytest.raises(simt.Fault, match=r"that earlier launch may still run before griddepcontrol\.wait"):
            copy_after_wait[(1,)](a, b, False, launch_pdl=True)


@triton.jit
def write_ones(a):  # type: ignore[no-untyped-def]
    tl.store(a + tl.arange(0, 32), 1.0)


@triton.jit  # type: ignore[untyped-decorator]
def copy_after_wait(a, b, waits: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, 32)
    if waits:
        tl.extra.cuda.gdc_wait()
    tl.store(b + i, tl.load(a + i))
