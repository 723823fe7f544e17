// Sample from the nucleus of a row of logits: temperature, top-k, top-p.
//
// Radix select finds the smallest logit of the nucleus. It works like a radix sort from the highest digit down, but
// counts only the keys that may still be the smallest, and moves no key. A second selection, by token number, draws the
// token. Probabilities are integers in units of 2^-40 of the largest one, so sums are the same in every order.

constexpr int WARP = 32, THREADS = 512, LOADS = 8, BITS = 8, DIGITS = 1 << BITS, CANDIDATES = 2048, TOKEN_BITS = 24;

using Mass = unsigned long long;

// For each digit, the number of tokens and the sum of their masses. A 64-bit addition in shared memory is a loop, which
// starts over if another thread was faster. Two additions of 32 bits, the second one with the carry, need no loop.
struct Histogram {
    unsigned count[DIGITS], low[DIGITS], high[DIGITS];

    __device__ void clear() {
        __syncthreads();  // the last digits have been read
        for (int d = threadIdx.x; d < DIGITS; d += THREADS) count[d] = low[d] = high[d] = 0;
        __syncthreads();
    }

    __device__ void add(int digit, Mass mass, int tokens = 1) {
        atomicAdd(&count[digit], tokens);
        const unsigned more = unsigned(mass), old_low = atomicAdd(&low[digit], more);
        const unsigned carried = unsigned(mass >> 32) + (old_low + more < old_low);
        if (carried) atomicAdd(&high[digit], carried);  // seldom: most masses are far below 2^32
    }

    __device__ Mass mass(int digit) const { return Mass(high[digit]) << 32 | low[digit]; }
};

// The digits chosen so far, the sum of all greater keys, and this sum plus the sum of the keys with these digits.
struct Choice {
    Mass digits, mass_above, mass;
    int above, tokens;
};

template <typename T>
__device__ T warp_scan(T sum) {
    for (int step = 1; step < WARP; step *= 2) {
        const T below = __shfl_up_sync(~0u, sum, step);
        if (threadIdx.x % WARP >= step) sum += below;
    }
    return sum;
}

// Chooses the lowest digit in use above which there are fewer than `limit` tokens and a mass of at most `budget`. Every
// warp computes the same. A lane has 8 neighboring digits, and the first lane has the highest ones.
__device__ Choice choose(const Histogram& h, Choice last, int limit, Mass budget) {
    constexpr int PART = DIGITS / WARP;
    const int top_digit = DIGITS - 1 - PART * (threadIdx.x % WARP);
    int tokens = 0;
    Mass mass = 0;
    for (int d = top_digit; d > top_digit - PART; --d) tokens += h.count[d], mass += h.mass(d);
    tokens = last.above + warp_scan(tokens) - tokens, mass = last.mass_above + warp_scan(mass) - mass;
    Choice best{};
    bool has_choice = false;
    for (int d = top_digit; d > top_digit - PART && tokens < limit && mass <= budget; --d) {
        if (h.mass(d)) has_choice = true, best = {Mass(d), mass, mass + h.mass(d), tokens, tokens + int(h.count[d])};
        tokens += h.count[d], mass += h.mass(d);
    }
    const int lane = WARP - 1 - __clz(__ballot_sync(~0u, has_choice));  // the last lane with such a digit
    return {last.digits << BITS | __shfl_sync(~0u, best.digits, lane), __shfl_sync(~0u, best.mass_above, lane),
            __shfl_sync(~0u, best.mass, lane), __shfl_sync(~0u, best.above, lane), __shfl_sync(~0u, best.tokens, lane)};
}

// Chooses the remaining digits of a key of `bits` bits. visit(i, add) calls add(key, mass) if item i takes part.
template <typename Visit>
__device__ Choice radix_select(Histogram& h, Choice choice, int bits, int items, int limit, Mass budget, Visit visit) {
    for (int shift = bits - BITS; shift >= 0; shift -= BITS) {
        h.clear();
        for (int i = threadIdx.x; i < items; i += THREADS) {
            visit(i, [&](Mass key, Mass mass) {
                if (key >> (shift + BITS) == choice.digits) h.add(key >> shift & (DIGITS - 1), mass);
            });
        }
        __syncthreads();
        choice = choose(h, choice, limit, budget);
    }
    return choice;
}

// A greater logit has a greater key. Adding 0 gives both zeros the same key.
__device__ unsigned key_of(float logit) {
    const unsigned bits = __float_as_uint(logit + 0.0f);
    return bits >> 31 ? ~bits : bits | 1u << 31;
}

// Calls visit(token, logit) for all tokens. A thread loads LOADS logits before it uses the first one.
template <typename Visit>
__device__ void for_each_token(const float* row, int vocabulary, Visit visit) {
    for (int first = threadIdx.x; first < vocabulary; first += LOADS * THREADS) {
        float logit[LOADS];
        for (int k = 0; k < LOADS; ++k) {
            const int v = first + k * THREADS;
            logit[k] = v < vocabulary ? row[v] : 0.0f;
        }
        for (int k = 0; k < LOADS; ++k)
            if (first + k * THREADS < vocabulary) visit(first + k * THREADS, logit[k]);
    }
}

__global__ void __launch_bounds__(THREADS, 3)
top_p(const float* logits, const float* temperature, const int* top_k, const float* p, const float* uniform, int* token,
      int* size, float* kept, int vocabulary) {
    __shared__ Histogram h;
    __shared__ int listed, candidates[CANDIDATES];
    __shared__ float warp_max[THREADS / WARP];
    const int r = blockIdx.x, lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const float* const row = logits + (long long)r * vocabulary;
    const float scale = 1.44269504f / temperature[r];  // for exponentials with base 2

    float max_logit = -INFINITY;
    for_each_token(row, vocabulary, [&](int, float logit) { max_logit = fmaxf(max_logit, logit); });
    for (int step = WARP / 2; step > 0; step /= 2) max_logit = fmaxf(max_logit, __shfl_xor_sync(~0u, max_logit, step));
    if (lane == 0) warp_max[warp] = max_logit;
    if (threadIdx.x == 0) listed = 0;
    h.clear();
    for (int w = 0; w < THREADS / WARP; ++w) max_logit = fmaxf(max_logit, warp_max[w]);

    // The first digit is the distance from the largest logit. Floats that are close to each other have the same highest
    // bits, so a digit of these bits would make nearly all threads add to the same few counters.
    const auto digit_of = [&](float logit) {
        return DIGITS - 1 - int(fminf(16 * scale * (max_logit - logit), DIGITS - 1));
    };
    const auto mass_of = [&](float logit) { return Mass(exp2f(scale * (logit - max_logit)) * float(1ull << 40)); };
    Mass tail = 0;
    int tail_tokens = 0;
    for_each_token(row, vocabulary, [&](int, float logit) {
        const int digit = digit_of(logit);
        if (digit > 0) h.add(digit, mass_of(logit));
        else tail += mass_of(logit), ++tail_tokens;  // most tokens, with less than 2^-15.9 of the largest probability
    });
    tail = warp_scan(tail), tail_tokens = warp_scan(tail_tokens);
    if (lane == WARP - 1) h.add(0, tail, tail_tokens);
    __syncthreads();
    Mass total = 0;
    for (int d = lane; d < DIGITS; d += WARP) total += h.mass(d);
    total = __shfl_sync(~0u, warp_scan(total), WARP - 1);
    const Mass budget = Mass(ceil(double(p[r]) * double(total))) - 1;  // the largest sum below p * total
    const Choice first = choose(h, Choice{}, top_k[r], budget);

    // From here, only tokens whose first digit is at least this one matter. Usually, these are a few hundred.
    const bool fits = first.tokens <= CANDIDATES;
    if (fits) {
        for_each_token(row, vocabulary, [&](int v, float logit) {
            if (digit_of(logit) >= first.digits) candidates[atomicAdd(&listed, 1)] = v;
        });
    }
    const int items = fits ? first.tokens : vocabulary;
    const auto item = [&](int i) { return fits ? candidates[i] : i; };
    const auto full_key_of = [&](float logit) { return Mass(digit_of(logit)) << 32 | key_of(logit); };
    const Choice nucleus = radix_select(h, first, 32, items, top_k[r], budget, [&](int i, auto add) {
        add(full_key_of(row[item(i)]), mass_of(row[item(i)]));
    });
    // The token is the last one in the nucleus before which the running sum is at most the drawn sum. The first token
    // of the vocabulary has the greatest key.
    const Mass drawn = Mass(double(uniform[r]) * double(nucleus.mass));
    const Choice last = radix_select(h, Choice{}, TOKEN_BITS, items, INT_MAX, drawn, [&](int i, auto add) {
        const int v = item(i);
        if (full_key_of(row[v]) >= nucleus.digits) add((1 << TOKEN_BITS) - 1 - v, mass_of(row[v]));
    });
    if (threadIdx.x > 0) return;
    token[r] = (1 << TOKEN_BITS) - 1 - last.digits;
    size[r] = nucleus.tokens;
    kept[r] = float(double(nucleus.mass) / double(total));
}
