from max.gpu import WARP_SIZE, block_idx, lane_id
from max.gpu.primitives import warp


def row_sums(x: Pointer[Float32, MutAnyOrigin], output: Pointer[Float32, MutAnyOrigin], columns: Int32):
    """Add up each row of x. A block is one warp."""
    var row = x.unsafe_offset(Int(block_idx.x) * Int(columns))
    var total = Float32(0)
    for column in range(Int(lane_id()), Int(columns), WARP_SIZE):
        total += row[unsafe_offset=column]
    total = warp.sum(total)
    if lane_id() == 0:
        output[unsafe_offset=Int(block_idx.x)] = total
