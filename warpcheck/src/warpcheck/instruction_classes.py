"""Classes of PTX instructions, as a profiler counts them, and how many machine instructions they take."""

from __future__ import annotations

from functools import cache

__all__ = ["DIVISION", "instruction_class", "machine_instructions"]


@cache
def instruction_class(name: str) -> str:
    """Return the class of an instruction by its PTX name, which a profiler calls its pipeline."""
    opcode, *modifiers = name.lstrip("@").split(".")
    if opcode == "tcgen05":
        return _TCGEN05_CLASSES.get(modifiers[0], "warp and barrier")
    for instruction_type, opcodes in _CLASSES.items():
        if opcode in opcodes:
            return instruction_type
    instruction_type = modifiers[-1] if modifiers else ""
    if "f16" in instruction_type:
        return "float16"
    return {"f32": "float32", "f64": "float64"}.get(instruction_type, "integer")


# The instructions that ptxas expands an integer division or remainder into, by its bits; 16 bits take as many as 32.
DIVISION = {"32": 18, "64": 80}


@cache
def machine_instructions(name: str) -> int:
    """Return how many machine instructions an integer instruction of PTX takes, if that is far from one."""
    opcode, *modifiers = name.lstrip("@").split(".")
    return DIVISION["64" if modifiers[-1:] and modifiers[-1].endswith("64") else "32"] if opcode in _DIVIDE else 1


_DIVIDE = ("div", "rem")

_CLASSES = {
    "load and store": {"ld", "ldu", "st", "atom", "red", "cp", "ldmatrix", "stmatrix", "prefetch"},
    "tensor": {"mma", "wgmma", "wmma", "movmatrix"},
    "special function": {"ex2", "lg2", "sin", "cos", "tanh", "rcp", "sqrt", "rsqrt"},
    "conversion": {"cvt", "cvta"},
    "branch": {"bra", "brx", "ret", "exit", "call", "trap"},
    "warp and barrier": {"bar", "barrier", "shfl", "vote", "match", "redux", "activemask", "membar", "fence"}
    | {"mbarrier", "elect", "setmaxnreg", "griddepcontrol"},
    "move": {"mov", "selp", "prmt"},
}

_TCGEN05_CLASSES = {"mma": "tensor", **dict.fromkeys(("ld", "st", "cp", "shift"), "load and store")}
