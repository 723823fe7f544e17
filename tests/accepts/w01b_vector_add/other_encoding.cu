// Größe: n Elemente, ein Thread für jedes
extern "C" __global__ void addiere(const float x[], const float y[], float summe[], const long long n)
{
	const long long i = blockIdx.x * (long long) blockDim.x + threadIdx.x;
	if (i < n)
		summe[i] = x[i] + y[i];
}
