"""A launch while it runs.

records      the records that generated code, checks and scheduler share
memory, spaces, races, suspects, sync, transactions
             what happens at every access: bounds, unwritten memory, races, sectors, wavefronts (native)
polling      when a warp waits for others by asking again and again (native)
order        which blocks and warps come first (native)
clusters, mbarriers, meeting, registers
             what warps wait for: their cluster, barriers in memory, barriers of the block, registers (native)
bulk         copies of whole tiles (native)
schedule     thread blocks, and the turns of their warps (native)
buffers      memory that a kernel may touch
arrays, cta, residents, launch
             a resident thread block, all of them, and a grid, seen from the host
complaints, faults, deadlock
             sentences about what a thread did wrong
barriers, printf, host
             what the scheduler leaves to the host
"""
