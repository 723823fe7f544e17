"""Generate kernels for the variants of the fused operator, to test that each is solvable and graded correctly.

The kernels are generated from the operator, the layout, and the statistic of a variant, so no file contains an answer.
A worker cannot read this folder.
"""

from __future__ import annotations

from pathlib import Path

from kernelpath.course.checkpoint import DeliverableVariant
from kernelpath.course.problems.fused_parts import LAYOUTS, OPERATORS, STATISTICS, OperandLayout, Operator, Statistic

Y = {
    "bias_gelu": "OTHER + 0.5f * h * (1 + tanhf(0.7978845608f * (h + 0.044715f * h * h * h)))",
    "silu_gate": "h / (1 + expf(-h)) * OTHER",
    "layer_norm": "(h - mean) * rsqrtf(squares_mean + 1e-5f) * weight[column] + bias[column]",
    "rms_norm": "h * rsqrtf(squares_mean + 1e-5f) * weight[column]",
}
H = {
    "bias_gelu": "X + bias[column]",
    "silu_gate": "alpha * X",
    "layer_norm": "X + OTHER",
    "rms_norm": "X + bias[column] + OTHER",
}
PLACES = {
    "slice": ("x[row * (columns + 2 * first) + first + column]", "other[row * columns + column]"),
    "side_by_side": ("both[row * 2 * columns + column]", "both[row * 2 * columns + columns + column]"),
    "columns_first": ("x[(long long)column * rows + row]", "other[(long long)column * rows + row]"),
}
STEPS = {
    "sums": ("y", "own + y"),
    "largest": ("y", "fmaxf(own, fabsf(y))"),
    "squares": ("fminf(fmaxf(y, -limit), limit)", "own + value * value"),
}


def parse_parts(twist: DeliverableVariant) -> tuple[Operator, OperandLayout, Statistic]:
    """Return the operator, the layout, and the statistic of a variant."""
    operator, layout, statistic = twist.name.split("+")
    return (
        next(part for part in OPERATORS if part.name == operator),
        next(part for part in LAYOUTS if part.name == layout),
        next(part for part in STATISTICS if part.name == statistic),
    )


def write(twist: DeliverableVariant, folder: Path, *, keep: bool = True, barrier: str = "__syncthreads();") -> Path:
    """Write a submission and return its Python file.

    The threads of a block with the same `at` process one row: all 256 threads if rows are contiguous, and 32 of 1024 if
    the columns come first, so that a warp processes 32 neighboring rows.
    keep: whether the h of a row stays in registers; otherwise h is computed from memory again.
    barrier: a statement that replaces the barrier between two reductions.
    """
    operator, layout, statistic = parse_parts(twist)
    x, other_element = PLACES[layout.name]
    columnar = layout.transposed
    rows_each, threads = (32, 32) if columnar else (1, 256)
    per_thread = 1024 // threads
    numbers = {**operator.scalars, **layout.scalars, **statistic.scalars}
    tensors = [*layout.shapes, *operator.vectors]
    kinds = {name: "int" if isinstance(of(1, 1), int) else "float" for name, of in numbers.items()}
    parameters = ", ".join(
        [f"const float* {name}" for name in tensors] + [f"{of} {name}" for name, of in kinds.items()]
    )
    h = H[operator.name].replace("X", x).replace("OTHER", other_element)
    y = Y[operator.name].replace("OTHER", other_element)
    value, step = STEPS[statistic.name]
    norm = operator.name.endswith("norm")
    means = ""
    if norm:
        mean = "total<false>(sum, at, part) / columns" if operator.name == "layer_norm" else "0"
        means = f"""
    float sum = 0, squares = 0;
    EACH sum += H;
    const float mean = {mean};
    EACH squares += (H - mean) * (H - mean);
    const float squares_mean = total<false>(squares, at, part) / columns;"""
    source = f"""
#define H {h if not keep else "kept[i]"}
#define EACH _Pragma("unroll") for (int i = 0; i < {per_thread}; ++i) \\
    if (const int column = part + i * {threads}; row < rows && column < columns)

template <bool LARGEST>
__device__ float total(float own, int at, int part) {{
    __shared__ float of[{rows_each}][{threads + 1}];
    {barrier}
    of[at][part] = own;
    for (int half = {threads // 2}; half > 0; half /= 2) {{
        __syncthreads();
        if (part < half) {{
            const float more = of[at][part + half];
            of[at][part] = LARGEST ? fmaxf(of[at][part], more) : of[at][part] + more;
        }}
    }}
    __syncthreads();
    return of[at][0];
}}

__global__ void __launch_bounds__({rows_each * threads}) fused(
    {parameters}, float* out, float* per_row, int rows, int columns) {{
    const int at = {"threadIdx.x" if columnar else "0"}, part = {"threadIdx.y" if columnar else "threadIdx.x"};
    const long long row = (long long)blockIdx.x * {rows_each} + at;
    float kept[{per_thread}];
    EACH kept[i] = {h};{means}
    float own = 0;
    EACH {{
        const float h = H;
        const float y = {y};
        const float value = {value};
        {PLACES["columns_first"][0].replace("x[", "out[") if columnar else "out[row * columns + column]"} = value;
        own = {step};
    }}
    own = total<{"true" if statistic.name == "largest" else "false"}>(own, at, part);
    if (part == 0 && row < rows) per_row[row] = own;
}}
"""
    (folder / "deliverable.cu").write_text(source)
    shape = {
        "slice": "rows, columns = other.shape",
        "side_by_side": "rows, columns = both.shape[0], both.shape[1] // 2",
        "columns_first": "columns, rows = x.shape",
    }[layout.name]
    names = ", ".join([*tensors, *numbers])
    file = folder / "deliverable.py"
    file.write_text(f"""import torch

from warpcheck.frontends import cuda


def fused({names}):
    {shape}
    out = torch.empty({"columns, rows" if columnar else "rows, columns"}, device={tensors[0]}.device)
    per_row = torch.empty(rows, device=out.device)
    grid = -(-rows // {rows_each})
    cuda.kernel("deliverable.cu", "fused")[grid, {(32, 32) if columnar else 256}]({names}, out, per_row, rows, columns)
    return out, per_row
""")
    return file
