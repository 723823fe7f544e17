// Oscillators: out[i] = the position of oscillator i, steps[i] time steps after it was released at rest at x[i].
//
// TODO: which oscillators should share a warp, and how do they get there?

constexpr float H = 0.25f;  // a time step
constexpr int MOST_STEPS = 64;

struct Oscillator {
    float x;
    float v = 0;

    __device__ static float acceleration(float x) { return -x * (1 + x * x); }

    // The classical Runge-Kutta method.
    __device__ void step() {
        const float v1 = v, a1 = acceleration(x);
        const float v2 = v + H / 2 * a1, a2 = acceleration(x + H / 2 * v1);
        const float v3 = v + H / 2 * a2, a3 = acceleration(x + H / 2 * v2);
        const float v4 = v + H * a3, a4 = acceleration(x + H * v3);
        x += H / 6 * (v1 + 2 * v2 + 2 * v3 + v4);
        v += H / 6 * (a1 + 2 * a2 + 2 * a3 + a4);
    }
};

__device__ float integrate(float x, int steps) {
    Oscillator oscillator{x};
    for (int step = 0; step < steps; ++step) oscillator.step();
    return oscillator.x;
}

__global__ void oscillate(const float* x, const unsigned char* steps, float* out, int n) {  // TODO: launch bounds
    // TODO: give a warp's lanes the same number of steps, or a new oscillator to each lane that has finished
}
