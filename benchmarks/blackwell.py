"""Record what the PTX machine assumes about Blackwell: sums, layouts of scale factors, and copies to tensor memory.

    python benchmarks/blackwell.py results/b200_blackwell.json        on a GPU of sm_100a, some minutes
    python benchmarks/blackwell.py --machine machine.json             the same on the PTX machine

warpcheck/docs/blackwell.md lists the assumptions. The kernels are those of the tests of the PTX machine
(warpcheck/tests/machine): each case of them runs here, with operands drawn from a fixed seed, and the file keeps the
results that decide a question:

    sums       for each kind: elements that differ from the machine's, and the alignments that explain all of a sample
    halves     the upper halves of the cells of an accumulator in float16
    scales     for each kind: the lane, the column and the byte of the scale factor of each row and block
    copies     for each shape and source format: whether tensor memory has what the machine has there
    narrow     whether A in tensor memory has its 4 or 6 bits where tcgen05.cp puts them
    shift      for each lane of a warp, the lane whose 32 bytes it has after a tcgen05.shift
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "warpcheck" / "tests"))

from machine import test_block_scales as scaled  # noqa: E402
from machine import test_tensor_memory as plain  # noqa: E402
from machine.launching import aligned, buffer  # noqa: E402
from machine.warpgroups import encode  # noqa: E402
from warpcheck import simt  # noqa: E402

__all__ = [
    "name_of",
    "record_copy",
    "record_plain_sums",
    "record_scale_places",
    "record_scaled_sums",
    "record_shift",
    "run_on_machine",
    "scaled",
]

Array = np.ndarray[Any, Any]
# A function that runs the kernel ``k`` of a PTX text with 128 threads on arrays, which it updates, and integers.
Run = Callable[[str, Sequence[Array], Sequence[int]], None]

SEED = 2026
SAMPLE = 600  # the number of elements on which alignments are tried
ALIGNMENTS = range(13, 41)
CODE_OF_ONE = 127  # in ue8m0


def run_on_machine(text: str, arrays: Sequence[Array], numbers: Sequence[int]) -> None:
    buffers = [buffer(f"x{number}", array) for number, array in enumerate(arrays)]
    args = [*(array.ctypes.data for array in arrays), *numbers]
    simt.load(text).launch("k", grid=(1,), block=(128,), args=args, buffers=buffers)


def run_on_gpu(text: str, arrays: Sequence[Array], numbers: Sequence[int]) -> None:
    """Run the text with the driver's own assembler."""
    import torch
    from cuda.bindings import driver

    def call(function: Callable[..., Any], *args: Any) -> Any:
        error, *values = function(*args)
        if error != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"{function.__name__}: {driver.cuGetErrorName(error)[1]!r}")
        return values[0] if values else None

    torch.cuda.init()
    tensors = [torch.from_numpy(array.view(np.uint8).reshape(-1)).cuda() for array in arrays]
    module = call(driver.cuModuleLoadData, text.encode() + b"\0")
    kernel = call(driver.cuModuleGetFunction, module, b"k")
    parameters = [np.array(tensor.data_ptr(), np.uint64) for tensor in tensors]
    parameters += [np.array(number, np.uint64) for number in numbers]
    pointers = np.array([parameter.ctypes.data for parameter in parameters], np.uint64)
    stream = torch.cuda.current_stream().cuda_stream
    call(driver.cuLaunchKernel, kernel, 1, 1, 1, 128, 1, 1, 0, stream, pointers.ctypes.data, 0)
    torch.cuda.synchronize()
    for array, tensor in zip(arrays, tensors, strict=True):
        array.view(np.uint8).reshape(-1)[:] = tensor.cpu().numpy()
    call(driver.cuModuleUnload, module)


def copy_aligned(array: Array) -> Array:
    """Return a copy whose address is aligned as the machine's buffers are."""
    result = aligned(array.shape, array.dtype)
    result[:] = array
    return result


def name_of(case: scaled.Case) -> str:
    return f"{case.kind} {case.a} {case.b} {case.scale if case.groups else ''}".rstrip()


def record_scaled_sums(run: Run, case: scaled.Case) -> dict[str, Any]:
    """Compare a product with the machine's, and find the alignments that give each element of a sample."""
    rng = np.random.default_rng(SEED)
    operands = scaled.generate_operands(case, rng)
    results = [copy_aligned(operands.d) for _ in range(2)]
    for execute, d in zip((run, run_on_machine), results, strict=True):
        execute(scaled.source(case), [operands.image, d], operands.descriptors)
    places = list(zip(rng.integers(0, 128, SAMPLE), rng.integers(0, case.n, SAMPLE), strict=True))
    fits = [
        bits
        for bits in ALIGNMENTS
        if all(results[0][place] == operands.expected(case, operands.d, *place, bits) for place in places)
    ]
    differing = int((results[0].view(np.uint32) != results[1].view(np.uint32)).sum())
    return {"differing": differing, "elements": results[0].size, "alignments": fits}


def record_plain_sums(run: Run, kind: str, to: str) -> dict[str, Any]:
    """Compare a product of 16 or 19 bits with the machine's, and keep the upper halves of D's cells."""
    rng = np.random.default_rng(SEED)
    case = plain.Case(128, 32, kind, to)
    a, b = (
        rng.standard_normal((rows, case.depth)) * 2.0 ** rng.integers(-6, 6, (rows, case.depth)) for rows in (128, 32)
    )
    image = aligned(plain.SHARED, np.uint8)
    registers = aligned((128, 8), np.uint32)
    registers[:] = 0
    descriptors = [
        plain.place(encode(a, kind), 1, 0, 0, image),
        plain.place(encode(b, kind), 1, 0, plain.B_OFFSET, image),
    ]
    old = plain.as_words(rng.standard_normal((128, 32)), to)
    if to == "f16":
        old = old | 0x12340000
    results = [copy_aligned(old) for _ in range(2)]
    for execute, d in zip((run, run_on_machine), results, strict=True):
        execute(plain.source(case), [image, registers, d], [*descriptors, 1])
    halves = sorted({int(half) for half in np.unique(results[0] >> 16)}) if to == "f16" else []
    mask = 0xFFFF if to == "f16" else 0xFFFFFFFF
    differing = int((results[0] & mask != results[1] & mask).sum())
    return {"differing": differing, "elements": results[0].size, "upper halves": halves[:4]}


def record_scale_places(run: Run, case: scaled.Case, of_b: bool) -> list[list[int]]:
    """Return the lane, column and byte of the scale factor of each row and block of A, or of B.

    All scale factors are 1 except for those of one operand, whose exponents encode their own lane, column or byte. The
    operands are 0 except for a 1 in the first position of the block.
    """
    case = replace(case, stores_scales=True, ids=(0, 0), mode=1, negates=0)
    block_size = case.depth // case.groups
    lanes = np.arange(128)[:, None, None]
    columns = np.arange(4)[None, :, None]
    codes = [lanes - 64 + 0 * columns, columns + 0 * lanes, np.arange(4)[None, None] + 0 * lanes]
    places = []
    for block in range(case.groups):
        numbers = np.zeros((128, case.depth), int)
        numbers[:, block * block_size] = {"e2m1": 2, "e4m3": 0x38}[case.a]
        image = aligned(scaled.SHARED, np.uint8)
        packed = scaled.pack(numbers, case.a, case.depth)
        descriptors = [scaled.place(packed, 1, 0, image), scaled.place(packed[: case.n], 1, scaled.B_OFFSET, image)]
        parts = []
        for code in codes:
            cells = aligned((128, 8, 4), np.uint8)
            cells[:] = CODE_OF_ONE
            cells[:, 4 * of_b : 4 * of_b + 4] = CODE_OF_ONE + np.broadcast_to(code, (128, 4, 4))
            d = aligned((128, case.n), np.float32)
            d[:] = 0
            words = cells.view(np.uint32).reshape(128, 8)
            run(with_pointer(scaled.source(case)), [image, d, words], descriptors)
            parts.append(np.log2(d[0] if of_b else d[:, 0]).astype(int))
        places += [[int(lane) + 64, int(column), int(byte)] for lane, column, byte in zip(*parts, strict=True)]
    return places


def with_pointer(text: str) -> str:
    """Return the kernel with the pointer to the scale factors before the descriptors, because arrays come first."""
    parameters = ".param .u64 da, .param .u64 db, .param .u64 ds"
    assert parameters in text
    return text.replace(parameters, ".param .u64 ds, .param .u64 da, .param .u64 db")


def record_copy(run: Run, shape: str, format_bits: int) -> dict[str, Any]:
    """Return whether a copy leaves the same contents in tensor memory as on the machine. If not, include them."""
    rng = np.random.default_rng(SEED)
    image = aligned(8192, np.uint8)
    image[:] = rng.integers(0, 256, 8192)
    results = [aligned((128, 32), np.uint8) for _ in range(2)]
    for execute, d in zip((run, run_on_machine), results, strict=True):
        execute(scaled.copy_source(shape, format_bits), [image, d], [scaled.COPY_DESCRIPTOR])
    if np.array_equal(results[0], results[1]):
        return {"equal": True}
    return {"equal": False, "tensor memory": results[0].tobytes().hex()}


def record_shift(run: Run) -> list[int]:
    """Return the lane whose 32 bytes each lane of a warp has after a tcgen05.shift, or -1 for none."""
    before = aligned((128, 16), np.uint32)
    after = aligned((128, 16), np.uint32)
    before[:] = np.arange(128)[:, None]
    run(plain.shift_source(0, 0), [before, after], [])
    return [int(row[0]) if (row == row[0]).all() else -1 for row in after[:32, :8]]


def record(run: Run) -> dict[str, Any]:
    """Run all probes."""
    sums = {name_of(case): record_scaled_sums(run, case) for case in scaled.CASES if not case.a_in_tensor}
    plain_kinds = (("f16", "f32"), ("bf16", "f32"), ("tf32", "f32"), ("f16", "f16"))
    sums |= {f"{kind} {to}": record_plain_sums(run, kind, to) for kind, to in plain_kinds}
    with_scales = [
        case for case in scaled.CASES if case.groups and case.scale == "ue8m0" and case.a in ("e2m1", "e4m3")
    ]
    by_kind = {case.kind: replace(case, a=case.b, n=64) for case in with_scales if case.b in ("e2m1", "e4m3")}
    return {
        "sums": sums,
        "scales": {
            f"{kind} {'ab'[of_b]}": record_scale_places(run, case, of_b)
            for kind, case in by_kind.items()
            for of_b in (False, True)
        },
        "copies": {
            f"{shape} {format_bits}": record_copy(run, shape, format_bits)
            for shape in scaled.LANES
            for format_bits in (0, 4, 6)
        },
        "shift": record_shift(run),
        "narrow": {name_of(case): record_scaled_sums(run, case) for case in scaled.CASES if case.a_in_tensor},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--machine", action="store_true", help="run on the PTX machine")
    options = parser.parse_args()
    recorded = record(run_on_machine if options.machine else run_on_gpu)
    options.file.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")
    for name, result in recorded["sums"].items():
        print(f"{name:<60} {result['differing']:>6} of {result['elements']} differ; {result.get('alignments', '')}")


if __name__ == "__main__":
    main()
