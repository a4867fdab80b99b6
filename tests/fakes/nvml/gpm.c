/* GPM: metrics between two samples of one device or GPU instance. */
#include "call.h"

#include <stdlib.h>

typedef struct { const Gpu *gpu; unsigned long long taken; } GpmSample;
typedef struct { unsigned id; int code; double value; const char *names[3]; } GpmMetric;
typedef struct { unsigned version, count; GpmSample *first, *second; GpmMetric metrics[]; } GpmMetrics;
typedef struct { unsigned version, is_supported; } GpmSupport;

EXPORT int nvmlGpmQueryDeviceSupport(Gpu *gpu, GpmSupport *support) {
    ENTER(gpu);
    support->is_supported = (unsigned)gpu->number[N_gpm_supported];
    return SUCCESS;
}

EXPORT int nvmlGpmSampleAlloc(GpmSample **sample) {
    ENTER(NULL);
    *sample = calloc(1, sizeof **sample);
    open_handles.samples++;
    return SUCCESS;
}

EXPORT int nvmlGpmSampleFree(GpmSample *sample) {
    pthread_mutex_lock(&scenario_lock);
    free(sample);
    open_handles.samples--;
    pthread_mutex_unlock(&scenario_lock);
    return SUCCESS;
}

static int take_sample(const Gpu *gpu, GpmSample *sample) {
    static unsigned long long taken;
    if (!gpu->gpm_count) return NOT_SUPPORTED;
    *sample = (GpmSample){gpu, ++taken};
    return SUCCESS;
}

EXPORT int nvmlGpmSampleGet(Gpu *gpu, GpmSample *sample) {
    ENTER(gpu);
    return take_sample(gpu, sample);
}

EXPORT int nvmlGpmMigSampleGet(Gpu *gpu, unsigned gi, GpmSample *sample) {
    ENTER(gpu);
    for (unsigned k = 0; k < MOST_INSTANCES; k++) {
        const Gpu *instance = &scenario.instances[gpu - scenario.gpus][k];
        if (instance->exists && instance->number[N_gi] == gi) return take_sample(instance, sample);
    }
    return NOT_FOUND;
}

static void fill_metric(const Gpu *gpu, GpmMetric *metric) {
    metric->code = NOT_SUPPORTED;
    for (unsigned i = 0; i < gpu->gpm_count; i++) {
        if (gpu->gpm[i].id != metric->id) continue;
        metric->code = SUCCESS;
        metric->value = gpu->gpm[i].value;
    }
}

EXPORT int nvmlGpmMetricsGet(GpmMetrics *query) {
    const Gpu *gpu = query->second ? query->second->gpu : NULL;
    ENTER(gpu);
    if (query->version != 1 || !query->first || !gpu) return INVALID_ARGUMENT;
    if (query->first->gpu != gpu || query->first->taken >= query->second->taken) return INVALID_ARGUMENT;
    for (unsigned i = 0; i < query->count; i++) {
        if (gpu->has[N_no_gpm_totals] && query->metrics[i].id >= 248) return INVALID_ARGUMENT;
        fill_metric(gpu, &query->metrics[i]);
    }
    return SUCCESS;
}
