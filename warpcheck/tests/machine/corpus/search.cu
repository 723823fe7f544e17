// grid 2, block 128, n 1024: binary search of each thread, which leaves when it has found
extern "C" __global__ void search(const float* a, const int* c, float* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, low = 0, high = n, wanted = c[i] & 2047;
    while (low < high) {
        int middle = (low + high) / 2, value = 2 * middle + (c[middle] & 1);
        if (value == wanted) { b[i] = middle; return; }
        if (value < wanted) low = middle + 1; else high = middle;
    }
    b[i] = -low;
}
