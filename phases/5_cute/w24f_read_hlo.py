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

from pathlib import Path


def report(module: Path) -> dict:
    """Return the facts about the kernels of this module, by name."""
    raise NotImplementedError("TODO: read the entry and the computations that its fusions call")
