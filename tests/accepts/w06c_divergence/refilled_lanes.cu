#include <stdint.h>

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

#define FULL_MASK 0xffffffffu
#define SLICE 512   // oscillators of a warp
#define REPLACE 8   // idle lanes from which on they are replaced
#define ROUND 4     // steps from one ballot to the next

__global__ void oscillate(const float* __restrict__ x, const uint8_t* __restrict__ steps, float* __restrict__ out,
                          int n) {
    const int lane = threadIdx.x & 31;
    const unsigned lower = (1u << lane) - 1u;
    const int64_t begin = ((int64_t)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5)) * SLICE;
    if (begin >= n) return;
    const int end = (int)min(begin + SLICE, (int64_t)n);
    int next = (int)begin;
    int mine = -1, left = 0;
    State s = {0, 0};
    for (;;) {
        const unsigned idle = __ballot_sync(FULL_MASK, left == 0);
        if (__popc(idle) >= (next < end ? REPLACE : 32)) {
            if (left == 0) {
                if (mine >= 0) out[mine] = s.x;
                mine = next + __popc(idle & lower);
                if (mine < end) {
                    s = {x[mine], 0};
                    left = steps[mine];
                } else {
                    mine = -1;
                }
            }
            next += __popc(idle);
            if (__all_sync(FULL_MASK, mine < 0)) return;
        }
        #pragma unroll
        for (int k = 0; k < ROUND; ++k) {
            if (left > 0) {
                s = advanced(s);
                --left;
            }
        }
    }
}
