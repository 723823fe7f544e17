"""From a kernel's records to LLVM IR.

calls        calls expanded in place
flow         basic blocks, live registers
vectors      IR for 32 lanes
slots        where a warp keeps its registers
registers    registers and operands
emitter      memory
formulas     which lanes, in predicates
slices       which instruction writes what another one reads; computing it earlier
predicates   which predicates hold where, and for how long
demand       which lanes use what a load gives
loads        the same, as predicates at the load
inflight     registers that wgmma has in flight
shared       code that instructions of one form share
warp         program counters of lanes: divergence, waiting, the loop that runs a warp
"""
