"""Lay out a kernel's variables: their offsets in shared and local memory, and the table of global ones."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from warpcheck.layout import RESERVED
from warpcheck.lower.control_flow import Flow
from warpcheck.lowered_kernel import parameter_offsets
from warpcheck.op import registers
from warpcheck.ptx import Function, Instruction, Module, Variable

__all__ = ["MemoryLayout"]


class MemoryLayout:
    """The addresses of a kernel's variables and parameters.

    Attributes:
        shared: The bytes of each variable in shared memory; ``local`` in local memory.
        params: The offset of each parameter.
        symbols: The global variables that the kernel names, in the order of the launch's table of addresses.
        in_cluster: Whether an instruction distinguishes blocks of a cluster. Otherwise plain offsets in shared memory
            are enough.
    """

    def __init__(self, module: Module, kernel: Function, flow: Flow) -> None:
        self._module = module
        self._flow = flow
        instructions = [i for block in flow.blocks for i in block.instructions]
        self.in_cluster = _may_name_cluster(module.text) and any(map(_names_cluster, instructions))
        self.params = {parameter.name: offset for parameter, offset in parameter_offsets(kernel)}
        # If cooperative groups use it: the 1 KiB that the system takes of each block's shared memory since sm_80
        # (target.Multiprocessor).
        is_reserved = any(f"%{RESERVED}" in registers(i.operands) for i in instructions)
        reserved = {RESERVED: Variable(RESERVED, "shared", "b8", 1024, 128)} if is_reserved else {}
        self.shared, self.shared_bytes = self._lay_out("shared", reserved)
        self.local, self.local_bytes = self._lay_out("local")
        self.symbols: list[str] = []

    def _lay_out(
        self, space: str, extra: Mapping[str, Variable] = MappingProxyType({})
    ) -> tuple[dict[str, range], int]:
        """Return the bytes of each variable of a space, and the size of all of them."""
        variables = {**self._module.variables, **self._flow.variables, **extra}.items()
        in_space = [(name, variable) for name, variable in variables if variable.space == space]
        spans = {}
        end = 0
        # extern .shared arrays have size 0 here: they come last, because dynamic shared memory follows all variables.
        for name, variable in sorted(in_space, key=lambda item: item[1].size == 0):
            end = -(-end // variable.align) * variable.align
            spans[name] = range(end, end + variable.size)
            end += variable.size
        return spans, end

    def locate(self, name: str) -> tuple[str, int] | None:
        """Return a symbol's space and its offset there; for global memory, its number in the table of symbols.

        Return None if there is no such symbol.
        """
        for space, spans in (("shared", self.shared), ("local", self.local)):
            if name in spans:
                return space, spans[name].start
        if name in self.params:
            return "param", self.params[name]
        if name in self._module.functions:
            return "code", self._module.code_address(name)
        if name not in self._module.variables:
            return None
        if name not in self.symbols:
            self.symbols.append(name)
        return "global", self.symbols.index(name)


_CLUSTER_WORDS = ("cluster", "getctarank", "mapa")


def _may_name_cluster(text: str) -> bool:
    """Return whether the text of a module has a word that `_names_cluster` looks for. Most texts have none."""
    return not text or any(word in text for word in _CLUSTER_WORDS)


def _names_cluster(i: Instruction) -> bool:
    """Return whether an instruction distinguishes a block's shared memory from another block's."""
    names = (*i.modifiers, i.opcode, *(name.lstrip("%") for name in registers(i.operands)))
    return any(name == "mapa" or name.split("::")[-1].startswith(("cluster", "getctarank")) for name in names)
