"""Test mma, ldmatrix, stmatrix, and cp.async, with fragments as in PTX ISA, 9.7.14.5 (Matrix Fragments for mma)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from machine.launching import Run, aligned, buffer
from warpcheck import ptx, simt
from warpcheck.frontends import nvrtc

RNG = np.random.default_rng(2)
Array = np.ndarray[Any, Any]
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32, "s8": torch.int8, "u8": torch.uint8}
DTYPES |= {"e4m3": torch.float8_e4m3fn}


def words(values: torch.Tensor) -> Array:
    return values.contiguous().view(torch.uint8).numpy().view(np.uint32)


def fragments(a: torch.Tensor, b: torch.Tensor) -> tuple[Array, Array]:
    """Return the registers of a (16 x k) and b (k x 8), with one row per lane."""
    per_word = 4 // a.element_size()
    count = a.shape[1] // (4 * per_word)
    rows, columns = [], []
    for lane in range(32):
        group, thread = divmod(lane, 4)
        starts = [4 * per_word * n + per_word * thread for n in range(count)]
        rows.append([a[group + 8 * half, k : k + per_word] for k in starts for half in range(2)])
        columns.append([b[k : k + per_word, group] for k in starts])
    of_a, of_b = (words(torch.stack([torch.cat(registers) for registers in lanes])) for lanes in (rows, columns))
    return of_a, of_b


def run_mma(
    shape: str,
    kind: str,
    accumulator: str,
    a: Array,
    b: Array,
    c: Array,
    satfinite: str = "",
    negated: bool = False,
) -> Array:
    """Run one mma in one warp. c and the result are 16 x 8. ``negated`` negates the products."""
    counts = [array.shape[1] for array in (a, b)]
    names = [[f"%{letter}{n}" for n in range(count)] for letter, count in zip("ab", counts, strict=True)]
    sums = [f"%c{n}" for n in range(4)]
    text = [".reg .b32 %r<4>; .reg .b64 %rd<9>;", *(f".reg .b32 {name};" for name in [*names[0], *names[1], *sums])]
    text += ["mov.u32 %r1, %tid.x;"]
    for letter, registers in zip("abc", (*names, sums), strict=True):
        text += [f"ld.param.u64 %rd1, [{letter}];", f"mad.wide.u32 %rd2, %r1, {4 * len(registers)}, %rd1;"]
        text += [f"ld.global.b32 {name}, [%rd2+{4 * n}];" for n, name in enumerate(registers)]
    groups = [f"{{{', '.join(registers)}}}" for registers in (sums, *names, sums)]
    name = f"mma.sync.aligned.{shape}.row.col{satfinite}.{accumulator}.{kind}.{kind}.{accumulator}"
    text += [f"{name}\n {', '.join(groups)};"]  # CuTe breaks the line like this
    text += [f"st.global.b32 [%rd2+{4 * n}], {name};" for n, name in enumerate(sums)] + ["ret;"]
    head = (
        ".version 8.5\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c)"
    )
    module = simt.load(f"{head} {{ {' '.join(text)} }}")
    lanes = np.array(
        [[(lane // 4 + 8 * half) * 8 + 2 * (lane % 4) + j for half in range(2) for j in range(2)] for lane in range(32)]
    )
    memory = np.ascontiguousarray(c.reshape(-1)[lanes])
    arrays = [np.ascontiguousarray(array) for array in (a, b)] + [memory]
    buffers = [buffer(name, array) for name, array in zip("abc", arrays, strict=True)]
    args = [array.ctypes.data for array in arrays]
    (module.negated() if negated else module).launch("k", grid=(1,), block=(32,), args=args, buffers=buffers)
    result = np.empty(128, c.dtype)
    result[lanes] = memory
    return result.reshape(16, 8)


@pytest.mark.parametrize("negated", [False, True])
@pytest.mark.parametrize(
    ("shape", "kind", "depth"),
    [
        ("m16n8k8", "f16", 8),
        ("m16n8k16", "f16", 16),
        ("m16n8k8", "bf16", 8),
        ("m16n8k16", "bf16", 16),
        ("m16n8k4", "tf32", 4),
        ("m16n8k8", "tf32", 8),
        ("m16n8k16", "s8", 16),
        ("m16n8k32", "s8", 32),
        ("m16n8k32", "u8", 32),
        ("m16n8k32", "e4m3", 32),
    ],
)
def test_mma_equals_matmul(shape: str, kind: str, depth: int, negated: bool) -> None:
    sign = -1 if negated else 1
    if kind in ("s8", "u8"):
        low, high = (-128, 128) if kind == "s8" else (0, 256)
        a, b = (torch.randint(low, high, size, dtype=DTYPES[kind]) for size in ((16, depth), (depth, 8)))
        c = RNG.integers(-1000, 1000, (16, 8), np.int32)
        got = run_mma(shape, kind, "s32", *fragments(a, b), c, negated=negated)
        assert (got == sign * (a.int().numpy() @ b.int().numpy()) + c).all()
        return
    a, b = (torch.randn(size).to(DTYPES[kind]) for size in ((16, depth), (depth, 8)))
    if kind == "tf32":  # the hardware reads 19 of the 32 bits
        a, b = ((x.view(torch.int32) & ~0x1FFF).view(torch.float32) for x in (a, b))
    c = RNG.standard_normal((16, 8)).astype(np.float32)
    got = run_mma(shape, kind, "f32", *fragments(a, b), c, negated=negated)
    expected = sign * (a.double().numpy() @ b.double().numpy()) + c
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_negation_flips_the_sign_of_every_factor() -> None:
    """A register holds four 8-bit factors, and two elements of the float16 accumulator."""
    text = """.version 8.4
.target sm_90
.address_size 64
.visible .entry k() { .reg .b32 %a<4>; .reg .b32 %b<2>; .reg .b32 %c<2>;
    mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e4m3.f16 {%c0, %c1}, {%a0, %a1, %a2, %a3}, {%b0, %b1}, {%c0, %c1};
    ret; }"""
    body = ptx.negate_products(ptx.parse(text)).functions["k"].body
    flips = [instruction.operands[2] for instruction in body if instruction.opcode == "xor"]
    assert [flip.value for flip in flips if isinstance(flip, ptx.Immediate)] == [0x80808080] * 2


def truncated_sum(c: Array, a: Array, b: Array) -> Array:
    """Add products like a tensor core of an H200, which aligns them to the largest power of two and truncates."""
    products = a[:, :, None] * b[None]
    powers = np.frexp(a)[1][:, :, None] + np.frexp(b)[1][None] - 2
    powers[products == 0] = -2000
    power = np.maximum(powers.max(1), np.where(c == 0, -2000, np.frexp(c)[1] - 1))
    # The tensor core drops the bits of each term below 2**(power - 25), and those of the total below a float32.
    unit = np.exp2(np.maximum(power, -900) - 25.0)
    total = unit * (np.trunc(c / unit) + np.trunc(products / unit[:, None]).sum(1))
    fraction, exponent = np.frexp(total)
    truncated: Array = np.ldexp(np.trunc(np.ldexp(fraction, 24)), exponent - 24)
    return truncated


# The shape, the type of the operands, and k of each mma with a float32 accumulator.
SUMS = [
    ("m16n8k8", "f16", 8),
    ("m16n8k16", "f16", 16),
    ("m16n8k8", "bf16", 8),
    ("m16n8k16", "bf16", 16),
    ("m16n8k8", "tf32", 8),
    ("m16n8k32", "e4m3", 32),
]


@pytest.mark.parametrize(("shape", "kind", "depth"), SUMS)
@pytest.mark.parametrize("scale", [1.0, 1e-3, 300.0])
def test_mma_truncates_like_an_h200(shape: str, kind: str, depth: int, scale: float) -> None:
    a, b = (torch.randn(size).to(DTYPES[kind]) for size in ((16, depth), (depth, 8)))
    if kind == "tf32":
        a, b = ((x.view(torch.int32) & ~0x1FFF).view(torch.float32) for x in (a, b))
    c = (scale * RNG.standard_normal((16, 8))).astype(np.float32)
    a_values, b_values = a.double().numpy(), b.double().numpy()
    # Hopper converts e4m3 to float16. It multiplies the lower halves of the registers first, then the upper halves.
    if kind == "e4m3":
        expected: Array = np.zeros((16, 8))
        for half in range(2):
            ks = [k for k in range(depth) if k % 4 // 2 == half]
            expected = truncated_sum(expected, a_values[:, ks], b_values[ks])
        expected = c + expected.astype(np.float32)
    else:
        expected = truncated_sum(c.astype(np.float64), a_values, b_values)
    got = run_mma(shape, kind, "f32", *fragments(a, b), c)
    assert (got == expected.astype(np.float32)).all()


@pytest.mark.gpu
@pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9, reason="the model is Hopper's"
)
@pytest.mark.parametrize(("shape", "kind", "depth"), SUMS)
def test_mma_equals_a_hopper_gpu(shape: str, kind: str, depth: int) -> None:
    from warpcheck.frontends import cuda

    a, b = (torch.randn(size).to(DTYPES[kind]) for size in ((16, depth), (depth, 8)))
    c = RNG.standard_normal((16, 8)).astype(np.float32)
    of_a, of_b = fragments(a, b)
    counts = (of_a.shape[1], of_b.shape[1])
    first_b, first_c = 4 + counts[0], 4 + sum(counts)
    operands = ", ".join(
        f"{{{', '.join(f'%{n}' for n in numbers)}}}"
        for numbers in (range(4), range(4, first_b), range(first_b, first_c), range(4))
    )
    inputs = ", ".join(
        f'"r"({name}[{count} * lane + {n}])' for name, count in zip("ab", counts, strict=True) for n in range(count)
    )
    source = f"""extern "C" __global__ void sums(const unsigned *a, const unsigned *b, float *c) {{
        const int lane = threadIdx.x;
        float *d = c + lane / 4 * 8 + lane % 4 * 2;
        asm volatile("mma.sync.aligned.{shape}.row.col.f32.{kind}.{kind}.f32 {operands};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[64]), "+f"(d[65]) : {inputs});
    }}"""
    on_gpu = [torch.from_numpy(np.ascontiguousarray(x).view(np.int32)).cuda() for x in (of_a, of_b)]
    sums = torch.from_numpy(c.copy()).cuda()
    cuda.Kernel("sums.cu", source, "sums")[1, 32](*on_gpu, sums)
    assert (sums.cpu().numpy() == run_mma(shape, kind, "f32", of_a, of_b, c)).all()


def test_mma_drops_a_fraction_of_the_last_place() -> None:
    """On an H200, mma.sync returns 1 for 1 plus 0.75 units in the last place, and FFMA rounds up."""
    a = torch.zeros(16, 16, dtype=torch.bfloat16)
    b = torch.zeros(16, 8, dtype=torch.bfloat16)
    a[:, 0], b[0] = 0.75, 2.0**-23
    got = run_mma("m16n8k16", "bf16", "f32", *fragments(a, b), np.ones((16, 8), np.float32))
    assert (got == 1).all()
    got = run_mma("m16n8k16", "bf16", "f32", *fragments(a, b), np.full((16, 8), -1, np.float32))
    assert (got == np.float32(-1 + 2.0**-23)).all(), "truncation is toward zero"


def test_mma_with_satfinite_saturates() -> None:
    a, b = (torch.randint(-128, 128, size, dtype=torch.int8) for size in ((16, 32), (32, 8)))
    c = RNG.choice(np.array([-(1 << 31), -5, (1 << 31) - 1], np.int32), (16, 8))
    exact = a.long().numpy() @ b.long().numpy() + c
    got = run_mma("m16n8k32", "s8", "s32", *fragments(a, b), c, satfinite=".satfinite")
    assert (got == exact.clip(-(1 << 31), (1 << 31) - 1)).all()


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("old_syntax", [False, True])
def test_ldmatrix(run: Run, count: int, transposed: bool, old_syntax: bool) -> None:
    trans = ".trans" * transposed
    variant = f"x{count}{trans}.m8n8" if old_syntax else f"m8n8.x{count}{trans}"
    registers = ", ".join(f"%{n}" for n in range(count))
    outputs = ", ".join(f'"=r"(r[{n}])' for n in range(count))
    source = f"""__global__ void kernel(const unsigned short* a, unsigned int* b) {{
        __shared__ __align__(16) unsigned short s[{64 * count}];
        for (int k = threadIdx.x; k < {64 * count}; k += 32) s[k] = a[k];
        __syncthreads();
        unsigned int from = __cvta_generic_to_shared(s + threadIdx.x % {8 * count} * 8), r[4];
        asm volatile("ldmatrix.sync.aligned.{variant}.shared.b16 {{{registers}}}, [%{count}];"
            : {outputs} : "r"(from));
        for (int k = 0; k < {count}; k++) b[threadIdx.x * {count} + k] = r[k];
    }}"""
    a = RNG.integers(0, 1 << 16, (count, 8, 8)).astype(np.uint16)
    b = aligned((32, count), np.uint32)
    report = run(source, 1, 32, np.ascontiguousarray(a), b)
    expected = a.transpose(0, 2, 1) if transposed else a
    for lane in range(32):
        group, thread = divmod(lane, 4)
        pairs = expected[:, group, 2 * thread : 2 * thread + 2].astype(np.uint32)
        assert (b[lane] == pairs[:, 0] | pairs[:, 1] << 16).all()
    load = report.totals  # NVRTC 13.0 and 13.5 number the lines of a long asm statement differently
    assert (load.shared_load_requests, load.shared_load_wavefronts) == (1, count)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_stmatrix(count: int, transposed: bool) -> None:
    """stmatrix is the inverse of ldmatrix, and needs sm_90 (PTX ISA manual, 9.7.14.5.16)."""
    trans = ".trans" * transposed
    registers = ", ".join(f"%{n + 1}" for n in range(count))
    values = ", ".join(f'"r"(r[{n}])' for n in range(count))
    source = f"""__global__ void kernel(const unsigned int* a, unsigned short* b) {{
        __shared__ __align__(16) unsigned short s[{64 * count}];
        unsigned int to = __cvta_generic_to_shared(s + threadIdx.x % {8 * count} * 8), r[4];
        for (int k = 0; k < {count}; k++) r[k] = a[threadIdx.x * {count} + k];
        asm volatile("stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%0], {{{registers}}};"
            :: "r"(to), {values} : "memory");
        __syncthreads();
        for (int k = threadIdx.x; k < {64 * count}; k += 32) b[k] = s[k];
    }}"""
    a = RNG.integers(0, 1 << 16, (32, count, 2)).astype(np.uint16)  # lane, matrix, half of the register
    b = aligned((count, 8, 8), np.uint16)
    binary = nvrtc.compile_kernel(source, "test.cu", "kernel", "compute_90a")
    buffers = [buffer("a", a), buffer("b", b)]
    report = simt.load(binary.ptx).launch(
        binary.mangled, grid=(1,), block=(32,), args=[a.ctypes.data, b.ctypes.data], buffers=buffers
    )
    expected = a.reshape(8, 4, count, 2).transpose(2, 0, 1, 3).reshape(count, 8, 8)
    assert (b == (expected.transpose(0, 2, 1) if transposed else expected)).all()
    assert report.totals.shared_store_requests == 1
    assert report.totals.shared_store_wavefronts == count


def test_movmatrix_transposes(run: Run) -> None:
    source = """__global__ void kernel(const unsigned int* a, unsigned int* b) {
        asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(b[threadIdx.x]) : "r"(a[threadIdx.x]));
    }"""
    a = RNG.integers(0, 1 << 16, (8, 8)).astype(np.uint16)
    b = aligned((8, 8), np.uint16)
    run(source, 1, 32, np.ascontiguousarray(a).view(np.uint32), b.view(np.uint32))
    assert (b == a.T).all()


def test_cp_async_in_stages(run: Run) -> None:
    source = """__global__ void kernel(const float4* a, float4* b, int tiles) {
        __shared__ float4 s[3][64];
        int t = threadIdx.x;
        auto fetch = [&](int tile) {
            if (tile < tiles) {
                unsigned int to = __cvta_generic_to_shared(&s[tile % 3][t]);
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(a + tile * 64 + t));
            }
            asm volatile("cp.async.commit_group;");
        };
        fetch(0);
        fetch(1);
        for (int tile = 0; tile < tiles; tile++) {
            asm volatile("cp.async.wait_group 1;");
            __syncthreads();
            b[tile * 64 + t] = s[tile % 3][63 - t];
            fetch(tile + 2);
        }
    }"""
    a = aligned((5, 64, 4))
    b = aligned((5, 64, 4))
    a[...] = RNG.standard_normal(a.shape)
    run(source, 1, 64, a, b, 5)
    assert (b == a[:, ::-1]).all()


@pytest.mark.parametrize("tail", [1, 2, 4, 7, 16])
def test_a_partial_cp_async_fills_the_rest_with_zeros(run: Run, tail: int) -> None:
    source = """__global__ void kernel(const char* a, float4* b, int n) {
        __shared__ float4 s[32];
        int t = threadIdx.x, bytes = min(max(n - 16 * t, 0), 16);
        unsigned int to = __cvta_generic_to_shared(s + t);
        const char* from = a + (bytes ? 16 * t : 0);
        asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(from), "r"(bytes));
        asm volatile("cp.async.wait_all;");
        b[t] = s[t];
    }"""
    a = aligned(13 * 16 + tail, np.uint8)
    b = aligned(32 * 16, np.uint8)
    a[...] = RNG.integers(1, 256, a.size)
    run(source, 1, 32, a, b, a.size)
    assert (b[: a.size] == a).all()
    assert (b[a.size :] == 0).all()


def test_cp_async_with_ignore_src_writes_zeros(run: Run) -> None:
    source = """__global__ void kernel(const float4* a, float4* b, int n) {
        __shared__ float4 s[32];
        int t = threadIdx.x;
        unsigned int to = __cvta_generic_to_shared(s + t);
        asm volatile("{ .reg .pred p; setp.ge.s32 p, %2, %3; cp.async.cg.shared.global [%0], [%1], 16, p; }"
            :: "r"(to), "l"(a + t), "r"(t), "r"(n));
        asm volatile("cp.async.wait_all;");
        b[t] = s[t];
    }"""
    a = aligned((13, 4))
    b = aligned((32, 4))
    a[...] = RNG.standard_normal(a.shape)
    run(source, 1, 32, a, b, len(a))
    assert (b[: len(a)] == a).all()
    assert (b[len(a) :] == 0).all()
