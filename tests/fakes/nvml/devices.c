/* Devices and MIG instances: handles, names, identity. */
#include "call.h"

#include <stdio.h>
#include <string.h>

EXPORT int nvmlDeviceGetCount_v2(unsigned *count) {
    ENTER(NULL);
    *count = scenario.gpu_count;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, Gpu **gpu) {
    ENTER(NULL);
    if (index >= scenario.gpu_count) return INVALID_ARGUMENT;
    *gpu = &scenario.gpus[index];
    return gpu_state(*gpu, __func__);
}

static Gpu *find_by_text(int text, const char *wanted) {
    for (unsigned i = 0; i < scenario.gpu_count; i++) {
        if (strcmp(scenario.gpus[i].text[text], wanted) == 0) return &scenario.gpus[i];
        for (unsigned k = 0; k < MOST_INSTANCES; k++)
            if (scenario.instances[i][k].exists && strcmp(scenario.instances[i][k].text[text], wanted) == 0)
                return &scenario.instances[i][k];
    }
    return NULL;
}

EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, Gpu **gpu) {
    ENTER(NULL);
    *gpu = find_by_text(T_uuid, uuid);
    return *gpu ? gpu_state(*gpu, __func__) : NOT_FOUND;
}

EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, Gpu **gpu) {
    ENTER(NULL);
    *gpu = find_by_text(T_bus_id, bus_id);
    return *gpu ? gpu_state(*gpu, __func__) : NOT_FOUND;
}

EXPORT int nvmlDeviceGetIndex(Gpu *gpu, unsigned *index) {
    ENTER(gpu);
    if (gpu->parent) return NOT_SUPPORTED;
    *index = (unsigned)(gpu - scenario.gpus);
    return SUCCESS;
}

#define TEXT_CALL(symbol, text_index) \
    EXPORT int symbol(Gpu *gpu, char *out, unsigned capacity) { \
        ENTER(gpu); \
        return give_text(out, capacity, gpu->text[text_index]); \
    }
TEXT_CALL(nvmlDeviceGetName, T_model)
TEXT_CALL(nvmlDeviceGetUUID, T_uuid)
TEXT_CALL(nvmlDeviceGetSerial, T_serial)
TEXT_CALL(nvmlDeviceGetVbiosVersion, T_vbios)
TEXT_CALL(nvmlDeviceGetInforomImageVersion, T_inforom_image)

EXPORT int nvmlDeviceGetInforomVersion(Gpu *gpu, unsigned object, char *out, unsigned capacity) {
    ENTER(gpu);
    if (object > 2) return NOT_SUPPORTED;
    return give_text(out, capacity, gpu->text[T_inforom_oem + object]);
}

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_sub_system_id;
    char bus_id[32];
} PciInfo;

EXPORT int nvmlDeviceGetPciInfo_v3(Gpu *gpu, PciInfo *info) {
    ENTER(gpu);
    if (!*gpu->text[T_bus_id]) return NOT_SUPPORTED;
    memset(info, 0, sizeof *info);
    snprintf(info->bus_id, sizeof info->bus_id, "%.31s", gpu->text[T_bus_id]);
    snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "%.15s", gpu->text[T_bus_id] + 4);
    sscanf(info->bus_id, "%x:%x:%x", &info->domain, &info->bus, &info->device);
    return SUCCESS;
}

/* ---- MIG ---- */

EXPORT int nvmlDeviceGetMigMode(Gpu *gpu, unsigned *now, unsigned *pending) {
    ENTER(gpu);
    if (!gpu->has[N_mig_capable]) return NOT_SUPPORTED;
    *now = *pending = (unsigned)gpu->number[N_mig_mode];
    return SUCCESS;
}

EXPORT int nvmlDeviceGetMaxMigDeviceCount(Gpu *gpu, unsigned *count) {
    ENTER(gpu);
    *count = gpu->has[N_mig_capable] ? 7 : 0;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(Gpu *gpu, unsigned index, Gpu **instance) {
    ENTER(gpu);
    if (gpu->parent || index >= 7) return INVALID_ARGUMENT;
    *instance = &scenario.instances[gpu - scenario.gpus][index];
    return (*instance)->exists ? SUCCESS : NOT_FOUND;
}

EXPORT int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Gpu *gpu, Gpu **parent) {
    ENTER(gpu);
    if (!gpu->parent) return INVALID_ARGUMENT;
    *parent = gpu->parent;
    return SUCCESS;
}

EXPORT int nvmlDeviceIsMigDeviceHandle(Gpu *gpu, unsigned *is_instance) {
    ENTER(gpu);
    *is_instance = gpu->parent != NULL;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetGpuInstanceById(Gpu *gpu, unsigned id, Gpu **instance) {
    ENTER(gpu);
    for (Gpu *each = scenario.instances[gpu - scenario.gpus], *end = each + MOST_INSTANCES; each < end; each++) {
        *instance = each;
        if (each->exists && each->number[N_gi] == id) return SUCCESS;
    }
    return NOT_FOUND;
}

typedef struct { Gpu *device; unsigned id, profile, start, size; } GpuInstanceInfo;

EXPORT int nvmlGpuInstanceGetInfo(Gpu *instance, GpuInstanceInfo *out) {
    ENTER(instance);
    if (!instance->has[N_placement]) return NO_PERMISSION;
    *out = (GpuInstanceInfo){instance->parent, (unsigned)instance->number[N_gi], 0, (unsigned)instance->number[N_placement], 1};
    return SUCCESS;
}

typedef struct {
    unsigned multiprocessors, copy_engines, decoders, encoders, jpegs, ofas, gpu_slices, compute_slices;
    unsigned long long memory_mb;
} Attributes;

EXPORT int nvmlDeviceGetAttributes_v2(Gpu *gpu, Attributes *out) {
    ENTER(gpu);
    if (!gpu->parent) return NOT_SUPPORTED;
    memset(out, 0, sizeof *out);
    out->gpu_slices = (unsigned)gpu->number[N_slices];
    out->compute_slices = gpu->has[N_ci_slices] ? (unsigned)gpu->number[N_ci_slices] : out->gpu_slices;
    out->memory_mb = gpu->number[N_memory_total] >> 20;
    out->decoders = gpu->has[N_video_engines] ? (unsigned)gpu->number[N_video_engines] : 1;
    return SUCCESS;
}
