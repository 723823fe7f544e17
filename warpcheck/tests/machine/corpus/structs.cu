// grid 4, block 256, n 1000: an array of structures of three floats and an int, and one that is aligned
struct Particle { float x, y, z; int kind; };
struct __align__(16) Aligned { float x, y, z, w; };
extern "C" __global__ void structs(const float* a, const int* c, float* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        Particle p = ((const Particle*)a)[i];
        Aligned q = ((const Aligned*)a)[i + n];
        p.x += q.x * 0.5f, p.y += q.y * 0.5f, p.z += q.z + q.w;
        ((Particle*)b)[i] = p;
    }
}
