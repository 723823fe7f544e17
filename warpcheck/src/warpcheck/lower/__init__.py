"""Lower a kernel's records to LLVM IR.

The result is a direct-threaded interpreter: a kernel is a list of rows, and each row has the address of the compiled
function for its instruction's shape. ``compiled_shapes`` describes it.

    inlining         expand calls in place
    control_flow     basic blocks, live registers
    vectors          IR for 32 lanes
    register_slots   the offsets of registers in a warp's record
    registers        registers and operands
    emitter          memory
    formulas         sets of lanes, as disjunctions of predicates
    def_use          definitions and uses of registers; computing a value earlier
    predicates       which predicates hold where, and for how long
    load_liveness    liveness of loaded values, lane by lane
    loads            the same, as predicates at the load
    polling_loops    loads that poll
    wgmma_hazards    registers that wgmma has in flight
    compiled_shapes  compiled shapes and operand rows
    lane_pcs         program counters of lanes: functions that all kernels share
    warp             divergence, reconvergence, waiting: the loop that runs a warp
"""
