// Launch on sm_90a: <<<2, 64>>> float x[128], float out[128]
#include <cuda/ptx>
namespace ptx = cuda::ptx;
// The two blocks of a cluster read one another's tile.
__global__ void __cluster_dims__(2) kernel(const float* x, float* out) {
    __shared__ float tile[64];
    const int t = threadIdx.x, i = blockIdx.x * 64 + t;
    tile[t] = x[i];
    ptx::barrier_cluster_arrive();
    ptx::barrier_cluster_wait();
    unsigned own = __cvta_generic_to_shared(&tile[t]), peer;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(peer) : "r"(own), "r"(blockIdx.x ^ 1));
    float value;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(peer));
    out[i] = value;
}
