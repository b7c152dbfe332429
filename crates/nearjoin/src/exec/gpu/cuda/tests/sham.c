// A CUDA driver without a GPU, for tests: memory of the device is memory of the host, work is
// done when it is submitted, and every kernel is the `add` of `tests.rs`. It is strict where a
// driver is: the context must be current and handles must be its own.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long address;

enum { MEMORY = 64 << 20, CONTEXT = 0xc0, STREAM = 0x50, EVENT = 0xe0, MODULE = 0x70, ADD = 0xadd };
enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, INVALID_PTX = 218,
       INVALID_HANDLE = 400, NOT_FOUND = 500, ILLEGAL_ADDRESS = 700 };

// A fill with this word makes the next wait for an event fail.
static const unsigned FAIL = 0xdeadbeef;
static _Atomic int failing;

static _Thread_local void *current;
static _Atomic size_t used;

#define NEEDS_CONTEXT if (current != (void *)CONTEXT) return INVALID_CONTEXT
#define NEEDS(handle, kind) if (handle != (void *)kind) return INVALID_HANDLE

int cuDriverGetVersion(int *version) { *version = 12040; return 0; }
int cuInit(unsigned flags) { return flags ? INVALID_VALUE : 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = 0; return ordinal ? INVALID_VALUE : 0; }
int cuDeviceGetName(char *name, int room, int device) { snprintf(name, room, "Sham"); return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = MEMORY; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = attribute == 75 ? 7 : attribute == 76 ? 5 : 16;
    return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)CONTEXT; return 0; }
int cuCtxGetCurrent(void **context) { *context = current; return 0; }
int cuCtxSetCurrent(void *context) { current = context; return 0; }
static _Thread_local void *below;
int cuCtxPushCurrent_v2(void *context) { below = current; current = context; return 0; }
int cuCtxPopCurrent_v2(void **context) { *context = current; current = below; return 0; }

// Each block is preceded by its size.
int cuMemGetInfo_v2(size_t *left, size_t *all) {
    NEEDS_CONTEXT;
    *all = MEMORY;
    *left = MEMORY - used;
    return 0;
}
int cuMemAlloc_v2(address *at, size_t bytes) {
    NEEDS_CONTEXT;
    char *block;
    if (bytes > MEMORY - used || posix_memalign((void **)&block, 256, bytes + 256))
        return OUT_OF_MEMORY;
    *(size_t *)block = bytes;
    used += bytes;
    *at = (address)(block + 256);
    return 0;
}
int cuMemFree_v2(address at) {
    NEEDS_CONTEXT;
    char *block = (char *)at - 256;
    used -= *(size_t *)block;
    free(block);
    return 0;
}
int cuMemHostAlloc(void **at, size_t bytes, unsigned flags) {
    NEEDS_CONTEXT;
    return posix_memalign(at, 4096, bytes) ? OUT_OF_MEMORY : 0;
}
int cuMemFreeHost(void *at) { NEEDS_CONTEXT; free(at); return 0; }

int cuMemcpyHtoDAsync_v2(address to, const void *from, size_t bytes, void *stream) {
    NEEDS_CONTEXT;
    NEEDS(stream, STREAM);
    memcpy((void *)to, from, bytes);
    return 0;
}
int cuMemcpyDtoHAsync_v2(void *to, address from, size_t bytes, void *stream) {
    NEEDS_CONTEXT;
    NEEDS(stream, STREAM);
    memcpy(to, (void *)from, bytes);
    return 0;
}
int cuMemsetD32Async(address at, unsigned word, size_t words, void *stream) {
    NEEDS_CONTEXT;
    NEEDS(stream, STREAM);
    failing = word == FAIL;
    for (size_t i = 0; i < words; i++) ((unsigned *)at)[i] = word;
    return 0;
}

int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
    NEEDS_CONTEXT;
    *stream = (void *)STREAM;
    return 0;
}
int cuStreamSynchronize(void *stream) { NEEDS_CONTEXT; NEEDS(stream, STREAM); return 0; }
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
    NEEDS_CONTEXT;
    NEEDS(stream, STREAM);
    NEEDS(event, EVENT);
    return 0;
}
int cuEventCreate(void **event, unsigned flags) { NEEDS_CONTEXT; *event = (void *)EVENT; return 0; }
int cuEventRecord(void *event, void *stream) {
    NEEDS_CONTEXT;
    NEEDS(event, EVENT);
    NEEDS(stream, STREAM);
    return 0;
}
int cuEventSynchronize(void *event) {
    NEEDS_CONTEXT;
    NEEDS(event, EVENT);
    int failed = failing;
    failing = 0;
    return failed ? ILLEGAL_ADDRESS : 0;
}

int cuModuleLoadDataEx(void **module, const char *ptx, unsigned n, int *options, void **values) {
    NEEDS_CONTEXT;
    if (n != 2 || options[0] != 5 || options[1] != 6) return INVALID_VALUE;
    if (strstr(ptx, "nonsense")) {
        snprintf(values[0], (size_t)values[1], "ptxas: line 4:\n    nonsense");
        return INVALID_PTX;
    }
    *module = (void *)MODULE;
    return 0;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
    NEEDS_CONTEXT;
    NEEDS(module, MODULE);
    *function = (void *)ADD;
    return strcmp(name, "add") ? NOT_FOUND : 0;
}
int cuFuncSetAttribute(void *function, int attribute, int value) {
    NEEDS_CONTEXT;
    NEEDS(function, ADD);
    return attribute == 8 && value > 0 ? 0 : INVALID_VALUE;
}
int cuLaunchKernel(void *function, unsigned blocks, unsigned y, unsigned z, unsigned threads,
                   unsigned v, unsigned w, unsigned shared, void *stream, void **arguments,
                   void **extra) {
    NEEDS_CONTEXT;
    NEEDS(function, ADD);
    NEEDS(stream, STREAM);
    if (y != 1 || z != 1 || v != 1 || w != 1 || shared || extra) return INVALID_VALUE;
    unsigned *words = *(unsigned **)arguments[0];
    unsigned n = *(unsigned *)arguments[1], more = *(unsigned *)arguments[2];
    for (size_t i = 0; i < (size_t)blocks * threads && i < n; i++) words[i] += more;
    return 0;
}

int cuGetErrorName(int code, const char **name) {
    *name = code == ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" : NULL;
    return *name ? 0 : INVALID_VALUE;
}
int cuGetErrorString(int code, const char **text) {
    *text = code == ILLEGAL_ADDRESS ? "an illegal memory access was encountered" : NULL;
    return *text ? 0 : INVALID_VALUE;
}
