"""Planted bugs: what each is, where, and what must be said of it. The line with the bug carries ``// here``.

One file: a table.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelpath.simt import FaultKind

__all__ = ["BUGS", "Bug"]


@dataclass(frozen=True)
class Bug:
    name: str
    kind: FaultKind
    message: str
    body: str
    block: int = 128
    grid: int = 1
    fresh: tuple[int, ...] = ()

    @property
    def source(self) -> str:
        return f"__global__ void kernel(float* a, float* b, float* c, int n) {{\n{PROLOGUE}\n{self.body}\n}}"

    @property
    def line(self) -> int:
        return next(n for n, line in enumerate(self.source.splitlines(), 1) if "// here" in line)


PROLOGUE = """int t = threadIdx.x, i = blockIdx.x * blockDim.x + threadIdx.x;
__shared__ float s[128];
extern __shared__ float d[];"""

BUGS = [
    Bug(
        "no_guard",
        FaultKind.OUT_OF_BOUNDS,
        r"reads 4 bytes past the end of a \(1000 float32\)",
        """
        c[i] = a[i]; // here
        """,
        grid=8,
    ),
    Bug(
        "guard_off_by_one",
        FaultKind.OUT_OF_BOUNDS,
        "writes 4 bytes past the end of c",
        """
        if (i <= n)
        c[i] = 1; // here
        """,
        grid=8,
    ),
    Bug(
        "before_the_beginning",
        FaultKind.OUT_OF_BOUNDS,
        "4 bytes before the beginning of a",
        """
        c[t] = a[t - 1]; // here
        """,
    ),
    Bug(
        "bytes_for_elements",
        FaultKind.OUT_OF_BOUNDS,
        "past the end of c",
        """
        if (i < n)
        c[4 * i] = 0; // here
        """,
        grid=8,
    ),
    Bug(
        "vector_tail",
        FaultKind.OUT_OF_BOUNDS,
        "writes 16 bytes past the end of c",
        """
        if (4 * i < n + 1)
        ((float4*)c)[i] = make_float4(0, 0, 0, 0); // here
        """,
        grid=8,
    ),
    Bug(
        "null_pointer",
        FaultKind.OUT_OF_BOUNDS,
        "where no tensor is",
        """
        float* p = (float*)(long long)(n - 1000);
        p[t] = 1; // here
        """,
    ),
    Bug(
        "int_overflow",
        FaultKind.OUT_OF_BOUNDS,
        "c",
        """
        int far = 0x40000000 * (t + 1);
        c[far] = 1; // here
        """,
    ),
    Bug(
        "shared_too_small",
        FaultKind.OUT_OF_BOUNDS,
        r"past the end of shared memory \(512 bytes\)",
        """
        s[t + 1] = a[t]; // here
        __syncthreads();
        c[t] = s[t];
        """,
    ),
    Bug(
        "dynamic_shared_forgotten",
        FaultKind.OUT_OF_BOUNDS,
        r"past the end of shared memory \(0 bytes\)",
        """
        d[t] = a[t]; // here
        """,
    ),
    Bug(
        "local_array",
        FaultKind.OUT_OF_BOUNDS,
        "past the end of local memory",
        """
        float l[8];
        for (int k = 0; k < 8; k++) l[k] = k;
        c[t] = l[(t + n) % 9]; // here
        """,
    ),
    Bug(
        "misaligned_vector",
        FaultKind.MISALIGNED,
        r"reads 16 bytes at a\[1\], whose address is not a multiple of 16",
        """
        float4 v = *(float4*)(a + t); // here
        c[t] = v.x + v.y + v.z + v.w;
        """,
    ),
    Bug(
        "misaligned_float",
        FaultKind.MISALIGNED,
        r"a\[0\] \+ 1 bytes",
        """
        c[t] = *(float*)((char*)a + t); // here
        """,
    ),
    Bug(
        "misaligned_and_far_away",
        FaultKind.OUT_OF_BOUNDS,
        r"thread 0 of block 0 reads 4 bytes past the end of a \(1000 float32\), by 5 bytes",
        """
        c[t] = *(float*)((char*)(a + n) + 1); // here
        """,
    ),
    Bug(
        "output_read",
        FaultKind.UNINITIALIZED,
        r"reads 4 bytes at c\[0\], which nothing has written",
        """
        c[t] += a[t]; // here
        """,
        fresh=(2,),
    ),
    Bug(
        "shared_not_filled",
        FaultKind.UNINITIALIZED,
        r"thread 0 of block 0 reads 4 bytes at s\[127\] \(byte 508 of 512\), which nothing has written",
        """
        if (t < 64) s[t] = a[t];
        __syncthreads();
        c[t] = s[127 - t]; // here
        """,
    ),
    Bug(
        "sum_not_set_to_zero",
        FaultKind.UNINITIALIZED,
        r"thread 0 of block 0 updates 4 bytes at s\[5\] .*, which nothing has written",
        """
        atomicAdd(s + 5, a[t]); // here
        __syncthreads();
        c[t] = s[5];
        """,
    ),
    Bug(
        "local_not_filled",
        FaultKind.UNINITIALIZED,
        "nothing has written",
        """
        float l[8];
        l[t % 4] = 1;
        c[t] = l[t % 8]; // here
        """,
    ),
    Bug(
        "copy_not_awaited",
        FaultKind.UNINITIALIZED,
        "nothing has written",
        """
        unsigned int to = __cvta_generic_to_shared(s + t);
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(to), "l"(a + t));
        asm volatile("cp.async.commit_group;");
        c[t] = s[t]; // here
        """,
    ),
    Bug(
        "copy_of_the_newest_group_not_awaited",
        FaultKind.UNINITIALIZED,
        r"reads 4 bytes at s\[64\] \(byte 256 of 512\), which nothing has written",
        """
        if (t < 32) {
            for (int k = 0; k < 3; k++) {
                unsigned int to = __cvta_generic_to_shared(s + 32 * k + t);
                asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(to), "l"(a + t));
                asm volatile("cp.async.commit_group;");
            }
            asm volatile("cp.async.wait_group 1;");
            c[t] = s[t] + s[32 + t];
            c[64 + t] = s[64 + t]; // here
        }
        """,
    ),
    Bug(
        "missing_barrier",
        FaultKind.RACE,
        r"thread 0 of block 0 reads .* s\[127\] .*, which thread 127 writes in line 6 with no barrier between them",
        """
        s[t] = a[t];
        c[t] = s[127 - t]; // here
        """,
    ),
    Bug(
        "barrier_missing_in_a_loop",
        FaultKind.RACE,
        "a barrier is missing between line 9 and line 7",
        """
        for (int k = 0; k < 2; k++) {
            s[t] = a[t] + k;
            __syncthreads();
            c[t] = s[127 - t]; // here
        }
        """,
    ),
    Bug(
        "reduction_without_barrier",
        FaultKind.RACE,
        "no barrier",
        """
        s[t] = a[t];
        __syncthreads();
        for (int o = 64; o; o >>= 1) {
            if (t < o) s[t] += s[t + o]; // here
        }
        if (t == 0) c[0] = s[0];
        """,
    ),
    Bug(
        "sum_without_atomic",
        FaultKind.RACE,
        r"c\[0\]",
        """
        c[0] += a[t]; // here
        """,
    ),
    Bug(
        "blocks_write_the_same",
        FaultKind.RACE,
        r"c\[0\]",
        """
        c[t] = blockIdx.x; // here
        """,
        grid=2,
    ),
    Bug(
        "in_place_stencil",
        FaultKind.RACE,
        r"a\[",
        """
        if (i > 0 && i < n)
        a[i] = a[i - 1]; // here
        """,
        grid=8,
    ),
    Bug(
        "atomic_and_plain",
        FaultKind.RACE,
        r"c\[0\]",
        """
        if (t < 64) atomicAdd(c, 1);
        else
        c[0] = 5; // here
        """,
    ),
    Bug(
        "warp_without_syncwarp",
        FaultKind.RACE,
        "no barrier",
        """
        if (t < 32) {
            s[t] = a[t];
            c[t] = s[31 - t]; // here
        }
        """,
    ),
    Bug(
        "barrier_in_a_branch",
        FaultKind.BARRIER,
        "thread 64 of block 0 skipped this barrier: it returned early, or the barrier is inside an if",
        """
        if (t < 64)
        __syncthreads(); // here
        c[t] = 1;
        """,
    ),
    Bug(
        "barrier_after_return",
        FaultKind.BARRIER,
        "thread 77 of block 0 skipped this barrier",
        """
        if (t == 77) return;
        c[t] = 1;
        __syncthreads(); // here
        """,
    ),
    Bug(
        "two_barriers",
        FaultKind.BARRIER,
        "thread 0 of block 0 waits at a barrier, but thread 64 waits in line 11",
        """
        if (t < 64) {
            c[t] = 1;
            __syncthreads(); // here
        } else {
            c[t] = 2;
            __syncthreads();
        }
        c[t] += 1;
        """,
    ),
    Bug(
        "barrier_splits_a_warp",
        FaultKind.BARRIER,
        "thread 0 of block 0 waits at a barrier, but thread 31 waits in line 8",
        """
        if (t % 2) {
            c[t] = 1;
            __syncthreads();
        } else {
            c[t] = 2;
            __syncthreads(); // here
        }
        c[t] += 1;
        """,
    ),
    Bug(
        "shuffle_in_a_branch",
        FaultKind.BAD_MASK,
        r"runs shfl.sync.down.b32 with the mask 0xffffffff \(lanes 0 to 31\), but without lanes 16 to 31",
        """
        float v = a[t];
        if (t % 32 < 16)
        v += __shfl_down_sync(~0u, v, 8); // here
        c[t] = v;
        """,
    ),
    Bug(
        "shuffle_after_return",
        FaultKind.BAD_MASK,
        "but without lane 31",
        """
        if (t % 32 == 31) return;
        c[t] = __shfl_xor_sync(~0u, a[t], 1); // here
        """,
    ),
    Bug(
        "shuffle_in_a_partial_warp",
        FaultKind.BAD_MASK,
        "thread 32 of block 0 runs shfl.sync.down.b32 .* but without lanes 16 to 31",
        """
        c[t] = __shfl_down_sync(~0u, a[t], 8); // here
        """,
        block=48,
    ),
    Bug(
        "mask_without_lanes_that_run_it",
        FaultKind.BAD_MASK,
        r"with the mask 0x0000ff0f \(lanes 0 to 3, 8 to 15\), but with lanes 4 to 7, 16 to 31 too",
        """
        c[t] = __shfl_xor_sync(0xff0f, a[t], 1); // here
        """,
    ),
    Bug(
        "trap",
        FaultKind.TRAP,
        "thread 37 of block 0 stops at a trap",
        """
        if (t == 37)
        __trap(); // here
        c[t] = 1;
        """,
    ),
]
