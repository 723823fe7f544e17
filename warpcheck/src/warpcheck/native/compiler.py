"""Compile native functions to LLVM IR."""

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
from warpcheck.native.language import EXTERN, FUNCTIONS, NOINLINE, View, field_of, source_lines

__all__ = ["compile_function", "compile_noinline", "parameter_names"]

Value = Any  # llvmlite's values have no useful types


def compile_function(function: Callable[..., Any], constants: Sequence[int], symbol: str) -> str:
    """Return LLVM IR of a native function as ``symbol``; its last parameters are ``constants``.

    The module holds every function that this one calls, except noinline ones, which it declares.
    """
    parameters_given = range(len(parameter_names(function)) - len(constants))
    parameters = ", ".join(f"i64 %a{index}" for index in parameters_given)
    arguments = ", ".join(
        [*(f"i64 %a{index}" for index in parameters_given), *(f"i64 {int(number)}" for number in constants)]
    )
    # The wrapper passes the constants; when the function is inlined into it, LLVM folds them.
    call = f"%r = call i64 @{_symbol(function)}({arguments})"
    return f"{_module_text([function])}\ndefine i64 @{symbol}({parameters}) {{\n{call}\nret i64 %r\n}}\n"


def parameter_names(function: Callable[..., Any]) -> list[str]:
    """Return the parameters that a native function has in machine code, where a tuple becomes one for each field."""
    names: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        kind = _tuple_type(function.__globals__.get(parameter.annotation))
        names += [f"{name}.{field}" for field in kind._fields] if kind else [name]
    return names


def _result_type(function: Callable[..., Any]) -> ir.Type:
    kind = _tuple_type(function.__globals__.get(inspect.signature(function).return_annotation))
    return ir.LiteralStructType([I64] * len(kind._fields)) if kind else I64


def _tuple_type(kind: object) -> Any:
    """Return ``kind`` if it is a class of named tuples, else None."""
    return kind if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields") else None


def compile_noinline() -> str:
    """Return LLVM IR of all noinline functions, for the others to be linked with."""
    return _module_text(sorted(NOINLINE, key=_symbol))


def _symbol(function: Callable[..., Any]) -> str:
    """Return the name of a function in LLVM IR. A prefix keeps noinline functions apart from the C library's."""
    return f"noinline_{function.__name__}" if function in NOINLINE else function.__name__


def _module_text(functions: Sequence[Callable[..., Any]]) -> str:
    """Return LLVM IR of native functions and of all that they call, with declarations of noinline functions."""
    # A dict and not a set: its order is that of the insertions, so that equal functions give equal text and equal cache
    # keys.
    defined = dict.fromkeys(functions)
    worklist = [*functions]
    while worklist:
        new = [callee for callee in _compile_function(worklist.pop()).calls if callee not in defined]
        defined |= dict.fromkeys(new)
        worklist += new
    parts = [_compile_function(function) for function in defined]
    # A function that is defined here must not be declared as well, as a noinline one is by its callers.
    declarations = {name: line for part in parts for name, line in part.declarations.items()}
    for function in defined:
        declarations.pop(_symbol(function), None)
    return "\n".join([*declarations.values(), *(part.text for part in parts)])


@dataclass(frozen=True)
class _CompiledFunction:
    """LLVM IR of one native function, the native functions that are inlined in it, and its declarations by name."""

    text: str
    calls: tuple[Callable[..., Any], ...]
    declarations: dict[str, str]


@cache
def _compile_function(function: Callable[..., Any]) -> _CompiledFunction:
    """Compile one function by itself: checks share most of the functions that they call."""
    module = ir.Module()
    calls = list[Callable[..., Any]]()
    compiled = _declare(module, function, [])
    _Compiler(compiled, function, calls).compile()
    natives = {compiled.name, *map(_symbol, calls)}
    return _CompiledFunction(
        str(compiled),
        tuple(calls),
        {name: str(declaration) for name, declaration in module.globals.items() if name not in natives},
    )


def _declare(module: ir.Module, function: Callable[..., Any], calls: list[Callable[..., Any]]) -> ir.Function:
    """Return the function in ``module``; a function that is new there, and inlined, is appended to ``calls``."""
    llvm_function = module.globals.get(_symbol(function))
    if llvm_function is None:
        kind = ir.FunctionType(_result_type(function), [I64] * len(parameter_names(function)))
        llvm_function = ir.Function(module, kind, _symbol(function))
        # An argument that is a constant reaches the branches of the function only by inlining; this is how a check is
        # specialized.
        if function not in EXTERN and function not in NOINLINE:
            # Inlined functions are private to each module, so that modules which share them can be linked.
            llvm_function.linkage = "internal"
            llvm_function.attributes.add("alwaysinline")
            calls.append(function)
    return llvm_function


# The methods of llvmlite's IRBuilder. Division and remainder are unsigned, the right shift keeps the sign.
_ARITHMETIC: dict[type[ast.operator], str] = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "udiv"}
_ARITHMETIC |= {ast.Mod: "urem", ast.LShift: "shl", ast.RShift: "ashr"}
_ARITHMETIC |= {ast.BitAnd: "and_", ast.BitOr: "or_", ast.BitXor: "xor"}
_COMPARISONS: dict[type[ast.cmpop], str] = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">"}
_COMPARISONS |= {ast.GtE: ">="}


class _Compiler(ast.NodeVisitor):
    """Compiles one function. Variables are integers in memory, which LLVM promotes to registers.

    A variable that holds a tuple is one variable for each field, under the name ``variable.field``.
    """

    def __init__(self, function: ir.Function, source: Callable[..., Any], calls: list[Callable[..., Any]]) -> None:
        self.function = function
        self.source = source
        self.calls = calls
        self.globals = source.__globals__
        self.b = ir.IRBuilder(function.append_basic_block("entry"))
        self.variables: dict[str, Value] = {}
        self.views: dict[str, type[View]] = {}
        self.tuples: dict[str, Any] = {}  # the class of the tuple that a variable holds

    def compile(self) -> None:
        tree = ast.parse(textwrap.dedent("".join(inspect.getblock(source_lines(self.source))))).body[0]
        assert isinstance(tree, ast.FunctionDef)
        values = iter(self.function.args)
        # A parameter is a view or a tuple if its annotation names one; anything else is an integer.
        for argument in tree.args.args:
            kind = self.globals.get(argument.annotation.id) if isinstance(argument.annotation, ast.Name) else None
            tuple_kind = _tuple_type(kind)
            if tuple_kind:
                self._set_tuple(argument.arg, tuple_kind, [next(values) for _ in tuple_kind._fields])
                continue
            if isinstance(kind, type) and issubclass(kind, View):
                self.views[argument.arg] = kind
            self._set(argument.arg, next(values))
        self._body(tree.body)
        if not self.b.block.is_terminated:
            self.b.ret(ir.Constant(self.function.function_type.return_type, None))

    # Statements

    def _body(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            if not self.b.block.is_terminated:
                self.visit(statement)

    def generic_visit(self, node: ast.AST) -> None:
        raise SyntaxError(f"{self.source.__name__}: {ast.unparse(node)!r} cannot be compiled")

    def visit_Expr(self, node: ast.Expr) -> None:
        # A constant by itself is a docstring.
        if not isinstance(node.value, ast.Constant):
            self._value(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        (target,) = node.targets
        # All values are computed before any is assigned, as in Python.
        if isinstance(target, ast.Tuple):
            assert isinstance(node.value, ast.Tuple)
            values = [self._value(item) for item in node.value.elts]
            for item, value in zip(target.elts, values, strict=True):
                self._assign(item, value)
            return
        tuple_kind = self._tuple_of(node.value)
        if tuple_kind:
            assert isinstance(target, ast.Name)
            self._set_tuple(target.id, tuple_kind, self._values(node.value))
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
        if node.value is None or not isinstance(self.function.function_type.return_type, ir.LiteralStructType):
            self.b.ret(self._value(node.value) if node.value else I64(0))
            return
        # LLVM returns a struct as a value that is built field by field.
        result = ir.Constant(self.function.function_type.return_type, ir.Undefined)
        for index, value in enumerate(self._values(node.value)):
            result = self.b.insert_value(result, value, index)
        self.b.ret(result)

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
        # Evaluated once, as range's arguments are.
        bounds = [self._value(argument) for argument in node.iter.args]
        start, stop, step = [I64(0), *bounds, I64(1)] if len(bounds) == 1 else [*bounds, I64(1)][:3]
        name = node.target.id
        self._set(name, start)

        def advance() -> None:
            self._set(name, self.b.add(self._get(name), step))

        self._loop(lambda: self.b.icmp_signed("<", self._get(name), stop), node.body, advance)

    def _loop(self, test: Callable[[], Value], body: list[ast.stmt], advance: Callable[[], None]) -> None:
        # The test is evaluated in a block of its own, because it may contain short circuits.
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
        # All allocas are in the entry block, where LLVM promotes them to registers (mem2reg).
        if name not in self.variables:
            with self.b.goto_entry_block():
                self.variables[name] = self.b.alloca(I64, name=name)
        self.b.store(value, self.variables[name])

    def _get(self, name: str) -> Value:
        return self.b.load(self.variables[name], typ=I64)

    def _set_tuple(self, name: str, kind: Any, values: list[Value]) -> None:
        self.tuples[name] = kind
        for field, value in zip(kind._fields, values, strict=True):
            self._set(f"{name}.{field}", value)

    def _tuple_of(self, node: ast.expr) -> Any:
        """Return the class of an expression that is a tuple: a variable, a new one, or the result of a function."""
        match node:
            case ast.Name(id=name):
                return self.tuples.get(name)
            case ast.Call():
                callee = self._constant(node.func)
                if callee in FUNCTIONS:
                    return _tuple_type(callee.__globals__.get(inspect.signature(callee).return_annotation))
                return _tuple_type(callee)
        return None

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

    def _values(self, node: ast.expr) -> list[Value]:
        """Return the fields of an expression that is a tuple, or else its one value."""
        kind = self._tuple_of(node)
        if kind is None:
            return [self._value(node)]
        if isinstance(node, ast.Name):
            return [self._get(f"{node.id}.{field}") for field in kind._fields]
        assert isinstance(node, ast.Call)
        if self._constant(node.func) in FUNCTIONS:
            result = self._call(node)
            return [self.b.extract_value(result, index) for index in range(len(kind._fields))]
        fields = dict(zip(kind._fields, map(self._value, node.args), strict=False))
        fields |= {keyword.arg: self._value(keyword.value) for keyword in node.keywords}
        return [fields[field] for field in kind._fields]

    def _constant(self, node: ast.expr) -> Any:
        """Return the value of a global name, or of an attribute of one; None for anything else."""
        if isinstance(node, ast.Name):
            # A local variable hides a global of the same name.
            return None if node.id in self.variables else self.globals.get(node.id)
        if isinstance(node, ast.Attribute) and self._constant(node.value) is not None:
            return getattr(self._constant(node.value), node.attr)
        return None

    def _value(self, node: ast.expr) -> Value:
        """Return the value of an expression as an integer."""
        match node:
            case ast.Constant(value=int(number)):
                return I64(int(number))
            case ast.Name(id=name) if name in self.variables:
                return self._get(name)
            case ast.Attribute(value=ast.Name(id=name), attr=field) if name in self.tuples:
                return self._get(f"{name}.{field}")
            case ast.Attribute(value=ast.Name(id=name), attr="address") if name in self.views:
                return self._get(name)
            case ast.Attribute(value=ast.Name(id=name)) if name in self.views:
                return self._load_field(node)
            case ast.Name() | ast.Attribute():
                return I64(int(self._constant(node)))
            case ast.BinOp():
                left_value, right_value = self._value(node.left), self._value(node.right)
                return getattr(self.b, _ARITHMETIC[type(node.op)])(left_value, right_value)
            case ast.UnaryOp(op=ast.USub()):
                return self.b.neg(self._value(node.operand))
            case ast.UnaryOp(op=ast.Invert()):
                return self.b.not_(self._value(node.operand))
            case ast.IfExp():
                test = self._test(node.test)
                # Both branches are computed, unlike in Python, so neither may load what is only valid if it is
                # chosen.
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
        # A field narrower than 64 bits is extended by the sign of its numpy dtype.
        unsigned = field_of(self.views[node.value.id], node.attr)[0].kind == "u"
        return self.b.zext(value, I64) if unsigned else self.b.sext(value, I64)

    def _call(self, node: ast.Call) -> Value:
        callee = self._constant(node.func)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        values = [value for argument in node.args for value in self._values(argument)]
        # A view is its address, so that making one costs nothing.
        if isinstance(callee, type) and issubclass(callee, View):
            return values[0]
        if callee in BUILTINS:
            return BUILTINS[callee](self.b, *values)
        if name in ("min", "max"):
            is_chosen = self.b.icmp_signed("<" if name == "min" else ">", values[0], values[1])
            return self.b.select(is_chosen, values[0], values[1])
        if callee not in FUNCTIONS | EXTERN:
            self.generic_visit(node)
        return self.b.call(_declare(self.function.module, callee, self.calls), values)

    def _test(self, node: ast.expr) -> Value:
        """Return the value of an expression as a condition. ``and`` and ``or`` short-circuit."""
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

    def _short_circuit(self, items: list[ast.expr], is_and: bool) -> Value:
        first = self._test(items[0])
        remaining = items[1:]
        if not remaining:
            return first
        # The second operand is in a block of its own; the phi takes the constant on the edge that skips it.
        start = self.b.block
        following = self.function.append_basic_block()
        after = self.function.append_basic_block()
        self.b.cbranch(first, *((following, after) if is_and else (after, following)))
        self.b.position_at_end(following)
        second = self._short_circuit(remaining, is_and)
        # Not `following`: further operands have blocks of their own, and the phi needs the last one.
        end = self.b.block
        self.b.branch(after)
        self.b.position_at_end(after)
        result = self.b.phi(I1)
        result.add_incoming(I1(not is_and), start)
        result.add_incoming(second, end)
        return result
