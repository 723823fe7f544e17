// out = max(x @ weight.T + bias, 0) and amax = the largest value of each row of out, as a CUTLASS GEMM for Hopper with an
// epilogue visitor tree. x is m x k, weight n x k, and out m x n, all row-major. They and bias are bfloat16, amax is float32.

#include <cuda_runtime.h>
#include <cutlass/cutlass.h>

#include <cute/tensor.hpp>
#include <cutlass/gemm/gemm.h>
#include <cutlass/epilogue/dispatch_policy.hpp>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/epilogue/thread/activation.h>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>
#include <cutlass/device_kernel.h>
#include <cutlass/util/packed_stride.hpp>

using namespace cute;
namespace fusion = cutlass::epilogue::fusion;

using Element = cutlass::bfloat16_t;
using RowMajor = cutlass::layout::RowMajor;
using ColumnMajor = cutlass::layout::ColumnMajor;
using TileShape = Shape<_64, _64, _64>;  // the tile of out per block, and the depth of a k-tile
using ClusterShape = Shape<_1, _1, _1>;
constexpr int ALIGNMENT = 8;  // elements in 16 bytes, which TMA requires
constexpr auto ROUND = cutlass::FloatRoundStyle::round_to_nearest;

// The functions that every node of a visitor tree needs, for a node without shared memory and workspace.
template <class Arguments_>
struct PlainNode : fusion::Sm90VisitorImpl<> {
    using Arguments = Arguments_;
    using Params = Arguments_;
    template <class Problem>
    static Params to_underlying_arguments(const Problem&, const Arguments& arguments, void*) { return arguments; }
    template <class Problem>
    static bool can_implement(const Problem&, const Arguments&) { return true; }
    template <class Problem>
    static size_t get_workspace_size(const Problem&, const Arguments&) { return 0; }
    template <class Problem>
    static cutlass::Status initialize_workspace(
        const Problem&, const Arguments&, void*, cudaStream_t, cutlass::CudaHostAdapter* = nullptr) {
        return cutlass::Status::kSuccess;
    }

    const Params* params = nullptr;
    PlainNode() = default;
    CUTLASS_HOST_DEVICE PlainNode(const Params& params, const SharedStorage&) : params(&params) {}
};

struct RowMaxArguments { float* amax; };

// A node that returns its input, and writes the maximum of each row to global memory, where amax starts at zero.
struct RowMax : PlainNode<RowMaxArguments> {
    using PlainNode::PlainNode;

    template <class CoordTensor, class Residue>
    struct Callbacks : fusion::EmptyConsumerStoreCallbacks {
        float* amax;           // the element of this thread's first row
        CoordTensor tCcD;      // (row, column) of each of this thread's elements, relative to its first one
        Residue residue_tCcD;  // the number of rows and columns from the thread's first element to the end
        float row_max[2] = {0, 0};  // the maxima of this thread's two rows, 8 apart after wgmma

        CUTLASS_DEVICE Callbacks(float* amax, CoordTensor tCcD, Residue residue_tCcD)
            : amax(amax), tCcD(tCcD), residue_tCcD(residue_tCcD) {}

        template <class Accumulator, class Input, int N>
        CUTLASS_DEVICE auto visit(const cutlass::Array<Accumulator, N>&, int epi_v, int epi_m, int epi_n,
                                  const cutlass::Array<Input, N>& input) {
            const auto coordinates = tCcD(_, _, _, epi_m, epi_n);  // coordinates in the subtile
            CUTE_UNROLL
            for (int i = 0; i < N; ++i) {
                const auto coordinate = coordinates(epi_v * N + i);
                float& maximum = row_max[get<0>(coordinate) / 8];
                if (elem_less(coordinate, residue_tCcD)) maximum = fmaxf(maximum, input[i]);
            }
            return input;
        }

        CUTLASS_DEVICE void end() {
            CUTE_UNROLL
            for (int i = 0; i < 2; ++i) {
                // Four neighboring lanes share a row.
                row_max[i] = fmaxf(row_max[i], __shfl_xor_sync(0xFFFFFFFF, row_max[i], 1));
                row_max[i] = fmaxf(row_max[i], __shfl_xor_sync(0xFFFFFFFF, row_max[i], 2));
                const bool is_in_out = 8 * i < get<0>(residue_tCcD);
                // The bits of nonnegative floats have the same order as integers.
                if (threadIdx.x % 4 == 0 && is_in_out) {
                    atomicMax(reinterpret_cast<int*>(amax + 8 * i), __float_as_int(row_max[i]));
                }
            }
        }
    };

    template <bool, class... Args>
    CUTLASS_DEVICE auto get_consumer_store_callbacks(const fusion::ConsumerStoreArgs<Args...>& args) {
        const int first_row = get<0>(args.problem_shape_mnkl) - get<0>(args.residue_tCcD);
        return Callbacks<decltype(args.tCcD), decltype(args.residue_tCcD)>(
            params->amax + first_row, args.tCcD, args.residue_tCcD);
    }
};

// The tree, from the leaves to the root: accumulator + bias, ReLU, RowMax. The root's result is rounded and stored.
using Bias = fusion::Sm90RowBroadcast<0, TileShape, Element, float>;
using Sum = fusion::Sm90EVT<fusion::Sm90Compute<cutlass::plus, float, float, ROUND>, fusion::Sm90AccFetch, Bias>;
using Relu = fusion::Sm90EVT<fusion::Sm90Compute<cutlass::epilogue::thread::ReLu, float, float, ROUND>, Sum>;
using Tree = fusion::Sm90EVT<RowMax, Relu>;

using Epilogue = cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape, ClusterShape,
    cutlass::epilogue::collective::EpilogueTileAuto, float, float,  // accumulators, and the tree's compute type
    void, RowMajor, ALIGNMENT,                                      // no C
    Element, RowMajor, ALIGNMENT,                                   // D, which is out
    cutlass::epilogue::TmaWarpSpecialized, Tree>::CollectiveOp;
using Mainloop = cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp,
    Element, RowMajor, ALIGNMENT,     // A, which is x
    Element, ColumnMajor, ALIGNMENT,  // B is k x n: weight.T
    float, TileShape, ClusterShape,
    cutlass::gemm::collective::StageCountAutoCarveout<sizeof(Epilogue::SharedStorage)>,
    cutlass::gemm::KernelTmaWarpSpecialized>::CollectiveOp;
using Gemm = cutlass::gemm::kernel::GemmUniversal<Shape<int, int, int, int>, Mainloop, Epilogue>;

#define CHECK(call) \
    if (const cudaError_t status = (call); status != cudaSuccess) return status

// Arrays in device memory: copies of x, weight and bias, space for out, and zeros for amax.
struct DeviceArrays {
    Element *x = nullptr, *weight = nullptr, *bias = nullptr, *out = nullptr;
    float* amax = nullptr;

    cudaError_t allocate(const Element* x_on_host, const Element* weight_on_host, const Element* bias_on_host,
                         size_t m, size_t n, size_t k) {
        CHECK(cudaMalloc(&x, sizeof(Element) * m * k));
        CHECK(cudaMalloc(&weight, sizeof(Element) * n * k));
        CHECK(cudaMalloc(&bias, sizeof(Element) * n));
        CHECK(cudaMalloc(&out, sizeof(Element) * m * n));
        CHECK(cudaMalloc(&amax, sizeof(float) * m));
        CHECK(cudaMemcpy(x, x_on_host, sizeof(Element) * m * k, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(weight, weight_on_host, sizeof(Element) * n * k, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(bias, bias_on_host, sizeof(Element) * n, cudaMemcpyHostToDevice));
        return cudaMemset(amax, 0, sizeof(float) * m);
    }
    ~DeviceArrays() {
        for (void* array : {(void*)x, (void*)weight, (void*)bias, (void*)out, (void*)amax}) cudaFree(array);
    }
};

extern "C" cudaError_t linear_relu_amax(const Element* x, const Element* weight, const Element* bias, Element* out,
                                        float* amax, int m, int n, int k) {
    DeviceArrays device;
    CHECK(device.allocate(x, weight, bias, m, n, k));

    const auto stride_x = cutlass::make_cute_packed_stride(Gemm::StrideA{}, make_shape(m, k, 1));
    const auto stride_weight = cutlass::make_cute_packed_stride(Gemm::StrideB{}, make_shape(n, k, 1));
    const auto stride_out = cutlass::make_cute_packed_stride(Gemm::StrideD{}, make_shape(m, n, 1));
    // A node's arguments follow those of its children.
    const Tree::Arguments tree = {{{{}, {device.bias}, {}}, {}}, {device.amax}};
    const Gemm::Arguments arguments = {cutlass::gemm::GemmUniversalMode::kGemm, {m, n, k, 1},
                                       {device.x, stride_x, device.weight, stride_weight},
                                       {tree, nullptr, {}, device.out, stride_out}};
    if (!Gemm::can_implement(arguments)) return cudaErrorInvalidValue;
    const Gemm::Params params = Gemm::to_underlying_arguments(arguments, nullptr);  // encodes the tensor maps

    const auto kernel = cutlass::device_kernel<Gemm>;
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Gemm::SharedStorageSize));
    kernel<<<Gemm::get_grid_shape(params), Gemm::get_block_shape(), Gemm::SharedStorageSize>>>(params);
    CHECK(cudaGetLastError());

    CHECK(cudaMemcpy(out, device.out, sizeof(Element) * m * n, cudaMemcpyDeviceToHost));
    return cudaMemcpy(amax, device.amax, sizeof(float) * m, cudaMemcpyDeviceToHost);
}
