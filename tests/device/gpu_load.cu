/*
 * Copyright: gpucluster.slurm contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Loads for the first visible GPU. Each prints one line of JSON, and ends with status 0 if its result is right.
 *
 *     gpu_load compute            adds two vectors and compares every element
 *     gpu_load memory             copies within the GPU's memory: GB/s, bytes read and written
 *     gpu_load copies             copies from pinned memory of the host and back: GB/s in each direction
 *     gpu_load matrix LIBRARY     multiplies two bf16 matrices of 8192 x 8192 with random elements, by libcublas: TFLOP/s
 *     gpu_load busy PERCENT SECONDS    holds the GPU, and computes in a part of each second
 *
 * 1 GB is 10^9 bytes. The figures are the mean of all timed repetitions, after three that warm up.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <unistd.h>

static const int WARM_UP = 3, REPEAT = 10;

#define TRY(call)                                                                              \
    do {                                                                                       \
        cudaError_t code = (call);                                                             \
        if (code != cudaSuccess) {                                                             \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(code));                      \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)

/* Mean milliseconds of a repeated action. */
template <typename Action> static double milliseconds(Action action)
{
    cudaEvent_t start, end;
    float elapsed;

    TRY(cudaEventCreate(&start));
    TRY(cudaEventCreate(&end));
    for (int i = 0; i < WARM_UP; i++)
        action();
    TRY(cudaEventRecord(start));
    for (int i = 0; i < REPEAT; i++)
        action();
    TRY(cudaEventRecord(end));
    TRY(cudaEventSynchronize(end));
    TRY(cudaEventElapsedTime(&elapsed, start, end));
    return elapsed / REPEAT;
}

__global__ void fill(unsigned *a, unsigned *b, size_t count)
{
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;

    if (i < count) {
        a[i] = (unsigned)i * 2654435761u;
        b[i] = ~(unsigned)i;
    }
}

__global__ void add(const unsigned *a, const unsigned *b, unsigned *sum, size_t count)
{
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;

    if (i < count)
        sum[i] = a[i] + b[i];
}

/* Elements between -1 and 1, by a hash of their index: equal elements would take less power, and so be faster. */
__global__ void random_elements(__nv_bfloat16 *matrix, size_t count, unsigned seed)
{
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;

    if (i < count) {
        unsigned hash = (unsigned)i * 747796405u + seed;

        hash = ((hash >> ((hash >> 28) + 4)) ^ hash) * 277803737u;
        hash = (hash >> 22) ^ hash;
        matrix[i] = __float2bfloat16(hash / 2147483648.0f - 1.0f);
    }
}

static unsigned blocks(size_t count) { return (unsigned)((count + 255) / 256); }

static int compute(const char *device)
{
    const size_t count = 64 << 20, bytes = count * sizeof(unsigned);
    unsigned *a, *b, *sum, *result = (unsigned *)malloc(bytes);
    size_t wrong = 0;

    TRY(cudaMalloc(&a, bytes));
    TRY(cudaMalloc(&b, bytes));
    TRY(cudaMalloc(&sum, bytes));
    fill<<<blocks(count), 256>>>(a, b, count);
    add<<<blocks(count), 256>>>(a, b, sum, count);
    TRY(cudaGetLastError());
    TRY(cudaMemcpy(result, sum, bytes, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < count; i++)
        wrong += result[i] != (unsigned)i * 2654435761u + ~(unsigned)i;
    printf("{\"device\": \"%s\", \"elements\": %zu, \"wrong\": %zu}\n", device, count, wrong);
    return wrong != 0;
}

static int memory(const char *device)
{
    const size_t bytes = (size_t)4 << 30;
    char *from, *to;

    TRY(cudaMalloc(&from, bytes));
    TRY(cudaMalloc(&to, bytes));
    TRY(cudaMemset(from, 1, bytes));
    double took = milliseconds([&] { TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice)); });
    printf("{\"device\": \"%s\", \"bytes\": %zu, \"gb_per_s\": %.1f}\n", device, bytes, 2 * bytes / took / 1e6);
    return 0;
}

static int copies(const char *device)
{
    const size_t bytes = (size_t)256 << 20;
    char *host, *gpu;

    TRY(cudaMallocHost(&host, bytes));
    TRY(cudaMalloc(&gpu, bytes));
    memset(host, 1, bytes);
    double there = milliseconds([&] { TRY(cudaMemcpyAsync(gpu, host, bytes, cudaMemcpyHostToDevice)); });
    double back = milliseconds([&] { TRY(cudaMemcpyAsync(host, gpu, bytes, cudaMemcpyDeviceToHost)); });
    printf("{\"device\": \"%s\", \"bytes\": %zu, \"to_gpu_gb_per_s\": %.1f, \"to_host_gb_per_s\": %.1f}\n", device,
           bytes, bytes / there / 1e6, bytes / back / 1e6);
    return 0;
}

/* The values of library_types.h and cublas_api.h, so that neither their headers nor their library are needed to build. */
enum { NO_TRANSPOSE = 0, REAL_16BF = 14, COMPUTE_32F = 68, ANY_ALGORITHM = -1 };
typedef int create_function(void **);
typedef int multiply_function(void *, int, int, int, int, int, const void *, const void *, int, int, const void *, int,
                              int, const void *, void *, int, int, int, int);

static int matrix(const char *device, const char *path)
{
    const int size = 8192;
    const size_t count = (size_t)size * size;
    const float one = 1, zero = 0;
    __nv_bfloat16 *a, *b, *product;
    void *handle, *library = dlopen(path, RTLD_NOW);

    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    create_function *create = (create_function *)dlsym(library, "cublasCreate_v2");
    multiply_function *multiply = (multiply_function *)dlsym(library, "cublasGemmEx");
    if (!create || !multiply || create(&handle)) {
        fprintf(stderr, "%s: cuBLAS does not start\n", path);
        return 1;
    }
    TRY(cudaMalloc(&a, count * sizeof(*a)));
    TRY(cudaMalloc(&b, count * sizeof(*b)));
    TRY(cudaMalloc(&product, count * sizeof(*product)));
    random_elements<<<blocks(count), 256>>>(a, count, 1);
    random_elements<<<blocks(count), 256>>>(b, count, 2);
    TRY(cudaDeviceSynchronize());
    int failed = 0;
    double took = milliseconds([&] {
        failed |= multiply(handle, NO_TRANSPOSE, NO_TRANSPOSE, size, size, size, &one, a, REAL_16BF, size, b, REAL_16BF,
                           size, &zero, product, REAL_16BF, size, COMPUTE_32F, ANY_ALGORITHM);
    });
    if (failed) {
        fprintf(stderr, "cublasGemmEx: status %d\n", failed);
        return 1;
    }
    printf("{\"device\": \"%s\", \"size\": %d, \"tflop_per_s\": %.1f}\n", device, size,
           2.0 * size * count / took / 1e9);
    return 0;
}

__global__ void spin(unsigned long long nanoseconds)
{
    unsigned long long start, now;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - start < nanoseconds);
}

static double seconds_now()
{
    timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static int busy(const char *device, int percent, int seconds)
{
    const double start = seconds_now();
    double computed = 0;

    TRY(cudaFree(nullptr)); /* A process on the GPU, even if it never computes. */
    for (int i = 1; i <= seconds; i++) {
        if (percent > 0) {
            const double before = seconds_now();
            spin<<<1, 1>>>(percent * 10000000ull);
            TRY(cudaGetLastError());
            TRY(cudaDeviceSynchronize());
            computed += seconds_now() - before;
        }
        const double rest = start + i - seconds_now();
        if (rest > 0)
            usleep((useconds_t)(rest * 1e6));
    }
    printf("{\"device\": \"%s\", \"seconds\": %.1f, \"computed\": %.1f}\n", device, seconds_now() - start, computed);
    return 0;
}

int main(int count, char **words)
{
    const char *load = count > 1 ? words[1] : "";
    cudaDeviceProp gpu;

    TRY(cudaGetDeviceProperties(&gpu, 0));
    if (!strcmp(load, "compute"))
        return compute(gpu.name);
    if (!strcmp(load, "memory"))
        return memory(gpu.name);
    if (!strcmp(load, "copies"))
        return copies(gpu.name);
    if (!strcmp(load, "matrix") && count == 3)
        return matrix(gpu.name, words[2]);
    if (!strcmp(load, "busy") && count == 4)
        return busy(gpu.name, atoi(words[2]), atoi(words[3]));
    fprintf(stderr, "usage: gpu_load compute|memory|copies|matrix LIBRARY|busy PERCENT SECONDS\n");
    return 2;
}
