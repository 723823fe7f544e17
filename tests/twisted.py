"""Generate kernels for the variants of the tiled GEMM, to test that each variant is solvable and graded correctly.

The kernels are generated from the operands and the epilogue of a variant, so no file contains an answer. A worker
cannot read this folder.
"""

from __future__ import annotations

from pathlib import Path

from kernelpath.course.checkpoint import DeliverableVariant
from kernelpath.course.problems.matmul_twists import EPILOGUES, OPERANDS, Epilogue, Operands

A = {"km": "a[(size_t)i * m + row]", "mk": "a[(size_t)row * k + i]"}
B = {
    "b_transposed": "b[(size_t)column * k + i]",
    "wrapped": "b[(size_t)((i + shift) % k) * n + column]",
    "padded": "(i + shift < k ? b[(size_t)(i + shift) * n + column] : pad)",
    "a_transposed": "b[(size_t)i * n + column]",
}
ENDS = {
    "scaled": "alpha * sum + beta * c[(size_t)row * n + column]",
    "bias_rows": "sum + bias[row]",
    "relu_columns": "fmaxf(0, sum + bias[column])",
    "scaled_rows": "scale[row] * sum",
}


def parse_parts(twist: DeliverableVariant) -> tuple[Operands, Epilogue, int, int]:
    """Return the operands, the epilogue, and the rows and columns of the tile of a variant."""
    operand_name, epilogue_name, tile = twist.name.split("+")
    rows, columns = map(int, tile.split("x"))
    by_name = {part.name: part for part in OPERANDS}, {part.name: part for part in EPILOGUES}
    return by_name[0][operand_name], by_name[1][epilogue_name], rows, columns


def write(
    twist: DeliverableVariant, folder: Path, *, tiled: bool, tile: tuple[int, int] | None = None, barrier: str = ""
) -> Path:
    """Write a submission, with tiles in shared memory or with one thread per element, and return its Python file.

    tile: rows and columns that replace those of the variant. barrier: a statement that replaces the second barrier.
    """
    operands, epilogue, *prescribed = parse_parts(twist)
    rows, columns = tile or prescribed
    further = (*epilogue.further, *operands.further)
    of_a = A[operands.a]
    of_b = B[operands.name]
    end = ENDS[epilogue.name]
    parameters = ", ".join(["const float* a", "const float* b", *(argument.declaration for argument in further)])
    head = f"""__global__ void matmul({parameters},
                       float* out, int m, int n, int k) {{
    const int row = blockIdx.y * {rows} + threadIdx.y, column = blockIdx.x * {columns} + threadIdx.x;
    float sum = 0;
"""
    naive = f"    if (row < m && column < n) for (int i = 0; i < k; ++i) sum += {of_a} * {of_b};\n"
    walk = "const int t = threadIdx.y * blockDim.x + threadIdx.x, threads = blockDim.x * blockDim.y;"
    loads = [
        _load("of_a", of_a, "row", rows, "blockIdx.y", "m", operands.a == "mk"),
        _load("of_b", of_b, "column", columns, "blockIdx.x", "n", operands.b == "nk"),
    ]
    places = [
        f"of_a[{_place('threadIdx.y', rows, operands.a == 'mk')}]",
        f"of_b[{_place('threadIdx.x', columns, operands.b == 'nk')}]",
    ]
    tiles = f"""    __shared__ float of_a[8 * {rows + 8}], of_b[8 * {columns + 8}];
    {walk}
    for (int begin = 0; begin < k; begin += 8) {{
        {loads[0]}
        {loads[1]}
        __syncthreads();
        for (int j = 0; j < 8; ++j) sum += {places[0]} * {places[1]};
        {barrier or "__syncthreads();"}
    }}
"""
    tail = f"    if (row < m && column < n) out[(size_t)row * n + column] = {end};\n}}\n"
    (folder / "deliverable.cu").write_text(head + (tiles if tiled else naive) + tail)
    names = ["a", "b", *(argument.name for argument in further)]
    file = folder / "deliverable.py"
    file.write_text(f"""from warpcheck.frontends import cuda


def matmul({", ".join(names)}):
    m, k = {"a.shape" if operands.a == "mk" else "a.shape[::-1]"}
    n = b.shape[{int(operands.b == "kn")}]
    out = a.new_empty(m, n)
    grid = (-(-n // {columns}), -(-m // {rows}))
    cuda.kernel("deliverable.cu", "matmul")[grid, {columns, rows}]({", ".join(names)}, out, m, n, k)
    return out
""")
    return file


def _place(at: str, extent: int, along_k: bool) -> str:
    """Return the index of an element in a tile such that neighboring threads load from different banks."""
    return f"{at} * 9 + j" if along_k else f"j * {extent} + {at}"


def _load(tile: str, element: str, index: str, extent: int, block: str, size: str, along_k: bool) -> str:
    """Return a loop that fills a tile with coalesced loads."""
    at = f"e % {extent}, j = e / {extent}" if not along_k else "e / 8, j = e % 8"
    element_of_tile = f"{tile}[{_place('at', extent, along_k)}]"
    return (
        f"for (int e = t; e < 8 * {extent}; e += threads) {{ const int at = {at}, i = begin + j, "
        f"{index} = {block} * {extent} + at; {element_of_tile} = i < k && {index} < {size} ? {element} : 0; }}"
    )
