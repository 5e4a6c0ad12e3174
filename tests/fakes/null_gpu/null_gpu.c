/* CUDA devices without kernels: memory, streams, limits, processes and NVML are there; a kernel only takes its time.
 *
 * Linked in the place of NVIDIA's libraries (build.py), it serves torch's own CUDA build: its caching allocator, its
 * choice of kernels, Inductor and graph capture run on any machine. Values and speeds mean nothing: every byte of the
 * device's memory reads as 1. Types are those of NVIDIA's headers, so that the compiler checks the signatures.
 *
 * Variables:
 *   NULL_GPU            the card, see CARDS; without it there is none
 *   NULL_GPU_COUNT      so many of it (default 1)
 *   NULL_GPU_STATE      the file that processes share (default /dev/shm/null-gpu-UID)
 *   NULL_GPU_PIDS       what NVML lists: own (default), host (numbers of another namespace), none
 *   NULL_GPU_NVML       off: the library is there and does not start
 *   NULL_GPU_MIG        on: the card is one slice
 *   NULL_GPU_NEIGHBOUR  MiB that another program holds on the first card
 *   NULL_GPU_ECC        off
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MIB (1ull << 20)
#define PAGE (2 * MIB)        /* the device's memory is given out in pages of this size */
#define CONTEXT (520 * MIB)   /* what a process holds by using a device at all */
#define BUFFERS (64 * MIB)    /* what NCCL holds for a group of processes */
#define RESERVED (480 * MIB)  /* what the driver keeps to itself, by NVML */
#define ONES (32 * MIB)       /* all of the device's memory is this piece, again and again */
#define NEIGHBOUR_PID 4194399 /* Linux has no pid above 4194304 */
#define HOST_PIDS 5000000     /* added to a pid, it is one of another namespace */
#define MOST_CARDS 8
#define MOST_PROCESSES 256 /* on all cards together */
#define MOST_LAUNCHES 1024 /* in the queue, before the host waits for the device */

/* -- the card */

typedef struct {
    const char *name, *title;
    uint64_t cuda_mib, nvml_mib; /* what CUDA gives out, and the driver's figure, which is higher */
    int major, minor, code; /* compute capability, and that of torch's code for it */
    int processors, threads_per_processor, shared_per_processor, shared_per_block, l2_mib, bus_bits;
    double flops, bytes_per_s;
} Card;

/* Sources: torch.cuda.get_device_properties and nvidia-smi on such cards; CUDA Programming Guide, compute capabilities.
 */
static const Card CARDS[] = {
    {"rtx4090-24gb", "NVIDIA GeForce RTX 4090", 24210, 24564, 8, 9, 86, 128, 1536, 102400, 101376, 72, 384, 165e12, 1.0e12},
    {"a100-40gb", "NVIDIA A100-SXM4-40GB", 40335, 40960, 8, 0, 80, 108, 2048, 167936, 166912, 40, 5120, 312e12, 1.5e12},
    {"h100-80gb", "NVIDIA H100 80GB HBM3", 81079, 81559, 9, 0, 90, 132, 2048, 233472, 232448, 50, 5120, 800e12, 3.3e12},
    {"h200-141gb", "NVIDIA H200", 143165, 143771, 9, 0, 90, 132, 2048, 233472, 232448, 50, 6144, 800e12, 4.8e12},
};

static bool is_set(const char *name, const char *value) {
    const char *found = getenv(name);
    return found && !strcmp(found, value);
}

static const Card *card(void) {
    static const Card *chosen;
    const char *name = getenv("NULL_GPU");
    if (!name || chosen) return chosen;
    for (size_t i = 0; i < sizeof CARDS / sizeof *CARDS; i++)
        if (!strcmp(CARDS[i].name, name)) return chosen = &CARDS[i];
    fprintf(stderr, "NULL_GPU=%s is none of the cards in null_gpu.c\n", name);
    exit(2);
}

static uint64_t total_bytes(void) { return card()->cuda_mib * MIB; }

static int number_of_cards(void) {
    const char *number = getenv("NULL_GPU_COUNT");
    int count = number ? atoi(number) : 1;
    return count < 1 || count > MOST_CARDS ? 1 : count;
}

static void uuid_of(unsigned char *bytes, int place, bool slice) {
    for (int i = 0; i < 16; i++) bytes[i] = (unsigned char)((slice ? 0x50 : 0x10) + i);
    bytes[15] = (unsigned char)(bytes[15] + 0x80 + place);
}

static void uuid_text(char *text, size_t length, int place, bool slice) {
    unsigned char u[16];
    uuid_of(u, place, slice);
    snprintf(text, length, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             slice ? "MIG" : "GPU", u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12],
             u[13], u[14], u[15]);
}

/* The place of the card that CUDA_VISIBLE_DEVICES names, by number or UUID; -1 where there is none. */
static int place_of(const char *named) {
    char *end, text[80];
    long number = strtol(named, &end, 10);
    if (*named && !*end) return number >= 0 && number < number_of_cards() ? (int)number : -1;
    for (int place = 0; place < number_of_cards(); place++)
        for (int slice = 0; slice < 2; slice++) {
            uuid_text(text, sizeof text, place, slice);
            if (*named && !strncmp(text, named, strlen(named))) return place;
        }
    return -1;
}

/* The places of the cards that this process sees, in its order; gives their number. What follows a wrong name is unseen. */
static int visible(int *places) {
    const char *given = getenv("CUDA_VISIBLE_DEVICES");
    int count = 0;
    if (!card()) return 0;
    if (!given) {
        for (; count < number_of_cards(); count++) places[count] = count;
        return count;
    }
    char *names = strdup(given), *rest = names, *name;
    while (count < MOST_CARDS && (name = strsep(&rest, ",")) && (places[count] = place_of(name)) >= 0) count++;
    free(names);
    return count;
}

static int number_visible(void) {
    int places[MOST_CARDS];
    return visible(places);
}

static int place_of_device(int device) {
    int places[MOST_CARDS], count = visible(places);
    return device >= 0 && device < count ? places[device] : 0;
}

static __thread int current; /* of the devices that this process sees, the one of this thread */

/* -- the processes that use the devices: a table in a file, as a driver has it */

typedef struct {
    int pid, place; /* a process has a line for each card that it uses */
    uint64_t bytes, busy_ns;
} Process;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static Process *processes, *own[MOST_CARDS];
static int table_file = -1;

static void open_table(void) {
    if (processes) return;
    char standard[64];
    snprintf(standard, sizeof standard, "/dev/shm/null-gpu-%d", (int)getuid());
    const char *path = getenv("NULL_GPU_STATE");
    table_file = open(path ? path : standard, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    size_t size = MOST_PROCESSES * sizeof(Process);
    void *mapped = MAP_FAILED;
    if (table_file >= 0 && !ftruncate(table_file, (off_t)size))
        mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, table_file, 0);
    if (mapped == MAP_FAILED) {
        perror("the null GPU's table of processes");
        exit(2);
    }
    processes = mapped;
}

/* The kernel lets go of a record lock when its process dies; it does not keep threads apart. */
static void lock(void) {
    pthread_mutex_lock(&mutex);
    open_table();
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    while (fcntl(table_file, F_SETLKW, &whole) && errno == EINTR) {
    }
    for (Process *each = processes; each < processes + MOST_PROCESSES; each++)
        if (each->pid && kill(each->pid, 0) && errno == ESRCH) memset(each, 0, sizeof *each);
}

static void unlock(void) {
    struct flock whole = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    fcntl(table_file, F_SETLK, &whole);
    pthread_mutex_unlock(&mutex);
}

static uint64_t neighbour_bytes(void) {
    const char *mib = getenv("NULL_GPU_NEIGHBOUR");
    return mib ? strtoull(mib, NULL, 10) * MIB : 0;
}

static uint64_t used_bytes(int place) {
    uint64_t sum = place ? 0 : neighbour_bytes();
    for (Process *each = processes; each < processes + MOST_PROCESSES; each++)
        if (each->place == place) sum += each->bytes;
    return sum;
}

static uint64_t used_now(int place) {
    lock();
    uint64_t used = used_bytes(place);
    unlock();
    return used;
}

/* Take bytes of a card for this process, or give some back; false where it has no more. Under the lock. */
static bool take(int64_t bytes, int place) {
    if (bytes > 0 && used_bytes(place) + (uint64_t)bytes > total_bytes()) return false;
    Process *line = own[place];
    if (!line || line->pid != getpid() || line->place != place) {
        line = processes;
        while (line < processes + MOST_PROCESSES - 1 && line->pid) line++;
        *line = (Process){.pid = getpid(), .place = place};
        own[place] = line;
    }
    line->bytes += (uint64_t)bytes;
    return true;
}

/* -- starting: as with CUDA, a process that was forked after that can use nothing */

static int owner_pid;
static bool has_context[MOST_CARDS]; /* by device */
static __thread int last_error;

static int fail(int error) { return last_error = error; }

static int started(void) {
    if (!number_visible()) return fail(cudaErrorNoDevice);
    if (!owner_pid) owner_pid = getpid();
    return owner_pid == getpid() ? 0 : fail(cudaErrorInitializationError);
}

static int with_context(void) {
    int error = started(), device = current;
    if (error || has_context[device]) return error;
    lock();
    has_context[device] = has_context[device] || take(CONTEXT, place_of_device(device));
    unlock();
    return has_context[device] ? 0 : fail(cudaErrorMemoryAllocation);
}

#define NEED(start)              \
    do {                         \
        int error = start();     \
        if (error) return error; \
    } while (0)

/* -- time: one queue for all streams */

static uint64_t busy_until, queue[MOST_LAUNCHES];
static unsigned launches;
static pthread_mutex_t queue_mutex = PTHREAD_MUTEX_INITIALIZER;
static bool is_capturing;
static cudaStream_t capturing; /* the stream, while there is one */
static uint64_t captured_ns;

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec;
}

static void wait_until(uint64_t ns) {
    uint64_t begins = now(), left = ns > begins ? ns - begins : 0;
    struct timespec pause = {(time_t)(left / 1000000000ull), (long)(left % 1000000000ull)};
    if (left) nanosleep(&pause, NULL);
}

static void wait_for_device(void) { wait_until(busy_until); }

static void enqueue(double ns) {
    if (is_capturing) {
        captured_ns += (uint64_t)ns;
        return;
    }
    pthread_mutex_lock(&queue_mutex);
    uint64_t begins = now();
    if (busy_until > begins) begins = busy_until;
    busy_until = begins + (uint64_t)ns;
    uint64_t earlier = queue[launches % MOST_LAUNCHES];
    queue[launches++ % MOST_LAUNCHES] = busy_until;
    Process *line = own[place_of_device(current)];
    if (line) line->busy_ns += (uint64_t)ns;
    pthread_mutex_unlock(&queue_mutex);
    wait_until(earlier);
}

/* A kernel reads and writes some 24 bytes a thread. */
static int run_kernel(double threads) {
    NEED(with_context);
    enqueue(2500 + threads * 24e9 / card()->bytes_per_s);
    return 0;
}

static int run_matmul(double m, double n, double k, double batch) {
    NEED(with_context);
    enqueue(3000 + 2 * m * n * k * batch * 1e9 / card()->flops);
    return 0;
}

/* -- memory */

typedef struct Block {
    char *start;
    size_t size;
    bool is_taken;
    int device;
    struct Block *next;
} Block;

static Block *blocks;

static char *reserve(size_t size) {
    char *start = mmap(NULL, size + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return (char *)(((uintptr_t)start + PAGE - 1) & ~(uintptr_t)(PAGE - 1));
}

static void fill_with_ones(char *start, size_t size) {
    static int file = -1;
    if (file < 0) {
        file = memfd_create("null-gpu", MFD_CLOEXEC);
        char *ones = memset(malloc(ONES), 1, ONES);
        if (write(file, ones, ONES) != (ssize_t)ONES) perror("the null GPU's memory");
        free(ones);
    }
    for (size_t done = 0; done < size; done += ONES) {
        size_t length = size - done < ONES ? size - done : ONES;
        mmap(start + done, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file, 0);
    }
}

static void remember(char *start, size_t size, bool is_taken) {
    Block *block = malloc(sizeof *block);
    *block = (Block){start, size, is_taken, current, blocks};
    blocks = block;
}

static void forget(void *start) {
    for (Block **place = &blocks; *place; place = &(*place)->next) {
        Block *block = *place;
        if (block->start != start) continue;
        *place = block->next;
        if (block->is_taken) take(-(int64_t)block->size, place_of_device(block->device));
        munmap(block->start, block->size);
        free(block);
        return;
    }
}

/* The device that memory is of; -1 for the host's. */
static int device_of(const void *pointer) {
    pthread_mutex_lock(&mutex);
    const Block *block = blocks;
    while (block && !((char *)pointer >= block->start && (char *)pointer < block->start + block->size))
        block = block->next;
    int device = block ? block->device : -1;
    pthread_mutex_unlock(&mutex);
    return device;
}

static bool is_on_device(const void *pointer) { return device_of(pointer) >= 0; }

cudaError_t cudaMalloc(void **pointer, size_t size) {
    NEED(with_context);
    size = (size + PAGE - 1) / PAGE * PAGE;
    lock();
    bool has_room = take((int64_t)size, place_of_device(current));
    if (has_room) {
        *pointer = reserve(size);
        fill_with_ones(*pointer, size);
        remember(*pointer, size, true);
    }
    unlock();
    return has_room ? 0 : fail(cudaErrorMemoryAllocation);
}

/* What is freed in a stream's order waits for nothing. */
cudaError_t cudaFreeAsync(void *pointer, cudaStream_t stream) {
    NEED(with_context);
    lock();
    forget(pointer);
    unlock();
    return 0;
}

cudaError_t cudaFree(void *pointer) {
    NEED(with_context);
    wait_for_device();
    return cudaFreeAsync(pointer, NULL);
}

cudaError_t cudaMallocAsync(void **pointer, size_t size, cudaStream_t stream) { return cudaMalloc(pointer, size); }

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    NEED(with_context);
    *total = total_bytes();
    *free_bytes = *total - used_now(place_of_device(current));
    return 0;
}

cudaError_t cudaHostAlloc(void **pointer, size_t size, unsigned flags) {
    NEED(with_context);
    *pointer = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    return 0;
}

cudaError_t cudaFreeHost(void *pointer) {
    free(pointer);
    return 0;
}

/* Nothing is written to the device: what it reads is ones. */
static int copy(void *to, const void *from, size_t size) {
    NEED(with_context);
    bool to_device = is_on_device(to), from_device = is_on_device(from);
    enqueue(2000 + (double)size * 1e9 / (to_device && from_device ? card()->bytes_per_s / 2 : 25e9));
    if (to_device) return 0;
    if (from_device) wait_for_device();
    memcpy(to, from, size);
    return 0;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind) {
    int error = copy(to, from, size);
    wait_for_device();
    return error;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind, cudaStream_t stream) {
    return copy(to, from, size);
}

cudaError_t cudaMemset(void *to, int value, size_t size) {
    NEED(with_context);
    enqueue(2000 + (double)size * 1e9 / card()->bytes_per_s);
    return 0;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t size, cudaStream_t stream) {
    return cudaMemset(to, value, size);
}

cudaError_t cudaGetSymbolAddress(void **pointer, const void *symbol) {
    static char somewhere[65536];
    *pointer = somewhere;
    return 0;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer) {
    memset(attributes, 0, sizeof *attributes);
    attributes->device = device_of(pointer);
    attributes->type = attributes->device >= 0 ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
    attributes->devicePointer = (void *)pointer;
    return 0;
}

/* The memory of expandable segments: addresses and pages apart. */

CUresult cuMemGetAllocationGranularity(size_t *size, const CUmemAllocationProp *properties,
                                       CUmemAllocationGranularity_flags option) {
    *size = PAGE;
    return 0;
}

CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t size, size_t alignment, CUdeviceptr address,
                             unsigned long long flags) {
    lock();
    char *start = reserve(size);
    remember(start, size, false);
    unlock();
    *pointer = (CUdeviceptr)start;
    return 0;
}

CUresult cuMemAddressFree(CUdeviceptr pointer, size_t size) { return (CUresult)cudaFree((void *)pointer); }

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *properties,
                     unsigned long long flags) {
    if (with_context()) return CUDA_ERROR_NOT_INITIALIZED;
    int place = place_of_device(properties->location.id);
    lock();
    bool has_room = take((int64_t)size, place);
    unlock();
    if (!has_room) return CUDA_ERROR_OUT_OF_MEMORY;
    size_t *kept = malloc(2 * sizeof *kept);
    kept[0] = size;
    kept[1] = (size_t)place;
    *handle = (CUmemGenericAllocationHandle)kept;
    return 0;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    lock();
    size_t *kept = (size_t *)handle;
    take(-(int64_t)kept[0], (int)kept[1]);
    unlock();
    free((void *)handle);
    return 0;
}

CUresult cuMemMap(CUdeviceptr pointer, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    lock();
    fill_with_ones((char *)pointer, size);
    unlock();
    return 0;
}

CUresult cuMemUnmap(CUdeviceptr pointer, size_t size) {
    mmap((void *)pointer, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return 0;
}

CUresult cuMemSetAccess(CUdeviceptr pointer, size_t size, const CUmemAccessDesc *access, size_t count) { return 0; }

/* -- what the device is */

cudaError_t cudaGetDeviceCount(int *count) {
    *count = 0;
    NEED(started);
    *count = number_visible();
    return 0;
}

cudaError_t cudaGetDevice(int *device) {
    *device = current;
    return number_visible() ? 0 : fail(cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device) {
    NEED(started);
    if (device < 0 || device >= number_visible()) return fail(cudaErrorInvalidDevice);
    current = device;
    return with_context();
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *found, int device) {
    NEED(started);
    const Card *of = card();
    memset(found, 0, sizeof *found);
    strcpy(found->name, of->title);
    uuid_of((unsigned char *)&found->uuid, place_of_device(device), is_set("NULL_GPU_MIG", "on"));
    found->totalGlobalMem = total_bytes();
    found->major = of->major;
    found->minor = of->minor;
    found->multiProcessorCount = of->processors;
    found->maxThreadsPerMultiProcessor = of->threads_per_processor;
    found->sharedMemPerMultiprocessor = (size_t)of->shared_per_processor;
    found->sharedMemPerBlockOptin = (size_t)of->shared_per_block;
    found->sharedMemPerBlock = 49152;
    found->reservedSharedMemPerBlock = 1024;
    found->regsPerBlock = found->regsPerMultiprocessor = 65536;
    found->warpSize = 32;
    found->maxThreadsPerBlock = found->maxThreadsDim[0] = found->maxThreadsDim[1] = 1024;
    found->maxThreadsDim[2] = 64;
    found->maxGridSize[0] = 2147483647;
    found->maxGridSize[1] = found->maxGridSize[2] = 65535;
    found->maxBlocksPerMultiProcessor = 32;
    found->totalConstMem = 65536;
    found->memPitch = 2147483647;
    found->textureAlignment = 512;
    found->memoryBusWidth = of->bus_bits;
    found->l2CacheSize = of->l2_mib * (int)MIB;
    found->ECCEnabled = !is_set("NULL_GPU_ECC", "off");
    found->pciBusID = 1 + place_of_device(device);
    found->canMapHostMemory = found->concurrentKernels = found->unifiedAddressing = 1;
    found->streamPrioritiesSupported = found->managedMemory = found->cooperativeLaunch = found->memoryPoolsSupported = 1;
    found->clusterLaunch = of->major >= 9;
    found->asyncEngineCount = 3;
    return 0;
}

/* cudaDevAttr and CUdevice_attribute have the same numbers. */
static int attribute(int number) {
    const Card *of = card();
    switch (number) {
        case cudaDevAttrMaxThreadsPerBlock:
        case cudaDevAttrMaxBlockDimX:
        case cudaDevAttrMaxBlockDimY:
        case cudaDevAttrReservedSharedMemoryPerBlock: return 1024;
        case cudaDevAttrMaxBlockDimZ: return 64;
        case cudaDevAttrMaxGridDimX: return 2147483647;
        case cudaDevAttrMaxGridDimY:
        case cudaDevAttrMaxGridDimZ: return 65535;
        case cudaDevAttrMaxSharedMemoryPerBlock: return 49152;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: return of->shared_per_block;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return of->shared_per_processor;
        case cudaDevAttrMaxRegistersPerBlock:
        case cudaDevAttrMaxRegistersPerMultiprocessor: return 65536;
        case cudaDevAttrWarpSize:
        case cudaDevAttrMaxBlocksPerMultiprocessor: return 32;
        case cudaDevAttrClockRate: return 1980000;
        case cudaDevAttrMemoryClockRate: return 2619000;
        case cudaDevAttrGlobalMemoryBusWidth: return of->bus_bits;
        case cudaDevAttrL2CacheSize: return of->l2_mib * (int)MIB;
        case cudaDevAttrMultiProcessorCount: return of->processors;
        case cudaDevAttrMaxThreadsPerMultiProcessor: return of->threads_per_processor;
        case cudaDevAttrComputeCapabilityMajor: return of->major;
        case cudaDevAttrComputeCapabilityMinor: return of->minor;
        case cudaDevAttrEccEnabled: return !is_set("NULL_GPU_ECC", "off");
        case cudaDevAttrPciDomainId:
        case cudaDevAttrPciDeviceId:
        case cudaDevAttrTccDriver:
        case cudaDevAttrIsMultiGpuBoard:
        case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED: return 0;
        default: return 1;
    }
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr number, int device) {
    NEED(started);
    *value = attribute((int)number);
    return 0;
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = CUDART_VERSION;
    return 0;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return 0;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    *can = 0;
    return 0;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int device) {
    snprintf(text, (size_t)length, "0000:%02x:00.0", 1 + place_of_device(device));
    return 0;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0;
    *greatest = -5;
    return 0;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
    *pool = (cudaMemPool_t)1;
    return 0;
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr number, void *value) {
    *(uint64_t *)value = 0;
    return 0;
}

cudaError_t cudaDeviceSynchronize(void) {
    NEED(with_context);
    wait_for_device();
    return 0;
}

cudaError_t cudaGetLastError(void) {
    int error = last_error;
    last_error = 0;
    return error;
}

cudaError_t cudaPeekAtLastError(void) { return last_error; }

const char *cudaGetErrorString(cudaError_t error) {
    static __thread char other[64];
    snprintf(other, sizeof other, "CUDA's error %d, by the null GPU", (int)error);
    switch ((int)error) {
        case cudaSuccess: return "no error";
        case cudaErrorMemoryAllocation: return "out of memory";
        case cudaErrorInitializationError: return "initialization error";
        case cudaErrorNoDevice: return "no CUDA-capable device is detected";
        case cudaErrorInvalidDevice: return "invalid device ordinal";
        case cudaErrorNotReady: return "device not ready";
        case cudaErrorNotSupported: return "the null GPU has no such call";
        default: return other;
    }
}

const char *cudaGetErrorName(cudaError_t error) { return "cudaError"; }

/* -- streams, events and graphs */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
    static uintptr_t number = 0x1000;
    NEED(with_context);
    *stream = (cudaStream_t)__sync_add_and_fetch(&number, 16);
    return 0;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) {
    *priority = 0;
    return 0;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) { return now() >= busy_until ? 0 : cudaErrorNotReady; }

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    NEED(with_context);
    if (is_capturing && stream == capturing) return fail(cudaErrorStreamCaptureUnsupported);
    wait_for_device();
    return 0;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    *status = is_capturing && stream == capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return 0;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                     cudaGraph_t *graph, const cudaGraphNode_t **nodes,
                                     const cudaGraphEdgeData **edges, size_t *count) {
    cudaStreamIsCapturing(stream, status);
    if (id) *id = 1;
    if (graph) *graph = (cudaGraph_t)1;
    if (nodes) *nodes = NULL;
    if (edges) *edges = NULL;
    if (count) *count = 0;
    return 0;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    is_capturing = true;
    capturing = stream;
    captured_ns = 0;
    return 0;
}

/* A graph is the time that its kernels take. */
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    uint64_t *ns = malloc(sizeof *ns);
    *ns = captured_ns;
    *graph = (cudaGraph_t)ns;
    is_capturing = false;
    return 0;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *made, cudaGraph_t graph, unsigned long long flags) {
    uint64_t *ns = malloc(sizeof *ns);
    *ns = *(uint64_t *)graph;
    *made = (cudaGraphExec_t)ns;
    return 0;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
    enqueue(5000 + (double)*(uint64_t *)graph);
    return 0;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    free(graph);
    return 0;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
    free(graph);
    return 0;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    *count = 1;
    return 0;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) { return 0; }

/* An event is when it is reached. */
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    NEED(with_context);
    *event = calloc(1, sizeof(uint64_t));
    return 0;
}

cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    free(event);
    return 0;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    NEED(with_context);
    if (is_capturing) return 0;
    enqueue(300);
    *(uint64_t *)event = busy_until;
    return 0;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
    return cudaEventRecord(event, stream);
}

cudaError_t cudaEventQuery(cudaEvent_t event) { return now() >= *(uint64_t *)event ? 0 : fail(cudaErrorNotReady); }

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    wait_until(*(uint64_t *)event);
    return 0;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
    if (cudaEventQuery(start) || cudaEventQuery(end)) return cudaErrorNotReady;
    *ms = (float)(((double)*(uint64_t *)end - (double)*(uint64_t *)start) / 1e6);
    return 0;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
    wait_for_device();
    function(data);
    return 0;
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void *data, unsigned flags) {
    wait_for_device();
    function(stream, 0, data);
    return 0;
}

/* -- kernels of the runtime; what starts with underscores is called by what nvcc generates */

static double threads_of(dim3 grid, dim3 block) {
    return (double)grid.x * grid.y * grid.z * block.x * block.y * block.z;
}

static __thread struct {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
} pushed;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
    pushed.grid = grid;
    pushed.block = block;
    pushed.shared = shared;
    pushed.stream = stream;
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    *grid = pushed.grid;
    *block = pushed.block;
    *shared = pushed.shared;
    *(cudaStream_t *)stream = pushed.stream;
    return 0;
}

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function) {
    *kernel = (cudaKernel_t)function;
    return 0;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                               cudaStream_t stream) {
    return run_kernel(threads_of(grid, block));
}

cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                             cudaStream_t stream) {
    return run_kernel(threads_of(grid, block));
}

cudaError_t cudaLaunchCooperativeKernel(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                                        cudaStream_t stream) {
    return run_kernel(threads_of(grid, block));
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *launch, const void *kernel, void **arguments) {
    return run_kernel(threads_of(launch->gridDim, launch->blockDim));
}

void **__cudaRegisterFatBinary(void *binary) {
    static void *handle;
    return &handle;
}

void __cudaRegisterFatBinaryEnd(void **handle) {}
void __cudaUnregisterFatBinary(void **handle) {}
void __cudaRegisterFunction(void) {}
void __cudaRegisterVar(void) {}
char __cudaInitModule(void **handle) { return 1; }

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *found, const void *function) {
    memset(found, 0, sizeof *found);
    found->maxThreadsPerBlock = 1024;
    found->numRegs = 32;
    found->ptxVersion = found->binaryVersion = card()->code;
    found->maxDynamicSharedSizeBytes = card()->shared_per_block;
    return 0;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *count, const void *function, int threads,
                                                                   size_t shared, unsigned flags) {
    *count = 2;
    return 0;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *count, const void *function, int threads,
                                                          size_t shared) {
    *count = 2;
    return 0;
}

/* -- the driver, as torch's lazily loaded parts, Triton and Inductor call it */

CUresult cuInit(unsigned flags) { return (CUresult)started(); }

CUresult cuDriverGetVersion(int *version) {
    *version = CUDA_VERSION;
    return 0;
}

CUresult cuDeviceGetCount(int *count) { return (CUresult)cudaGetDeviceCount(count); }

CUresult cuDeviceGet(CUdevice *device, int number) {
    *device = number;
    return number < 0 || number >= number_visible() ? CUDA_ERROR_INVALID_DEVICE : 0;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute number, CUdevice device) {
    *value = attribute((int)number);
    return 0;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    snprintf(name, (size_t)length, "%s", card()->title);
    return 0;
}

CUresult cuDeviceTotalMem(size_t *size, CUdevice device) {
    *size = total_bytes();
    return 0;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
    uuid_of((unsigned char *)uuid, place_of_device(device), is_set("NULL_GPU_MIG", "on"));
    return 0;
}

CUresult cuMemGetInfo(size_t *free_bytes, size_t *total) { return (CUresult)cudaMemGetInfo(free_bytes, total); }

CUresult cuCtxGetCurrent(CUcontext *context) {
    *context = (CUcontext)1;
    return 0;
}

CUresult cuCtxGetDevice(CUdevice *device) {
    *device = current;
    return 0;
}

CUresult cuCtxSynchronize(void) { return (CUresult)cudaDeviceSynchronize(); }

CUresult cuCtxGetLimit(size_t *value, CUlimit limit) {
    *value = 8 * MIB;
    return 0;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    *context = (CUcontext)1;
    return (CUresult)with_context();
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *is_active) {
    *flags = 0;
    *is_active = owner_pid == getpid() && has_context[device];
    return 0;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    *module = (CUmodule)1;
    return 0;
}

CUresult cuModuleLoad(CUmodule *module, const char *file) {
    *module = (CUmodule)1;
    return 0;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, CUjit_option *options, void **values) {
    *module = (CUmodule)1;
    return 0;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    *function = (CUfunction)1;
    return 0;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute number, CUfunction function) {
    *value = number == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : number == CU_FUNC_ATTRIBUTE_NUM_REGS ? 32 : 0;
    return 0;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
    *text = cudaGetErrorString((cudaError_t)error);
    return 0;
}

CUresult cuGetErrorName(CUresult error, const char **text) {
    *text = "CUDA_ERROR";
    return 0;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *count, CUfunction function, int threads, size_t shared) {
    *count = 2;
    return 0;
}

CUresult cuOccupancyMaxActiveClusters(int *count, CUfunction function, const CUlaunchConfig *launch) {
    *count = 2;
    return 0;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **arguments,
                        void **extra) {
    return (CUresult)run_kernel((double)grid_x * grid_y * grid_z * block_x * block_y * block_z);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                                   CUstream stream, void **arguments) {
    return (CUresult)run_kernel((double)grid_x * grid_y * grid_z * block_x * block_y * block_z);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *launch, CUfunction function, void **arguments, void **extra) {
    return (CUresult)run_kernel((double)launch->gridDimX * launch->gridDimY * launch->gridDimZ * launch->blockDimX *
                                launch->blockDimY * launch->blockDimZ);
}

CUresult cuPointerGetAttribute(void *value, CUpointer_attribute number, CUdeviceptr pointer) {
    if (number == CU_POINTER_ATTRIBUTE_DEVICE_POINTER)
        *(CUdeviceptr *)value = pointer;
    else
        *(unsigned *)value = CU_MEMORYTYPE_DEVICE;
    return 0;
}

/* Whoever asks for a call by its name gets the one here, or one that is refused. */

static int refused(void) { return CUDA_ERROR_NOT_SUPPORTED; }

static void *call_named(const char *name) {
    static void *own_library;
    Dl_info place;
    if (!own_library && dladdr((void *)refused, &place)) own_library = dlopen(place.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    void *found = dlsym(own_library, name);
    char versioned[128];
    for (int version = 2; !found && version < 4; version++) {
        snprintf(versioned, sizeof versioned, "%s_v%d", name, version);
        found = dlsym(own_library, versioned);
    }
    return found ? found : (void *)refused;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **call, unsigned version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result) {
    *call = call_named(name);
    if (result) *result = cudaDriverEntryPointSuccess;
    return 0;
}

CUresult cuGetProcAddress(const char *name, void **call, int version, cuuint64_t flags,
                          CUdriverProcAddressQueryResult *result) {
    *call = call_named(name);
    if (result) *result = CU_GET_PROC_ADDRESS_SUCCESS;
    return 0;
}

/* -- cuBLAS and cuBLASLt: products take time by their size */

int cublasCreate_v2(void **handle) {
    if (with_context()) return 1;
    *handle = malloc(64);
    return 0;
}

int cublasDestroy_v2(void *handle) {
    free(handle);
    return 0;
}

int cublasGetMathMode(void *handle, int *mode) { return *mode = 0; }
int cublasGetPointerMode_v2(void *handle, int *mode) { return *mode = 0; }

int cublasSgemm_v2(void *handle, int trans_a, int trans_b, int m, int n, int k) { return run_matmul(m, n, k, 1); }
int cublasSgemmEx(void *handle, int trans_a, int trans_b, int m, int n, int k) { return run_matmul(m, n, k, 1); }
int cublasGemmEx(void *handle, int trans_a, int trans_b, int m, int n, int k) { return run_matmul(m, n, k, 1); }

int cublasSgemmStridedBatched(void *handle, int trans_a, int trans_b, int m, int n, int k, const float *alpha,
                              const float *a, int lda, long long stride_a, const float *b, int ldb, long long stride_b,
                              const float *beta, float *c, int ldc, long long stride_c, int count) {
    return run_matmul(m, n, k, count);
}

int cublasGemmStridedBatchedEx(void *handle, int trans_a, int trans_b, int m, int n, int k, const void *alpha,
                               const void *a, int type_a, int lda, long long stride_a, const void *b, int type_b,
                               int ldb, long long stride_b, const void *beta, void *c, int type_c, int ldc,
                               long long stride_c, int count, int compute, int algorithm) {
    return run_matmul(m, n, k, count);
}

/* Source of the numbers: cublasLt.h, CUBLASLT_MATMUL_DESC_TRANSA and CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT. */
enum { TRANSPOSES_A = 3, BATCH_COUNT = 5 };

typedef struct {
    uint64_t rows, columns;
    int batch;
} Layout;

int cublasLtMatmulDescInit_internal(void *product, size_t size, int compute, int type) {
    memset(product, 0, size);
    return 0;
}

int cublasLtMatmulDescCreate(void **product, int compute, int type) {
    *product = calloc(1, 64);
    return 0;
}

int cublasLtMatmulDescDestroy(void *product) {
    free(product);
    return 0;
}

int cublasLtMatmulDescSetAttribute(void *product, int number, const void *value, size_t size) {
    if (number == TRANSPOSES_A) *(int *)product = *(int *)value;
    return 0;
}

int cublasLtMatrixLayoutCreate(void **layout, int type, uint64_t rows, uint64_t columns, int64_t lead) {
    Layout *made = malloc(sizeof *made);
    *made = (Layout){rows, columns, 1};
    *layout = made;
    return 0;
}

int cublasLtMatrixLayoutDestroy(void *layout) {
    free(layout);
    return 0;
}

int cublasLtMatrixLayoutSetAttribute(Layout *layout, int number, const void *value, size_t size) {
    if (number == BATCH_COUNT) layout->batch = *(int *)value;
    return 0;
}

int cublasLtMatmulPreferenceCreate(void **preference) {
    *preference = malloc(64);
    return 0;
}

int cublasLtMatmulPreferenceDestroy(void *preference) {
    free(preference);
    return 0;
}

int cublasLtMatmulPreferenceSetAttribute(void *preference, int number, const void *value, size_t size) { return 0; }

int cublasLtMatmulAlgoGetHeuristic(void *handle, void *product, void *a, void *b, void *c, void *d, void *preference,
                                   int wanted, char *results, int *count) {
    memset(results, 0, 96); /* one cublasLtMatmulHeuristicResult_t: an algorithm that needs no workspace */
    *count = 1;
    return 0;
}

int cublasLtMatmul(void *handle, void *product, const void *alpha, const void *a, Layout *of_a, const void *b,
                   Layout *of_b, const void *beta, const void *c, Layout *of_c, void *d, Layout *of_d) {
    uint64_t inner = *(int *)product ? of_a->rows : of_a->columns;
    return run_matmul((double)of_d->rows, (double)of_d->columns, (double)inner, of_d->batch);
}

size_t cublasLtGetVersion(void) { return 130101; }

/* -- cuDNN: a plan of its backend is found, and takes the same time for everything */

#define CUDNN_MINOR 24
size_t cudnnGetVersion(void) { return 90000 + 100 * CUDNN_MINOR; }

int cudnnGetProperty(int type, int *value) {
    *value = type == 0 ? 9 : type == 1 ? CUDNN_MINOR : 0; /* libraryPropertyType: major, minor, patch */
    return 0;
}

size_t cudnnGetCudartVersion(void) { return CUDART_VERSION; }
const char *cudnnGetErrorString(int status) { return status ? "CUDNN_STATUS_NOT_SUPPORTED" : "CUDNN_STATUS_SUCCESS"; }

void cudnnGetLastErrorString(char *text, size_t size) {
    if (size) *text = 0;
}

int cudnnCreate(void **handle) {
    if (with_context()) return 1;
    *handle = malloc(64);
    return 0;
}

int cudnnDestroy(void *handle) {
    free(handle);
    return 0;
}

int cudnnGetStream(void *handle, void **stream) {
    *stream = NULL;
    return 0;
}

int cudnnBackendCreateDescriptor(int kind, void **descriptor) {
    *descriptor = calloc(1, 256);
    return 0;
}

int cudnnBackendDestroyDescriptor(void *descriptor) {
    free(descriptor);
    return 0;
}

/* Source of the numbers: cudnn_graph.h, cudnnBackendAttributeType_t. */
enum { INT64 = 3, CHAR = 8, VOID_POINTER = 6, DESCRIPTOR = 15 };

int cudnnBackendGetAttribute(void *descriptor, int name, int type, int64_t wanted, int64_t *count, void *values) {
    bool has_value = type == INT64 || type == VOID_POINTER || type == DESCRIPTOR;
    if (count) *count = has_value; /* engines: one; notes about them: none */
    if (values && wanted > 0 && type != DESCRIPTOR) memset(values, 0, has_value ? 8 : type == CHAR ? 1 : 4);
    return 0;
}

int cudnnBackendExecute(void *handle, void *plan, void *pack) {
    NEED(with_context);
    enqueue(60000);
    return 0;
}

/* Batch normalization, without what it needs besides images in NCHW. Source: cudnn_ops.h */
int cudnnCreateTensorDescriptor(void **descriptor) {
    *descriptor = calloc(1, 64);
    return 0;
}

int cudnnDestroyTensorDescriptor(void *descriptor) {
    free(descriptor);
    return 0;
}

int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void *handle, int mode, int operations, void *x, void *z,
                                                             void *y, void *scale, void *activation, size_t *size) {
    *size = 0;
    return 0;
}

int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void *handle, int mode, int operations, void *activation,
                                                         void *x, size_t *size) {
    *size = 0;
    return 0;
}

int cudnnGetBatchNormalizationBackwardExWorkspaceSize(void *handle, int mode, int operations, void *x, void *y,
                                                      void *dy, void *dz, void *dx, void *scale, void *activation,
                                                      size_t *size) {
    *size = 0;
    return 0;
}

/* -- NCCL. Each process is alone: nothing is sent, and no one waits for another. Source of signatures: nccl.h */

typedef struct {
    int ranks, rank, place;
} Group;

int ncclGetVersion(int *version) {
    *version = 22807;
    return 0;
}

int ncclGetUniqueId(char *id) {
    memset(id, 1, 128);
    return 0;
}

static int make_group(Group **group, int ranks, int rank) {
    if (with_context()) return 1;
    lock();
    bool has_room = take((int64_t)BUFFERS, place_of_device(current));
    unlock();
    if (!has_room) return 1;
    *group = malloc(sizeof **group);
    **group = (Group){ranks, rank, place_of_device(current)};
    return 0;
}

typedef struct {
    char bytes[128];
} UniqueId;

int ncclCommInitRankConfig(Group **group, int ranks, UniqueId id, int rank, void *config) {
    return make_group(group, ranks, rank);
}

int ncclCommInitRank(Group **group, int ranks, UniqueId id, int rank) { return make_group(group, ranks, rank); }

int ncclCommInitRankScalable(Group **group, int ranks, int rank, int ids, UniqueId *id, void *config) {
    return make_group(group, ranks, rank);
}

int ncclCommSplit(Group *group, int colour, int key, Group **made, void *config) {
    *made = NULL;
    return colour < 0 ? 0 : make_group(made, group->ranks, key);
}

/* torch may destroy what it has aborted, and ask after it. */
int ncclCommDestroy(Group *group) {
    lock();
    if (group->ranks) take(-(int64_t)BUFFERS, group->place);
    group->ranks = 0;
    unlock();
    return 0;
}

int ncclCommAbort(Group *group) { return ncclCommDestroy(group); }

int ncclCommFinalize(Group *group) { return 0; }

int ncclCommCount(Group *group, int *count) {
    *count = group->ranks;
    return 0;
}

int ncclCommUserRank(Group *group, int *rank) {
    *rank = group->rank;
    return 0;
}

int ncclCommGetAsyncError(Group *group, int *error) {
    *error = 0;
    return 0;
}

const char *ncclGetLastError(Group *group) { return ""; }

int ncclCommRegister(Group *group, void *buffer, size_t size, void **handle) {
    *handle = buffer;
    return 0;
}

int ncclCommDeregister(Group *group, void *handle) { return 0; }

int ncclGroupStart(void) { return 0; }
int ncclGroupEnd(void) { return 0; }

/* By ncclDataType_t: how many bytes an element has. */
static int communicate(size_t count, int type) {
    static const int bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    NEED(with_context);
    enqueue(10000 + (double)count * bytes[type] * 1e9 / 300e9);
    return 0;
}

int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, Group *group, cudaStream_t stream) {
    return communicate(2 * count, type);
}

int ncclReduce(const void *from, void *to, size_t count, int type, int op, int root, Group *group, cudaStream_t stream) {
    return communicate(count, type);
}

int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, Group *group, cudaStream_t stream) {
    return communicate(count, type);
}

int ncclBcast(void *buffer, size_t count, int type, int root, Group *group, cudaStream_t stream) {
    return communicate(count, type);
}

int ncclAllGather(const void *from, void *to, size_t count, int type, Group *group, cudaStream_t stream) {
    return communicate(count * (size_t)group->ranks, type);
}

int ncclReduceScatter(const void *from, void *to, size_t count, int type, int op, Group *group, cudaStream_t stream) {
    return communicate(count * (size_t)group->ranks, type);
}

int ncclSend(const void *from, size_t count, int type, int peer, Group *group, cudaStream_t stream) {
    return communicate(count, type);
}

int ncclRecv(void *to, size_t count, int type, int peer, Group *group, cudaStream_t stream) {
    return communicate(count, type);
}

/* -- NVML. Source of structures and numbers: nvml.h */

enum { NVML_NO_DRIVER = 9, NVML_NOT_FOUND = 6, NVML_TOO_SMALL = 7, NVML_NOT_SUPPORTED = 3, NVML_INVALID = 2 };

/* A handle is a card's or a slice's, with the card's place. */
#define HANDLE(place, slice) ((void *)(uintptr_t)(1 + 2 * (place) + (slice)))
#define PLACE(handle) ((int)((uintptr_t)(handle) - 1) / 2)
#define IS_SLICE(handle) (((uintptr_t)(handle) - 1) % 2)

typedef struct {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
} ProcessInfo;

typedef struct {
    unsigned pid;
    unsigned long long time_us;
    unsigned sm, memory, encoder, decoder;
} ProcessSample;

static bool is_sliced(void) { return is_set("NULL_GPU_MIG", "on"); }

static int nvml_starts(void) { return !card() || is_set("NULL_GPU_NVML", "off") ? NVML_NO_DRIVER : 0; }

int nvmlInit_v2(void) { return nvml_starts(); }
int nvmlInitWithFlags(unsigned flags) { return nvml_starts(); }
int nvmlShutdown(void) { return 0; }

const char *nvmlErrorString(int error) {
    return error == NVML_NO_DRIVER ? "Driver Not Loaded" : error == NVML_NOT_SUPPORTED ? "Not Supported" : "NVML error";
}

int nvmlSystemGetDriverVersion(char *text, unsigned length) {
    snprintf(text, length, "580.159.04");
    return 0;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    *version = CUDA_VERSION;
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = (unsigned)number_of_cards();
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    *handle = HANDLE(index, 0);
    return index >= (unsigned)number_of_cards() ? NVML_INVALID : 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *place, void **handle) {
    const char *bus = strchr(place, ':');
    return bus ? nvmlDeviceGetHandleByIndex_v2((unsigned)strtoul(bus + 1, NULL, 16) - 1, handle) : NVML_NOT_FOUND;
}

int nvmlDeviceGetUUID(void *handle, char *text, unsigned length) {
    uuid_text(text, length, PLACE(handle), IS_SLICE(handle));
    return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    char text[80];
    for (int place = 0; place < number_of_cards(); place++)
        for (int slice = 0; slice <= is_sliced(); slice++) {
            uuid_text(text, sizeof text, place, slice);
            *handle = HANDLE(place, slice);
            if (!strcmp(text, uuid)) return 0;
        }
    return NVML_NOT_FOUND;
}

int nvmlDeviceGetName(void *handle, char *text, unsigned length) {
    snprintf(text, length, "%s%s", card()->title, IS_SLICE(handle) ? " MIG 7g" : "");
    return 0;
}

int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    *current = *pending = is_sliced();
    return 0;
}

int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count) {
    *count = is_sliced() ? 7 : 0;
    return 0;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *card, unsigned index, void **handle) {
    *handle = HANDLE(PLACE(card), 1);
    return is_sliced() && !index ? 0 : NVML_NOT_FOUND;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *slice, void **handle) {
    *handle = HANDLE(PLACE(slice), 0);
    return IS_SLICE(slice) ? 0 : NVML_INVALID;
}

typedef struct {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char place[32];
} PciInfo;

int nvmlDeviceGetPciInfo_v3(void *handle, PciInfo *found) {
    memset(found, 0, sizeof *found);
    found->bus = 1 + (unsigned)PLACE(handle);
    snprintf(found->place, sizeof found->place, "00000000:%02x:00.0", found->bus);
    snprintf(found->legacy, sizeof found->legacy, "0000:%02x:00.0", found->bus);
    return 0;
}

/* What the driver keeps to itself is a part of what is used in the older call, and a figure of its own in the newer. */

int nvmlDeviceGetMemoryInfo(void *handle, unsigned long long *total_free_used) {
    total_free_used[0] = card()->nvml_mib * MIB;
    total_free_used[2] = used_now(PLACE(handle)) + RESERVED;
    total_free_used[1] = total_free_used[0] - total_free_used[2];
    return 0;
}

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} MemoryInfo;

int nvmlDeviceGetMemoryInfo_v2(void *handle, MemoryInfo *found) {
    found->total = card()->nvml_mib * MIB;
    found->reserved = RESERVED;
    found->used = used_now(PLACE(handle));
    found->free = found->total - found->reserved - found->used;
    return 0;
}

static unsigned shown_pid(int pid) { return (unsigned)pid + (is_set("NULL_GPU_PIDS", "host") ? HOST_PIDS : 0); }

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, ProcessInfo *found) {
    unsigned room = *count, number = 0;
    lock();
    if (!is_set("NULL_GPU_PIDS", "none")) {
        for (int i = -1; i < MOST_PROCESSES; i++) {
            Process each = i < 0 ? (Process){NEIGHBOUR_PID, 0, neighbour_bytes(), 0} : processes[i];
            if (!each.pid || !each.bytes || each.place != PLACE(handle)) continue;
            if (found && number < room) found[number] = (ProcessInfo){shown_pid(each.pid), each.bytes, ~0u, ~0u};
            number++;
        }
    }
    unlock();
    *count = number;
    return number > room ? NVML_TOO_SMALL : 0;
}

int nvmlDeviceGetComputeRunningProcesses(void *handle, unsigned *count, ProcessInfo *found) {
    return nvmlDeviceGetComputeRunningProcesses_v3(handle, count, found);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *count, ProcessInfo *found) {
    *count = 0;
    return 0;
}

int nvmlDeviceGetProcessUtilization(void *handle, ProcessSample *found, unsigned *count, unsigned long long since) {
    static uint64_t seen_ns[MOST_PROCESSES], seen_us[MOST_CARDS];
    if (IS_SLICE(handle)) return NVML_NOT_SUPPORTED;
    if (!found) {
        *count = 8;
        return NVML_TOO_SMALL;
    }
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    uint64_t us = (uint64_t)time.tv_sec * 1000000ull + (uint64_t)time.tv_nsec / 1000;
    unsigned number = 0;
    lock();
    for (int i = 0; i < MOST_PROCESSES; i++) {
        uint64_t busy_ns = processes[i].busy_ns;
        if (processes[i].place != PLACE(handle)) continue;
        if (processes[i].pid && busy_ns > seen_ns[i] && number < *count) {
            double percent = (double)(busy_ns - seen_ns[i]) / 10.0 / (double)(us - seen_us[PLACE(handle)] + 1);
            found[number++] = (ProcessSample){.pid = shown_pid(processes[i].pid), .time_us = us, .sm = percent > 100 ? 100 : (unsigned)percent};
        }
        seen_ns[i] = busy_ns;
    }
    unlock();
    seen_us[PLACE(handle)] = us;
    *count = number;
    return number ? 0 : NVML_NOT_FOUND;
}

int nvmlDeviceGetClockInfo(void *handle, int kind, unsigned *mhz) {
    *mhz = 1755;
    return 0;
}

int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts) {
    *milliwatts = 412000;
    return 0;
}

int nvmlDeviceGetCurrentClocksEventReasons(void *handle, unsigned long long *reasons) {
    *reasons = 0;
    return 0;
}
