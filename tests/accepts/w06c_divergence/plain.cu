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

#define TILE 1024

__global__ void oscillate(const float *x, const unsigned char *steps, float *out, int n) {
    __shared__ int start[65];
    __shared__ short sorted[TILE];
    int base = blockIdx.x * TILE;
    int count = n - base < TILE ? n - base : TILE;

    for (int b = threadIdx.x; b < 65; b += blockDim.x) start[b] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += blockDim.x) atomicAdd(&start[steps[base + i]], 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        int sum = 0;
        for (int b = 0; b < 65; b++) {
            int c = start[b];
            start[b] = sum;
            sum += c;
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += blockDim.x) sorted[atomicAdd(&start[steps[base + i]], 1)] = i;
    __syncthreads();
    for (int k = threadIdx.x; k < count; k += blockDim.x) {
        int i = base + sorted[k];
        State s = {x[i], 0.0f};
        for (int j = 0; j < steps[i]; j++) s = advanced(s);
        out[i] = s.x;
    }
}
