#include <cooperative_groups.h>

namespace cg = cooperative_groups;

__global__ void hello(int* out) {
    const auto grid = cg::this_grid();
    const auto block = cg::this_thread_block();
    const auto warp = cg::tiled_partition<32>(block);

    int* column = out + grid.thread_rank();
    for (const int value : {int(block.group_index().x), int(warp.meta_group_rank()), int(warp.thread_rank()),
                            int(grid.thread_rank())}) {
        *column = value;
        column += grid.num_threads();
    }
}
