"""Keep the answers to exercises short enough to be read: count the lines of code in their kernels.

An answer is what a learner reads after a pass. A reference kernel that needs more lines than an answer may have is an
expert kernel (`registry.EXPERT`), beside a shorter answer.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelpath.course import registry
from kernelpath.course.registry import ExerciseRef, Tree
from kernelpath.files import blank_comments, source_text

# The lines of code that the kernels of an answer may have together.
MAX_KERNEL_LINES = 60

# The lines of the kernels of answers that are still longer, by exercise.
LONG_ANSWERS = {
    "custom_operator": 78,
    "tensor_cores": 81,
    "flash_attention_backward": 79,
    "transformer_block": 188,
    "dependent_launch": 66,
    "megakernel": 171,
    "grouped_gemm_cute": 128,
    "sgemm_cute": 92,
    "tensorop_gemm": 100,
    "wgmma_gemm": 126,
    "persistent_gemm": 167,
    "gemm_epilogue_cute": 263,
    "fp8_gemm": 189,
    "flash_attention_cute": 213,
    "flash_attention_backward_cute": 273,
    "cute_cpp": 131,
    "cutlass_epilogue": 140,
    "tcgen05_gemm": 122,
    "nvfp4_gemm": 142,
    "attention_blackwell": 245,
}

# Expert kernels that are no longer than the answer, and yet not the answer: the stub asks for pointers and masks, which
# TMA replaces.
SHORT_EXPERTS = {"stream_k"}

_KERNEL_DECORATORS = ("triton.jit", "gluon.jit", "cute.jit", "cute.kernel")


def answers_are_short(item: ExerciseRef) -> Iterator[str]:
    """Require that an answer is short, and that an expert kernel is longer than the answer.

    Each kernel that is given to be repaired may be as long as an answer.
    """
    answer = item.solution.relative_to(item.course)
    lines = count_kernel_lines(item, "solutions")
    kernels = max(1, len(registry.load(item).repairs))
    limit = LONG_ANSWERS.get(item.name, MAX_KERNEL_LINES * kernels)
    if lines > limit:
        advice = f"move it to {registry.EXPERT}/, and write an answer with at most {MAX_KERNEL_LINES}"
        yield f"the kernels of {answer} have {lines} lines of code, over {limit}; {advice}"
    if item.name in LONG_ANSWERS and lines < limit:
        entry = "remove its entry" if lines <= MAX_KERNEL_LINES else f"write {lines}"
        yield f"the kernels of {answer} have {lines} lines of code; {entry} in LONG_ANSWERS of dev/answers.py"
    if not item.has_expert:
        return
    expert, is_short = item.reference.relative_to(item.course), count_kernel_lines(item, "expert") <= lines
    if is_short and item.name not in SHORT_EXPERTS:
        yield f"{expert} is no longer than {answer}; make it the answer"
    if not is_short and item.name in SHORT_EXPERTS:
        yield f"{expert} is longer than {answer}; remove its entry in SHORT_EXPERTS of dev/answers.py"


def count_kernel_lines(item: ExerciseRef, tree: Tree) -> int:
    """Return the lines of code of an exercise's kernels, without comments, docstrings and blank lines.

    In CUDA C++, all code of the .cu file counts; in Triton and CuTe, the functions that are compiled for the GPU.
    """
    count_by_suffix = {".cu": _count_cuda_lines, ".py": _count_compiled_lines}
    return sum(
        count_by_suffix[path.suffix](source_text(path)) for path in item.files(tree) if path.suffix in count_by_suffix
    )


def _count_cuda_lines(source: str) -> int:
    return sum(1 for line in blank_comments(source).splitlines() if line.strip())


def _count_compiled_lines(source: str) -> int:
    """Return the lines of code of the functions in a Python file that Triton or the CuTe DSL compiles."""
    lines = source.splitlines()
    numbers: set[int] = set()
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef) and any(map(_is_kernel_decorator, function.decorator_list)):
            body = function.body[1:] if ast.get_docstring(function) is not None else function.body
            numbers.update(range(function.lineno, function.body[0].lineno))
            for statement in body:
                numbers.update(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
    return sum(1 for number in numbers if lines[number - 1].partition("#")[0].strip())


def _is_kernel_decorator(decorator: ast.expr) -> bool:
    return ast.unparse(decorator).partition("(")[0] in _KERNEL_DECORATORS
