"""Which forms of each instruction the machine knows: anything else is refused by name, never half understood.

A form lists what follows the opcode, as the syntax sections of the PTX ISA manual do: ``a|b`` is a choice, ``a?`` may
be left out, capitals stand for a choice below. Forms that need more than sm_80 are here only where they cost nothing.
"""

from __future__ import annotations

import re

from kernelpath.simt.ptx import Instruction

__all__ = ["is_known"]

_CHOICES = {
    "INTEGER": "u16|s16|u32|s32|u64|s64",
    "WORD": "u32|s32|u64|s64",
    "BITS": "b16|b32|b64",
    "FLOAT": "f32|f64",
    "HALF": "f16|f16x2",
    "BHALF": "bf16|bf16x2",
    "ROUND": "rn|rz|rm|rp",
    "INTEGRAL": "rni|rzi|rmi|rpi",
    "COMPARE": "eq|ne|lt|le|gt|ge|lo|ls|hi|hs|equ|neu|ltu|leu|gtu|geu|num|nan",
    "LOGIC": "and|or|xor",
    "SHARED": "shared(?:::cta)?",
    "SPACE": "global|const|local|shared(?:::cta)?|param(?:::entry|::func)?",
    "SCOPE": "cta|cluster|gpu|sys",
    "CACHE": "ca|cg|cs|lu|cv|wb|wt",
    "EVICT1": r"L1::\w+",
    "EVICT2": r"L2::evict_\w+",
    "HINT": "L2::cache_hint",
    "PREFETCH": "L2::64B|L2::128B|L2::256B",
    "TILE": "m16n16k16|m32n8k16|m8n32k16|m16n16k8",
}
_FLOATS = ("ROUND? ftz? sat? f32", "ROUND? f64", "rn? ftz? sat? HALF", "rn? BHALF")
_SUM = ("INTEGER", "sat s32", "cc WORD", *_FLOATS)
_SIGN = ("s16|s32|s64", "ftz? f32|HALF", "f64|BHALF")
_EXTREME = ("INTEGER", "ftz? NaN? f32|HALF", "NaN? BHALF", "f64")
_MEMORY = "CACHE? nc? EVICT1? EVICT2? HINT? PREFETCH? v2|v4? b8|u8|s8|BITS|INTEGER|FLOAT"
_UPDATES = (
    "add|min|max HINT? WORD",
    "add HINT? FLOAT",
    "add noftz HINT? HALF|BHALF",
    "inc|dec HINT? u32",
    "LOGIC HINT? b32|b64",
)
_SWAPS = ("exch HINT? b32|b64", "cas HINT? BITS")
_ORDER = "relaxed|acquire|release|acq_rel?"
# The manual's, and those of Triton's atomic operations and of its compare-and-swap
_ORDERS = (f"{_ORDER} SCOPE? SPACE?", f"SPACE? SCOPE? {_ORDER}", f"SPACE? {_ORDER} SCOPE?")
_MATRICES = ("sync aligned m8n8 x1|x2|x4 trans? SHARED? b16",)

_FORMS: dict[str, tuple[str, ...]] = {
    # arithmetic
    "add": _SUM,
    "sub": _SUM,
    "addc": ("cc? WORD",),
    "subc": ("cc? WORD",),
    "mul": ("lo|hi|wide INTEGER", *_FLOATS),
    "mad": ("lo|hi|wide INTEGER", "lo|hi cc WORD", "ROUND? ftz? sat? f32", "ROUND? f64"),
    "madc": ("lo|hi cc? WORD",),
    "mul24": ("lo|hi u32|s32",),
    "mad24": ("lo|hi u32|s32",),
    "fma": ("ROUND ftz? sat? f32", "ROUND f64", "rn ftz? sat? HALF", "rn ftz? relu HALF", "rn relu? BHALF"),
    "sad": ("INTEGER",),
    "dp4a": ("u32|s32 u32|s32",),
    "div": ("INTEGER", "approx|full|ROUND ftz? f32", "ROUND f64"),
    "rem": ("INTEGER",),
    "neg": _SIGN,
    "abs": _SIGN,
    "min": _EXTREME,
    "max": _EXTREME,
    "copysign": ("FLOAT",),
    "rcp": ("approx|ROUND ftz? f32", "ROUND f64", "approx ftz f64"),
    "sqrt": ("approx|ROUND ftz? f32", "ROUND f64"),
    "rsqrt": ("approx ftz? FLOAT",),
    "sin": ("approx ftz? f32",),
    "cos": ("approx ftz? f32",),
    "lg2": ("approx ftz? f32",),
    "ex2": ("approx ftz? f32", "approx HALF", "approx ftz BHALF"),
    "tanh": ("approx f32|HALF|BHALF",),
    # bits
    "and": ("pred|BITS",),
    "or": ("pred|BITS",),
    "xor": ("pred|BITS",),
    "not": ("pred|BITS",),
    "cnot": ("BITS",),
    "shl": ("BITS",),
    "shr": ("BITS|INTEGER",),
    "shf": ("l|r clamp|wrap b32",),
    "popc": ("b32|b64",),
    "clz": ("b32|b64",),
    "brev": ("b32|b64",),
    "bfind": ("shiftamt? WORD",),
    "bfe": ("WORD",),
    "bfi": ("b32|b64",),
    "prmt": ("b32",),
    "lop3": ("b32",),
    # comparison and conversion
    "set": (
        "COMPARE LOGIC? ftz? u32|s32|f32 BITS|INTEGER|FLOAT",
        "COMPARE LOGIC? ftz? u16|s16|u32|s32|HALF|BHALF HALF|BHALF",
    ),
    "setp": ("COMPARE LOGIC? ftz? BITS|INTEGER|FLOAT|HALF|BHALF",),
    "selp": ("BITS|INTEGER|FLOAT",),
    "slct": ("BITS|INTEGER|FLOAT s32", "ftz? BITS|INTEGER|FLOAT f32"),
    "testp": ("finite|infinite|number|notanumber|normal|subnormal FLOAT",),
    "mov": ("pred|BITS|INTEGER|FLOAT",),
    "cvt": (
        "ROUND|INTEGRAL? ftz? sat? u8|s8|INTEGER|FLOAT|f16|bf16 u8|s8|INTEGER|FLOAT|f16|bf16",
        "rn|rz relu? f16|bf16|f16x2|bf16x2 f32",
        "rn|rna tf32 f32",
    ),
    "cvta": ("to? SPACE u64",),
    "isspacep": ("global|local|SHARED",),
    # memory
    "ld": ("weak|volatile? SPACE? " + _MEMORY, "relaxed|acquire SCOPE SPACE? " + _MEMORY),
    "ldu": ("global? v2|v4? b8|u8|s8|BITS|INTEGER|FLOAT",),
    "st": ("weak|volatile? SPACE? " + _MEMORY, "relaxed|release SCOPE SPACE? " + _MEMORY),
    "atom": tuple(f"{order} {update}" for order in _ORDERS for update in (*_UPDATES, *_SWAPS)),
    "red": tuple(f"{order} {update}" for order in _ORDERS for update in _UPDATES),
    "cp": ("async ca|cg SHARED global HINT? PREFETCH?", "async commit_group|wait_group|wait_all"),
    "membar": ("cta|gl|sys",),
    "fence": ("sc|acq_rel? SCOPE",),
    "prefetch": ("global|local? L1|L2", "global EVICT2"),
    "prefetchu": ("L1",),
    "applypriority": ("global? EVICT2",),
    "createpolicy": ("fractional|range global? EVICT2 EVICT2? b64",),
    "nanosleep": ("u32",),
    "pmevent": ("mask?",),
    # warps and thread blocks
    "shfl": ("sync? up|down|bfly|idx b32",),
    "vote": ("sync? all|any|uni pred", "sync? ballot b32"),
    "match": ("any|all sync b32|b64",),
    "redux": ("sync add|min|max u32|s32", "sync LOGIC b32"),
    "activemask": ("b32",),
    "bar": ("cta? sync|arrive", "cta? red popc u32", "cta? red and|or pred", "warp sync"),
    "barrier": ("cta? sync|arrive aligned?", "cta? red popc aligned? u32", "cta? red and|or aligned? pred"),
    "barrier_result": ("u32|pred",),
    # matrices
    "ldmatrix": _MATRICES,
    "stmatrix": _MATRICES,
    "movmatrix": ("sync aligned m8n8 trans b16",),
    "mma": (
        "sync aligned m16n8k8|m16n8k16 row col f16|f32 f16 f16 f16|f32",
        "sync aligned m16n8k8|m16n8k16 row col f32 bf16 bf16 f32",
        "sync aligned m16n8k4|m16n8k8 row col f32 tf32 tf32 f32",
        "sync aligned m16n8k16|m16n8k32 row col satfinite? s32 s8|u8 s8|u8 s32",
        "sync aligned m16n8k32|m16n8k64 row col satfinite? s32 s4|u4 s4|u4 s32",
    ),
    "wmma": (
        "load a|b sync aligned row|col TILE SPACE? f16|bf16|tf32|s8|u8",
        "load c sync aligned row|col TILE SPACE? f16|f32|s32",
        "store d sync aligned row|col TILE SPACE? f16|f32|s32",
        "mma sync aligned row|col row|col TILE f16|f32 f16|f32",
        "mma sync aligned row|col row|col TILE f32 bf16 bf16 f32",
        "mma sync aligned row|col row|col TILE f32 tf32 tf32 f32",
        "mma sync aligned row|col row|col TILE s32 s8 s8 s32",
        "mma sync aligned row|col row|col TILE s32 u8 u8 s32",
    ),
    # control
    "bra": ("uni?",),
    "brx": ("idx uni?",),
    "call": ("uni?",),
    "ret": ("uni?",),
    "exit": ("",),
    "trap": ("",),
}


def is_known(instruction: Instruction) -> bool:
    """Whether the machine knows an instruction with just these modifiers."""
    pattern = _PATTERNS.get(instruction.opcode)
    return pattern is not None and pattern.fullmatch(instruction.name) is not None


def _pattern(opcode: str, forms: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(opcode + "(?:" + "|".join("".join(map(_slot, form.split())) for form in forms) + ")")


def _slot(choice: str) -> str:
    """One place of a form as a regular expression: ``ftz?`` becomes ``(?:\\.(?:ftz))?``."""
    names = re.sub(r"\b[A-Z][A-Z0-9]*\b", lambda match: _CHOICES.get(match[0], match[0]), choice.removesuffix("?"))
    return rf"(?:\.(?:{names}))" + "?" * choice.endswith("?")


_PATTERNS = {opcode: _pattern(opcode, forms) for opcode, forms in _FORMS.items()}
