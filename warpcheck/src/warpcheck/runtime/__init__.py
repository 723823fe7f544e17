"""The state of a launch while it runs, and everything that happens to it.

Modules marked (native) are compiled to machine code; see ``warpcheck.native``.

    records      the records that generated code, checks and scheduler share
    memory, spaces, states, races, happens_before, history, suspects, transactions
                 every access: bounds, unwritten memory, races, sectors, wavefronts (native)
    sync, sources, proxies, elected
                 __syncwarp, fences, cp.async, and the order that they establish (native)
    polling      the end of a slice for a warp that polls (native)
    order        the order of blocks and warps (native)
    clusters, mbarriers, pending, meeting, registers
                 waiting: for the cluster, at mbarriers, at named barriers, for registers (native)
    bulk, bulk_issue, boxes, box_checks, copy_rules, reductions
                 bulk and tensor copies (native)
    warpgroup, reads, refills
                 wgmma and its reads of shared memory (native)
    schedule     the loop over thread blocks and their warps (native)
    recorder     events for the timeline (native)
    buffers      memory that a kernel may access
    arrays, cta, residents, launch
                 a resident thread block, all resident blocks, and a grid, seen from the host
    complaints, faults, deadlock, symbols
                 messages about what a thread did wrong
    barriers, printf, host, timeline
                 what the scheduler leaves to the host
"""
