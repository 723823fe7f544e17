#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>

namespace cg = cooperative_groups;

template <int TILE>
__global__ void stencil(const float* x, float* y, long long n) {
    constexpr int R = 8;
    __shared__ float s[R + TILE + R];
    auto block = cg::this_thread_block();
    const long long begin = (long long)block.group_index().x * TILE;
    const int count = min((long long)TILE, n - begin);
    cg::memcpy_async(block, s + R, x + begin, sizeof(float) * count);
    if (block.thread_rank() < 2 * R) {
        const int i = block.thread_rank() < R ? int(block.thread_rank()) - R : count + int(block.thread_rank()) - R;
        const long long at = begin + i;
        s[R + i] = at >= 0 && at < n ? x[at] : 0.f;
    }
    cg::wait(block);
    block.sync();
    const int t = block.thread_rank();
    if (t >= count) return;
    float sum = 9 * s[R + t];
    for (int k = 1; k <= R; ++k) sum += (9 - k) * (s[R + t - k] + s[R + t + k]);
    y[begin + t] = sum * (1.f / 81.f);
}
