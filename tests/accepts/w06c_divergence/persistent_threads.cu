#include <cooperative_groups.h>

namespace cg = cooperative_groups;

constexpr float H = 0.25f;

struct State {
    float x, v;
};

__device__ float acceleration(float x) { return -x - x * x * x; }

__device__ State advanced(State s) {
    const State d1 = {s.v, acceleration(s.x)};
    const State d2 = {s.v + 0.5f * H * d1.v, acceleration(s.x + 0.5f * H * d1.x)};
    const State d3 = {s.v + 0.5f * H * d2.v, acceleration(s.x + 0.5f * H * d2.x)};
    const State d4 = {s.v + H * d3.v, acceleration(s.x + H * d3.x)};
    return {s.x + H / 6 * (d1.x + 2 * d2.x + 2 * d3.x + d4.x), s.v + H / 6 * (d1.v + 2 * d2.v + 2 * d3.v + d4.v)};
}

constexpr int CHUNK = 256;

__global__ void oscillate(const float* x, const unsigned char* steps, float* out, int* queue, int n) {
    const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    int next = 0, end = 0;  // of the chunk that the warp has taken
    bool more = true;
    int mine = -1, left = 0;
    State s = {0, 0};
    while (true) {
        const unsigned idle = warp.ballot(left == 0);
        if (__popc(idle) >= (more ? 10 : 32)) {
            if (left == 0 && mine >= 0) out[mine] = s.x;
            if (next == end && more) {
                if (warp.thread_rank() == 0) next = atomicAdd(queue, CHUNK);
                next = warp.shfl(next, 0);
                if (next < 0 || next > n) next = n;
                end = min(n - next, CHUNK) + next;
                more = next < n;
            }
            if (left == 0) {
                const int taken = next + __popc(idle & ((1u << warp.thread_rank()) - 1));
                mine = taken < end ? taken : -1;
                if (mine >= 0) {
                    s = {x[mine], 0};
                    left = steps[mine];
                }
            }
            next = min(next + __popc(idle), end);
            if (!more && warp.all(mine < 0)) return;
        }
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
            if (left > 0) {
                s = advanced(s);
                --left;
            }
        }
    }
}
