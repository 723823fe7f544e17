#include <cuda_pipeline.h>

template <int kThreads, int kStages>
__global__ void staged_add(const float* a, const float* b, float* c, long long n) {
    __shared__ float sa[kStages][kThreads], sb[kStages][kThreads];
    const int t = threadIdx.x;
    const long long step = (long long)gridDim.x * kThreads;
    auto fetch = [&](int stage, long long i) {
        if (i < n) {
            __pipeline_memcpy_async(&sa[stage][t], a + i, sizeof(float));
            __pipeline_memcpy_async(&sb[stage][t], b + i, sizeof(float));
        }
        __pipeline_commit();
    };
    long long i = (long long)blockIdx.x * kThreads + t;
    for (int s = 0; s < kStages; ++s) fetch(s, i + s * step);
    for (int stage = 0; i < n; i += step, stage = (stage + 1) % kStages) {
        __pipeline_wait_prior(kStages - 1);
        c[i] = sa[stage][t] + sb[stage][t];
        fetch(stage, i + kStages * step);
    }
    __pipeline_wait_prior(0);
}
