template <int M_, int N_, int K_>
struct GemmShape {
    static constexpr int kM = M_, kN = N_, kK = K_;
};

template <typename Element>
struct LinearCombination {
    Element alpha = 1;
    __device__ Element operator()(Element accumulator) const { return alpha * accumulator; }
};

template <typename Shape_, typename Epilogue_>
struct Gemm {
    using Shape = Shape_;
    using Epilogue = Epilogue_;
    struct SharedStorage {
        float A[Shape::kK][Shape::kM];
        float B[Shape::kK][Shape::kN];
    };
    static constexpr int kThreads = 256, kColumns = 64, kResults = Shape::kM * Shape::kN / kThreads;

    __device__ void operator()(SharedStorage& shared, const float* a, const float* b, float* d, int M, int N, int K) {
        const int t = threadIdx.x, m0 = blockIdx.y * Shape::kM, n0 = blockIdx.x * Shape::kN;
        float accumulators[kResults];
#pragma unroll
        for (float& accumulator : accumulators) accumulator = 0;
        for (int k0 = 0; k0 < K; k0 += Shape::kK) {
            for (int i = t; i < Shape::kM * Shape::kK; i += kThreads) {
                const int m = i / Shape::kK, k = i % Shape::kK;
                // columns are rotated, so that the stores of a warp meet different banks
                shared.A[k][(m + 2 * k) % Shape::kM] = m0 + m < M && k0 + k < K ? a[(m0 + m) * (long long)K + k0 + k] : 0.f;
            }
            for (int i = t; i < Shape::kN * Shape::kK; i += kThreads) {
                const int k = i / Shape::kN, n = i % Shape::kN;
                shared.B[k][n] = k0 + k < K && n0 + n < N ? b[(k0 + k) * (long long)N + n0 + n] : 0.f;
            }
            __syncthreads();
#pragma unroll
            for (int k = 0; k < Shape::kK; ++k) {
                for (int r = 0; r < kResults; ++r) {
                    const int m = t / kColumns + r * (kThreads / kColumns);
                    accumulators[r] += shared.A[k][(m + 2 * k) % Shape::kM] * shared.B[k][t % kColumns];
                }
            }
            __syncthreads();
        }
        const Epilogue epilogue;
        for (int r = 0; r < kResults; ++r) {
            const int m = m0 + t / kColumns + r * (kThreads / kColumns), n = n0 + t % kColumns;
            if (m < M && n < N) d[m * (long long)N + n] = epilogue(accumulators[r]);
        }
    }
};

template <typename Operator>
__global__ __launch_bounds__(256) void Kernel(const float* a, const float* b, float* d, int M, int N, int K) {
    extern __shared__ int SharedStorageBase[];
    auto* shared = reinterpret_cast<typename Operator::SharedStorage*>(SharedStorageBase);
    Operator op;
    op(*shared, a, b, d, M, N, K);
}
