"""The state of a launch while it runs, and everything that happens to it.

Modules marked (native) are compiled to machine code; see ``warpcheck.native``.

    records      the records that generated code, checks and scheduler share
    memory, address_spaces, byte_states, fast_path, races, happens_before, access_history, deferred_faults,
    memory_transactions
                 every access: bounds, unwritten memory, races, sectors, wavefronts (native)
    sync, cp_async_sources, proxies, partial_arrival
                 __syncwarp, fences, cp.async, and the order that they establish (native)
    polling      the end of a slice for a warp that polls (native)
    schedule_order
                 the order of blocks and warps (native)
    clusters, mbarriers, tx_count, cta_barrier, setmaxnreg
                 waiting: for the cluster, at mbarriers, at named barriers, for registers (native)
    bulk, bulk_issue, boxes, box_checks, copy_rules, reductions
                 bulk and tensor copies (native)
    warpgroup, wgmma_operands, wgmma_overwrite
                 wgmma and its reads of shared memory (native)
    tensor_rules, tensor_records, tensor_cells, tensor_access, tensor_allocation, tensor_operands, tensor_jobs
                 tensor memory and the products in it (native)
    schedule     the loop over thread blocks and their warps (native)
    history_merge
                 the histories of blocks that ran on several cores, made into one (native)
    event_recorder
                 events for the timeline (native)
    buffers      memory that a kernel may access
    arrays, cta, resident_blocks, launch
                 a resident thread block, all resident blocks, and a grid, seen from the host
    kept_memory, block_workers
                 blocks on several cores
    fault_messages, faults, deadlock, symbols
                 messages about what a thread did wrong
    barrier_divergence, printf, host, timeline
                 what the scheduler leaves to the host
"""
