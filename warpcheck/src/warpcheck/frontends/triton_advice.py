"""Explain the errors of Triton's compiler and launcher by the fix, without importing Triton."""

from __future__ import annotations

import ast
import difflib
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

Advice = Callable[[re.Match[str], ast.AST], str]


_MAX_CAUSES = 100


def locate(error: BaseException, source: str) -> tuple[str, int] | None:
    """Return an explanation of a compiler error and its line in `source`; None if no line of `source` is to blame."""
    text = ""
    node = None
    line = 0
    kernel = ""
    inner: Any = error
    for _ in range(_MAX_CAUSES):  # A submission can build a cycle of causes.
        if inner is None:
            break
        text = getattr(inner, "error_message", str(inner)) or text
        # A node's line counts from the first line of its kernel: the text of the kernel in the source says which line
        # that is.
        at = source.find(inner.src.strip()) if hasattr(getattr(inner, "node", None), "lineno") and inner.src else -1
        if at >= 0:
            line = source.count("\n", 0, at) + inner.node.lineno
            node = inner.node
            kernel = inner.src
        # Every function on the way wraps the error: the innermost cause with a node has the place.
        inner = inner.__cause__
    if node is None:
        return _referenced(text, source)
    # Triton quotes an exception by its repr: NameError('x is not defined').
    text = re.sub(r"^(\w+)\((['\"])(.*)\2\)$", r"\1: \3", text, flags=re.DOTALL)
    advice = (
        _subscript(node, kernel)
        or _uncalled(text, node)
        or _constant_argument(text, node, kernel)
        or _advice(text, node)
        or _misspelt(text, kernel)
    )
    return advice or text, line


def _advice(text: str, node: ast.AST) -> str:
    for pattern, advice in _ADVICE.items():
        if match := re.search(pattern, text):
            return advice(match, node)
    return ""


def _subscript(node: ast.AST, kernel: str) -> str:
    """Return advice about an index on a pointer, which Triton reports as a missing @triton.jit."""
    # x[i] = 1: the subscript is the target of an assignment.
    node = node.targets[0] if isinstance(node, ast.Assign) else node
    if not isinstance(node, ast.Subscript) or ast.unparse(node.value) not in _parameters(_function(kernel)):
        return ""
    place = f"{ast.unparse(node.value)} + {ast.unparse(node.slice)}"
    replacement = f"tl.load({place}, mask=…)" if isinstance(node.ctx, ast.Load) else f"tl.store({place}, …, mask=…)"
    return f"a pointer has no [ ]: use {replacement}"


def _uncalled(text: str, node: ast.AST) -> str:
    """Return advice about tl.program_id or tl.num_programs that is used as a value without being called."""
    called_functions = [child.func for child in ast.walk(node) if isinstance(child, ast.Call)]
    names = (
        ast.unparse(child)
        for child in ast.walk(node)
        if isinstance(child, ast.Attribute) and child not in called_functions
    )
    name = next((name for name in names if name in ("tl.program_id", "tl.num_programs")), None)
    return f"{name} is a function: write {name}(0)" if name and "function" in text else ""


def _constant_argument(text: str, node: ast.AST, kernel: str) -> str:
    """Return advice about an argument that is a tensor in most launches, but a Python number where it is 1."""
    match = re.search(r"'int' object has no attribute '(\w+)'", text)
    owner = _owner(node, match[1]) if match else ""
    if match is None or owner not in _parameters(_function(kernel)):
        return ""
    # Not do_not_specialize, which also hides from Triton that a size is a multiple of 16, and so splits vectors.
    advice = f"write tl.cast({owner}, …)" if match[1] == "to" else "the compiler sees a Python number"
    return (
        f"{owner} has no .{match[1]} in this launch: it is 1, and Triton compiles an integer argument of 1 as a "
        f"constant; {advice}"
    )


def _pointer(_: re.Match[str], node: ast.AST) -> str:
    """Return advice about an address as an operand; the first operand that is no call is taken for the address."""
    operands = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
    operand = next((ast.unparse(operand) for operand in operands if not isinstance(operand, ast.Call)), "an operand")
    if isinstance(node, ast.Compare):
        return f"{operand} is an address: compare the offset alone"
    return f"{operand} is an address, not a value: read the value with tl.load({operand}, mask=…)"


def _addresses(match: re.Match[str], node: ast.AST) -> str:
    argument = ast.unparse(node.args[0]) if isinstance(node, ast.Call) and node.args else "the first argument"
    further = ", value, mask=…" if match[1] == "store" else ", mask=…"
    return f"{argument} is not an address: tl.{match[1]}(pointer + offsets{further}) takes the address first"


def _not_triton(match: re.Match[str], node: ast.AST) -> str:
    """Return advice about a Python function for numbers or sequences that is called with a block of values."""
    call = node.value if isinstance(node, (ast.Assign, ast.Expr)) else node
    calls = (child for child in ast.walk(call) if isinstance(child, ast.Call))
    foreign = [child for child in calls if not ast.unparse(child).startswith("tl.")]
    name = ast.unparse(foreign[0].func) if foreign else "this function"
    return f"{name} does not take a block of values: use tl.{name.rpartition('.')[2]}"


def _arange(_: re.Match[str], node: ast.AST) -> str:
    size = ast.unparse(node.args[-1]) if isinstance(node, ast.Call) and node.args else "the size"
    return f"tl.arange takes what is known at compile time, and {size} is not: use a parameter BLOCK: tl.constexpr"


def _loop_variable(match: re.Match[str], _: ast.AST) -> str:
    before, after = (re.sub(r"<\[(.*?)\], (\w+)>", r"\2[\1]", text).replace("'", "") for text in match.groups()[1:])
    return f"{match[1]} is {before} before the loop and {after} in the loop: use another name for one of them"


def _owner(node: ast.AST, attribute: str) -> str:
    """Return the expression whose attribute is accessed."""
    accesses = (child for child in ast.walk(node) if isinstance(child, ast.Attribute) and child.attr == attribute)
    return next((ast.unparse(child.value) for child in accesses), "this")


# The advice for each error of Triton, by a pattern of the error's text.
_ADVICE: dict[str, Advice] = {
    "arange's range must be a power of 2": lambda _, node: (
        f"{ast.unparse(node)}: the size must be a power of 2: round up with triton.next_power_of_2, and mask the rest"
    ),
    "arange's arguments must be of type": _arange,
    r"invalid operands of type .*pointer<": _pointer,
    "cannot add pointers together": lambda *_: (
        "these are addresses, not values: read each with tl.load(pointer + offsets, mask=…), then add"
    ),
    r"Unsupported ptr type .* in `tl\.(load|store)`": _addresses,
    r"Cannot access global variable (\w+)": lambda match, _: (
        f"a kernel cannot read the global variable {match[1]}: pass it as a parameter {match[1]}: tl.constexpr, "
        f"or define {match[1]} = tl.constexpr(…)"
    ),
    r"incompatible dimensions at index (\d+): (\d+) and (\d+)": lambda match, _: (
        f"shapes do not fit, dimension {match[1]} has {match[2]} and {match[3]}: "
        "make a column with [:, None], a row with [None, :]"
    ),
    r"(min|max) requires at least|must be real number|object is not iterable": _not_triton,
    r"(?i)boolean value of tensor|ambiguous|unsupported.*(?:`if`|conditional)": lambda *_: (
        "an if takes one value, and this is a block of them: use mask=…, or tl.where"
    ),
    r"'tensor' object has no attribute '(load|store)'": lambda match, node: (
        f"{_owner(node, match[1])} is no tensor descriptor: make one on the host, with TensorDescriptor.from_tensor(…)"
    ),
    "'NoneType' object has no attribute": lambda *_: (
        "an argument is None in this launch: use it inside of `if … is not None:`, which the compiler decides"
    ),
    r"Loop-carried variable (\w+) has initial type (.+?) but is re-assigned to (.+?) in loop": _loop_variable,
    "f-string": lambda *_: 'a kernel has no f-strings: print a value as tl.device_print("name", value)',
    "^unsupported AST node": lambda _, node: f"a kernel cannot contain this: {ast.unparse(node).splitlines()[0]}",
}


def _misspelt(text: str, kernel: str) -> str:
    """Return advice about an undefined name, with the most similar name that exists."""
    if match := re.search(r"NameError: (\w+) is not defined", text):
        names = {node.id for node in ast.walk(ast.parse(kernel)) if isinstance(node, ast.Name)} - {match[1]}
        return f"{match[1]} is not defined{suggest(match[1], names | set(_parameters(_function(kernel))))}"
    language = sys.modules.get("triton.language")
    if match := re.search(r"module 'triton\.language' has no attribute '(\w+)'", text):
        return f"tl has no {match[1]}{_in_libdevice(match[1]) or suggest(match[1], dir(language))}"
    if match := re.search(r"(\w+)\(\) got an unexpected keyword argument '(\w+)'", text):
        function = getattr(language, match[1], None)
        arguments = list(inspect.signature(function).parameters) if callable(function) else []
        return f"{match[1]} has no argument {match[2]}{suggest(match[2], arguments)}"
    return ""


def _in_libdevice(name: str) -> str:
    """Return advice about a function of libdevice that tl lacks. Triton is imported already: it raised the error."""
    libdevice = importlib.import_module("triton.language.extra.libdevice")
    available = hasattr(libdevice, name)
    return f": write it with what tl has, or take libdevice.{name} of triton.language.extra" if available else ""


def suggest(name: str, candidates: Iterable[str]) -> str:
    """Return "; did you mean …?" with the candidate most similar to a name, ignoring case; "" if none is similar."""
    folded = {candidate.lower(): candidate for candidate in sorted(candidates)}
    close = difflib.get_close_matches(name.lower(), folded, 1, 0.7)
    return f"; did you mean {folded[close[0]]}?" if close else ""


def _referenced(text: str, source: str) -> tuple[str, int] | None:
    """Return advice about a library function in a kernel, which Triton reports without a line."""
    match = re.search(r"Unsupported function referenced: <(?:built-in method|function) (\w+)", text)
    if match is None:
        return None
    for kernel in _kernels(source):
        for node in ast.walk(kernel):
            if isinstance(node, ast.Attribute) and node.attr == match[1] and ast.unparse(node.value) != "tl":
                return f"{ast.unparse(node)} cannot be used in a kernel: look for its like in tl", node.lineno
    return None


# Errors about tensors that TMA, and so a descriptor, does not support. A transposed view fails for its strides.
_INVALID_DESCRIPTOR = re.compile(r"(base|strides) must be 16-byte aligned|Last dimension must be contiguous")

# The number of characters of a message that are searched, because a submission's message may have millions.
_MAX_MESSAGE_LENGTH = 2000


def explain_launch_error(error: BaseException, source: str, line: int) -> str:
    """Return an explanation of an error of the launch in this line of `source`; empty if the launch is not to blame."""
    text = str(error)[:_MAX_MESSAGE_LENGTH]
    kernels = {kernel.name: kernel for kernel in _kernels(source)}
    if _INVALID_DESCRIPTOR.fullmatch(text):
        return (
            f"{text}: a descriptor's rows begin at multiples of 16 bytes and have stride 1. Of a transposed view "
            "describe x.t() and turn its blocks, block.T; read others through pointers, or let a kernel copy them"
        )
    if "Autotuner object" in text and "is not a callable" in text:
        return "@triton.autotune stands above @triton.jit: what it tunes is the kernel"
    if (match := re.search(r"(\w+)\(\) (?:got an unexpected|takes|missing)", text)) and _prunes(source, match[1]):
        return f"early_config_prune is called as {match[1]}(configs, arguments, **named): {text}"
    # kernel[grid](...) is a call of a subscript; a plain call has no grid.
    for call in _calls(source, line):
        grid = call.func.slice if isinstance(call.func, ast.Subscript) else None
        name = ast.unparse(call.func.value if isinstance(call.func, ast.Subscript) else call.func)
        if grid is not None and "'function' object is not subscriptable" in text:
            return f"{name} is a plain function: a kernel has @triton.jit in the line above its def"
        if name not in kernels:
            continue
        if grid is None and "outside of the scope of a kernel" in text:
            return f"{name} is a kernel: launch it with a grid, {name}[programs,](…)"
        if grid is not None and "has no len()" in text:
            return f"a grid is a tuple: write {name}[{ast.unparse(grid)},](…), with a comma before the ]"
        if "failed to specialize argument of type" in text:
            return f"{name} takes torch tensors and numbers, not {text.rpartition(': ')[2]}"
        if "dynamic_func()" in text:
            return _describe_argument_count(name, _parameters(kernels[name]), call)
    return ""


def _prunes(source: str, name: str) -> bool:
    """Return whether the function of this name is used as an early_config_prune."""
    return bool(re.search(rf"early_config_prune['\"]\s*:\s*{name}\b", source))


def _describe_argument_count(name: str, parameters: list[str], call: ast.Call) -> str:
    """Describe a launch with too few or too many arguments."""
    expected = f"{name} takes {', '.join(parameters)}"
    keywords = {keyword.arg for keyword in call.keywords}
    unfilled = [parameter for parameter in parameters[len(call.args) :] if parameter not in keywords]
    if unfilled:
        return f"{expected}: the launch lacks {' and '.join(unfilled)}"
    return f"{expected}: {len(parameters)} arguments, and the launch has {len(call.args) + len(call.keywords)}"


def find_misread_comparisons(kernel: str) -> Iterator[tuple[int, str]]:
    """Yield the line of each comparison whose precedence is probably unintended, with the correct expression.

    & binds tighter than <, so `a < n & b < m` compares n & b. Parentheses around n & b show that it is intended.
    """
    for node in ast.walk(ast.parse(kernel)):
        if not isinstance(node, ast.Compare) or len(node.ops) < 2:
            continue
        # Python chains comparisons: a < n & b < m is one Compare node, with n & b in the middle.
        middle = node.comparators[0]
        if not isinstance(middle, ast.BinOp) or not isinstance(middle.op, (ast.BitAnd, ast.BitOr)):
            continue
        before = ast.get_source_segment(kernel, node) or ""
        # A parenthesis between the first operand and n & b: the author has grouped it on purpose.
        if "(" in before[: before.find(ast.get_source_segment(kernel, middle) or "")][len(ast.unparse(node.left)) :]:
            continue
        sign = "&" if isinstance(middle.op, ast.BitAnd) else "|"
        first = ast.Compare(node.left, node.ops[:1], [middle.left])
        second = ast.Compare(middle.right, node.ops[1:], node.comparators[1:])
        yield node.lineno, f"{sign} binds tighter than <: write ({ast.unparse(first)}) {sign} ({ast.unparse(second)})"


_OUTSIDE = {"reads memory past the end of": "tl.load", "writes memory past the end of": "tl.store"}


def explain_out_of_bounds(cause: str, source: str, line: int) -> str:
    """Add to the machine's message about an access in this line of `source` that the access has no mask."""
    for phrase, function in _OUTSIDE.items():
        for call in _calls(source, line) if phrase in cause else ():
            has_mask_keyword = any(keyword.arg == "mask" for keyword in call.keywords)
            # The mask is the second positional argument of tl.load, and the third of tl.store.
            masked = len(call.args) > 1 + (function == "tl.store") or has_mask_keyword
            if ast.unparse(call.func) == function and not masked:
                if promise := _promised_remainder(source):
                    return (
                        f"{cause}; {promise} promises contiguous neighbors, and a remainder that begins again at 0 has "
                        "none: Triton relies on it and accesses whole vectors. Use a mask instead of the remainder"
                    )
                return f"{cause}; this {function} has no mask"
    return cause


def _promised_remainder(source: str) -> str:
    """Return a call of tl.max_contiguous or tl.multiple_of whose argument is a remainder; empty where there is none."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or ast.unparse(node.func) not in ("tl.max_contiguous", "tl.multiple_of"):
            continue
        if any(isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Mod) for inner in ast.walk(node)):
            return ast.unparse(node)
    return ""


def _function(kernel: str) -> ast.FunctionDef:
    return next(node for node in ast.walk(ast.parse(kernel)) if isinstance(node, ast.FunctionDef))


def _parameters(function: ast.FunctionDef) -> list[str]:
    return [argument.arg for argument in function.args.args]


def _kernels(source: str) -> list[ast.FunctionDef]:
    """Return the functions with a decorator."""
    nodes = ast.walk(ast.parse(source))
    return [node for node in nodes if isinstance(node, ast.FunctionDef) and node.decorator_list]


def _calls(source: str, line: int) -> list[ast.Call]:
    """Return the calls that include this line, the outermost first."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [call for call in calls if call.lineno <= line <= (call.end_lineno or call.lineno)]
