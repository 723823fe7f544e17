// The CUDA runtime that `host_program` links into a program that runs without a GPU.
//
// Every function of the runtime calls `warpcheck_handler`, which Python sets (cuda_runtime.py), with its name, the address
// that it returns to, and its arguments as 64-bit words. The registered kernels and the configuration between <<< and >>>
// are kept here, because programs register kernels before Python can set the handler. The file declares the types
// itself: parsing cuda_runtime_api.h would take longer than compiling everything else.

#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <ucontext.h>

typedef uint64_t Word;
struct dim3 { unsigned x, y, z; };  // passed by value, as vector_types.h declares it

struct Configuration { dim3 grid, block; Word shared_bytes, stream, caller; };
static Configuration configuration;  // of the <<< >>> that is being evaluated

// cudaLaunchConfig_t and cudaLaunchAttribute: driver_types.h
struct LaunchAttribute { unsigned id; alignas(8) char value[64]; };
struct LaunchConfig { dim3 grid, block; Word shared_bytes, stream; const LaunchAttribute* attributes; unsigned attribute_count; };
constexpr unsigned CLUSTER_DIMENSION = 4;

struct RegisteredKernel { const void* host_function; const char* name; };
constexpr int MOST_KERNELS = 1024;
static RegisteredKernel kernels[MOST_KERNELS];
static int kernel_count = 0;

static const char* kernel_name(const void* host_function) {
    for (int i = 0; i < kernel_count; ++i) {
        if (kernels[i].host_function == host_function) return kernels[i].name;
    }
    return nullptr;
}

extern "C" {

Word (*warpcheck_handler)(const char* function, Word caller, const Word* arguments) = nullptr;

// The addresses that stand for device memory. Nothing is mapped there, so host code that uses one faults.
Word warpcheck_device_start = 0, warpcheck_device_end = 0;

extern const char __ehdr_start;  // where this library is loaded: defined by the linker
Word warpcheck_base() { return (Word)&__ehdr_start; }

#define CALLER ((Word)__builtin_return_address(0))
#define FORWARD(function, ...) \
    const Word arguments[] = {__VA_ARGS__ __VA_OPT__(,) 0}; \
    return warpcheck_handler(#function, CALLER, arguments)

#define FUNCTION_0(name) int name() { FORWARD(name); }
#define FUNCTION_1(name) int name(Word a) { FORWARD(name, a); }
#define FUNCTION_2(name) int name(Word a, Word b) { FORWARD(name, a, b); }
#define FUNCTION_3(name) int name(Word a, Word b, Word c) { FORWARD(name, a, b, c); }

FUNCTION_0(cudaDeviceSynchronize)
FUNCTION_0(cudaGetLastError)
FUNCTION_0(cudaPeekAtLastError)
FUNCTION_1(cudaEventCreate)
FUNCTION_1(cudaEventDestroy)
FUNCTION_1(cudaEventSynchronize)
FUNCTION_1(cudaFree)
FUNCTION_1(cudaGetDeviceCount)
FUNCTION_2(cudaEventRecord)
FUNCTION_2(cudaMalloc)
FUNCTION_3(cudaEventElapsedTime)
int cudaSetDevice(int device) { FORWARD(cudaSetDevice, (Word)(unsigned)device); }
int cudaGetDevice(int* device) { *device = 0; return 0; }
int cudaDeviceGetAttribute(int* value, int attribute, int device) {
    FORWARD(cudaDeviceGetAttribute, (Word)value, (Word)(unsigned)attribute, (Word)(unsigned)device);
}
int cudaFuncSetAttribute(const void* kernel, int attribute, int value) {
    FORWARD(cudaFuncSetAttribute, (Word)kernel_name(kernel), (Word)(unsigned)attribute, (Word)(unsigned)value);
}
int cudaMemset(Word pointer, int value, Word bytes) { FORWARD(cudaMemset, pointer, (Word)(unsigned)value, bytes); }
int cudaMemcpy(Word target, Word source, Word bytes, int kind) {
    FORWARD(cudaMemcpy, target, source, bytes, (Word)(unsigned)kind);
}

static Word error_text(const char* function, Word error) { return warpcheck_handler(function, 0, &error); }
const char* cudaGetErrorName(int error) { return (const char*)error_text("cudaGetErrorName", (unsigned)error); }
const char* cudaGetErrorString(int error) { return (const char*)error_text("cudaGetErrorString", (unsigned)error); }

// What nvcc generates for kernels: crt/host_runtime.h

void** __cudaRegisterFatBinary(void*) { static void* handle; return &handle; }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char* host_function, char*, const char* name, int, void*, void*, void*, void*, int*) {
    if (kernel_count < MOST_KERNELS) kernels[kernel_count++] = {host_function, name};
}
int __cudaGetKernel(const void** kernel, const void* host_function) { *kernel = host_function; return 0; }

void __cudaRegisterVar(void**, char*, char*, const char*, int, Word, int, int) {}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, Word shared_bytes, void* stream) {
    configuration = {grid, block, shared_bytes, (Word)stream, CALLER};
    return 0;
}
int __cudaPopCallConfiguration(dim3* grid, dim3* block, Word* shared_bytes, void* stream) {
    *grid = configuration.grid;
    *block = configuration.block;
    *shared_bytes = configuration.shared_bytes;
    memcpy(stream, &configuration.stream, sizeof(Word));
    return 0;
}
int cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** parameters, Word shared_bytes, void* stream) {
    const Word arguments[] = {(Word)kernel_name(kernel), grid.x, grid.y, grid.z, block.x, block.y, block.z,
                              (Word)parameters, shared_bytes, (Word)stream, 0, 0, 0};
    // <<< >>> has stored where it is. Without it, the program itself calls cudaLaunchKernel.
    const Word caller = configuration.caller ? configuration.caller : CALLER;
    configuration.caller = 0;
    return warpcheck_handler("<<<>>>", caller, arguments);
}
int __cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** parameters, Word shared_bytes, void* stream) {
    return cudaLaunchKernel(kernel, grid, block, parameters, shared_bytes, stream);
}

int cudaLaunchKernelExC(const LaunchConfig* config, const void* kernel, void** parameters) {
    dim3 cluster = {0, 0, 0};
    for (unsigned i = 0; i < config->attribute_count; ++i) {
        const LaunchAttribute& attribute = config->attributes[i];
        if (attribute.id == CLUSTER_DIMENSION) memcpy(&cluster, attribute.value, sizeof(cluster));
    }
    const dim3 &grid = config->grid, &block = config->block;
    const Word arguments[] = {(Word)kernel_name(kernel), grid.x, grid.y, grid.z, block.x, block.y, block.z,
                              (Word)parameters, config->shared_bytes, config->stream, cluster.x, cluster.y, cluster.z};
    return warpcheck_handler("<<<>>>", CALLER, arguments);
}

// The driver's function for tensor maps, which programs get from the runtime instead of linking libcuda

static int encode_tensor_map(Word map, Word type, Word rank, Word address, Word extents, Word strides, Word box, Word steps,
                             Word interleave, Word swizzle, Word promotion, Word fill) {
    FORWARD(cuTensorMapEncodeTiled, map, type, rank, address, extents, strides, box, steps, interleave, swizzle, promotion, fill);
}
static int encode_im2col_map(Word map, Word type, Word rank, Word address, Word extents, Word strides, Word lower, Word upper,
                             Word channels, Word pixels, Word steps, Word interleave, Word swizzle, Word promotion, Word fill) {
    FORWARD(cuTensorMapEncodeIm2col, map, type, rank, address, extents, strides, lower, upper, channels, pixels, steps,
            interleave, swizzle, promotion, fill);
}
int cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned, Word, int* result) {
    *function = nullptr;
    if (strcmp(symbol, "cuTensorMapEncodeTiled") == 0) *function = (void*)encode_tensor_map;
    if (strcmp(symbol, "cuTensorMapEncodeIm2col") == 0) *function = (void*)encode_im2col_map;
    if (result) *result = *function ? 0 : 1;  // cudaDriverEntryPointSymbolNotFound
    return 0;
}
int cudaGetDriverEntryPoint(const char* symbol, void** function, Word flags, int* result) {
    return cudaGetDriverEntryPointByVersion(symbol, function, 0, flags, result);
}

// Calling a function of the program

static sigjmp_buf before_call;
static Word fault_address, fault_pc;

static void on_fault(int number, siginfo_t* info, void* context) {
    const Word address = (Word)info->si_addr;
    if (address < warpcheck_device_start || address >= warpcheck_device_end) {
        signal(number, SIG_DFL);  // another fault: the instruction runs again, and ends the process
        return;
    }
    fault_address = address;
#if defined(__x86_64__)
    fault_pc = ((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP];
#else
    fault_pc = ((ucontext_t*)context)->uc_mcontext.pc;
#endif
    siglongjmp(before_call, 1);  // leaves frames of the program alone: Python's are below warpcheck_call
}

// Call a function that takes up to eight integers and pointers. Return whether the host used device memory; then fault
// has the address and the instruction.
int warpcheck_call(Word (*function)(Word, Word, Word, Word, Word, Word, Word, Word), const Word* a, Word* result, Word* fault) {
    struct sigaction action = {}, previous;
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &action, &previous);
    const int faulted = sigsetjmp(before_call, 1);
    if (!faulted) *result = function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]);
    sigaction(SIGSEGV, &previous, nullptr);
    fault[0] = fault_address;
    fault[1] = fault_pc;
    return faulted;
}

}
