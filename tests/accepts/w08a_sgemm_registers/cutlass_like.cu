// In the terms of CUTLASS: a threadblock tile, a warp tile, a thread tile; fragments, iterators, and an epilogue.

template <int M_, int N_, int K_>
struct GemmShape {
    static constexpr int kM = M_, kN = N_, kK = K_;
};

template <typename T, int N>
struct alignas(sizeof(T) * N >= 16 ? 16 : sizeof(T)) Array {
    T storage[N];
    __device__ T& operator[](int i) { return storage[i]; }
    __device__ T const& operator[](int i) const { return storage[i]; }
    __device__ void clear() {
#pragma unroll
        for (int i = 0; i < N; ++i) storage[i] = T(0);
    }
};

// Loads a tile of kRows x kColumns with predicates, kAccesses elements per thread, neighbors by neighbors.
template <int kRows, int kColumns, int kThreads>
class PredicatedTileIterator {
public:
    static constexpr int kAccesses = kRows * kColumns / kThreads;
    using Fragment = Array<float, kAccesses>;

    __device__ PredicatedTileIterator(const float* pointer, int rows, int columns, int row, int column)
        : pointer_(pointer), rows_(rows), columns_(columns), row_(row), column_(column) {}

    __device__ static int row(int access) { return (access * kThreads + int(threadIdx.x)) / kColumns; }
    __device__ static int column(int access) { return (access * kThreads + int(threadIdx.x)) % kColumns; }

    __device__ void load(Fragment& fragment) const {
#pragma unroll
        for (int access = 0; access < kAccesses; ++access) {
            const int r = row_ + row(access), c = column_ + column(access);
            fragment[access] = r < rows_ && c < columns_ ? pointer_[(long long)r * columns_ + c] : 0.0f;
        }
    }
    __device__ void add_tile_offset(int rows, int columns) { row_ += rows, column_ += columns; }

private:
    const float* pointer_;
    int rows_, columns_, row_, column_;
};

template <typename ThreadblockShape, typename WarpShape, typename ThreadShape>
class Mma {
public:
    static constexpr int kThreads = ThreadblockShape::kM / WarpShape::kM * (ThreadblockShape::kN / WarpShape::kN) * 32;
    using IteratorA = PredicatedTileIterator<ThreadblockShape::kM, ThreadblockShape::kK, kThreads>;
    using IteratorB = PredicatedTileIterator<ThreadblockShape::kK, ThreadblockShape::kN, kThreads>;
    using FragmentA = Array<float, ThreadShape::kM>;
    using FragmentB = Array<float, ThreadShape::kN>;
    using FragmentC = Array<float, ThreadShape::kM * ThreadShape::kN>;
    static constexpr int kLanesM = WarpShape::kM / ThreadShape::kM, kLanesN = WarpShape::kN / ThreadShape::kN;

    struct SharedStorage {
        alignas(16) float A[2][ThreadblockShape::kK][ThreadblockShape::kM + 4];
        alignas(16) float B[2][ThreadblockShape::kK][ThreadblockShape::kN];
    };

    __device__ Mma(SharedStorage& shared) : shared_(shared) {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        constexpr int across = ThreadblockShape::kN / WarpShape::kN;
        row_ = warp / across * WarpShape::kM + lane / kLanesN * 4;
        column_ = warp % across * WarpShape::kN + lane % kLanesN * 4;
    }

    __device__ void operator()(int iterations, FragmentC& accumulators, IteratorA a, IteratorB b) {
        typename IteratorA::Fragment tb_a;
        typename IteratorB::Fragment tb_b;
        a.load(tb_a), b.load(tb_b);
        store(0, tb_a, tb_b);
        __syncthreads();
        FragmentA warp_a[2];
        FragmentB warp_b[2];
        load(0, 0, warp_a[0], warp_b[0]);
        for (int stage = 0; iterations > 0; --iterations, stage ^= 1) {
#pragma unroll
            for (int step = 0; step < ThreadblockShape::kK; ++step) {
                if (step == ThreadblockShape::kK - 1) {
                    if (iterations > 1) store(stage ^ 1, tb_a, tb_b);
                    __syncthreads();
                    if (iterations > 1) load(stage ^ 1, 0, warp_a[0], warp_b[0]);
                } else {
                    load(stage, step + 1, warp_a[(step + 1) % 2], warp_b[(step + 1) % 2]);
                }
                if (step == 0 && iterations > 1) {
                    a.add_tile_offset(0, ThreadblockShape::kK), b.add_tile_offset(ThreadblockShape::kK, 0);
                    a.load(tb_a), b.load(tb_b);
                }
                multiply_add(accumulators, warp_a[step % 2], warp_b[step % 2]);
            }
        }
    }

    __device__ int row(int i) const { return row_ + i / 4 * kLanesM * 4 + i % 4; }
    __device__ int column(int j) const { return column_ + j / 4 * kLanesN * 4 + j % 4; }

private:
    __device__ void store(int stage, const typename IteratorA::Fragment& a, const typename IteratorB::Fragment& b) {
#pragma unroll
        for (int i = 0; i < IteratorA::kAccesses; ++i) shared_.A[stage][IteratorA::column(i)][IteratorA::row(i)] = a[i];
#pragma unroll
        for (int i = 0; i < IteratorB::kAccesses; ++i) shared_.B[stage][IteratorB::row(i)][IteratorB::column(i)] = b[i];
    }
    __device__ void load(int stage, int step, FragmentA& a, FragmentB& b) const {
#pragma unroll
        for (int i = 0; i < ThreadShape::kM; i += 4)
            *reinterpret_cast<float4*>(&a[i]) = *reinterpret_cast<const float4*>(&shared_.A[stage][step][row(i)]);
#pragma unroll
        for (int j = 0; j < ThreadShape::kN; j += 4)
            *reinterpret_cast<float4*>(&b[j]) = *reinterpret_cast<const float4*>(&shared_.B[stage][step][column(j)]);
    }
    __device__ static void multiply_add(FragmentC& c, const FragmentA& a, const FragmentB& b) {
#pragma unroll
        for (int j = 0; j < ThreadShape::kN; ++j) {
#pragma unroll
            for (int i = 0; i < ThreadShape::kM; ++i) {
                const int serpentine = j % 2 ? ThreadShape::kM - 1 - i : i;
                c[serpentine * ThreadShape::kN + j] += a[serpentine] * b[j];
            }
        }
    }

    SharedStorage& shared_;
    int row_, column_;
};

using Core = Mma<GemmShape<128, 128, 8>, GemmShape<32, 64, 8>, GemmShape<8, 8, 1>>;

__launch_bounds__(Core::kThreads, 2)
__global__ void Gemm(const float* ptr_A, const float* ptr_B, float* ptr_D, int M, int N, int K) {
    __shared__ Core::SharedStorage shared;
    const int row = blockIdx.y * 128, column = blockIdx.x * 128;
    Core mma(shared);
    Core::FragmentC accumulators;
    accumulators.clear();
    mma((K + 7) / 8, accumulators, Core::IteratorA(ptr_A, M, K, row, 0), Core::IteratorB(ptr_B, K, N, 0, column));
#pragma unroll
    for (int i = 0; i < 8; ++i) {
#pragma unroll
        for (int j = 0; j < 8; j += 4) {
            const int r = row + mma.row(i), c = column + mma.column(j);
            float* to = ptr_D + (long long)r * N + c;
            if (r < M && c < N && N % 4 == 0) {
                *reinterpret_cast<float4*>(to) = *reinterpret_cast<float4*>(&accumulators[i * 8 + j]);
            } else if (r < M) {
                for (int e = 0; e < 4; ++e)
                    if (c + e < N) to[e] = accumulators[i * 8 + j + e];
            }
        }
    }
}
