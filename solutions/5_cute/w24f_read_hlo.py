"""Reading HLO: which kernels XLA makes of a function, and the bytes that they move.

report(module) reads optimized HLO, the text of `jax.jit(f).lower(...).compile().as_text()`, without source locations.
results/traces/hlo contains such files for an H200, compressed with gzip. report receives one as plain text. A module
consists of computations, and a computation of instructions, each after its operands:

    %fused_reduce (param_0.3: f32[328,1000]) -> f32[328] {
      %param_0.3 = f32[328,1000]{1,0} parameter(0)
      %constant_1 = f32[] constant(0)
      ROOT %reduce.2 = f32[328]{0} reduce(%param_0.3, %constant_1), dimensions={1}, to_apply=%region_0.1
    }

`f32[328,1000]{1,0}` is an array of 328 x 1000 elements of 4 bytes, with its layout. The first number in a type is the
bits of an element (bf16, s32, f8e4m3fn), and pred takes one byte. A type in parentheses is a tuple of arrays. The
computation after ENTRY is the function. Its instructions run in order, each as a kernel or a library call, except for
parameter, constant, tuple, get-tuple-element, and bitcast, which do no work, here and in other computations.

The report is a dict of six lists with an element for each instruction of the entry that does work, in order:

    kernels     its name, without %
    kinds       for a fusion its kind (kLoop, kInput), but for kCustom the kind in its fusion_backend_config (__triton);
                for a custom-call its custom_call_target; for other instructions the opcode
    operations  for a fusion the opcodes of the instructions that do work in the computation after calls=, each once,
                in the order of their first appearance, joined by ", "; for other instructions the opcode
    read        the bytes that it reads
    written     the bytes that it writes: its results. A custom-call that returns a tuple returns its workspace last,
                which does not count
    unfused     the bytes that a fusion's instructions would read and write if each were a fusion by itself (those that
                do work); for other instructions read + written

Each operand is read once, even if an instruction names it twice. A fusion reads from a parameter only the elements that
its root needs. To compute n of its elements, an instruction needs

- n elements of the first operand of slice, dynamic-slice, and gather;
- no element of the first operand of dynamic-update-slice, which writes its second operand, the update, into the first
  one in place. If it is a fusion's root, or an operand of a root that is a tuple, only the update is written;
- n elements of any other operand that has as many elements as the instruction itself (for a tuple, in all its arrays);
- all elements of other operands, such as the operand of a reduce or of a broadcast.

If several instructions need elements of an array, the numbers add up, but never to more than all of its elements.
"""

import math
import re
from pathlib import Path

NO_WORK = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast"}
SELECTIONS = {"slice", "dynamic-slice", "gather"}
UPDATE = "dynamic-update-slice"
COMPUTATION = re.compile(r"^(?:ENTRY )?%([\w.-]+) [^\n]*\{\n(.*?)^\}", re.M | re.S)
INSTRUCTION = re.compile(r"^\s+(ROOT )?%([\w.-]+) = (\([^()]*\)|\S+) ([a-z-]+)\(([^()]*)\)(.*)$", re.M)


class Instruction:
    def __init__(self, root, name, result, opcode, operands, attributes):
        self.is_root, self.name, self.opcode, self.attributes = bool(root), name, opcode, attributes
        self.operands = list(dict.fromkeys(re.findall(r"%([\w.-]+)", operands)))
        arrays = re.findall(r"(pred|[a-z]+(\d+)\w*)\[([\d,]*)\]", result)
        extents = [math.prod(map(int, filter(None, shape.split(",")))) for *_, shape in arrays]
        self.sizes = [extent * int(bits or 8) // 8 for extent, (_, bits, _) in zip(extents, arrays, strict=True)]
        self.elements = sum(extents)

    def needs(self, operand, elements):
        """Return how many elements of an operand this instruction needs to compute `elements` of its own."""
        is_first = operand.name == self.operands[0]
        if is_first and self.opcode == UPDATE:
            return 0
        same_count = operand.elements == self.elements
        return elements if (is_first and self.opcode in SELECTIONS) or same_count else operand.elements


def moved(body, kernel, root):
    """Return the bytes that a kernel of some instructions of a computation reads and writes."""
    needed = {root.name: root.elements}
    for user in reversed(kernel):
        for operand in (body[name] for name in user.operands):
            elements = needed.get(operand.name, 0) + user.needs(operand, needed.get(user.name, 0))
            needed[operand.name] = min(operand.elements, elements)
    inputs = [body[name] for name in needed.keys() - {node.name for node in kernel}]
    results = [body[name] for name in root.operands] if root.opcode == "tuple" else [root]
    stored = [body[node.operands[1]] if node.opcode == UPDATE else node for node in results]
    workspaces = [node.sizes[-1] for node in stored if node.opcode == "custom-call" and len(node.sizes) > 1]
    read = sum(needed[node.name] * sum(node.sizes) // node.elements for node in inputs)
    return read, sum(sum(node.sizes) for node in stored) - sum(workspaces)


def describe(instruction, entry, bodies):
    """Return the element of an instruction of the entry in each list of the report."""
    found = re.search(r'kind=(\w+)|custom_call_target="([^"]+)"', instruction.attributes)
    kind = (found[1] or found[2]) if found else instruction.opcode
    if kind == "kCustom":
        kind = re.search(r'"fusion_backend_config":\{"kind":"(\w+)"', instruction.attributes)[1]
    if instruction.opcode != "fusion":
        read, written = moved(entry, [instruction], instruction)
        return instruction.name, kind, instruction.opcode, read, written, read + written
    body = bodies[re.search(r"calls=%([\w.-]+)", instruction.attributes)[1]]
    work = [node for node in body.values() if node.opcode not in NO_WORK]
    kernel = [node for node in body.values() if node.opcode != "parameter"]
    root = next(node for node in body.values() if node.is_root)
    unfused = sum(sum(moved(body, [node], node)) for node in work)
    opcodes = ", ".join(dict.fromkeys(node.opcode for node in work))
    return instruction.name, kind, opcodes, *moved(body, kernel, root), unfused


def report(module: Path) -> dict:
    """Return the facts about the kernels of this module, by name."""
    text = module.read_text()
    bodies = {
        head: {parts[1]: Instruction(*parts) for parts in INSTRUCTION.findall(body)}
        for head, body in COMPUTATION.findall(text)
    }
    entry = bodies[re.search(r"^ENTRY %([\w.-]+)", text, re.M)[1]]
    rows = [describe(node, entry, bodies) for node in entry.values() if node.opcode not in NO_WORK]
    names = ("kernels", "kinds", "operations", "read", "written", "unfused")
    return {name: [row[index] for row in rows] for index, name in enumerate(names)}
