#include <cutlass/cutlass.h>
#include <cutlass/epilogue/thread/linear_combination.h>
#include <cutlass/gemm/kernel/default_gemm.h>
#include <cutlass/gemm/threadblock/threadblock_swizzle.h>

using namespace cutlass;
using Element = bfloat16_t;
using Gemm = gemm::kernel::DefaultGemm<
    Element, layout::RowMajor, 8, Element, layout::ColumnMajor, 8, Element, layout::RowMajor, float,
    arch::OpClassTensorOp, arch::Sm80, gemm::GemmShape<64, 64, 32>, gemm::GemmShape<32, 32, 32>,
    gemm::GemmShape<16, 8, 16>, epilogue::thread::LinearCombination<Element, 8, float, float>,
    gemm::threadblock::GemmIdentityThreadblockSwizzle<1>, 3, false, arch::OpMultiplyAdd,
    gemm::SharedMemoryClearOption::kZfill>::GemmKernel;

__global__ void __launch_bounds__(128) matmul(Element* a, Element* b, Element* out, int m, int n, int k) {
    extern __shared__ __align__(128) unsigned char memory[];
    const gemm::GemmCoord tiles((m + 63) / 64, (n + 63) / 64, 1);
    typename Gemm::Params params({m, n, k}, tiles, {a, k}, {b, k}, {out, n}, {out, n}, {1.0f, 0.0f});
    Gemm()(params, *reinterpret_cast<typename Gemm::SharedStorage*>(memory));
}
