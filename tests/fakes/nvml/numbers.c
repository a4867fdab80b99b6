/* What a device measures: one number a call, memory, field values, utilization samples. */
#include "call.h"

#include <string.h>

int give(const Gpu *gpu, int number, unsigned *out) {
    if (!gpu->has[number]) return NOT_SUPPORTED;
    *out = (unsigned)gpu->number[number];
    return SUCCESS;
}

#define NUMBER_CALL(symbol, index) \
    EXPORT int symbol(Gpu *gpu, unsigned *out) { \
        ENTER(gpu); \
        return give(gpu, index, out); \
    }
NUMBER_CALL(nvmlDeviceGetMinorNumber, N_minor)
NUMBER_CALL(nvmlDeviceGetBrand, N_brand)
NUMBER_CALL(nvmlDeviceGetPowerUsage, N_power_mw)
NUMBER_CALL(nvmlDeviceGetPowerManagementLimit, N_power_limit_mw)
NUMBER_CALL(nvmlDeviceGetEnforcedPowerLimit, N_enforced_power_limit_mw)
NUMBER_CALL(nvmlDeviceGetPerformanceState, N_pstate)
NUMBER_CALL(nvmlDeviceGetFanSpeed, N_fan_percent)
NUMBER_CALL(nvmlDeviceGetPcieReplayCounter, N_pcie_replays)
NUMBER_CALL(nvmlDeviceGetCurrPcieLinkGeneration, N_pcie_generation)
NUMBER_CALL(nvmlDeviceGetCurrPcieLinkWidth, N_pcie_width)
NUMBER_CALL(nvmlDeviceGetGpuInstanceId, N_gi)
NUMBER_CALL(nvmlDeviceGetComputeInstanceId, N_ci)

EXPORT int nvmlDeviceGetTemperature(Gpu *gpu, unsigned sensor, unsigned *out) {
    ENTER(gpu);
    return sensor ? INVALID_ARGUMENT : give(gpu, N_temperature, out);
}

#ifndef FAKE_OLD_DRIVER
typedef struct { unsigned version, sensor; int temperature; } TemperatureV1;

EXPORT int nvmlDeviceGetTemperatureV(Gpu *gpu, TemperatureV1 *out) {
    ENTER(gpu);
    return give(gpu, N_temperature, (unsigned *)&out->temperature);
}
#endif

/* clock types: 0 graphics, 1 SM, 2 memory, 3 video */
EXPORT int nvmlDeviceGetClockInfo(Gpu *gpu, unsigned type, unsigned *out) {
    ENTER(gpu);
    static const int numbers[] = {N_sm_mhz, N_sm_mhz, N_memory_mhz, N_video_mhz};
    return type > 3 ? INVALID_ARGUMENT : give(gpu, numbers[type], out);
}

EXPORT int nvmlDeviceGetMaxClockInfo(Gpu *gpu, unsigned type, unsigned *out) {
    ENTER(gpu);
    return type > 2 ? NOT_SUPPORTED : give(gpu, type == 2 ? N_max_memory_mhz : N_max_sm_mhz, out);
}

EXPORT int nvmlDeviceGetPcieThroughput(Gpu *gpu, unsigned counter, unsigned *out) {
    ENTER(gpu);
    return give(gpu, counter ? N_pcie_rx_kb : N_pcie_tx_kb, out);
}

EXPORT int nvmlDeviceGetTotalEnergyConsumption(Gpu *gpu, unsigned long long *out) {
    ENTER(gpu);
    if (!gpu->has[N_energy_mj]) return NOT_SUPPORTED;
    *out = gpu->number[N_energy_mj];
    return SUCCESS;
}

static int give_clock_reasons(const Gpu *gpu, unsigned long long *out) {
    if (!gpu->has[N_clock_reasons]) return NOT_SUPPORTED;
    *out = gpu->number[N_clock_reasons];
    return SUCCESS;
}

EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(Gpu *gpu, unsigned long long *out) {
    ENTER(gpu);
    return give_clock_reasons(gpu, out);
}

#ifndef FAKE_OLD_DRIVER
EXPORT int nvmlDeviceGetCurrentClocksEventReasons(Gpu *gpu, unsigned long long *out) {
    ENTER(gpu);
    return give_clock_reasons(gpu, out);
}
#endif

EXPORT int nvmlDeviceGetUtilizationRates(Gpu *gpu, unsigned out[2]) {
    ENTER(gpu);
    int code = give(gpu, N_gpu_percent, &out[0]);
    return code ? code : give(gpu, N_memory_percent, &out[1]);
}

#define ENGINE_CALL(symbol, index) \
    EXPORT int symbol(Gpu *gpu, unsigned *out, unsigned *period) { \
        ENTER(gpu); \
        *period = 167000; \
        return give(gpu, index, out); \
    }
ENGINE_CALL(nvmlDeviceGetEncoderUtilization, N_encoder_percent)
ENGINE_CALL(nvmlDeviceGetDecoderUtilization, N_decoder_percent)

typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } MemoryV2;

EXPORT int nvmlDeviceGetMemoryInfo(Gpu *gpu, Memory *out) {
    ENTER(gpu);
    if (!gpu->has[N_memory_total]) return NOT_SUPPORTED;
    const unsigned long long *number = gpu->number;
    *out = (Memory){number[N_memory_total], number[N_memory_free], number[N_memory_used] + number[N_memory_reserved]};
    return SUCCESS;
}

#ifndef FAKE_OLD_DRIVER
EXPORT int nvmlDeviceGetMemoryInfo_v2(Gpu *gpu, MemoryV2 *out) {
    ENTER(gpu);
    if (out->version != 0x02000028) return VERSION_MISMATCH;
    if (!gpu->has[N_memory_total] || gpu->has[N_no_memory_v2]) return NOT_SUPPORTED;
    const unsigned long long *number = gpu->number;
    *out = (MemoryV2){out->version, number[N_memory_total], number[N_memory_reserved], number[N_memory_free], number[N_memory_used]};
    return SUCCESS;
}
#endif

EXPORT int nvmlDeviceGetBAR1MemoryInfo(Gpu *gpu, Memory *out) {
    ENTER(gpu);
    *out = (Memory){256ull << 20, 250ull << 20, 6ull << 20};
    return SUCCESS;
}

typedef struct {
    unsigned code, state;
    char info[128], product[128];
    unsigned enabled, expiry_year;
    uint16_t expiry[5];
    uint8_t expiry_status;
} LicensableFeature;

typedef struct { int supported; unsigned count; LicensableFeature features[3]; } LicensableFeatures;

EXPORT int nvmlDeviceGetGridLicensableFeatures_v4(Gpu *gpu, LicensableFeatures *out) {
    ENTER(gpu);
    if (!gpu->has[N_licence_supported]) return NOT_SUPPORTED;
    memset(out, 0, sizeof *out);
    out->supported = (int)gpu->number[N_licence_supported];
    out->count = out->supported ? 1 : 0;
    out->features[0].code = 1;
    out->features[0].state = (unsigned)gpu->number[N_licence_state];
    return SUCCESS;
}

#ifndef FAKE_OLD_DRIVER
typedef struct {
    unsigned version; uint8_t cluster[16]; unsigned status, clique, state, health;
    uint8_t summary; /* since version 3 */
} FabricInfo;

EXPORT int nvmlDeviceGetGpuFabricInfoV(Gpu *gpu, FabricInfo *out) {
    ENTER(gpu);
    bool is_v3 = out->version == 0x03000028 && !gpu->has[N_no_fabric_v3];
    if (!is_v3 && out->version != 0x02000024) return VERSION_MISMATCH;
    if (!gpu->has[N_fabric_state]) return NOT_SUPPORTED;
    const unsigned long long *number = gpu->number;
    out->status = 0;
    out->clique = (unsigned)number[N_fabric_clique];
    out->state = (unsigned)number[N_fabric_state];
    out->health = (unsigned)number[N_fabric_health];
    if (is_v3) out->summary = (uint8_t)number[N_fabric_summary];
    return SUCCESS;
}
#endif

EXPORT int nvmlDeviceGetP2PStatus(Gpu *gpu, Gpu *other, unsigned caps, unsigned *out) {
    (void)other;
    (void)caps;
    ENTER(gpu);
    return give(gpu, N_p2p, out);
}

/* ---- what only a dashboard needs ---- */

#define CONSTANT_CALL(symbol, value) \
    EXPORT int symbol(Gpu *gpu, unsigned *out) { \
        ENTER(gpu); \
        *out = (value); \
        return SUCCESS; \
    }
CONSTANT_CALL(nvmlDeviceGetPersistenceMode, 1)
CONSTANT_CALL(nvmlDeviceGetComputeMode, 0)
CONSTANT_CALL(nvmlDeviceGetDisplayMode, 0)
CONSTANT_CALL(nvmlDeviceGetDisplayActive, 0)

EXPORT int nvmlDeviceGetCudaComputeCapability(Gpu *gpu, int *major, int *minor) {
    ENTER(gpu);
    *major = gpu->has[N_gpm_supported] ? 9 : 8;
    *minor = 0;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetTotalEccErrors(Gpu *gpu, unsigned type, unsigned counter, unsigned long long *out) {
    (void)type;
    (void)counter;
    ENTER(gpu);
    *out = 0;
    return SUCCESS;
}

/* ---- field values ---- */

typedef struct {
    unsigned id, scope;
    long long timestamp, latency;
    unsigned type;
    int code;
    union { double d; unsigned u; unsigned long long ull; int i; } value;
} FieldValue;

static void fill_field(const Gpu *gpu, FieldValue *out) {
    out->code = NOT_SUPPORTED;
    for (unsigned i = 0; i < gpu->field_count; i++) {
        const Field *field = &gpu->fields[i];
        if (field->id != out->id || field->scope != out->scope) continue;
        out->code = SUCCESS;
        out->type = field->type;
        out->value.ull = field->value.ull;
        return;
    }
}

EXPORT int nvmlDeviceGetFieldValues(Gpu *gpu, int count, FieldValue *values) {
    ENTER(gpu);
    if (count < 1) return INVALID_ARGUMENT;
    long long now = (long long)now_microseconds();
    for (int i = 0; i < count; i++) {
        values[i].timestamp = now;
        fill_field(gpu, &values[i]);
    }
    return SUCCESS;
}

/* ---- samples of the device ---- */

typedef struct { unsigned long long at; union { unsigned u; unsigned long long ull; } value; } Sample;

enum { UTILIZATION_SAMPLES = 1, SAMPLE_CAPACITY = 120 };

static unsigned copy_newer(const Gpu *gpu, unsigned long long seen, Sample *out, unsigned capacity) {
    unsigned k = 0;
    if (!gpu->busy.count && capacity) {
        out[k].value.u = (unsigned)gpu->number[N_gpu_percent];
        out[k++].at = now_microseconds();
    }
    for (unsigned i = 0; i < gpu->busy.count && k < capacity; i++) {
        if (gpu->busy.items[i].at <= seen) continue;
        out[k].value.u = gpu->busy.items[i].percent;
        out[k++].at = gpu->busy.items[i].at;
    }
    return k;
}

EXPORT int nvmlDeviceGetSamples(Gpu *gpu, unsigned type, unsigned long long seen, unsigned *value_type, unsigned *count, Sample *out) {
    ENTER(gpu);
    if (type != UTILIZATION_SAMPLES || !gpu->has[N_gpu_percent]) return NOT_SUPPORTED;
    *value_type = 1;
    if (!out) {
        *count = SAMPLE_CAPACITY;
        return SUCCESS;
    }
    *count = copy_newer(gpu, seen, out, *count);
    return *count ? SUCCESS : NOT_FOUND;
}
