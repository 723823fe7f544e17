#include <cooperative_groups.h>
namespace cg = cooperative_groups;

// kernel 2: a tile of each operand, one output a thread
__global__ void matmul_forward_kernel2(float* out, const float* inp, const float* weight, int BT, int OC, int C) {
    cg::thread_block block = cg::this_thread_block();
    const dim3 place = block.thread_index(), group = block.group_index();
    __shared__ float lhs_s[32][32];
    __shared__ float rhs_s[32][32];
    const size_t bt = group.y * 32 + place.y, oc = group.x * 32 + place.x;
    float val = 0.0f;
    for (int so = 0; so < C; so += 32) {
        lhs_s[place.y][place.x] = (bt < BT && so + place.x < C) ? inp[bt * C + so + place.x] : 0.0f;
        rhs_s[place.y][place.x] = (oc < OC && so + place.y < C) ? weight[(so + place.y) * (size_t)OC + oc] : 0.0f;
        block.sync();
        for (int i = 0; i < min(32, C - so); i++) { val += lhs_s[place.y][i] * rhs_s[i][place.x]; }
        cg::sync(block);
    }
    if (bt < BT && oc < OC) { out[bt * OC + oc] = val; }
}
