// grid 4 4, block 16 16, n 64: a step of the game of life, from global memory, the edges wrap around
extern "C" __global__ void life(const float* a, const int* c, float* b, int n) {
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y, count = 0;
    for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++)
            if (dx || dy) count += c[(y + dy + n) % n * n + (x + dx + n) % n] & 1;
    ((int*)b)[y * n + x] = count == 3 || (count == 2 && c[y * n + x] & 1);
}
