"""Lower a kernel's records to LLVM IR.

The result is a direct-threaded interpreter: a kernel is a list of rows, and each row has the address of the compiled
function for its instruction's shape. ``shared`` describes it.

    calls        expand calls in place
    flow         basic blocks, live registers
    vectors      IR for 32 lanes
    slots        the offsets of registers in a warp's record
    registers    registers and operands
    emitter      memory
    formulas     sets of lanes, as disjunctions of predicates
    slices       definitions and uses of registers; computing a value earlier
    predicates   which predicates hold where, and for how long
    demand       liveness of loaded values, lane by lane
    loads        the same, as predicates at the load
    polls        loads that poll
    inflight     registers that wgmma has in flight
    shared       compiled shapes and operand rows
    places       program counters of lanes: functions that all kernels share
    warp         divergence, reconvergence, waiting: the loop that runs a warp
"""
