"""Lower a kernel's records to LLVM IR.

The result is a direct-threaded interpreter: a kernel is a list of rows, and each row has the address of the compiled
function for its instruction's shape. ``compiled_shapes`` describes it.

    inlining             expand calls in place
    control_flow         basic blocks, live registers
    formulas             sets of lanes, as disjunctions of predicates
    def_use              definitions and uses of registers; computing a value earlier
    predicates           which predicates hold where, and for how long
    load_liveness        liveness of loaded values, lane by lane
    polling_loops        loads that poll
    load_uses            both of these, for each load
    wgmma_hazards        registers that wgmma has in flight
    register_slots       the offsets of registers in a warp's record
    memory_layout        the offsets of variables
    lane_builder         LLVM IR for 32 lanes
    frame                the function that is being emitted, its instruction and its lanes
    register_file, special_registers, operands
                         reading and writing the operands of an instruction
    code_unit            the checks, the sites and the functions that the code of a module needs
    memory_access        addresses, and their checks
    lane_pcs             program counters of lanes: functions that all kernels share
    warp_control         divergence, reconvergence, waiting: the ends of blocks
    instruction_emitter  what the emitters of isa work with: all of the above
    compiled_shapes      compiled shapes and operand rows
    kernel_lowering      the function that runs a warp
"""
