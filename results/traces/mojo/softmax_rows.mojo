from std.math import exp
from max.gpu import WARP_SIZE, block_idx, lane_id
from max.gpu.primitives import warp


def softmax_rows(x: Pointer[Float32, MutAnyOrigin], output: Pointer[Float32, MutAnyOrigin], columns: Int32):
    """Compute the softmax of each row of x. A block is one warp."""
    var begin = Int(block_idx.x) * Int(columns)
    var row = x.unsafe_offset(begin)
    var result = output.unsafe_offset(begin)
    var largest = Float32.MIN
    for column in range(Int(lane_id()), Int(columns), WARP_SIZE):
        largest = max(largest, row[unsafe_offset=column])
    largest = warp.max(largest)
    var total = Float32(0)
    for column in range(Int(lane_id()), Int(columns), WARP_SIZE):
        total += exp(row[unsafe_offset=column] - largest)
    total = warp.sum(total)
    for column in range(Int(lane_id()), Int(columns), WARP_SIZE):
        result[unsafe_offset=column] = exp(row[unsafe_offset=column] - largest) / total
