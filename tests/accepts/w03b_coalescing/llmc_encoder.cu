#include <assert.h>
#include <stdio.h>

#define WARP_SIZE 32U

typedef float floatX;

template <class Packed>
__global__ void encoder_forward_kernel(floatX* out, const int64_t* inp, const floatX* wte, int BT, int C) {
    const int bt = (blockIdx.x * blockDim.x + threadIdx.x) / WARP_SIZE;
    const int lane = threadIdx.x % WARP_SIZE;
    if (bt >= BT) { return; }
    constexpr int x = sizeof(Packed) / sizeof(floatX);
    assert(C % x == 0);
    const Packed* wte_ix = reinterpret_cast<const Packed*>(wte + inp[bt] * C);
    Packed* out_bt = reinterpret_cast<Packed*>(out + (size_t)bt * C);
    for (int c = lane; c < C / x; c += WARP_SIZE) { out_bt[c] = __ldcs(&wte_ix[c]); }
}
