"""From a kernel's records to LLVM IR.

calls        calls expanded in place
flow         basic blocks, live registers
vectors      IR for 32 lanes
registers    registers and operands
emitter      memory
demand       which lanes use what a load gives
loads        the same, as predicates at the load
warp         program counters of lanes: divergence, waiting, the loop that runs a warp
"""
