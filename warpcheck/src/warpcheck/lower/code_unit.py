"""Collect what belongs to one LLVM module: the functions that it calls, its access sites and checks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from llvmlite import ir

from warpcheck.layout import Status
from warpcheck.lower.frame import Frame
from warpcheck.lower.lane_builder import I64, LaneBuilder
from warpcheck.lowered_kernel import AccessSite, Check

__all__ = ["CodeUnit", "name_by_content", "new_function"]


class CodeUnit:
    """An LLVM module, and what the code in it needs: a kernel's own function, or a compiled shape.

    Args:
        first_site: The number of its first access site. A compiled shape gets the number from its row.

    Attributes:
        sites: Its access sites, in the order in which they were added.
        checks: The checks that it calls.
        functions: The IR of the functions that it calls, by their symbols.
    """

    def __init__(self, module: ir.Module, first_site: ir.Value = I64(0)) -> None:  # noqa: B008  # a constant
        self.module = module
        self.first_site = first_site
        self.sites: list[AccessSite] = []
        self.checks: set[Check] = set()
        self.functions: dict[str, str] = {}
        self._common_symbols: dict[Callable[..., ir.Value | None], str] = {}

    def add_site(self, frame: Frame, site: AccessSite, description: int = 0) -> ir.Value:
        """Add an access site; return its number, with ``description`` in the upper 32 bits."""
        # A compiled shape numbers its sites from 0; the row that calls it has the number of the first one.
        number = frame.b.add(self.first_site, I64(len(self.sites) | description << 32))
        self.sites.append(site)
        return number

    def call_check(
        self, frame: Frame, function: str, argument: int | ir.Value = 0, constants: tuple[int, ...] = ()
    ) -> None:
        """Call a check with the active lanes; a result other than 0 is a fault."""
        b = frame.b
        check = Check(function, tuple(map(int, constants)))
        self.checks.add(check)
        # The check's own signature is of integers; its last parameters are compiled into it.
        # Native functions take integers only: a record is its address.
        records = [b.ptrtoint(pointer, I64) for pointer in (frame.launch, frame.cta, frame.warp)]
        mask = b.zext(b.as_bits(frame.active), I64)
        argument_value = I64(argument) if isinstance(argument, int) else argument
        failed = b.intrinsic(check.symbol, I64, *records, argument_value, mask)
        # Generated code cannot raise an exception: the status makes the scheduler end the launch, and the host raises.
        with b.if_then(b.icmp_unsigned("!=", failed, I64(0)), likely=False):
            b.ret(I64(Status.FAULT))

    def call_common(
        self, b: LaneBuilder, result: ir.Type, arguments: list[ir.Value], emit: Callable[..., ir.Value | None]
    ) -> ir.Value:
        """Call a function that kernels have in common. ``emit`` depends on nothing but its arguments."""
        kind = ir.FunctionType(result, [value.type for value in arguments])
        return b.call(self.common_function(kind, emit), arguments)

    def common_function(self, kind: ir.FunctionType, emit: Callable[..., ir.Value | None]) -> ir.Function:
        """Return a function that kernels have in common; see ``call_common``."""
        # Emitted once for a unit; equal texts have equal symbols, so kernels share the compiled code.
        if emit not in self._common_symbols:
            function = new_function(kind)
            LaneBuilder.fill(function, emit, "entry")
            symbol, self.functions[symbol] = name_by_content(function.module)
            self._common_symbols[emit] = symbol
        return self.declare(self._common_symbols[emit], kind)

    def declare(self, symbol: str, kind: ir.FunctionType) -> ir.Function:
        """Declare a compiled function in the module, which calls it."""
        return self.module.globals.get(symbol) or ir.Function(self.module, kind, symbol)


def new_function(kind: ir.FunctionType) -> ir.Function:
    """Return a function in a module of its own."""
    return ir.Function(ir.Module("apart"), kind, "apart")


def name_by_content(module: ir.Module) -> tuple[str, str]:
    """Return the symbol of a module's function, and its IR. The symbol is a digest of the text, so equal ones
    coincide.
    """
    text = str(module)
    symbol = f"shape_{hashlib.sha256(text.encode()).hexdigest()}"
    return symbol, text.replace('@"apart"', f"@{symbol}")
