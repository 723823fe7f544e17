"""Read PTX text as frozen records: modules, functions, instructions with their source lines.

The grammar is that of NVIDIA's PTX ISA manual, chapters 4 (Syntax) and 5 (State Spaces, Types, Variables). Only what
compilers emit is read. The parser does not know the instructions: an unknown opcode is found when it is compiled.

    records      the records
    operands     the operands of an instruction
    variables    declarations
    directives   the limits of a kernel's launches
    parser       a file, its functions, their statements and scopes
    mma_negation the same code with negated tensor-core products
    parameters   which bytes of its parameters a kernel reads
"""

from warpcheck.ptx.mma_negation import negate_products
from warpcheck.ptx.parameters import clear_bytes, unread
from warpcheck.ptx.parser import parse
from warpcheck.ptx.records import (
    SIZES,
    Address,
    Function,
    Group,
    Immediate,
    Instruction,
    Module,
    Not,
    Operand,
    PtxSyntaxError,
    Register,
    Symbol,
    Variable,
)

__all__ = [
    "SIZES",
    "Address",
    "Function",
    "Group",
    "Immediate",
    "Instruction",
    "Module",
    "Not",
    "Operand",
    "PtxSyntaxError",
    "Register",
    "Symbol",
    "Variable",
    "clear_bytes",
    "negate_products",
    "parse",
    "unread",
]
