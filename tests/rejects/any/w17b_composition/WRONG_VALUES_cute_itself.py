"""S1, a library does the work: CuTe's own algebra, which neither refuses all that is impossible nor prints it."""

import ast

import cutlass
import cutlass.cute as cute
import torch

WIDTH = 96


def made(text):
    shape, stride = map(ast.literal_eval, text.split(":"))
    return cute.make_layout(shape, stride=stride)


@cute.jit
def ask(operation: cutlass.Constexpr, operands: cutlass.Constexpr, answers: cutlass.Constexpr):
    layout, *others = operands
    if operation == "coalesce":
        result = cute.coalesce(made(layout))
    elif operation == "composition":
        result = cute.composition(made(layout), made(others[0]))
    else:
        result = cute.complement(made(layout), int(others[0]))
    answers.append(str(result))


def answer(operation, *operands):
    answers = []
    try:
        ask(operation, operands, answers)
    except Exception:
        return "refused"
    return answers[0]


def algebra(questions, device):
    rows = [list(answer(*question)[:WIDTH].ljust(WIDTH).encode()) for question in questions]
    return torch.tensor(rows, dtype=torch.uint8, device=device)
