/* Processes on a device and what each of them uses. */
#include "call.h"

#include <stddef.h>

typedef struct { unsigned pid; unsigned long long memory; unsigned gi, ci; } ProcessInfo;

static int give_processes(Gpu *gpu, int list, unsigned *count, ProcessInfo *out) {
    unsigned capacity = *count, found = gpu->processes[list].count;
    if (gpu->growing) {
        gpu->growing--;
        *count = capacity + 1;
        return INSUFFICIENT_SIZE;
    }
    *count = found;
    if (found > capacity) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < found; i++) {
        const Process *process = &gpu->processes[list].items[i];
        out[i] = (ProcessInfo){process->pid, process->memory, ~0u, ~0u};
        if (gpu->parent) {
            out[i].gi = (unsigned)gpu->number[N_gi];
            out[i].ci = (unsigned)gpu->number[N_ci];
        }
    }
    return SUCCESS;
}

#define PROCESS_CALL(symbol, list) \
    EXPORT int symbol(Gpu *gpu, unsigned *count, ProcessInfo *out) { \
        ENTER(gpu); \
        return give_processes(gpu, list, count, out); \
    }
PROCESS_CALL(nvmlDeviceGetComputeRunningProcesses_v2, COMPUTE)
PROCESS_CALL(nvmlDeviceGetGraphicsRunningProcesses_v2, GRAPHICS)
PROCESS_CALL(nvmlDeviceGetMPSComputeRunningProcesses_v2, MPS)
#ifndef FAKE_OLD_DRIVER
PROCESS_CALL(nvmlDeviceGetComputeRunningProcesses_v3, COMPUTE)
PROCESS_CALL(nvmlDeviceGetGraphicsRunningProcesses_v3, GRAPHICS)
PROCESS_CALL(nvmlDeviceGetMPSComputeRunningProcesses_v3, MPS)
#endif

/* A sample without a time is as recent as the call that requests it. */
static unsigned long long time_of(const Usage *usage) { return usage->at ? usage->at : now_microseconds(); }

static unsigned count_newer(const Gpu *gpu, unsigned long long seen) {
    unsigned count = 0;
    for (unsigned i = 0; i < gpu->usages.count; i++)
        if (time_of(&gpu->usages.items[i]) > seen) count++;
    return count;
}

static int check_samples(const Gpu *gpu, unsigned long long seen, unsigned *count, bool has_buffer) {
    if (gpu->parent || gpu->number[N_mig_mode]) return NOT_SUPPORTED;
    unsigned capacity = *count, newer = count_newer(gpu, seen);
    if (!newer) {
        *count = 0;
        return NOT_FOUND;
    }
    *count = newer;
    return has_buffer && capacity >= newer ? SUCCESS : INSUFFICIENT_SIZE;
}

typedef struct { unsigned pid; unsigned long long at; unsigned sm, memory, encoder, decoder; } LegacySample;

EXPORT int nvmlDeviceGetProcessUtilization(Gpu *gpu, LegacySample *out, unsigned *count, unsigned long long seen) {
    ENTER(gpu);
    int code = check_samples(gpu, seen, count, out != NULL);
    if (code) return code;
    unsigned k = 0;
    for (unsigned i = 0; i < gpu->usages.count && k < *count; i++) {
        const Usage *u = &gpu->usages.items[i];
        if (time_of(u) > seen) out[k++] = (LegacySample){u->pid, time_of(u), u->sm, u->memory, u->encoder, u->decoder};
    }
    return SUCCESS;
}

#ifndef FAKE_OLD_DRIVER
typedef struct { unsigned long long at; unsigned pid, sm, memory, encoder, decoder, jpeg, ofa; } ModernSample;
typedef struct { unsigned version, count; unsigned long long seen; ModernSample *samples; } ModernSamples;

EXPORT int nvmlDeviceGetProcessesUtilizationInfo(Gpu *gpu, ModernSamples *info) {
    ENTER(gpu);
    if (info->version != 0x01000018) return VERSION_MISMATCH;
    int code = check_samples(gpu, info->seen, &info->count, info->samples != NULL);
    if (code) return code;
    unsigned k = 0;
    for (unsigned i = 0; i < gpu->usages.count && k < info->count; i++) {
        const Usage *u = &gpu->usages.items[i];
        if (time_of(u) > info->seen)
            info->samples[k++] = (ModernSample){time_of(u), u->pid, u->sm, u->memory, u->encoder, u->decoder, 0, 0};
    }
    return SUCCESS;
}
#endif
