#include <cstdint>

namespace arch {

#define SPECIAL_REGISTER(NAME, PTX)                                \
    __device__ __forceinline__ std::uint32_t NAME() {              \
        std::uint32_t value;                                       \
        asm volatile("mov.u32 \t%0,\n\t%%" PTX ";" : "=r"(value)); \
        return value;                                              \
    }

SPECIAL_REGISTER(ctaid_x, "ctaid.x")
SPECIAL_REGISTER(ntid_x, "ntid.x")
SPECIAL_REGISTER(tid_x, "tid.x")
SPECIAL_REGISTER(laneid, "laneid")

__global__ void hello(std::uint32_t out[], std::uint32_t n) {
    const std::uint32_t i = ctaid_x() * ntid_x() + tid_x();
    out[i] = ctaid_x();
    out[n + i] = tid_x() >> 5;
    out[2u * n + i] = laneid();
    out[3u * n + i] = i;
}

}  // namespace arch
