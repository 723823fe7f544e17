__global__ void nothing(float* out, long long n) {
    if (n < 0) out[0] = 0;
}
