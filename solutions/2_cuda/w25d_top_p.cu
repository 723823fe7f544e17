// Sample from the nucleus of a row of logits: temperature, top-k, top-p.
//
// The least logit of the nucleus is found by radix select: like a radix sort from the highest digit down, but only the
// keys that may be the least are counted again. No key is moved. Probabilities are integers in units of 2^-40 of the
// largest one, so sums are the same in every order.

constexpr int WARP = 32, THREADS = 512, WARPS = THREADS / WARP, BITS = 8, DIGITS = 1 << BITS, OWN = DIGITS / WARP;

using Mass = unsigned long long;

// A greater logit has a greater key. Adding 0 makes both zeros one.
__device__ unsigned key_of(float logit) {
    const unsigned bits = __float_as_uint(logit + 0.0f);
    return bits >> 31 ? ~bits : bits | 1u << 31;
}

__device__ Mass mass_of(float logit, float largest, float temperature) {
    return Mass(expf((logit - largest) / temperature) * float(1ull << 40));
}

// Returns the sum of the lanes up to this one.
template <typename Number>
__device__ Number warp_scan(Number sum) {
    for (int step = 1; step < WARP; step *= 2) {
        const Number below = __shfl_up_sync(~0u, sum, step);
        if (threadIdx.x % WARP >= step) sum += below;
    }
    return sum;
}

__global__ void top_p(const float* logits, const float* temperatures, const int* top_k, const float* p,
                      const float* uniform, int* token, int* size, int vocabulary) {
    __shared__ Mass mass[DIGITS], mass_above, of_warp[WARPS];
    __shared__ int count[DIGITS], count_above;
    __shared__ unsigned least;
    __shared__ float largest_of_warp[WARPS];
    const int r = blockIdx.x, lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const float* const row = logits + (long long)r * vocabulary;
    const float temperature = temperatures[r];

    float largest = -INFINITY;
    for (int v = threadIdx.x; v < vocabulary; v += THREADS) largest = fmaxf(largest, row[v]);
    for (int step = WARP / 2; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
    if (lane == 0) largest_of_warp[warp] = largest;
    if (threadIdx.x == 0) mass_above = count_above = least = 0;
    __syncthreads();
    for (int w = 0; w < WARPS; ++w) largest = fmaxf(largest, largest_of_warp[w]);

    double limit = 0;
#pragma unroll 1
    for (int shift = 32 - BITS; shift >= 0; shift -= BITS) {
        for (int d = threadIdx.x; d < DIGITS; d += THREADS) mass[d] = count[d] = 0;
        __syncthreads();
        for (int v = threadIdx.x; v < vocabulary; v += THREADS) {
            const unsigned key = key_of(row[v]);
            if ((unsigned long long)key >> (shift + BITS) != least) continue;  // a shift by 32 needs 64 bits
            atomicAdd(&count[key >> shift & (DIGITS - 1)], 1);
            atomicAdd(&mass[key >> shift & (DIGITS - 1)], mass_of(row[v], largest, temperature));
        }
        __syncthreads();
        if (warp == 0) {  // lane 0 has the highest digits
            int tokens = 0;
            Mass sum = 0;
            for (int d = 0; d < OWN; ++d) tokens += count[DIGITS - 1 - lane * OWN - d];
            for (int d = 0; d < OWN; ++d) sum += mass[DIGITS - 1 - lane * OWN - d];
            const Mass up_to = warp_scan(sum);
            if (limit == 0) limit = double(p[r]) * double(__shfl_sync(~0u, up_to, WARP - 1));
            tokens = count_above + warp_scan(tokens) - tokens;
            sum = mass_above + up_to - sum;
            int digit = -1, tokens_above;  // the lowest digit whose greatest key has little enough above it
            Mass sum_above;
            for (int d = DIGITS - 1 - lane * OWN; d > DIGITS - 1 - (lane + 1) * OWN; --d) {
                if (count[d] && tokens < top_k[r] && double(sum) < limit) digit = d, tokens_above = tokens, sum_above = sum;
                tokens += count[d];
                sum += mass[d];
            }
            const unsigned has_one = __ballot_sync(~0u, digit >= 0);
            __syncwarp();  // all lanes have read what one of them replaces
            if (lane == 31 - __clz(has_one)) count_above = tokens_above, mass_above = sum_above, least = least << BITS | digit;
        }
        __syncthreads();
    }
    // Each warp sums the nucleus over a part of the row. The one that passes the drawn mass goes over its part again.
    const int part = (vocabulary + WARPS - 1) / WARPS, end = min(vocabulary, (warp + 1) * part);
    Mass own = 0, before = 0;
    for (int v = warp * part + lane; v < end; v += WARP)
        if (key_of(row[v]) >= least) own += mass_of(row[v], largest, temperature);
    own = __shfl_sync(~0u, warp_scan(own), WARP - 1);
    if (lane == 0) of_warp[warp] = own;
    __syncthreads();
    const Mass nucleus = mass_above + mass[least & (DIGITS - 1)];  // what is above the least logit, and its equals
    const Mass drawn = Mass(double(uniform[r]) * double(nucleus));
    for (int w = 0; w < warp; ++w) before += of_warp[w];
    for (int first = warp * part; before <= drawn && drawn < before + own; first += WARP) {
        const int v = first + lane;
        const bool inside = v < end && key_of(row[v]) >= least;
        const Mass up_to = before + warp_scan(inside ? mass_of(row[v], largest, temperature) : 0);
        const unsigned passed = __ballot_sync(~0u, up_to > drawn);
        if (passed && lane == 0) token[r] = first + __ffs(passed) - 1;
        if (passed) break;
        own -= __shfl_sync(~0u, up_to, WARP - 1) - before;
        before = __shfl_sync(~0u, up_to, WARP - 1);
    }
    if (threadIdx.x == 0) size[r] = count_above + count[least & (DIGITS - 1)];
}
