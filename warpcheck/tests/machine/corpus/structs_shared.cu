// grid 2, block 128, n 256: structures in shared memory, of three and of four floats
struct Three { float x, y, z; };
struct Four { float x, y, z, w; };
extern "C" __global__ void structs_shared(const float* a, const int* c, float* b, int n) {
    __shared__ Three three[128];
    __shared__ Four four[128];
    int t = threadIdx.x, i = blockIdx.x * 128 + t;
    three[t] = {a[3 * i], a[3 * i + 1], a[3 * i + 2]};
    four[t] = {a[4 * i], a[4 * i + 1], a[4 * i + 2], a[4 * i + 3]};
    __syncthreads();
    Three p = three[127 - t];
    Four q = four[(t + 5) & 127];
    b[i] = p.x * q.x + p.y * q.y + p.z * q.z + q.w;
}
