// Sample from the nucleus of a row of logits: temperature, top-k, top-p.
//
// Radix select finds the smallest logit of the nucleus. It works like a radix sort from the highest digit down, but
// counts only the keys that may still be the smallest, and moves no key. Probabilities are integers in units of 2^-40
// of the largest probability, so sums are the same in every order.

constexpr int WARP = 32, THREADS = 512, WARPS = THREADS / WARP, BITS = 8, DIGITS = 1 << BITS;

using Mass = unsigned long long;

// A greater logit has a greater key. Adding 0 gives both zeros the same key.
__device__ unsigned key_of(float logit) {
    const unsigned bits = __float_as_uint(logit + 0.0f);
    return bits >> 31 ? ~bits : bits | 1u << 31;
}

__device__ Mass mass_of(float logit, float max_logit, float temperature) {
    return Mass(expf((logit - max_logit) / temperature) * float(1ull << 40));
}

__global__ void top_p(const float* logits, const float* temperature, const int* top_k, const float* p,
                      const float* uniform, int* token, int* size, float* kept, int vocabulary) {
    __shared__ Mass mass[DIGITS];
    __shared__ unsigned count[DIGITS], threshold;
    __shared__ float warp_max[WARPS];
    const int r = blockIdx.x, limit = top_k[r], part = (vocabulary + DIGITS - 1) / DIGITS;
    const float* const row = logits + (long long)r * vocabulary;
    float max_logit = -INFINITY;
    for (int v = threadIdx.x; v < vocabulary; v += THREADS) max_logit = fmaxf(max_logit, row[v]);
    for (int step = WARP / 2; step > 0; step /= 2) max_logit = fmaxf(max_logit, __shfl_xor_sync(~0u, max_logit, step));
    if (threadIdx.x % WARP == 0) warp_max[threadIdx.x / WARP] = max_logit;
    if (threadIdx.x == 0) threshold = 0;
    __syncthreads();
    for (int w = 0; w < WARPS; ++w) max_logit = fmaxf(max_logit, warp_max[w]);

    Mass total = 0, mass_above = 0, sum = 0;  // used by thread 0 only
    int count_above = 0, tokens = 0;
    for (int shift = 32 - BITS; shift >= 0; shift -= BITS) {
        for (int d = threadIdx.x; d < DIGITS; d += THREADS) mass[d] = count[d] = 0;
        __syncthreads();
        for (int v = threadIdx.x; v < vocabulary; v += THREADS) {
            const unsigned long long key = key_of(row[v]);  // 64 bits, because the first shift is by 32
            if (key >> (shift + BITS) != threshold) continue;
            atomicAdd(&count[key >> shift & (DIGITS - 1)], 1);
            atomicAdd(&mass[key >> shift & (DIGITS - 1)], mass_of(row[v], max_logit, temperature[r]));
        }
        __syncthreads();
        if (threadIdx.x == 0) {  // find the lowest digit whose keys can be in the nucleus
            for (int d = 0; shift == 32 - BITS && d < DIGITS; ++d) total += mass[d];
            unsigned digit = 0;
            tokens = count_above, sum = mass_above;
            for (int d = DIGITS - 1; d >= 0 && tokens < limit && double(sum) < double(p[r]) * double(total); --d) {
                if (count[d]) digit = d, count_above = tokens, mass_above = sum;
                tokens += count[d], sum += mass[d];
            }
            threshold = threshold << BITS | digit;
        }
        __syncthreads();
    }
    // Sum the nucleus in parts of the vocabulary, then search the part in which the running sum exceeds the drawn sum.
    for (int d = threadIdx.x; d < DIGITS; d += THREADS) mass[d] = 0;
    __syncthreads();
    for (int v = threadIdx.x; v < vocabulary; v += THREADS)
        if (key_of(row[v]) >= threshold) atomicAdd(&mass[v / part], mass_of(row[v], max_logit, temperature[r]));
    __syncthreads();
    if (threadIdx.x == 0) {
        Mass drawn = Mass(double(uniform[r]) * double(sum)), up_to = 0;
        int v = 0;
        for (; up_to + mass[v / part] <= drawn; v += part) up_to += mass[v / part];
        while ((up_to += key_of(row[v]) >= threshold ? mass_of(row[v], max_logit, temperature[r]) : 0) <= drawn) ++v;
        token[r] = v, size[r] = tokens, kept[r] = float(double(sum) / double(total));
    }
}
