"""From native functions to LLVM IR.

Longer than 300 lines because statements and expressions of a function are one visitor. One file has it.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from llvmlite import ir

from warpcheck.native.builtins import BUILTINS, I1, I64, pointer
from warpcheck.native.language import APART, EXTERNAL, FUNCTIONS, View, field_of

__all__ = ["compile_apart", "compile_function"]

Value = Any  # llvmlite's values have no useful types


def compile_function(function: Callable[..., Any], constants: Sequence[int], symbol: str) -> str:
    """Return LLVM IR of a native function as ``symbol``; its last parameters are ``constants``.

    The module holds every function that this one calls, but for those of ``compile_apart``, which it declares.
    """
    given = range(len(inspect.signature(function).parameters) - len(constants))
    parameters = ", ".join(f"i64 %a{place}" for place in given)
    arguments = ", ".join([*(f"i64 %a{place}" for place in given), *(f"i64 {int(number)}" for number in constants)])
    call = f"%r = call i64 @{_symbol(function)}({arguments})"
    return f"{_text([function])}\ndefine i64 @{symbol}({parameters}) {{\n{call}\nret i64 %r\n}}\n"


def compile_apart() -> str:
    """Return LLVM IR of all native functions that stay apart, for the others to be linked with."""
    return _text(sorted(APART, key=_symbol))


def _symbol(function: Callable[..., Any]) -> str:
    """Return the name of a function in LLVM IR. One that stays apart must not be mistaken for the C library's."""
    return f"apart_{function.__name__}" if function in APART else function.__name__


def _text(functions: Sequence[Callable[..., Any]]) -> str:
    """Return LLVM IR of native functions and of all that they call, with declarations of what stays apart."""
    defined = dict.fromkeys(functions)
    waiting = [*functions]
    while waiting:
        new = [called for called in _compiled(waiting.pop()).calls if called not in defined]
        defined |= dict.fromkeys(new)
        waiting += new
    parts = [_compiled(function) for function in defined]
    declared = {name: line for part in parts for name, line in part.declarations.items()}
    for function in defined:
        declared.pop(_symbol(function), None)
    return "\n".join([*declared.values(), *(part.text for part in parts)])


@dataclass(frozen=True)
class _Part:
    """LLVM IR of one native function, the native functions that it takes in, and what it declares, by name."""

    text: str
    calls: tuple[Callable[..., Any], ...]
    declarations: dict[str, str]


@cache
def _compiled(function: Callable[..., Any]) -> _Part:
    """One function by itself: a check shares most of what it calls with others."""
    module = ir.Module()
    calls = list[Callable[..., Any]]()
    compiled = _declare(module, function, [])
    _Compiler(compiled, function, calls).compile()
    natives = {compiled.name, *map(_symbol, calls)}
    return _Part(
        str(compiled), tuple(calls), {name: str(one) for name, one in module.globals.items() if name not in natives}
    )


def _declare(module: ir.Module, function: Callable[..., Any], calls: list[Callable[..., Any]]) -> ir.Function:
    """The function in ``module``; one that is new there, and no other module's, is appended to ``calls``."""
    declared = module.globals.get(_symbol(function))
    if declared is None:
        kinds = [I64] * len(inspect.signature(function).parameters)
        declared = ir.Function(module, ir.FunctionType(I64, kinds), _symbol(function))
        if function not in EXTERNAL and function not in APART:
            declared.linkage = "internal"
            declared.attributes.add("alwaysinline")
            calls.append(function)
    return declared


_ARITHMETIC: dict[type[ast.operator], str] = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "udiv"}
_ARITHMETIC |= {ast.Mod: "urem", ast.LShift: "shl", ast.RShift: "ashr"}
_ARITHMETIC |= {ast.BitAnd: "and_", ast.BitOr: "or_", ast.BitXor: "xor"}
_COMPARISONS: dict[type[ast.cmpop], str] = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">"}
_COMPARISONS |= {ast.GtE: ">="}


class _Compiler(ast.NodeVisitor):
    """Compiles one function. Variables are integers in memory, which LLVM puts into registers."""

    def __init__(self, function: ir.Function, source: Callable[..., Any], calls: list[Callable[..., Any]]) -> None:
        self.function = function
        self.source = source
        self.calls = calls
        self.globals = source.__globals__
        self.b = ir.IRBuilder(function.append_basic_block("entry"))
        self.variables: dict[str, Value] = {}
        self.views: dict[str, type[View]] = {}

    def compile(self) -> None:
        tree = ast.parse(textwrap.dedent(inspect.getsource(self.source))).body[0]
        assert isinstance(tree, ast.FunctionDef)
        for argument, value in zip(tree.args.args, self.function.args, strict=True):
            kind = self.globals.get(argument.annotation.id) if isinstance(argument.annotation, ast.Name) else None
            if isinstance(kind, type) and issubclass(kind, View):
                self.views[argument.arg] = kind
            self._set(argument.arg, value)
        self._body(tree.body)
        if not self.b.block.is_terminated:
            self.b.ret(I64(0))

    # Statements

    def _body(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            if not self.b.block.is_terminated:
                self.visit(statement)

    def generic_visit(self, node: ast.AST) -> None:
        raise SyntaxError(f"{self.source.__name__}: {ast.unparse(node)!r} cannot be compiled")

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self._value(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        (target,) = node.targets
        if isinstance(target, ast.Tuple):
            assert isinstance(node.value, ast.Tuple)
            values = [self._value(item) for item in node.value.elts]
            for item, value in zip(target.elts, values, strict=True):
                self._assign(item, value)
            return
        if isinstance(target, ast.Name) and isinstance(node.value, ast.Call):
            kind = self._constant(node.value.func)
            if isinstance(kind, type) and issubclass(kind, View):
                self.views[target.id] = kind
        self._assign(target, self._value(node.value))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        value = getattr(self.b, _ARITHMETIC[type(node.op)])(self._value(node.target), self._value(node.value))
        self._assign(node.target, value)

    def visit_Return(self, node: ast.Return) -> None:
        self.b.ret(self._value(node.value) if node.value else I64(0))

    def visit_If(self, node: ast.If) -> None:
        with self.b.if_else(self._test(node.test)) as (then, otherwise):
            with then:
                self._body(node.body)
            with otherwise:
                self._body(node.orelse)

    def visit_While(self, node: ast.While) -> None:
        self._loop(lambda: self._test(node.test), node.body, lambda: None)

    def visit_For(self, node: ast.For) -> None:
        assert isinstance(node.target, ast.Name)
        assert isinstance(node.iter, ast.Call)
        bounds = [self._value(argument) for argument in node.iter.args]
        start, stop, step = [I64(0), *bounds, I64(1)] if len(bounds) == 1 else [*bounds, I64(1)][:3]
        name = node.target.id
        self._set(name, start)

        def advance() -> None:
            self._set(name, self.b.add(self._get(name), step))

        self._loop(lambda: self.b.icmp_signed("<", self._get(name), stop), node.body, advance)

    def _loop(self, test: Callable[[], Value], body: list[ast.stmt], advance: Callable[[], None]) -> None:
        head, inside, after = (self.function.append_basic_block() for _ in range(3))
        self.b.branch(head)
        self.b.position_at_end(head)
        self.b.cbranch(test(), inside, after)
        self.b.position_at_end(inside)
        self._body(body)
        if not self.b.block.is_terminated:
            advance()
            self.b.branch(head)
        self.b.position_at_end(after)

    # Variables and records

    def _set(self, name: str, value: Value) -> None:
        if name not in self.variables:
            with self.b.goto_entry_block():
                self.variables[name] = self.b.alloca(I64, name=name)
        self.b.store(value, self.variables[name])

    def _get(self, name: str) -> Value:
        return self.b.load(self.variables[name], typ=I64)

    def _assign(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self._set(target.id, value)
        else:
            assert isinstance(target, ast.Attribute)
            pointer, kind = self._field(target)
            self.b.store(self.b.trunc(value, kind) if kind.width < 64 else value, pointer)

    def _field(self, node: ast.Attribute) -> tuple[Value, ir.IntType]:
        assert isinstance(node.value, ast.Name)
        kind, offset = field_of(self.views[node.value.id], node.attr)
        return pointer(self.b, self.b.add(self._get(node.value.id), I64(offset))), ir.IntType(8 * kind.itemsize)

    # Expressions

    def _constant(self, node: ast.expr) -> Any:
        """What a global name, or an attribute of one, stands for; None for anything else."""
        if isinstance(node, ast.Name):
            return None if node.id in self.variables else self.globals.get(node.id)
        if isinstance(node, ast.Attribute) and self._constant(node.value) is not None:
            return getattr(self._constant(node.value), node.attr)
        return None

    def _value(self, node: ast.expr) -> Value:
        """An expression as an integer."""
        match node:
            case ast.Constant(value=int(number)):
                return I64(int(number))
            case ast.Name(id=name) if name in self.variables:
                return self._get(name)
            case ast.Attribute(value=ast.Name(id=name), attr="address") if name in self.views:
                return self._get(name)
            case ast.Attribute(value=ast.Name(id=name)) if name in self.views:
                return self._load_field(node)
            case ast.Name() | ast.Attribute():
                return I64(int(self._constant(node)))
            case ast.BinOp():
                left, right = self._value(node.left), self._value(node.right)
                return getattr(self.b, _ARITHMETIC[type(node.op)])(left, right)
            case ast.UnaryOp(op=ast.USub()):
                return self.b.neg(self._value(node.operand))
            case ast.UnaryOp(op=ast.Invert()):
                return self.b.not_(self._value(node.operand))
            case ast.IfExp():
                test = self._test(node.test)
                return self.b.select(test, self._value(node.body), self._value(node.orelse))
            case ast.Call():
                return self._call(node)
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                return self.b.zext(self._test(node), I64)
        return self.generic_visit(node)

    def _load_field(self, node: ast.Attribute) -> Value:
        pointer, kind = self._field(node)
        value = self.b.load(pointer, typ=kind)
        if kind.width == 64:
            return value
        assert isinstance(node.value, ast.Name)
        unsigned = field_of(self.views[node.value.id], node.attr)[0].kind == "u"
        return self.b.zext(value, I64) if unsigned else self.b.sext(value, I64)

    def _call(self, node: ast.Call) -> Value:
        called = self._constant(node.func)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        values = [self._value(argument) for argument in node.args]
        if isinstance(called, type) and issubclass(called, View):
            return values[0]
        if called in BUILTINS:
            return BUILTINS[called](self.b, *values)
        if name in ("min", "max"):
            keep = self.b.icmp_signed("<" if name == "min" else ">", values[0], values[1])
            return self.b.select(keep, values[0], values[1])
        if called not in FUNCTIONS | EXTERNAL:
            self.generic_visit(node)
        return self.b.call(_declare(self.function.module, called, self.calls), values)

    def _test(self, node: ast.expr) -> Value:
        """An expression as a condition. ``and`` and ``or`` evaluate what follows only where it matters."""
        if isinstance(node, ast.BoolOp):
            return self._short_circuit(node.values, isinstance(node.op, ast.And))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self.b.not_(self._test(node.operand))
        if isinstance(node, ast.Compare):
            values = [self._value(item) for item in (node.left, *node.comparators)]
            pairs = zip(node.ops, values, values[1:], strict=False)
            tests = [self.b.icmp_signed(_COMPARISONS[type(op)], x, y) for op, x, y in pairs]
            result = tests[0]
            for test in tests[1:]:
                result = self.b.and_(result, test)
            return result
        return self.b.icmp_signed("!=", self._value(node), I64(0))

    def _short_circuit(self, items: list[ast.expr], every: bool) -> Value:
        first = self._test(items[0])
        rest = items[1:]
        if not rest:
            return first
        start = self.b.block
        following = self.function.append_basic_block()
        after = self.function.append_basic_block()
        self.b.cbranch(first, *((following, after) if every else (after, following)))
        self.b.position_at_end(following)
        second = self._short_circuit(rest, every)
        end = self.b.block
        self.b.branch(after)
        self.b.position_at_end(after)
        result = self.b.phi(I1)
        result.add_incoming(I1(not every), start)
        result.add_incoming(second, end)
        return result
